/* SPDX-License-Identifier: Apache-2.0
 * The kernels of the backward pass, one after the other. */
#include "launch_backward.h"

#include <string.h>

#include "status.h"

/* The same size on host and device, whatever the compiler. */
typedef char
    backward_args_have_no_padding[sizeof(backward_args) == 832 ? 1 : -1];
typedef char sum_args_have_no_padding[sizeof(sum_args) == 72 ? 1 : -1];

/* In the order of BACKWARD_PARAMETERS in cl/problem.cl; 0 is the arguments'
 * place. */
static winattn_status set_buffers(const wa_problem *problem, cl_kernel kernel,
                                  const wa_buffers *buffers)
{
    static const wa_tensor_id order[] = {
        WA_Q,           WA_K,           WA_V,
        WA_BIAS,        WA_MASK,        WA_QUERY_REGIONS,
        WA_KEY_REGIONS, WA_LOGIT_SCALE, WA_O,
        WA_LSE,         WA_D_O,         WA_D_LSE,
        WA_DQ,          WA_DK,          WA_DV};
    cl_uint index = 1;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!problem->tensor[order[i]].used)
            continue;
        const cl_mem buffer = buffers->tensor[order[i]].buffer;
        WA_TRY(wa_set_arg(kernel, index++, sizeof buffer,
                          buffer ? &buffer : NULL));
    }
    const cl_mem workspace = buffers->workspace.buffer;
    return wa_set_arg(kernel, index, sizeof workspace,
                      workspace ? &workspace : NULL);
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

static backward_args make_args(const wa_problem *problem,
                               const wa_backward_plan *plan,
                               const wa_buffers *buffers,
                               cl_bitfield accumulate)
{
    backward_args args;
    memset(&args, 0, sizeof args);
    args.forward = wa_forward_args(problem, buffers);
    args.forward.flags |= flags_of(problem, buffers, accumulate);
    static const wa_tensor_id ids[] = {WA_Q,   WA_K,  WA_V,  WA_O,
                                       WA_D_O, WA_DQ, WA_DK, WA_DV};
    if (wa_allows_wide_access(problem, buffers, ids, sizeof ids / sizeof *ids,
                              plan->access_elements, plan->access_bytes))
        args.forward.flags |= ARG_WIDE_ACCESS;
    args.forward.row_blocks = plan->row_blocks;
    args.forward.block_rows = plan->kernels[WA_BACKWARD_ROWS].block_rows;
    args.d_o = wa_layout_of(problem, buffers, WA_D_O);
    args.d_lse = wa_layout_of(problem, buffers, WA_D_LSE);
    args.dq = wa_layout_of(problem, buffers, WA_DQ);
    args.dk = wa_layout_of(problem, buffers, WA_DK);
    args.dv = wa_layout_of(problem, buffers, WA_DV);
    args.workspace = buffers->workspace.offset / 4;
    args.bias_partials = args.workspace + plan->statistics_bytes / 4;
    args.scale_partials = args.bias_partials + plan->bias_bytes / 4;
    args.forward.slots = plan->slots;
    args.key_blocks = plan->key_blocks;
    return args;
}

static winattn_status launch_windows(const wa_problem *problem,
                                     const wa_backward_plan *plan,
                                     const wa_backward_kernels *kernels,
                                     backward_args *args,
                                     wa_kernel_chain *chain)
{
    args->forward.flags |= ARG_FIRST_LAUNCH;
    for (uint64_t window = 0; window < problem->windows;
         window += plan->windows_per_launch) {
        const uint64_t left = problem->windows - window;
        args->forward.first_window = window;
        args->forward.windows =
            left < plan->windows_per_launch ? left : plan->windows_per_launch;
        const uint64_t units =
            args->forward.windows * problem->heads * plan->row_blocks;
        const uint64_t owners =
            (uint64_t)plan->slots * problem->kv_heads * plan->key_blocks;
        for (int i = 0; i < WA_BACKWARD_SUM; i++) {
            const size_t group = plan->kernels[i].work_group;
            if (!kernels->part[i])
                continue;
            WA_TRY(wa_set_arg(kernels->part[i], 0, sizeof *args, args));
            WA_TRY(wa_chain_append(chain, kernels->part[i],
                                   (i == WA_BACKWARD_KEYS ? owners : units) *
                                       group,
                                   group, true));
        }
        args->forward.flags &= ~ARG_FIRST_LAUNCH;
    }
    return WINATTN_SUCCESS;
}

/* Adds up what the slots have summed; zeros where there was no window. */
static winattn_status launch_sum(const wa_problem *problem,
                                 const wa_backward_plan *plan,
                                 cl_kernel kernel, const wa_buffers *buffers,
                                 wa_tensor_id id, uint64_t partials, bool add,
                                 wa_kernel_chain *chain)
{
    const wa_tensor *tensor = &problem->tensor[id];
    const cl_mem to = buffers->tensor[id].buffer;
    const cl_mem workspace = buffers->workspace.buffer;
    sum_args args;
    if (!tensor->used || !to)
        return WINATTN_SUCCESS;
    memset(&args, 0, sizeof args);
    args.to = wa_layout_of(problem, buffers, id);
    args.partials = partials;
    args.slots = problem->windows ? plan->slots : 0;
    args.heads = problem->heads;
    args.rows = (cl_uint)tensor->extent[WA_ROW];
    args.columns = (cl_uint)tensor->extent[WA_COLUMN];
    args.flags = add ? ARG_ADD_SUMS : 0;
    WA_TRY(wa_set_arg(kernel, 0, sizeof args, &args));
    WA_TRY(wa_set_arg(kernel, 1, sizeof workspace,
                      workspace ? &workspace : NULL));
    WA_TRY(wa_set_arg(kernel, 2, sizeof to, &to));
    const uint64_t elements = (uint64_t)args.heads * args.rows * args.columns;
    const size_t group = plan->kernels[WA_BACKWARD_SUM].work_group;
    return wa_chain_append(
        chain, kernel, (elements + SUM_ELEMENTS - 1) / SUM_ELEMENTS * group,
        group, true);
}

winattn_status wa_launch_backward(const wa_problem *problem,
                                  const wa_backward_plan *plan,
                                  const wa_backward_kernels *kernels,
                                  cl_command_queue queue,
                                  const wa_buffers *buffers,
                                  cl_bitfield accumulate, cl_uint wait_count,
                                  const cl_event *wait_list, cl_event *event)
{
    wa_kernel_chain chain = {queue, wait_count, wait_list, NULL};
    backward_args args = make_args(problem, plan, buffers, accumulate);
    winattn_status status = WINATTN_SUCCESS;
    for (int i = 0; i < WA_BACKWARD_SUM && status == WINATTN_SUCCESS; i++)
        if (kernels->part[i])
            status = set_buffers(problem, kernels->part[i], buffers);
    if (status == WINATTN_SUCCESS)
        status = launch_windows(problem, plan, kernels, &args, &chain);
    if (status == WINATTN_SUCCESS)
        status = launch_sum(problem, plan, kernels->part[WA_BACKWARD_SUM],
                            buffers, WA_DBIAS, args.bias_partials,
                            (accumulate & WINATTN_DBIAS) != 0, &chain);
    if (status == WINATTN_SUCCESS)
        status = launch_sum(problem, plan, kernels->part[WA_BACKWARD_SUM],
                            buffers, WA_D_LOGIT_SCALE, args.scale_partials,
                            (accumulate & WINATTN_D_LOGIT_SCALE) != 0, &chain);
    if (status == WINATTN_SUCCESS && event && !chain.last) {
        const cl_int error = clEnqueueMarkerWithWaitList(
            queue, wait_count, wait_list, &chain.last);
        if (error != CL_SUCCESS)
            status = wa_fail_cl(error, "clEnqueueMarkerWithWaitList");
    }
    return wa_chain_end(&chain, status, event);
}
