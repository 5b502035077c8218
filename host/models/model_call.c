/* SPDX-License-Identifier: Apache-2.0
 * A picture's way through a model. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "launch/check.h"
#include "models/levels.h"
#include "models/model.h"

/* ---- Checks ---- */

static winattn_status check_output(const winattn_model *model,
                                   const char *name, const winattn_tensor *at,
                                   uint64_t bytes, wa_access access,
                                   uint64_t *start)
{
    const cl_context context = wa_session_context(model->session);
    const uint32_t size = wa_element_size(model->desc.dtype);
    if (!at->buffer)
        return WINATTN_SUCCESS;
    return wa_check_memory(name, at, context, access, size, bytes, start);
}

/* *last becomes the last stage that is needed. */
static winattn_status check_outputs(const winattn_model *model,
                                    const winattn_model_call *call,
                                    uint32_t *last, uint64_t *start)
{
    static const char *const names[WA_SWIN_STAGES] = {"maps[0]", "maps[1]",
                                                      "maps[2]", "maps[3]"};
    const uint32_t stages = model->config.stages;
    const uint64_t row =
        (uint64_t)model->desc.batch * wa_element_size(model->desc.dtype);
    const bool pools = call->logits.buffer || call->features.buffer;
    bool any = pools;
    *last = pools ? stages - 1 : 0;
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        if (!call->maps[i].buffer)
            continue;
        if (i >= stages)
            return WA_INVALID("%s is given, but the model has %u stages",
                              names[i], stages);
        WA_TRY(check_output(model, names[i], &call->maps[i],
                            model->stages[i].map_bytes, WA_READS_AND_WRITES,
                            start));
        any = true;
        *last = i > *last ? i : *last;
    }
    if (!any)
        return WA_INVALID("no output is given");
    if (call->features.buffer && model->config.no_norm)
        return WA_INVALID("features is given, but the model has no norm "
                          "behind its last stage");
    if (call->logits.buffer && !model->head)
        return WA_INVALID("logits is given, but the model has no head");
    WA_TRY(check_output(model, "logits", &call->logits,
                        row * model->config.classes, WA_WRITES, start));
    return check_output(model, "features", &call->features,
                        row * model->stages[stages - 1].channels,
                        WA_READS_AND_WRITES, start);
}

static winattn_status check_call(const winattn_model *model,
                                 const winattn_model_call *call,
                                 uint32_t *last, uint64_t *start)
{
    const cl_context context = wa_session_context(model->session);
    const uint32_t size =
        model->desc.pictures == WINATTN_PICTURES_BYTES ? 1 : 4;
    const wa_wanted_tensor pictures = {"pictures", &call->pictures, size,
                                       model->picture_bytes / size, true};
    /* are read number by number */
    WA_TRY(wa_check_inputs(&pictures, 1, context, NULL));
    if (call->deviation[0] != 0.0f)
        for (uint32_t c = 0; c < model->config.in_channels; c++)
            if (!isnormal(call->deviation[c]) || !isfinite(call->mean[c]))
                return WA_INVALID("deviation[%u] is 0, or it or mean[%u] is "
                                  "no finite number",
                                  c, c);
    WA_TRY(check_outputs(model, call, last, start));
    return wa_check_workspace(&call->workspace, context, model->workspace,
                              start);
}

/* ---- Launches ---- */

static winattn_tensor at(const winattn_model_call *call, uint64_t bytes)
{
    winattn_tensor place = call->workspace;
    place.offset += bytes;
    return place;
}

/* Stages compute where the caller wants their map. */
static winattn_tensor map_of(const winattn_model *model,
                             const winattn_model_call *call, uint32_t stage)
{
    return call->maps[stage].buffer ? call->maps[stage]
                                    : at(call, model->map_at[stage % 2]);
}

/* A layer, and then a norm in place, unless that is in the layer. */
static winattn_status append_normed(const winattn_linear_plan *plan,
                                    const wa_row_plan *norm,
                                    const wa_layer_call *call,
                                    wa_kernel_chain *chain)
{
    const wa_row_call own = {.rows = call->rows,
                             .from = call->y,
                             .weight = call->norm_weight,
                             .bias = call->norm_bias,
                             .to = call->y,
                             .eps = call->norms.eps};
    WA_TRY(wa_chain_append_linear(chain, plan, call));
    return norm->kernel ? wa_row_append(norm, &own, chain) : WINATTN_SUCCESS;
}

winattn_status wa_model_append_embedding(const winattn_model *model,
                                         const winattn_model_call *call,
                                         winattn_tensor patches,
                                         winattn_tensor map,
                                         wa_kernel_chain *chain)
{
    const wa_model_weights *w = &model->weights;
    const bool normalises = call->deviation[0] != 0.0f;
    wa_row_call embed = {.rows = model->stages[0].tokens,
                         .from = call->pictures,
                         .to = patches,
                         .height = model->desc.height,
                         .width = model->desc.width,
                         .down = model->stages[0].height,
                         .across = model->stages[0].width};
    for (uint32_t c = 0; c < model->config.in_channels; c++) {
        const float deviation = normalises ? call->deviation[c] : 1.0f;
        const float most =
            model->desc.pictures == WINATTN_PICTURES_BYTES ? 255.0f : 1.0f;
        embed.factor[c] = 1.0f / (most * deviation);
        embed.shift[c] = normalises ? -call->mean[c] / deviation : 0.0f;
    }
    const wa_layer_call patch = {.rows = embed.rows,
                                 .x = patches,
                                 .weight = w->patch_weight,
                                 .bias = w->patch_bias,
                                 .y = map,
                                 .norm_weight = w->patch_norm_weight,
                                 .norm_bias = w->patch_norm_bias,
                                 .norms.eps = model->config.outer_norm_eps};
    WA_TRY(wa_row_append(&model->embed, &embed, chain));
    return append_normed(model->patch, &model->embed_norm, &patch, chain);
}

static winattn_status append_blocks(const winattn_model *model,
                                    const winattn_model_call *call,
                                    uint32_t number, wa_kernel_chain *chain)
{
    const wa_model_stage *stage = &model->stages[number];
    const winattn_tensor map = map_of(model, call, number);
    for (uint32_t i = 0; i < stage->depth; i++) {
        const winattn_block block = {
            .struct_size = sizeof block,
            .x = map,
            .y = map,
            .weights = model->weights.stages[number].blocks[i],
            .workspace = at(call, model->part_at)};
        const wa_block_fold *folds = model->weights.stages[number].folds;
        wa_block_fold fold = {.is_first = true};
        if (folds)
            fold = folds[i];
        fold.statistics = at(call, model->map_at[(number + 1) % 2]);
        WA_TRY(wa_block_append(i % 2 && stage->shifted ? stage->shifted
                                                       : stage->plain,
                               &block, &fold, chain));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_model_append_merger(const winattn_model *model,
                                      uint32_t number, winattn_tensor map,
                                      winattn_tensor rows, winattn_tensor next,
                                      wa_kernel_chain *chain)
{
    const wa_model_stage *stage = &model->stages[number];
    const struct wa_stage_tensors *w = &model->weights.stages[number];
    const wa_row_call neighbours = {.rows = model->stages[number + 1].tokens,
                                    .from = map,
                                    .weight = w->merge_norm_weight,
                                    .bias = w->merge_norm_bias,
                                    .to = rows,
                                    .eps = model->config.outer_norm_eps,
                                    .height = stage->height,
                                    .width = stage->width};
    wa_layer_call merge = {
        .rows = neighbours.rows,
        .x = rows,
        .weight = w->merge_weight,
        .bias = w->merge_terms,
        .y = next,
        .norm_weight = neighbours.weight,
        .norm_bias = neighbours.bias,
        .norms = {.x_scale = neighbours.weight, .eps = neighbours.eps}};
    if (stage->merger.linear->problem.merges) {
        merge.x = map;
        merge.line = (uint64_t)stage->width * stage->channels;
    } else {
        WA_TRY(wa_row_append(&stage->merger.neighbours, &neighbours, chain));
    }
    return append_normed(stage->merger.linear, &stage->merger.norm, &merge,
                         chain);
}

static winattn_status append_head(const winattn_model *model,
                                  const winattn_model_call *call,
                                  wa_kernel_chain *chain)
{
    const wa_model_weights *w = &model->weights;
    const uint32_t last = model->config.stages - 1;
    const winattn_tensor features =
        call->features.buffer ? call->features : at(call, model->features_at);
    const wa_row_call pool = {.rows = model->desc.batch,
                              .from = map_of(model, call, last),
                              .weight = w->norm_weight,
                              .bias = w->norm_bias,
                              .to = features,
                              .eps = model->config.norm_eps,
                              .tokens = (uint64_t)model->stages[last].height *
                                        model->stages[last].width};
    const wa_layer_call head = {.rows = model->desc.batch,
                                .x = features,
                                .weight = w->head_weight,
                                .bias = w->head_bias,
                                .y = call->logits};
    WA_TRY(wa_row_append(&model->pool, &pool, chain));
    return call->logits.buffer
               ? wa_chain_append_linear(chain, model->head, &head)
               : WINATTN_SUCCESS;
}

static winattn_status append_all(const winattn_model *model,
                                 const winattn_model_call *call, uint32_t last,
                                 wa_kernel_chain *chain)
{
    WA_TRY(wa_model_append_embedding(model, call, at(call, model->part_at),
                                     map_of(model, call, 0), chain));
    for (uint32_t i = 0; i <= last; i++) {
        WA_TRY(append_blocks(model, call, i, chain));
        if (i < last)
            WA_TRY(wa_model_append_merger(model, i, map_of(model, call, i),
                                          at(call, model->part_at),
                                          map_of(model, call, i + 1), chain));
    }
    return call->logits.buffer || call->features.buffer
               ? append_head(model, call, chain)
               : WINATTN_SUCCESS;
}

winattn_status
winattn_enqueue_model(const winattn_model *model, cl_command_queue queue,
                      const winattn_model_call *call, cl_uint wait_count,
                      const cl_event *wait_list, cl_event *event)
{
    winattn_model_call own;
    wa_kernel_chain chain;
    uint32_t last = 0;
    uint64_t start = 0;
    WA_TRY(wa_models_begin());
    WA_WANT(model, "model");
    WA_TRY(wa_read_struct("model_call", call, &own, sizeof own, sizeof own));
    WA_TRY(wa_check_order(model->session, queue, wait_count, wait_list));
    WA_TRY(check_call(model, &own, &last, &start));
    WA_TRY(wa_models_chain_begin(&chain, queue, wait_count, wait_list, event));
    chain.start = start;
    wa_lock_take(model->lock);
    const winattn_status status = append_all(model, &own, last, &chain);
    wa_lock_release(model->lock);
    return wa_models_chain_end(&chain, status, event);
}
