/* SPDX-License-Identifier: Apache-2.0
 * Blocks as parts of models. */
#ifndef WINATTN_MODELS_BLOCK_H
#define WINATTN_MODELS_BLOCK_H

#include "launch/chain.h"

#include "winattn_models.h"

/* As winattn_block_plan_workspace_size. */
uint64_t wa_block_workspace(const winattn_block_plan *plan);

/* Appends the launches of a call whose tensors are known to be right. The plan
 * must not be used by another thread meanwhile. */
winattn_status wa_block_append(const winattn_block_plan *plan,
                               const winattn_block *call,
                               wa_kernel_chain *chain);

#endif
