/* SPDX-License-Identifier: Apache-2.0
 * The kernels of cl/plain/, which no search chooses: others are compared with
 * them (session/family_check.h). */
#include "plan/defines.h"
#include "plan/family.h"

/* Rows, or keys, of a work-group: one for each work-item. */
#define BLOCK 64u

static void set_step(const wa_problem *problem, const wa_device *device,
                     const char *kernel, wa_step *step)
{
    wa_begin_step(problem, device, kernel, BLOCK, BLOCK, BLOCK, 0, step);
    wa_step_half_vectors(step, device, problem->dtype);
}

static const char *take_forward(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *none, wa_plan *plan)
{
    (void)none;
    /* gradients are compared given its o and lse */
    set_step(problem, device,
             problem->passes[WA_BACKWARD] ? "plain:forward_plain"
                                          : "forward_plain",
             &plan->step[WA_STEP_FORWARD]);
    plan->schedule.work_tiles_per_group = 1;
    return NULL;
}

static const char *take_backward(const wa_problem *problem,
                                 const wa_device *device,
                                 const wa_tuned_shape *none, wa_plan *plan)
{
    wa_schedule *s = &plan->schedule;
    (void)none;
    set_step(problem, device, "plain:backward_rows_plain",
             &plan->step[WA_STEP_ROWS]);
    set_step(problem, device, "plain:backward_keys_plain",
             &plan->step[WA_STEP_KEYS]);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, BLOCK);
    s->key_blocks = wa_ceil_div(problem->keys, BLOCK);
    s->busy_groups = s->windows_per_group = 1;
    return NULL;
}

static const wa_family plain[WA_PASSES] = {
    [WA_FORWARD] = {.engine = WA_ENGINE_LOCAL,
                    .pass = WA_FORWARD,
                    .tuned = WA_TUNED_KERNELS,
                    .take = take_forward},
    [WA_BACKWARD] = {.engine = WA_ENGINE_LOCAL,
                     .pass = WA_BACKWARD,
                     .tuned = WA_TUNED_KERNELS,
                     .take = take_backward},
};

winattn_status wa_plan_plainly(const wa_problem *problem,
                               const wa_device *device, wa_pass pass,
                               wa_plan *plan)
{
    wa_plan_begin(pass, plan);
    (void)wa_take_shape(&plain[pass], problem, device, NULL, plan);
    return wa_plan_finish(problem, device, plan);
}
