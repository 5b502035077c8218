/* SPDX-License-Identifier: Apache-2.0
 * The loop that plans again where a kernel does not build. */
#include "session/build.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "plan/family.h"
#include "session/warmup.h"

void wa_kernels_release(wa_kernels *kernels)
{
    for (int i = 0; i < WA_STEPS; i++)
        if (kernels->step[i])
            clReleaseKernel(kernels->step[i]);
    memset(kernels, 0, sizeof *kernels);
}

/* ---- Kernels of a plan ---- */

winattn_status wa_build_steps(wa_session *session, const wa_problem *problem,
                              const wa_plan *plan, wa_kernels *kernels,
                              uint32_t *most)
{
    for (int i = 0; i < WA_STEPS; i++) {
        const wa_step *step = &plan->step[i];
        cl_kernel *kernel = &kernels->step[i];
        const bool is_main = i == (int)wa_main_step(plan->pass);
        if (!step->kernel)
            continue;
        WA_TRY(wa_session_kernel(session, step->kernel, step->defines,
                                 problem->build_options, kernel));
        WA_TRY(wa_session_check_kernel(session, *kernel, step->work_group,
                                       is_main ? most : NULL));
    }
    return WINATTN_SUCCESS;
}

/* Lets the binaries of new programs be kept, once they are complete. A warm-up
 * that fails for a cause that may pass leaves them to the next plan. */
static winattn_status keep_binaries(const wa_session *session,
                                    const wa_problem *problem,
                                    const wa_plan *plan,
                                    const wa_kernels *kernels,
                                    const wa_table_buffers *table)
{
    wa_program_set *set = wa_session_programs(session);
    bool keeps = false;
    for (int i = 0; i < WA_STEPS && !keeps; i++)
        if (kernels->step[i])
            WA_TRY(wa_program_set_keeps(set, kernels->step[i], &keeps));
    if (!keeps || wa_may_pass(wa_warm_up(wa_session_context(session),
                                         wa_session_device_id(session),
                                         problem, plan, kernels, table)))
        return WINATTN_SUCCESS;
    for (int i = 0; i < WA_STEPS; i++)
        if (kernels->step[i])
            wa_program_set_keep(set, kernels->step[i]);
    return WINATTN_SUCCESS;
}

/* Bytes of a work-item: a few values that are kept outside the loops cost
 * little (49 x 49 x 32 on an H200: 16 waves, for which ptxas spills 8 bytes,
 * were faster than 8 and 12); so many are tiles, and the next tier is faster.
 */
#define FEW_SPILLED 128
#define TILES_SPILLED 1024

/* A kernel for a matrix unit must be right about the unit, which is tested
 * before it is built as that is soon done, */
static winattn_status check_matrix_unit(wa_session *session,
                                        const wa_problem *problem,
                                        winattn_tier tier)
{
    return tier == WINATTN_TIER_MATRIX
               ? wa_session_check_matrix_unit(session, problem->dtype,
                                              problem->build_options)
               : WINATTN_SUCCESS;
}

/* and keep its tiles in registers. *most becomes fewer work-items, which can
 * have more registers, where the plan may be made again. */
static winattn_status check_spills(const wa_session *session,
                                   const wa_plan *plan,
                                   const wa_kernels *kernels, bool again,
                                   uint32_t *most)
{
    const wa_step_id main = wa_main_step(plan->pass);
    if (plan->tier != WINATTN_TIER_MATRIX)
        return WINATTN_SUCCESS;
    cl_ulong spilled;
    WA_TRY(wa_session_find_spills(session, kernels->step[main], &spilled));
    const bool retry = spilled > FEW_SPILLED && again;
    if (retry)
        *most = plan->step[main].work_group / 2;
    if (retry || spilled > TILES_SPILLED)
        return WA_BAD_DEVICE("the kernel spills %llu bytes of registers",
                             (unsigned long long)spilled);
    return WINATTN_SUCCESS;
}

/* again: there can be another plan, with at most *most work-items. */
static winattn_status build(wa_session *session, const wa_problem *problem,
                            const wa_plan *plan, const wa_table_buffers *table,
                            bool again, wa_kernels *kernels, uint32_t *most)
{
    WA_TRY(check_matrix_unit(session, problem, plan->tier));
    WA_TRY(wa_build_steps(session, problem, plan, kernels, most));
    if (plan->family->engine > WA_ENGINE_MATRIX)
        WA_TRY(
            wa_session_check_family(session, problem, plan, kernels, table));
    WA_TRY(keep_binaries(session, problem, plan, kernels, table));
    return check_spills(session, plan, kernels, again, most);
}

/* ---- Attempts ---- */

/* What attempts to build a pass taught. The first failure is the best tier's,
 * so it is what the caller is told where no tier works. */
typedef struct attempts {
    wa_exclusions exclusions;
    winattn_status first; /* failure; success: none yet */
    char reason[WA_REASON_SIZE];
    bool repeats; /* the last attempt, which ran out of resources */
} attempts;

/* May there be another plan of the tier, with fewer work-items? */
static bool may_retry(const attempts *tried, const wa_plan *plan)
{
    return plan->family->engine == WA_ENGINE_MATRIX &&
           tried->exclusions.most_items[WA_ENGINE_MATRIX] == 0;
}

/* What is written down of a failure is never "", which would mean none. */
static const char *reason_of(winattn_status status)
{
    const char *reason = winattn_last_reason();
    return reason[0] ? reason : winattn_status_message(status);
}

/* After a failure that says something of kernel and device: where the shape
 * was a measured one, the planner has another of its own; the registers that
 * its kernel needs may be there for `most` work-items, fewer than it had; what
 * a special family cannot do, the next one may, or fragments; else the next
 * tier. Where the failure may
 * pass, the call fails; what may be either must come twice. */
static winattn_status learn(attempts *tried, const wa_plan *plan,
                            winattn_status status, uint32_t most)
{
    const wa_engine engine = plan->family->engine;
    const uint32_t work_group =
        plan->step[wa_main_step(plan->pass)].work_group;
    char *reason = tried->exclusions.reason[engine];
    if (wa_may_pass(status) && status != CL_OUT_OF_RESOURCES)
        return status;
    tried->repeats = status == CL_OUT_OF_RESOURCES && !tried->repeats;
    if (tried->repeats)
        return WINATTN_SUCCESS;
    if (engine > WA_ENGINE_MATRIX) {
        snprintf(reason, WA_REASON_SIZE, "%.200s", reason_of(status));
        return WINATTN_SUCCESS;
    }
    if (plan->tuned) {
        snprintf(tried->exclusions.untuned[engine], WA_REASON_SIZE, "%.200s",
                 reason_of(status));
        return WINATTN_SUCCESS;
    }
    if (may_retry(tried, plan) && most > 0 && most < work_group) {
        tried->exclusions.most_items[engine] = most;
        return WINATTN_SUCCESS;
    }
    snprintf(reason, WA_REASON_SIZE, "%.200s", reason_of(status));
    if (tried->first == WINATTN_SUCCESS) {
        tried->first = status;
        memcpy(tried->reason, reason, sizeof tried->reason);
    }
    return WINATTN_SUCCESS;
}

static winattn_status report_first(const attempts *tried, winattn_status last)
{
    return tried->first == WINATTN_SUCCESS
               ? last
               : wa_fail(tried->first, "%s", tried->reason);
}

winattn_status wa_build_pass(wa_session *session, const wa_problem *problem,
                             wa_pass pass, const wa_table_buffers *table,
                             wa_plan *plan, wa_kernels *kernels)
{
    attempts tried;
    memset(&tried, 0, sizeof tried);
    for (;;) {
        uint32_t most = 0;
        winattn_status status =
            wa_plan_make(problem, wa_session_device(session), pass,
                         &tried.exclusions, plan);
        if (status != WINATTN_SUCCESS)
            return report_first(&tried, status);
        status = build(session, problem, plan, table, may_retry(&tried, plan),
                       kernels, &most);
        if (status == WINATTN_SUCCESS) {
            wa_forget_failure();
            return status;
        }
        wa_kernels_release(kernels);
        WA_TRY(learn(&tried, plan, status, most));
    }
}
