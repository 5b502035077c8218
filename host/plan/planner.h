/* SPDX-License-Identifier: Apache-2.0
 * What the tiers' planners offer, for each pass: the best shapes, a demanded
 * shape, and all shapes that the best one is chosen from. */
#ifndef WINATTN_PLANNER_H
#define WINATTN_PLANNER_H

#include "plan/plan.h"

/* Fills in steps, what the schedule starts from, and the reason; or leaves in
 * plan->refusals why not. */
typedef bool wa_planner(const wa_problem *problem, const wa_device *device,
                        wa_plan *plan);

wa_planner wa_plan_cpu_forward, wa_plan_cpu_backward; /* cpu.c */
wa_planner wa_plan_local_forward;                     /* local_forward.c */
wa_planner wa_plan_local_backward;                    /* local_backward.c */
wa_planner wa_plan_matrix_forward;                    /* matrix_forward.c */
/* A part of wa_plan_matrix_forward: false, with plan->wgmma_refusal where the
 * device has wgmma, if fragments are to compute the problem.
 * (wgmma_sliding.c) */
wa_planner wa_plan_wgmma_sliding;
/* The same of windows. (wgmma_window.c) */
wa_planner wa_plan_wgmma_window;
wa_planner wa_plan_matrix_backward; /* matrix_backward.c */
/* The same part of that. (wgmma_sliding.c) */
wa_planner wa_plan_wgmma_sliding_backward;
/* And of windows. (wgmma_window_backward.c) */
wa_planner wa_plan_wgmma_window_backward;

/* ---- Demanded shapes: false, with a refusal, if the kernel or the device
 * does not allow them. ---- */

bool wa_plan_local_shape(const wa_problem *problem, const wa_device *device,
                         const wa_local_shape *shape, wa_plan *plan);
bool wa_plan_matrix_shape(const wa_problem *problem, const wa_device *device,
                          const wa_matrix_shape *shape, wa_plan *plan);
/* Without `rows` one kernel, of shape `keys`, makes everything. */
bool wa_plan_gradient_shapes(const wa_problem *problem,
                             const wa_device *device,
                             const wa_gradient_shape *rows,
                             const wa_gradient_shape *keys, wa_plan *plan);
bool wa_plan_matrix_gradient_shape(const wa_problem *problem,
                                   const wa_device *device,
                                   const wa_matrix_gradient_shape *shape,
                                   wa_plan *plan);

/* ---- All shapes: calls visit for every one that the planner chooses from,
 * with what its model expects: cycles for each logit (local), or a relative
 * time (matrix). They return what they looked at, as in wa_plan. ---- */

typedef void wa_local_visitor(void *data, const wa_local_shape *shape,
                              double cost);
uint64_t wa_visit_local_shapes(const wa_problem *problem,
                               const wa_device *device,
                               wa_local_visitor *visit, void *data);
/* The device must have a unit that computes the problem. */
typedef void wa_matrix_visitor(void *data, const wa_matrix_shape *shape,
                               double cost);
uint64_t wa_visit_matrix_shapes(const wa_problem *problem,
                                const wa_device *device,
                                wa_matrix_visitor *visit, void *data);
/* Only of what makes everything in one kernel. */
typedef void wa_gradient_visitor(void *data, const wa_gradient_shape *shape,
                                 double cost);
uint64_t wa_visit_gradient_shapes(const wa_problem *problem,
                                  const wa_device *device,
                                  wa_gradient_visitor *visit, void *data);
typedef void wa_matrix_gradient_visitor(void *data,
                                        const wa_matrix_gradient_shape *shape,
                                        double cost);
uint64_t wa_visit_matrix_gradient_shapes(const wa_problem *problem,
                                         const wa_device *device,
                                         wa_matrix_gradient_visitor *visit,
                                         void *data);

/* Of that, what two kernels do. NULL if they and the device allow the shape,
 * else why not; then it can be taken. Visits shapes of which one kernel's is
 * the cheapest, all of them in that way; true if any were there, within
 * registers or not. Adds to *visited. (matrix_backward_split.c) */
const char *wa_matrix_pair_refusal(const wa_problem *problem,
                                   const wa_device *device,
                                   const wa_matrix_gradient_shape *shape);
void wa_take_matrix_pair(const wa_problem *problem, const wa_device *device,
                         const wa_matrix_gradient_shape *shape, wa_plan *plan);
bool wa_visit_matrix_pairs(const wa_problem *problem, const wa_device *device,
                           wa_matrix_gradient_visitor *visit, void *data,
                           uint64_t *visited);

/* ---- Helpers of the planners ---- */

/* Keeps the first reason why a measured shape of a tier was not taken. */
void wa_note_untuned(char untuned[WA_REASON_SIZE], winattn_tier tier,
                     const char *why);
/* Blocks of keys that a work tile loops over at most. */
double wa_plan_key_blocks(const wa_problem *problem, uint32_t block_rows,
                          uint32_t block_keys);
static inline uint32_t wa_ceil_div(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}
/* The largest size up to `most` of blocks that share `all` evenly, that is
 * ceil(all / n) for some n; 0 for 0. All such sizes, from the largest on:
 * for (s = wa_even_size(all, all); s > 0; s = wa_even_size(all, s - 1)) */
uint32_t wa_even_size(uint32_t all, uint32_t most);

#endif
