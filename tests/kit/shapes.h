/* SPDX-License-Identifier: Apache-2.0
 * For those who measure shapes: plans of one, and all that the best one is
 * chosen from. */
#ifndef KIT_SHAPES_H
#define KIT_SHAPES_H

#include "plan/family.h"

/* Plans in a measured shape of the kernel; false, with a refusal, if kernel or
 * device do not allow it. */
bool plan_shape(wa_tuned_kernel kernel, const wa_problem *problem,
                const wa_device *device, const wa_tuned_shape *shape,
                wa_plan *plan);

/* Visits all that are chosen from where there is no measured one; of two
 * kernels each shape with the best of the other. Returns what was looked at,
 * as in wa_plan. The device must have a unit that computes the problem. */
uint64_t visit_shapes(wa_tuned_kernel kernel, const wa_problem *problem,
                      const wa_device *device, wa_shape_visitor *visit,
                      void *data);

#endif
