/* SPDX-License-Identifier: Apache-2.0
 * A model's parts. */
#ifndef WINATTN_MODELS_MODEL_H
#define WINATTN_MODELS_MODEL_H

#include "base/os.h"
#include "models/rows.h"
#include "models/swin_weights.h"

/* Where blocks have the norms before their layers: in launches of their own;
 * in layers, of rows on the way; so but for the second one, which is in the
 * weights of an mlp in one launch; or both in weights. */
typedef enum wa_norms_in {
    WA_NORMS_ALONE,
    WA_NORMS_IN_LAYERS,
    WA_NORMS_IN_MLP,
    WA_NORMS_IN_WEIGHTS
} wa_norms_in;

/* What layers have that norms are in: of each row of W its sum, times the
 * norm's weights, and the bias with what the norm's bias adds to it, in pairs
 * of fp32. */
typedef struct wa_block_fold {
    winattn_tensor qkv_terms, fc1_terms;
    bool is_first;             /* nobody before it knows the statistics of x */
    winattn_tensor statistics; /* of a call: handed on from block to block */
} wa_block_fold;

/* Weights of one part share a buffer. */
typedef struct wa_model_weights {
    cl_mem *buffers;
    size_t count, most;
    uint64_t bytes;
    winattn_tensor patch_weight, patch_bias;
    winattn_tensor patch_norm_weight, patch_norm_bias;
    winattn_tensor norm_weight, norm_bias, head_weight, head_bias;
    struct wa_stage_tensors {
        winattn_block_weights *blocks;
        wa_block_fold *folds; /* NULL: norms are not in layers */
        winattn_tensor merge_norm_weight, merge_norm_bias, merge_weight;
        winattn_tensor merge_terms; /* of a merger's norm in its layer */
    } stages[WA_SWIN_STAGES];
} wa_model_weights;

/* Between a stage and the next one: neighbours side by side, which generation
 * 1 normalises; a linear layer; generation 2 normalises now. What the layer
 * does by itself has no launch. */
typedef struct wa_merger {
    wa_row_plan neighbours, norm;
    winattn_linear_plan *linear;
} wa_merger;

/* The map after a stage's blocks. */
typedef struct wa_model_stage {
    uint32_t height, width, channels, depth;
    uint64_t tokens; /* of all pictures */
    uint64_t map_bytes;
    winattn_block_plan *plain;   /* of blocks 0, 2, ... */
    winattn_block_plan *shifted; /* of blocks 1, 3, ...; NULL: like plain */
    wa_merger merger;            /* to the next stage */
} wa_model_stage;

struct winattn_model {
    winattn_model_desc desc;
    wa_swin_config config;
    wa_session *session;
    wa_lock *lock; /* for kernels of rows, from the first to the last launch */
    wa_model_weights weights;
    wa_row_plan embed, pool;
    wa_row_plan embed_norm; /* where the layer has none */
    winattn_linear_plan *patch, *head;
    wa_model_stage stages[WA_SWIN_STAGES];
    uint64_t picture_bytes;
    /* The workspace: maps of stages 0, 2 and 1, 3; what is between; features
     */
    uint64_t map_at[2], part_at, features_at, workspace;
};

/* Which layers have norms, of a stage's blocks, and of the merger behind. */
typedef struct wa_stage_norms {
    wa_norms_in blocks, merger;
} wa_stage_norms;

/* Rounds to the model's dtype, or matrices to TF32 where layers would cut them
 * off, and uploads; released also after a failure. norms: of each stage */
winattn_status wa_model_weights_make(wa_session *session,
                                     const winattn_swin_weights *from,
                                     const winattn_model_desc *desc,
                                     const wa_stage_norms norms[],
                                     wa_model_weights *weights);
void wa_model_weights_release(wa_model_weights *weights);

/* Appends what makes the first map of a call's pictures: patches side by side,
 * of which each is a row, a linear layer, a norm. (model_call.c) */
winattn_status wa_model_append_embedding(const winattn_model *model,
                                         const winattn_model_call *call,
                                         winattn_tensor patches,
                                         winattn_tensor map,
                                         wa_kernel_chain *chain);

/* Appends what makes the next stage's map of a stage's: neighbours side by
 * side, of which four are a row, a norm and a linear layer. (model_call.c) */
winattn_status wa_model_append_merger(const winattn_model *model,
                                      uint32_t number, winattn_tensor map,
                                      winattn_tensor rows, winattn_tensor next,
                                      wa_kernel_chain *chain);

/* Plans of the model's types. The options are the caller's while the model is
 * made. (model.c) */
winattn_status wa_model_make_linear(const winattn_model *model,
                                    const char *build_options, uint32_t in,
                                    uint32_t out, bool has_bias,
                                    winattn_linear_plan **plan);
winattn_status wa_model_make_rows(const winattn_model *model,
                                  const char *build_options, wa_row_job job,
                                  uint32_t size, wa_row_plan *plan);

/* How tables of relative positions are stored. */
winattn_term_dtype wa_model_table_dtype(const wa_swin_config *config,
                                        winattn_dtype dtype);

/* ---- Blocks (block.c) ---- */

/* Makes a plan as winattn_block_plan_create does. folds: norms before layers
 * are to be in these, if they can, with weights that the caller has folded:
 * see wa_block_norms_in. */
winattn_status wa_block_plan_make(cl_context context, cl_device_id device,
                                  const winattn_block_desc *desc, bool folds,
                                  winattn_block_plan **plan);
wa_norms_in wa_block_norms_in(const winattn_block_plan *plan);

/* Bytes of workspace, and of statistics. */
uint64_t wa_block_workspace(const winattn_block_plan *plan);
uint64_t wa_block_statistics(const winattn_block_plan *plan);

/* Appends the launches of a call whose tensors are known to be right. The plan
 * must not be used by another thread meanwhile. fold: of a plan that folds;
 * the call's norms and layers then have weights as wa_model_weights_make has
 * them. */
winattn_status wa_block_append(const winattn_block_plan *plan,
                               const winattn_block *call,
                               const wa_block_fold *fold,
                               wa_kernel_chain *chain);

#endif
