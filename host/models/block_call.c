/* SPDX-License-Identifier: Apache-2.0
 * A transformer block's call: what is checked, and its launches. */
#include "models/block.h"

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "launch/check.h"

/* Where the parts of a workspace are. */
typedef struct places {
    winattn_tensor map, wide, core;
} places;

static places places_of(const winattn_block_plan *plan,
                        winattn_tensor workspace)
{
    places p = {workspace, workspace, workspace};
    p.wide.offset += plan->wide_at;
    p.core.offset += plan->core_at;
    return p;
}

static winattn_status append_norm(const winattn_block_plan *plan,
                                  winattn_tensor from, winattn_tensor other,
                                  winattn_tensor weight, winattn_tensor bias,
                                  winattn_tensor to, wa_kernel_chain *chain)
{
    const wa_row_call call = {.rows = plan->attention.rows,
                              .from = from,
                              .other = other,
                              .weight = weight,
                              .bias = bias,
                              .to = to,
                              .eps = plan->desc.eps};
    return wa_row_append(&plan->norm, &call, chain);
}

static wa_attention_call attention_call(const winattn_block_weights *w,
                                        const places *p)
{
    return (wa_attention_call){.qkv_weight = w->qkv_weight,
                               .qkv_bias = w->qkv_bias,
                               .proj_weight = w->proj_weight,
                               .proj_bias = w->proj_bias,
                               .table = w->table,
                               .logit_scale = w->logit_scale,
                               .qkv = p->wide,
                               .o = p->map,
                               .workspace = p->core};
}

/* A layer of the mlp. */
static wa_layer_call layer_call(const winattn_block_plan *plan,
                                winattn_tensor x, winattn_tensor weight,
                                winattn_tensor bias, winattn_tensor y)
{
    return (wa_layer_call){.rows = plan->attention.rows,
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .y = y};
}

/* The mlp: x -> hidden numbers -> y. */
static winattn_status append_mlp(const winattn_block_plan *plan,
                                 const wa_layer_call *fc1,
                                 const wa_layer_call *fc2,
                                 wa_kernel_chain *chain)
{
    wa_layer_call mlp = *fc2;
    if (plan->fc1) {
        WA_TRY(wa_chain_append_linear(chain, plan->fc1, fc1));
        return wa_chain_append_linear(chain, plan->fc2, fc2);
    }
    mlp.x = fc1->x;
    mlp.norms.eps = plan->desc.eps;
    mlp.norms.hidden_weight = fc1->weight;
    mlp.norms.hidden_bias = fc1->bias;
    mlp.norms.hidden_stride = plan->desc.channels;
    return wa_chain_append_linear(chain, plan->fc2, &mlp);
}

/* Norms before layers. */
static winattn_status append_pre(const winattn_block_plan *plan,
                                 const winattn_block *call, const places *p,
                                 wa_kernel_chain *chain)
{
    static const winattn_tensor none;
    const winattn_block_weights *w = &call->weights;
    wa_attention_call attention = attention_call(w, p);
    const wa_layer_call fc1 =
        layer_call(plan, p->map, w->fc1_weight, w->fc1_bias, p->wide);
    wa_layer_call fc2 =
        layer_call(plan, p->wide, w->fc2_weight, w->fc2_bias, call->y);
    attention.x = p->map;
    attention.residual = call->x;
    attention.y = fc2.residual = call->y;
    WA_TRY(append_norm(plan, call->x, none, w->norm1_weight, w->norm1_bias,
                       p->map, chain));
    WA_TRY(wa_attention_append(&plan->attention, &attention, chain));
    WA_TRY(append_norm(plan, call->y, none, w->norm2_weight, w->norm2_bias,
                       p->map, chain));
    return append_mlp(plan, &fc1, &fc2, chain);
}

/* Norms within the layers. */
static winattn_status append_folded(const winattn_block_plan *plan,
                                    const winattn_block *call,
                                    const wa_block_fold *fold, const places *p,
                                    wa_kernel_chain *chain)
{
    const winattn_block_weights *w = &call->weights;
    const wa_linear_norms gives = {.y_statistics = fold->statistics};
    wa_linear_norms takes = {.x_statistics = fold->statistics,
                             .eps = plan->desc.eps};
    wa_attention_call attention = attention_call(w, p);
    wa_layer_call fc1 =
        layer_call(plan, call->y, w->fc1_weight, fold->fc1_terms, p->wide);
    wa_layer_call fc2 =
        layer_call(plan, p->wide, w->fc2_weight, w->fc2_bias, call->y);
    if (plan->hands_on && fold->is_first) {
        const wa_row_call rows = {.rows = plan->attention.rows,
                                  .from = call->x,
                                  .to = fold->statistics};
        WA_TRY(wa_row_append(&plan->statistics, &rows, chain));
    }
    attention.x = attention.residual = call->x;
    attention.y = fc2.residual = call->y;
    attention.qkv_terms = fold->qkv_terms;
    takes.x_scale = w->norm1_weight;
    attention.qkv_norms = takes;
    fc2.norms = gives;
    WA_TRY(wa_attention_append(&plan->attention, &attention, chain));
    takes.x_scale = w->norm2_weight;
    fc1.norms = takes;
    return append_mlp(plan, &fc1, &fc2, chain);
}

/* Norms behind layers, which may have them. */
static winattn_status append_post(const winattn_block_plan *plan,
                                  const winattn_block *call, const places *p,
                                  wa_kernel_chain *chain)
{
    const winattn_block_weights *w = &call->weights;
    const wa_linear_norms norms = {.eps = plan->desc.eps};
    const bool in_proj = wa_block_has_norms(plan->attention.proj);
    const bool in_fc2 = wa_block_has_norms(plan->fc2);
    wa_attention_call attention = attention_call(w, p);
    wa_layer_call fc1 =
        layer_call(plan, call->y, w->fc1_weight, w->fc1_bias, p->wide);
    wa_layer_call fc2 =
        layer_call(plan, p->wide, w->fc2_weight, w->fc2_bias, p->map);
    attention.x = call->x;
    attention.y = p->wide;
    if (in_proj) {
        attention.residual = call->x;
        attention.y = call->y;
        attention.norm_weight = w->norm1_weight;
        attention.norm_bias = w->norm1_bias;
        attention.proj_norms = norms;
    }
    if (in_fc2) {
        fc2.residual = fc2.y = call->y;
        fc2.norm_weight = w->norm2_weight;
        fc2.norm_bias = w->norm2_bias;
        fc2.norms = norms;
    }
    WA_TRY(wa_attention_append(&plan->attention, &attention, chain));
    if (!in_proj)
        WA_TRY(append_norm(plan, p->wide, call->x, w->norm1_weight,
                           w->norm1_bias, call->y, chain));
    WA_TRY(append_mlp(plan, &fc1, &fc2, chain));
    return in_fc2 ? WINATTN_SUCCESS
                  : append_norm(plan, p->map, call->y, w->norm2_weight,
                                w->norm2_bias, call->y, chain);
}

winattn_status wa_block_append(const winattn_block_plan *plan,
                               const winattn_block *call,
                               const wa_block_fold *fold,
                               wa_kernel_chain *chain)
{
    const places p = places_of(plan, call->workspace);
    if (plan->desc.order == WINATTN_POST_NORM)
        return append_post(plan, call, &p, chain);
    return plan->folds ? append_folded(plan, call, fold, &p, chain)
                       : append_pre(plan, call, &p, chain);
}

static winattn_status check_weights(const winattn_block_plan *plan,
                                    const winattn_block_weights *w,
                                    uint64_t *start)
{
    const winattn_block_desc *d = &plan->desc;
    const winattn_tensor *all = &w->norm1_weight;
    const wa_block_shape shape = {.channels = d->channels,
                                  .hidden = d->hidden,
                                  .heads = d->heads,
                                  .window = {d->window[0], d->window[1]},
                                  .is_cosine = d->variant == WINATTN_COSINE};
    uint64_t extent[WA_BLOCK_TENSORS][4];
    wa_wanted_tensor wanted[WA_BLOCK_TENSORS];
    wa_block_extents(&shape, extent);
    for (int i = 0; i < WA_BLOCK_TENSORS; i++)
        wanted[i] = (wa_wanted_tensor){
            wa_block_tensor_names[i], &all[i],
            i == WA_BLOCK_LOGIT_SCALE ? 4
            : i == WA_BLOCK_TABLE     ? wa_term_size(d->dtype, d->table_dtype)
                                      : wa_element_size(d->dtype),
            extent[i][0] * extent[i][1], extent[i][0] != 0};
    return wa_check_inputs(wanted, WA_BLOCK_TENSORS,
                           wa_session_context(plan->session), start);
}

static winattn_status check_call(const winattn_block_plan *plan,
                                 const winattn_block *call, uint64_t *start)
{
    const cl_context context = wa_session_context(plan->session);
    const uint32_t size = plan->attention.element_size;
    const uint64_t count = plan->map_bytes / size;
    const wa_wanted_tensor x = {"x", &call->x, size, count, true};
    WA_TRY(wa_check_inputs(&x, 1, context, start));
    WA_WANT(call->y.buffer, "y");
    /* the mlp reads it */
    WA_TRY(wa_check_memory("y", &call->y, context, WA_READS_AND_WRITES, size,
                           plan->map_bytes, start));
    WA_TRY(check_weights(plan, &call->weights, start));
    return wa_check_workspace(&call->workspace, context, plan->workspace,
                              start);
}

winattn_status
winattn_enqueue_block(const winattn_block_plan *plan, cl_command_queue queue,
                      const winattn_block *block, cl_uint wait_count,
                      const cl_event *wait_list, cl_event *event)
{
    winattn_block own;
    wa_kernel_chain chain;
    uint64_t start = 0;
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    WA_TRY(wa_read_struct("block", block, &own, sizeof own, sizeof own));
    WA_TRY(wa_check_order(plan->session, queue, wait_count, wait_list));
    WA_TRY(check_call(plan, &own, &start));
    WA_TRY(wa_models_chain_begin(&chain, queue, wait_count, wait_list, event));
    chain.start = start;
    wa_lock_take(plan->lock);
    const winattn_status status = wa_block_append(plan, &own, NULL, &chain);
    wa_lock_release(plan->lock);
    return wa_models_chain_end(&chain, status, event);
}
