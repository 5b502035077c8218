/* SPDX-License-Identifier: Apache-2.0
 * A model as one runs it without fused kernels, for comparison: each step of
 * a block is a kernel of its own, whose result is in memory and in the
 * model's type.
 *
 *     partition: roll, pad, cut windows      S += bias + mask
 *     linear layer to q, k, v with bias      softmax of S in its place
 *     (cosine: q and k to the length 1)      P V
 *     S = factor Q K^T                       reverse: join, roll back, cut off
 *     linear layer                           x +=
 *     linear layer, GELU, linear layer       x +=
 *
 * with norms where the generation has them; in the end norm, mean and linear
 * layer. Patches and mergers are the model's own launches, linear layers and
 * norms its kernels; the two products of attention are tiles in local
 * memory and registers, without a matrix unit. Biases of all positions and
 * masks of all windows are there before the call. */
#ifndef UNFUSED_H
#define UNFUSED_H

#include "winattn_models.h"

typedef struct unfused unfused;

/* For a model with a head, whose weights on the device it uses, and what that
 * was made from. The model must stay as long as this; the weights may go.
 * build_options: as winattn_model_desc's, or NULL. Fails as
 * winattn_model_create does; *made is NULL then. Not for several threads at
 * once. */
winattn_status unfused_create(const winattn_model *model,
                              const winattn_swin_weights *weights,
                              const char *build_options, unfused **made);
void unfused_destroy(unfused *u); /* NULL is fine */

/* Of its buffers, without the model's weights. */
cl_ulong unfused_bytes(const unfused *u);

/* Enqueues what winattn_enqueue_model does of a call that is right, of which
 * pictures, mean, deviation and logits count. */
winattn_status unfused_enqueue(const unfused *u, cl_command_queue queue,
                               const winattn_model_call *call);

#endif
