/* SPDX-License-Identifier: Apache-2.0 */
#include "models/chain.h"

#include "base/status.h"
#include "models/linear.h"

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

/* Where the next command's event goes; NULL: nobody asks for it. */
static cl_event *event_of(const wa_kernel_chain *chain, cl_event *done)
{
    *done = NULL;
    return chain->wants_event || !chain->in_order ? done : NULL;
}

/* As wa_chain_append leaves it. */
static void go_on(wa_kernel_chain *chain, cl_event done)
{
    if (chain->last)
        clReleaseEvent(chain->last);
    chain->last = done;
    chain->has_begun = true;
    chain->wait_count = chain->in_order ? 0 : 1;
    chain->wait_list = chain->in_order ? NULL : &chain->last;
}

winattn_status wa_chain_append_attention(wa_kernel_chain *chain,
                                         const winattn_plan *plan,
                                         const winattn_forward *forward)
{
    cl_event done;
    cl_event *event = event_of(chain, &done);
    WA_TRY(winattn_enqueue_forward(plan, chain->queue, forward,
                                   chain->wait_count, chain->wait_list,
                                   event));
    go_on(chain, done);
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
