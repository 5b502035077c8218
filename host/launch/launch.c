/* SPDX-License-Identifier: Apache-2.0
 * The launches of a pass, one behind the other. */
#include "launch/launch.h"

#include "base/status.h"
#include "launch/passes.h"

/* For kernels that know no tables: writes what the table stands for to the
 * workspace, and makes the problem and the buffers those of an ordinary bias.
 */
static winattn_status expand_table(wa_call *call)
{
    static const wa_tensor_id ids[] = {WA_BIAS};
    const wa_problem *problem = &call->problem;
    const cl_kernel kernel = call->kernels->step[WA_STEP_EXPAND];
    const forward_args args = wa_forward_args(problem, &call->buffers);
    const winattn_tensor dense = {call->buffers.workspace.buffer,
                                  call->buffers.workspace.offset +
                                      wa_dense_at(call->plan)};
    const cl_ulong to = dense.offset / 4;
    cl_uint index = 1;
    wa_kernel_chain *chain = &call->chain;
    WA_TRY(wa_chain_set(chain, kernel, 0, sizeof args, &args));
    WA_TRY(wa_set_buffers(chain, problem, kernel, &call->buffers, ids, 1,
                          &index));
    WA_TRY(wa_chain_set_buffer(chain, kernel, index, dense.buffer));
    WA_TRY(wa_chain_set(chain, kernel, index + 1, sizeof to, &to));
    WA_TRY(wa_chain_append(chain, kernel,
                           (uint64_t)problem->heads * problem->queries, 1));
    call->problem = wa_problem_without_table(problem);
    call->buffers.tensor[WA_BIAS] = dense;
    return WINATTN_SUCCESS;
}

static winattn_status launch_steps(wa_call *call)
{
    backward_args args;
    if (call->kernels->step[WA_STEP_EXPAND] && call->asked->windows != 0)
        WA_TRY(expand_table(call));
    if (call->plan->pass == WA_FORWARD)
        return wa_launch_forward(call);
    WA_TRY(wa_launch_gradients(call, &args));
    return wa_launch_sums(call, &args);
}

static wa_call call_of(const wa_problem *problem, const wa_plan *plan,
                       const wa_kernels *kernels, const wa_buffers *buffers,
                       cl_bitfield accumulate)
{
    return (wa_call){.plan = plan,
                     .kernels = kernels,
                     .asked = problem,
                     .given = buffers,
                     .problem = *problem,
                     .buffers = *buffers,
                     .accumulate = accumulate};
}

winattn_status wa_list_launches(const wa_problem *problem, const wa_plan *plan,
                                const wa_kernels *kernels,
                                const wa_buffers *buffers,
                                cl_bitfield accumulate,
                                winattn_launch_list *list)
{
    wa_call call = call_of(problem, plan, kernels, buffers, accumulate);
    call.chain.list = list;
    return launch_steps(&call);
}

winattn_status wa_launch(const wa_problem *problem, const wa_plan *plan,
                         const wa_kernels *kernels, cl_command_queue queue,
                         const wa_buffers *buffers, cl_bitfield accumulate,
                         cl_uint wait_count, const cl_event *wait_list,
                         cl_event *event)
{
    wa_call call = call_of(problem, plan, kernels, buffers, accumulate);
    WA_TRY(wa_chain_begin(&call.chain, queue, wait_count, wait_list, event));
    return wa_chain_end(&call.chain, launch_steps(&call), event);
}
