/* SPDX-License-Identifier: Apache-2.0
 * Shapes that were measured to be better than what a model of the device
 * chooses. */
#ifndef WINATTN_TUNING_H
#define WINATTN_TUNING_H

#include "plan_backward.h"

/* NULL where nothing was measured. The shape may still not fit the device. */
const wa_local_shape *wa_tuned_local_shape(const wa_problem *problem,
                                           const wa_device *device);

/* The same of the tier matrix. */
const wa_matrix_shape *wa_tuned_matrix_shape(const wa_problem *problem,
                                             const wa_device *device);

/* A backward pass in one kernel, and how many of its work-groups a compute
 * unit was seen to hold. NULL as above. */
typedef struct wa_tuned_backward {
    wa_gradient_shape whole;
    uint32_t resident;
} wa_tuned_backward;
const wa_tuned_backward *wa_tuned_backward_of(const wa_problem *problem,
                                              const wa_device *device);

#endif
