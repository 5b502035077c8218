/* SPDX-License-Identifier: Apache-2.0
 * Chains of what models are made of (launch/chain.h). */
#ifndef WINATTN_MODELS_CHAIN_H
#define WINATTN_MODELS_CHAIN_H

#include "launch/chain.h"

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

/* Appends the launches of the core's forward pass. */
winattn_status wa_chain_append_attention(wa_kernel_chain *chain,
                                         const winattn_plan *plan,
                                         const winattn_forward *forward);
/* Appends a copy between buffers that do not overlap. */
winattn_status wa_chain_append_copy(wa_kernel_chain *chain,
                                    const winattn_tensor *from,
                                    const winattn_tensor *to, size_t bytes);

#endif
