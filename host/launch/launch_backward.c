/* SPDX-License-Identifier: Apache-2.0
 * The backward pass: the kernels that compute gradients of windows. */
#include <string.h>

#include "base/status.h"
#include "launch/passes.h"

/* The same size on host and device, whatever the compiler. */
_Static_assert(sizeof(backward_args) == sizeof(forward_args) + 272,
               "backward_args has padding");
_Static_assert(SLIDING_MAP_ROOM == (SLIDING_MAPS + 1) * TENSOR_MAP_BYTES,
               "tensor maps have other room");

/* In the order of BACKWARD_PARAMETERS in cl/common/parameters.cl; 0 is the
 * arguments' place. */
static winattn_status set_buffers(wa_call *call, cl_kernel kernel)
{
    static const wa_tensor_id order[] = {
        WA_Q,           WA_K,           WA_V,
        WA_BIAS,        WA_MASK,        WA_QUERY_REGIONS,
        WA_KEY_REGIONS, WA_LOGIT_SCALE, WA_PAD_K,
        WA_PAD_V,       WA_O,           WA_LSE,
        WA_D_O,         WA_D_LSE,       WA_DQ,
        WA_DK,          WA_DV};
    cl_uint index = 1;
    WA_TRY(wa_set_buffers(&call->chain, &call->problem, kernel, &call->buffers,
                          order, sizeof order / sizeof *order, &index));
    return wa_chain_set_buffer(&call->chain, kernel, index,
                               call->buffers.workspace.buffer);
}

static cl_uint flags_of(const wa_problem *problem, const wa_buffers *buffers,
                        cl_bitfield accumulate)
{
    static const struct {
        wa_tensor_id id;
        cl_uint given;
        cl_bitfield output;
        cl_uint adds;
    } all[] = {
        {WA_O, ARG_O, 0, 0},
        {WA_LSE, ARG_LSE, 0, 0},
        {WA_D_LSE, ARG_D_LSE, 0, 0},
        {WA_DQ, ARG_DQ, WINATTN_DQ, ARG_ADD_DQ},
        {WA_DK, ARG_DK, WINATTN_DK, ARG_ADD_DK},
        {WA_DV, ARG_DV, WINATTN_DV, ARG_ADD_DV},
        {WA_DBIAS, ARG_DBIAS, 0, 0},
        {WA_D_LOGIT_SCALE, ARG_D_LOGIT_SCALE, 0, 0},
        {WA_D_PAD_K, ARG_D_PAD_K, 0, 0},
        {WA_D_PAD_V, ARG_D_PAD_V, 0, 0},
    };
    cl_uint flags = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (problem->tensor[all[i].id].used &&
            buffers->tensor[all[i].id].buffer) {
            flags |= all[i].given;
            if ((accumulate & all[i].output) != 0)
                flags |= all[i].adds;
        }
    return flags;
}

static bool is_sliding_matrix(const wa_call *call)
{
    return call->plan->tier == WINATTN_TIER_MATRIX &&
           call->problem.variant == WINATTN_SLIDING;
}

static backward_args make_args(const wa_call *call)
{
    const wa_problem *problem = &call->problem;
    const wa_buffers *buffers = &call->buffers;
    const wa_plan *plan = call->plan;
    const wa_workspace *workspace = &plan->workspace;
    backward_args args;
    memset(&args, 0, sizeof args);
    args.forward = wa_forward_args(problem, buffers);
    args.forward.flags |= flags_of(problem, buffers, call->accumulate);
    static const wa_tensor_id ids[] = {WA_Q, WA_K,   WA_V,  WA_PAD_K, WA_PAD_V,
                                       WA_O, WA_D_O, WA_DQ, WA_DK,    WA_DV};
    if (wa_allows_wide_access(problem, buffers, ids, sizeof ids / sizeof *ids,
                              plan->access_elements, plan->access_bytes))
        args.forward.flags |= ARG_WIDE_ACCESS;
    args.forward.row_blocks = plan->schedule.row_blocks;
    args.forward.block_rows =
        plan->step[plan->fused ? WA_STEP_KEYS : WA_STEP_ROWS].block_rows;
    args.d_o = wa_layout_of(problem, buffers, WA_D_O);
    args.d_lse = wa_layout_of(problem, buffers, WA_D_LSE);
    args.dq = wa_layout_of(problem, buffers, WA_DQ);
    args.dk = wa_layout_of(problem, buffers, WA_DK);
    args.dv = wa_layout_of(problem, buffers, WA_DV);
    args.workspace = buffers->workspace.offset / 4;
    args.bias_partials = args.workspace + workspace->statistics / 4;
    args.scale_partials = args.bias_partials + workspace->bias / 4;
    args.bounds = args.scale_partials + workspace->scale / 4;
    args.maps = args.bounds + workspace->bounds / 4;
    args.pad_k_partials = args.maps + workspace->maps / 4;
    args.pad_v_partials = args.pad_k_partials + workspace->pad / 4;
    args.key_blocks = plan->schedule.key_blocks;
    args.bound_blocks = plan->schedule.bound_blocks;
    if (is_sliding_matrix(call)) {
        args.short_key_blocks = wa_short_key_blocks(
            problem, plan->step[WA_STEP_KEYS].block_keys, args.key_blocks);
    }
    return args;
}

/* Of a window-head. */
static uint32_t row_blocks_of(const wa_schedule *s, int step)
{
    return step <= WA_STEP_STATISTICS && s->bound_blocks ? s->bound_blocks
                                                         : s->row_blocks;
}

/* Work tiles of a step for the windows of a launch. */
static uint64_t tiles_of(const wa_call *call, int step, uint64_t windows)
{
    const wa_schedule *s = &call->plan->schedule;
    const uint64_t row_blocks =
        (uint64_t)call->problem.heads * row_blocks_of(s, step);
    if (step == WA_STEP_KEYS)
        return (uint64_t)s->splits * call->problem.kv_heads * s->key_blocks *
               (s->key_parts ? s->key_parts : 1);
    return (s->row_splits ? s->row_splits : windows) * row_blocks;
}

/* Work-groups of a step: one for each work tile, or those that share them. */
static uint64_t groups_of(const wa_call *call, int step, uint64_t windows)
{
    const uint64_t tiles = tiles_of(call, step, windows);
    const uint64_t most = call->plan->schedule.sharing_groups;
    return step > WA_STEP_STATISTICS && most && tiles > most ? most : tiles;
}

/* What sliding kernels of matrix units know of a launch's blocks of rows,
 * which have as many rows as the step says. */
static void set_row_blocks(const wa_call *call, int step, backward_args *args)
{
    forward_args *forward = &args->forward;
    forward->block_rows = call->plan->step[step].block_rows;
    forward->row_blocks = row_blocks_of(&call->plan->schedule, step);
    forward->short_row_blocks = wa_short_row_blocks(
        &call->problem, forward->block_rows, forward->row_blocks);
}

/* Is there a step, and does the call need it? */
static bool takes_step(const wa_call *call, const backward_args *args,
                       int step)
{
    const cl_uint both = ARG_O | ARG_LSE;
    const bool is_given = call->kernels->step[WA_STEP_GIVEN] &&
                          (args->forward.flags & both) == both;
    if (step == WA_STEP_GIVEN)
        return is_given;
    return call->kernels->step[step] &&
           !(step == WA_STEP_STATISTICS && is_given);
}

/* The kernel that computes a step of the call. */
static cl_kernel kernel_of(const wa_call *call, const backward_args *args,
                           int step)
{
    const int other = step == WA_STEP_ROWS   ? WA_STEP_UNALIGNED_ROWS
                      : step == WA_STEP_KEYS ? WA_STEP_UNALIGNED_KEYS
                                             : step;
    const bool is_aligned = args->forward.flags & ARG_WIDE_ACCESS;
    const cl_kernel *kernels = call->kernels->step;
    return kernels[is_aligned || !kernels[other] ? step : other];
}

static winattn_status append_steps(wa_call *call, backward_args *args,
                                   bool skips_keys)
{
    const wa_schedule *s = &call->plan->schedule;
    for (int i = WA_STEP_GIVEN; i <= WA_STEP_KEYS; i++) {
        const cl_kernel kernel = kernel_of(call, args, i);
        const size_t group = call->plan->step[i].work_group;
        if (!takes_step(call, args, i) || (i == WA_STEP_KEYS && skips_keys))
            continue;
        if (is_sliding_matrix(call) && i != WA_STEP_KEYS)
            set_row_blocks(call, i, args);
        args->forward.splits = i == WA_STEP_KEYS ? s->splits : s->row_splits;
        WA_TRY(wa_chain_set(&call->chain, kernel, 0, sizeof *args, args));
        WA_TRY(wa_chain_append(
            &call->chain, kernel,
            groups_of(call, i, args->forward.windows) * group, group));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_launch_gradients(wa_call *call, backward_args *args)
{
    const uint64_t windows = call->problem.windows;
    const uint64_t per_launch = call->plan->schedule.windows_per_launch;
    *args = make_args(call);
    if (windows == 0)
        return WINATTN_SUCCESS;
    for (int i = WA_STEP_GIVEN; i <= WA_STEP_KEYS; i++)
        if (call->kernels->step[i])
            WA_TRY(set_buffers(call, kernel_of(call, args, i)));
    args->forward.flags |= ARG_FIRST_LAUNCH;
    /* where other kernels make all that belongs to rows */
    const bool skips_keys =
        (call->plan->schedule.row_splits || is_sliding_matrix(call)) &&
        (args->forward.flags &
         (ARG_DK | ARG_DV | ARG_D_PAD_K | ARG_D_PAD_V)) == 0;
    for (uint64_t window = 0; window < windows; window += per_launch) {
        const uint64_t left = windows - window;
        args->forward.first_window = window;
        args->forward.windows = left < per_launch ? left : per_launch;
        WA_TRY(append_steps(call, args, skips_keys));
        args->forward.flags &= ~ARG_FIRST_LAUNCH;
    }
    return WINATTN_SUCCESS;
}
