/* SPDX-License-Identifier: Apache-2.0
 * Shapes of linear layers' kernels: which are legal, and which were measured.
 */
#ifndef WINATTN_LINEAR_SHAPES_H
#define WINATTN_LINEAR_SHAPES_H

#include "models/linear_plan.h"
#include "plan/tuning.h"

/* Registers of a work-item where two large work-groups are to find room. */
#define WA_LINEAR_ITEM_REGISTERS 128u

/* Where a layout's shape is from, but for rows. */
#define WA_LINEAR_BY_MODEL "from a model of the device"
#define WA_LINEAR_GIVEN "given by the caller"

/* Is it what the switch of that name may be? */
#define WA_LINEAR_IN(number, name)                                            \
    ((number) >= LEAST_##name && (number) <= MOST_##name)

/* NULL, or why the tier's kernel does not have such a shape. */
const char *wa_linear_check_shape(const wa_linear_problem *problem,
                                  const wa_device *device, winattn_tier tier,
                                  const wa_linear_shape *shape);
const char *wa_linear_check_cpu(const wa_linear_shape *shape);
const char *wa_linear_check_local(const wa_device *device,
                                  const wa_linear_shape *shape);
/* Of a device that has a matrix unit. (linear_matrix.c) */
const char *wa_linear_check_matrix(const wa_linear_problem *problem,
                                   const wa_device *device,
                                   const wa_linear_shape *shape);

/* What a work-group of tier local has in local memory. */
uint64_t wa_linear_local_bytes(const wa_linear_shape *shape);

/* What tuning rows call a kernel and a layer. id: WA_LINEAR_MANY or _FEW */
wa_tuned_kernel wa_linear_tuned_kernel(winattn_tier tier);
wa_linear_key wa_linear_key_of(const wa_linear_problem *problem,
                               wa_linear_kernel_id id);

/* The best legal shape that a row of the tuning table has for the kernel:
 * false if there is none, and then *shape stays. Says in the layout where it
 * is from, and why a better one is not taken. */
bool wa_linear_measured(const wa_linear_problem *problem,
                        const wa_device *device, winattn_tier tier,
                        wa_linear_kernel_id id, wa_linear_layout *layout,
                        wa_linear_shape *shape);

#endif
