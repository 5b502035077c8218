/* SPDX-License-Identifier: Apache-2.0
 * Shapes that were measured to be better than what a model of the device
 * chooses. */
#ifndef WINATTN_TUNING_H
#define WINATTN_TUNING_H

#include "plan.h"

/* NULL where nothing was measured. The shape may still not fit the device. */
const wa_local_shape *wa_tuned_local_shape(const wa_problem *problem,
                                           const wa_device *device);

#endif
