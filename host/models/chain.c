/* SPDX-License-Identifier: Apache-2.0 */
#include "models/chain.h"

#include "base/status.h"
#include "models/linear.h"
#include "session/warmup.h"

winattn_status wa_models_chain_begin(wa_kernel_chain *chain,
                                     cl_command_queue queue,
                                     cl_uint wait_count,
                                     const cl_event *wait_list,
                                     const cl_event *event)
{
    WA_TRY(wa_chain_begin(chain, queue, wait_count, wait_list, event != NULL));
    if (chain->in_order)
        chain->wants_event = false;
    return WINATTN_SUCCESS;
}

winattn_status wa_models_chain_end(wa_kernel_chain *chain,
                                   winattn_status status, cl_event *event)
{
    if (chain->in_order)
        chain->has_begun = false; /* there is no event yet: a marker's */
    return wa_chain_end(chain, status, event);
}

static winattn_status call_first(const wa_session *session, size_t bytes,
                                 wa_first_call *call, const void *plan)
{
    wa_zeros z;
    wa_kernel_chain chain;
    winattn_status status =
        wa_zeros_begin(&z, wa_session_context(session),
                       wa_session_device_id(session), bytes, 2 * bytes, 0);
    if (status == WINATTN_SUCCESS)
        status = wa_chain_begin(&chain, z.queue, 0, NULL, false);
    if (status == WINATTN_SUCCESS)
        status = wa_chain_end(&chain, call(plan, z.in, z.out, &chain), NULL);
    return wa_zeros_end(&z, status);
}

winattn_status wa_keep_kernels(const wa_session *session,
                               const cl_kernel *kernels, size_t count,
                               size_t bytes, wa_first_call *call,
                               const void *plan)
{
    wa_program_set *set = wa_session_programs(session);
    bool keeps = false;
    for (size_t i = 0; i < count && !keeps; i++)
        if (kernels[i])
            WA_TRY(wa_program_set_keeps(set, kernels[i], &keeps));
    if (keeps && !wa_may_pass(call_first(session, bytes, call, plan)))
        for (size_t i = 0; i < count; i++)
            if (kernels[i])
                wa_program_set_keep(set, kernels[i]);
    wa_forget_failure(); /* the plan is good without */
    return WINATTN_SUCCESS;
}

winattn_status wa_chain_append_attention(wa_kernel_chain *chain,
                                         const winattn_plan *plan,
                                         const winattn_forward *forward)
{
    cl_event done;
    WA_TRY(winattn_enqueue_forward(plan, chain->queue, forward,
                                   chain->wait_count, chain->wait_list,
                                   wa_chain_event(chain, &done)));
    wa_chain_go_on(chain, done);
    return WINATTN_SUCCESS;
}

winattn_status wa_chain_append_linear(wa_kernel_chain *chain,
                                      const winattn_linear_plan *plan,
                                      const wa_layer_call *call)
{
    const wa_linear_problem *problem = &plan->problem;
    const winattn_linear linear = {.struct_size = sizeof linear,
                                   .rows = call->rows,
                                   .x_stride = problem->in,
                                   .weight_stride = problem->in,
                                   .residual_stride = problem->out,
                                   .y_stride = problem->out,
                                   .x = call->x,
                                   .weight = call->weight,
                                   .bias = call->bias,
                                   .residual = call->residual,
                                   .y = call->y};
    return wa_linear_append(plan, &linear, chain);
}

winattn_status wa_describe_linear(const void *plan, size_t size, char *text,
                                  size_t *needed)
{
    return winattn_linear_plan_describe(plan, size, text, needed);
}
