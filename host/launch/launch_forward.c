/* SPDX-License-Identifier: Apache-2.0
 * The forward pass: work tiles, or windows that work-groups iterate over. */
#include "base/status.h"
#include "launch/passes.h"

/* In the order of FORWARD_PARAMETERS in cl/common/parameters.cl; 0 is
 * forward_args. */
static winattn_status set_buffers(wa_call *call, cl_kernel kernel)
{
    static const wa_tensor_id order[] = {
        WA_Q,           WA_K,           WA_V,
        WA_BIAS,        WA_MASK,        WA_QUERY_REGIONS,
        WA_KEY_REGIONS, WA_LOGIT_SCALE, WA_PAD_K,
        WA_PAD_V,       WA_O,           WA_LSE};
    cl_uint index = 1;
    return wa_set_buffers(&call->chain, &call->problem, kernel, &call->buffers,
                          order, sizeof order / sizeof *order, &index);
}

static forward_args make_args(const wa_call *call)
{
    static const wa_tensor_id ids[] = {WA_Q,     WA_K,     WA_V,
                                       WA_PAD_K, WA_PAD_V, WA_O};
    const wa_plan *plan = call->plan;
    forward_args args = wa_forward_args(&call->problem, &call->buffers);
    args.row_blocks = plan->schedule.row_blocks;
    args.block_rows = plan->step[WA_STEP_FORWARD].block_rows;
    args.idle_teams = plan->schedule.idle_teams;
    if (wa_allows_wide_access(&call->problem, &call->buffers, ids,
                              sizeof ids / sizeof *ids, plan->access_elements,
                              plan->access_bytes))
        args.flags |= ARG_WIDE_ACCESS;
    if (call->buffers.tensor[WA_LSE].buffer)
        args.flags |= ARG_LSE;
    if (plan->tier == WINATTN_TIER_MATRIX &&
        call->problem.variant == WINATTN_SLIDING)
        args.short_row_blocks = wa_short_row_blocks(
            &call->problem, args.block_rows, args.row_blocks);
    return args;
}

static winattn_status append(wa_call *call, cl_kernel kernel,
                             const forward_args *args, uint64_t groups)
{
    const size_t group = call->plan->step[WA_STEP_FORWARD].work_group;
    WA_TRY(wa_chain_set(&call->chain, kernel, 0, sizeof *args, args));
    return wa_chain_append(&call->chain, kernel, groups * group, group);
}

/* Launches of work tiles, a long window in several. */
static winattn_status launch_work_tiles(wa_call *call, cl_kernel kernel,
                                        forward_args *args)
{
    const wa_schedule *schedule = &call->plan->schedule;
    const uint64_t windows = call->problem.windows;
    const uint32_t per_window = schedule->row_blocks * call->problem.heads;
    const uint64_t per_launch = schedule->work_tiles_per_launch;
    const uint64_t per_group = schedule->work_tiles_per_group;
    uint64_t window = 0; /* where the next launch starts */
    uint32_t work_tile = 0;
    while (window < windows) {
        const uint64_t windows_left = windows - window;
        /* Units left, if that is fewer than a launch takes. */
        const uint64_t left = windows_left > per_launch / per_window + 1
                                  ? per_launch
                                  : windows_left * per_window - work_tile;
        const uint64_t work_tiles = left < per_launch ? left : per_launch;
        const uint64_t next = work_tile + work_tiles;
        args->first_window = window;
        args->first_work_tile = work_tile;
        args->work_tiles = (cl_uint)work_tiles;
        window += next / per_window;
        work_tile = (uint32_t)(next % per_window);
        const uint64_t groups = (work_tiles + per_group - 1) / per_group;
        const uint64_t most = schedule->sharing_groups;
        WA_TRY(
            append(call, kernel, args, most && groups > most ? most : groups));
    }
    return WINATTN_SUCCESS;
}

/* Launches of whole windows, which work-groups iterate over. */
static winattn_status launch_persistent(wa_call *call, cl_kernel kernel,
                                        forward_args *args)
{
    const uint64_t windows = call->problem.windows;
    const uint64_t per_launch = call->plan->schedule.windows_per_launch;
    for (uint64_t window = 0; window < windows; window += per_launch) {
        const uint64_t left = windows - window;
        args->first_window = window;
        args->windows = left < per_launch ? left : per_launch;
        WA_TRY(append(call, kernel, args, call->plan->schedule.groups));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_launch_forward(wa_call *call)
{
    const cl_kernel kernel = call->kernels->step[WA_STEP_FORWARD];
    forward_args args = make_args(call);
    WA_TRY(set_buffers(call, kernel));
    return (call->plan->schedule.groups
                ? launch_persistent
                : launch_work_tiles)(call, kernel, &args);
}
