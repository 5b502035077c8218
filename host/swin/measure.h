/* SPDX-License-Identifier: Apache-2.0
 * winattn-swin --bench */
#ifndef SWIN_MEASURE_H
#define SWIN_MEASURE_H

#include "swin/runner.h"

/* Prints what batches and single pictures take, memory, and what the same
 * model takes unfused. */
bool measure(const options *o, const swin_device *device,
             const winattn_swin_weights *weights,
             const winattn_swin_config *config);

#endif
