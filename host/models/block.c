/* SPDX-License-Identifier: Apache-2.0
 * Transformer blocks on feature maps. */

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "launch/check.h"
#include "models/attention.h"
#include "models/levels.h"
#include "models/model.h"
#include "models/rows.h"

struct winattn_block_plan {
    winattn_block_desc desc;
    wa_session *session;
    wa_lock *lock; /* for kernels of rows, from the first to the last launch */
    wa_attention attention;
    winattn_linear_plan *fc1, *fc2;
    wa_row_plan norm; /* before or after, both of a block */
    uint64_t map_bytes;
    /* The workspace: a map; q, k and v or the mlp's hidden numbers; what the
     * attention needs. */
    uint64_t wide_at, core_at, workspace;
};

/* ---- Plan ---- */

static winattn_status read_desc(const winattn_block_desc *given,
                                winattn_block_desc *desc,
                                wa_attention_desc *attention)
{
    WA_TRY(wa_read_struct("block_desc", given, desc, sizeof *desc,
                          offsetof(winattn_block_desc, build_options) +
                              sizeof desc->build_options));
    if (desc->order != WINATTN_PRE_NORM && desc->order != WINATTN_POST_NORM)
        return WA_INVALID(
            "order is neither WINATTN_PRE_NORM nor WINATTN_POST_NORM");
    if (!(desc->eps >= 0.0f) || isinf(desc->eps))
        return WA_INVALID("eps is negative or not finite");
    if (desc->eps == 0.0f)
        desc->eps = 1e-5f;
    *attention =
        (wa_attention_desc){.dtype = desc->dtype,
                            .tier = desc->tier,
                            .allow_tf32 = desc->allow_tf32 != CL_FALSE,
                            .variant = desc->variant,
                            .channels = desc->channels,
                            .heads = desc->heads,
                            .window = {desc->window[0], desc->window[1]},
                            .table_dtype = desc->table_dtype,
                            .adds = desc->order == WINATTN_PRE_NORM,
                            .on_map = true,
                            .batch = desc->batch,
                            .size = {desc->height, desc->width},
                            .shift = {desc->shift[0], desc->shift[1]},
                            .grid_options = desc->grid_options,
                            .build_options = desc->build_options};
    WA_TRY(wa_attention_check(attention));
    if (desc->hidden == 0 || desc->hidden > 1u << 20)
        return WA_INVALID("hidden is %u, not 1 to 2^20", desc->hidden);
    return WINATTN_SUCCESS;
}

static winattn_status make_mlp(winattn_block_plan *plan)
{
    const winattn_block_desc *desc = &plan->desc;
    const wa_layer_maker maker = {plan->session, desc->dtype, desc->tier,
                                  desc->allow_tf32, desc->build_options};
    WA_TRY(wa_make_layer(&maker, desc->channels, desc->hidden, true,
                         WINATTN_ACTIVATION_GELU, false, &plan->fc1));
    return wa_make_layer(&maker, desc->hidden, desc->channels, true,
                         WINATTN_ACTIVATION_NONE,
                         desc->order == WINATTN_PRE_NORM, &plan->fc2);
}

static winattn_status lay_out(winattn_block_plan *plan)
{
    const winattn_block_desc *desc = &plan->desc;
    const uint64_t wide =
        desc->hidden > 3 * desc->channels ? desc->hidden : 3 * desc->channels;
    const uint64_t row = plan->attention.element_size;
    const uint64_t wide_bytes = wa_product(plan->attention.rows, wide * row);
    plan->map_bytes = plan->attention.rows * desc->channels * row;
    if (wide_bytes > SIZE_MAX / 4)
        return WA_BAD_LAYOUT(
            "the workspace has more bytes than the host can count");
    plan->wide_at = wa_part_bytes(plan->map_bytes);
    plan->core_at = plan->wide_at + wa_part_bytes(wide_bytes);
    plan->workspace =
        plan->core_at + wa_part_bytes(plan->attention.core_bytes);
    return WINATTN_SUCCESS;
}

static winattn_status build(cl_context context, cl_device_id device,
                            const wa_attention_desc *attention,
                            winattn_block_plan *plan)
{
    const winattn_block_desc *desc = &plan->desc;
    WA_TRY(wa_session_acquire(context, device, &plan->session));
    plan->lock = wa_lock_create();
    WA_TRY_MEMORY(plan->lock);
    WA_TRY(wa_attention_make(plan->session, attention, &plan->attention));
    WA_TRY(make_mlp(plan));
    const wa_row_desc norm = {
        .job = desc->order == WINATTN_PRE_NORM ? WA_ROW_NORM : WA_ROW_NORM_ADD,
        .dtype = desc->dtype,
        .on_cpu = wa_row_on_cpu(plan->session, desc->tier),
        .row_size = desc->channels,
        .build_options = desc->build_options};
    WA_TRY(wa_row_plan_make(plan->session, &norm, &plan->norm));
    return lay_out(plan);
}

winattn_status winattn_block_plan_create(cl_context context,
                                         cl_device_id device,
                                         const winattn_block_desc *desc,
                                         winattn_block_plan **result)
{
    wa_attention_desc attention;
    WA_TRY(wa_models_begin());
    WA_WANT(result, "plan");
    *result = NULL;
    winattn_block_plan *plan = calloc(1, sizeof *plan);
    WA_TRY_MEMORY(plan);
    winattn_status status = read_desc(desc, &plan->desc, &attention);
    WA_THEN(status, build(context, device, &attention, plan));
    if (status != WINATTN_SUCCESS) {
        winattn_block_plan_destroy(plan);
        return status;
    }
    plan->desc.build_options = NULL; /* the caller's memory */
    *result = plan;
    return WINATTN_SUCCESS;
}

void winattn_block_plan_destroy(winattn_block_plan *plan)
{
    if (!plan || wa_session_is_inherited(plan->session))
        return;
    wa_row_plan_release(&plan->norm);
    winattn_linear_plan_destroy(plan->fc1);
    winattn_linear_plan_destroy(plan->fc2);
    wa_attention_release(&plan->attention);
    wa_lock_destroy(plan->lock);
    wa_session_release(plan->session);
    free(plan);
}

uint64_t wa_block_workspace(const winattn_block_plan *plan)
{
    return plan->workspace;
}

winattn_status
winattn_block_plan_workspace_size(const winattn_block_plan *plan, size_t *size)
{
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    WA_WANT(size, "size");
    *size = (size_t)plan->workspace;
    return WINATTN_SUCCESS;
}

winattn_status winattn_block_plan_describe(const winattn_block_plan *plan,
                                           size_t size, char *text,
                                           size_t *needed)
{
    char all[16384] = "";
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    wa_append(all, sizeof all, "workspace: %llu bytes\n",
              (unsigned long long)plan->workspace);
    wa_row_describe(&plan->norm, "norm", all, sizeof all);
    WA_TRY(wa_attention_describe(&plan->attention, all, sizeof all));
    WA_TRY(wa_describe_part("fc1", wa_describe_linear, plan->fc1, all,
                            sizeof all));
    WA_TRY(wa_describe_part("fc2", wa_describe_linear, plan->fc2, all,
                            sizeof all));
    return wa_give_text(all, size, text, needed);
}

/* ---- Call ---- */

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

static winattn_status append_mlp(const winattn_block_plan *plan,
                                 const winattn_block_weights *w,
                                 winattn_tensor x, winattn_tensor hidden,
                                 winattn_tensor residual, winattn_tensor y,
                                 wa_kernel_chain *chain)
{
    const wa_layer_call fc1 = {.rows = plan->attention.rows,
                               .x = x,
                               .weight = w->fc1_weight,
                               .bias = w->fc1_bias,
                               .y = hidden};
    const wa_layer_call fc2 = {.rows = plan->attention.rows,
                               .x = hidden,
                               .weight = w->fc2_weight,
                               .bias = w->fc2_bias,
                               .residual = residual,
                               .y = y};
    WA_TRY(wa_chain_append_linear(chain, plan->fc1, &fc1));
    return wa_chain_append_linear(chain, plan->fc2, &fc2);
}

winattn_status wa_block_append(const winattn_block_plan *plan,
                               const winattn_block *call,
                               wa_kernel_chain *chain)
{
    static const winattn_tensor none;
    const winattn_block_weights *w = &call->weights;
    winattn_tensor map = call->workspace, wide = map, core = map;
    wide.offset += plan->wide_at;
    core.offset += plan->core_at;
    wa_attention_call attention = {.qkv_weight = w->qkv_weight,
                                   .qkv_bias = w->qkv_bias,
                                   .proj_weight = w->proj_weight,
                                   .proj_bias = w->proj_bias,
                                   .table = w->table,
                                   .logit_scale = w->logit_scale,
                                   .qkv = wide,
                                   .o = map,
                                   .workspace = core};
    if (plan->desc.order == WINATTN_PRE_NORM) {
        WA_TRY(append_norm(plan, call->x, none, w->norm1_weight, w->norm1_bias,
                           map, chain));
        attention.x = map;
        attention.residual = call->x;
        attention.y = call->y;
        WA_TRY(wa_attention_append(&plan->attention, &attention, chain));
        WA_TRY(append_norm(plan, call->y, none, w->norm2_weight, w->norm2_bias,
                           map, chain));
        return append_mlp(plan, w, map, wide, call->y, call->y, chain);
    }
    attention.x = call->x;
    attention.y = wide;
    WA_TRY(wa_attention_append(&plan->attention, &attention, chain));
    WA_TRY(append_norm(plan, wide, call->x, w->norm1_weight, w->norm1_bias,
                       call->y, chain));
    WA_TRY(append_mlp(plan, w, call->y, wide, none, map, chain));
    return append_norm(plan, map, call->y, w->norm2_weight, w->norm2_bias,
                       call->y, chain);
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
    const winattn_status status = wa_block_append(plan, &own, &chain);
    wa_lock_release(plan->lock);
    return wa_models_chain_end(&chain, status, event);
}
