/* SPDX-License-Identifier: Apache-2.0
 * Chains of what models are made of (launch/chain.h). */
#ifndef WINATTN_MODELS_CHAIN_H
#define WINATTN_MODELS_CHAIN_H

#include "launch/chain.h"
#include "session/session.h"

#include "winattn_models.h"

/* As wa_chain_begin and wa_chain_end, but that a queue in order needs one
 * event only, that of a marker, as tens of launches are in between. */
winattn_status wa_models_chain_begin(wa_kernel_chain *chain,
                                     cl_command_queue queue,
                                     cl_uint wait_count,
                                     const cl_event *wait_list,
                                     const cl_event *event);
winattn_status wa_models_chain_end(wa_kernel_chain *chain,
                                   winattn_status status, cl_event *event);

/* Lets the binaries of a plan's new programs be kept, after a call on `bytes`
 * of zeros: some runtimes finish compiling only then. out: twice as many
 * bytes. A call that fails for a cause that may pass leaves them to the next
 * plan, and is no failure. */
typedef winattn_status wa_first_call(const void *plan, cl_mem zeros,
                                     cl_mem out, wa_kernel_chain *chain);
winattn_status wa_keep_kernels(const wa_session *session,
                               const cl_kernel *kernels, size_t count,
                               size_t bytes, wa_first_call *call,
                               const void *plan);

/* Appends a linear layer of rows without gaps, whose tensors are known to be
 * right; those that it lacks have buffer NULL. */
typedef struct wa_layer_call {
    uint64_t rows; /* below 2^32 */
    winattn_tensor x, weight, bias, residual, y;
} wa_layer_call;
winattn_status wa_chain_append_linear(wa_kernel_chain *chain,
                                      const winattn_linear_plan *plan,
                                      const wa_layer_call *call);

/* What a winattn_linear_plan says of itself, for wa_describe_part. */
winattn_status wa_describe_linear(const void *plan, size_t size, char *text,
                                  size_t *needed);

/* Appends the launches of the core's forward pass. */
winattn_status wa_chain_append_attention(wa_kernel_chain *chain,
                                         const winattn_plan *plan,
                                         const winattn_forward *forward);
#endif
