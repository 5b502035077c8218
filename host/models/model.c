/* SPDX-License-Identifier: Apache-2.0
 * Models: how they are made of blocks, linear layers and rows. */
#include "models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "models/attention.h"
#include "models/levels.h"
#include "models/swin_rules.h"

/* ---- Shape ---- */

static winattn_status read_desc(const winattn_model_desc *given,
                                const winattn_swin_weights *weights,
                                winattn_model *model)
{
    winattn_model_desc *desc = &model->desc;
    WA_TRY(
        wa_read_struct("model_desc", given, desc, sizeof *desc, sizeof *desc));
    WA_WANT(weights, "weights");
    WA_TRY(wa_check_types(desc->dtype, desc->tier));
    model->config = weights->config;
    const wa_swin_config *config = &model->config;
    if (config->in_channels > 4)
        return WA_UNSUPPORTED("pictures have %u channels, more than 4",
                              config->in_channels);
    if (desc->batch == 0)
        return WA_INVALID("batch is 0");
    if (wa_swin_patches(config, 0, desc->height) == 0 ||
        wa_swin_patches(config, 1, desc->width) == 0)
        return WA_INVALID(
            "pictures of %u x %u are smaller than a patch, %u x %u",
            desc->height, desc->width, config->patch[0], config->patch[1]);
    if ((unsigned)desc->pictures > WINATTN_PICTURES_PLANES)
        return WA_INVALID("pictures is none of WINATTN_PICTURES_");
    return WINATTN_SUCCESS;
}

static winattn_status set_shapes(winattn_model *model)
{
    const winattn_model_desc *desc = &model->desc;
    const wa_swin_config *config = &model->config;
    const uint64_t pixels =
        wa_product((uint64_t)desc->height * desc->width,
                   (uint64_t)desc->batch * config->in_channels);
    /* no tensor has 2^9 times as many elements */
    if (pixels > UINT64_MAX / 4096)
        return WA_BAD_LAYOUT("pictures have more bytes than can be counted");
    model->picture_bytes =
        pixels * (desc->pictures == WINATTN_PICTURES_BYTES ? 1 : 4);
    uint32_t height = wa_swin_patches(config, 0, desc->height);
    uint32_t width = wa_swin_patches(config, 1, desc->width);
    for (uint32_t i = 0; i < config->stages; i++) {
        wa_model_stage *stage = &model->stages[i];
        stage->height = height;
        stage->width = width;
        stage->channels = wa_swin_channels(config, i);
        stage->depth = config->depths[i];
        stage->tokens = wa_product((uint64_t)height * width, desc->batch);
        stage->map_bytes =
            wa_product(stage->tokens, (uint64_t)stage->channels *
                                          wa_element_size(desc->dtype));
        if (stage->tokens > UINT32_MAX)
            return WA_UNSUPPORTED("a stage has 2^32 tokens or more");
        if (stage->map_bytes > SIZE_MAX / 64)
            return WA_BAD_LAYOUT(
                "the workspace has more bytes than the host can count");
        height = height / 2 + height % 2;
        width = width / 2 + width % 2;
    }
    return WINATTN_SUCCESS;
}

/* ---- Plans ---- */

static wa_layer_maker maker_of(const winattn_model *model,
                               const char *build_options, uint64_t rows)
{
    return (wa_layer_maker){model->session,   model->desc.dtype,
                            model->desc.tier, model->desc.allow_tf32,
                            build_options,    rows};
}

winattn_status wa_model_make_linear(const winattn_model *model,
                                    const char *build_options, uint32_t in,
                                    uint32_t out, bool has_bias,
                                    winattn_linear_plan **plan)
{
    const wa_layer_maker maker = maker_of(model, build_options, 0);
    return wa_make_layer(
        &maker, &(wa_layer){.in = in, .out = out, .has_bias = has_bias}, plan);
}

winattn_status wa_model_make_rows(const winattn_model *model,
                                  const char *build_options, wa_row_job job,
                                  uint32_t size, wa_row_plan *plan)
{
    const wa_row_desc desc = {
        .job = job,
        .dtype = model->desc.dtype,
        .on_cpu = wa_row_on_cpu(model->session, model->desc.tier),
        .row_size = size,
        .picture = model->desc.pictures,
        .picture_channels = model->config.in_channels,
        .patch = {model->config.patch[0], model->config.patch[1]},
        .build_options = build_options};
    return wa_row_plan_make(model->session, &desc, plan);
}

/* A layer whose rows are normalised: by itself, if it can, and else by *norm.
 */
static winattn_status make_normed(const winattn_model *model,
                                  const wa_layer *layer, uint64_t rows,
                                  winattn_linear_plan **plan,
                                  wa_row_plan *norm)
{
    const char *options = model->desc.build_options;
    const wa_layer_maker maker = maker_of(model, options, rows);
    WA_TRY(wa_make_layer(&maker, layer, plan));
    return (*plan)->problem.norms
               ? WINATTN_SUCCESS
               : wa_model_make_rows(model, options, WA_ROW_NORM, layer->out,
                                    norm);
}

static winattn_status make_block(winattn_model *model, uint32_t number,
                                 bool shifted, bool folds,
                                 winattn_block_plan **plan)
{
    const wa_swin_config *config = &model->config;
    const wa_model_stage *stage = &model->stages[number];
    const bool is_v2 = config->generation == 2;
    winattn_block_desc block = {.struct_size = sizeof block};
    block.dtype = model->desc.dtype;
    block.tier = model->desc.tier;
    block.allow_tf32 = model->desc.allow_tf32;
    block.variant = is_v2 ? WINATTN_COSINE : WINATTN_DOT;
    block.order = is_v2 ? WINATTN_POST_NORM : WINATTN_PRE_NORM;
    block.batch = model->desc.batch;
    block.height = stage->height;
    block.width = stage->width;
    block.channels = stage->channels;
    block.heads = config->heads[number];
    block.hidden = config->hidden[number];
    block.eps = config->norm_eps;
    block.table_dtype = wa_model_table_dtype(config, model->desc.dtype);
    block.build_options = model->desc.build_options;
    memcpy(block.window, config->window[number], sizeof block.window);
    block.grid_options = WINATTN_GRID_SHIFT_ALL; /* as wa_swin_shift says */
    if (wa_swin_rules_of(config)->rolls_first)
        block.grid_options |= WINATTN_GRID_ROLL_FIRST;
    if (shifted)
        wa_swin_shift(config, number,
                      (uint32_t[2]){stage->height, stage->width}, block.shift);
    if (shifted && block.shift[0] == 0 && block.shift[1] == 0)
        return WINATTN_SUCCESS; /* as the others */
    return wa_block_plan_make(wa_session_context(model->session),
                              wa_session_device_id(model->session), &block,
                              folds, plan);
}

/* Both kinds of a stage's blocks fold norms into layers, and alike, or neither
 * does: they hand statistics on. */
static winattn_status make_blocks(winattn_model *model, uint32_t number,
                                  bool folds)
{
    wa_model_stage *stage = &model->stages[number];
    WA_TRY(make_block(model, number, false, folds, &stage->plain));
    if (stage->depth > 1)
        WA_TRY(make_block(model, number, true, folds, &stage->shifted));
    if (!stage->shifted ||
        wa_block_norms_in(stage->plain) == wa_block_norms_in(stage->shifted))
        return WINATTN_SUCCESS;
    winattn_block_plan_destroy(stage->plain);
    winattn_block_plan_destroy(stage->shifted);
    stage->plain = stage->shifted = NULL;
    return make_blocks(model, number, false);
}

/* In calls of few rows the layer gathers neighbours by itself, where none is
 * behind the map's end, and normalises them. */
static winattn_status make_merger(winattn_model *model, uint32_t number)
{
    wa_model_stage *stage = &model->stages[number];
    wa_merger *merger = &stage->merger;
    const bool is_v2 = model->config.generation == 2;
    const char *options = model->desc.build_options;
    const uint32_t in = 4 * stage->channels, out = stage[1].channels;
    const wa_layer_maker maker = maker_of(model, options, stage[1].tokens);
    wa_layer layer = {.in = in,
                      .out = out,
                      .norms = is_v2 ? 0 : WA_FINDS_STATISTICS,
                      .merges = true};
    if (stage->height % 2 != 0 || stage->width % 2 != 0 ||
        !wa_layer_may_be(&maker, &layer)) {
        layer.norms = is_v2 ? WA_NORMALISES : 0;
        layer.merges = false;
    }
    if (is_v2)
        WA_TRY(make_normed(model, &layer, stage[1].tokens, &merger->linear,
                           &merger->norm));
    else
        WA_TRY(wa_make_layer(&maker, &layer, &merger->linear));
    return merger->linear->problem.merges
               ? WINATTN_SUCCESS
               : wa_model_make_rows(model, options,
                                    is_v2 ? WA_ROW_MERGE : WA_ROW_MERGE_NORM,
                                    in, &merger->neighbours);
}

static winattn_status make_stage(winattn_model *model, uint32_t number)
{
    WA_TRY(make_blocks(model, number, true));
    return number + 1 < model->config.stages ? make_merger(model, number)
                                             : WINATTN_SUCCESS;
}

static winattn_status make_plans(winattn_model *model)
{
    const wa_swin_config *config = &model->config;
    const uint32_t patch =
        config->in_channels * config->patch[0] * config->patch[1];
    const uint32_t last = wa_swin_channels(config, config->stages - 1);
    const char *options = model->desc.build_options;
    WA_TRY(wa_model_make_rows(model, options, WA_ROW_EMBED, patch,
                              &model->embed));
    WA_TRY(make_normed(model,
                       &(wa_layer){.in = patch,
                                   .out = config->channels,
                                   .has_bias = true,
                                   .norms = WA_NORMALISES},
                       model->stages[0].tokens, &model->patch,
                       &model->embed_norm));
    for (uint32_t i = 0; i < config->stages; i++)
        WA_TRY(make_stage(model, i));
    if (!config->no_norm)
        WA_TRY(wa_model_make_rows(model, options, WA_ROW_POOL, last,
                                  &model->pool));
    return config->classes
               ? wa_model_make_linear(model, options, last, config->classes,
                                      true, &model->head)
               : WINATTN_SUCCESS;
}

/* Two maps take turns, as one is made of the other; all else that is between
 * shares a place. */
static void lay_out(winattn_model *model)
{
    const wa_swin_config *config = &model->config;
    const uint32_t size = wa_element_size(model->desc.dtype);
    const uint64_t last = wa_swin_channels(config, config->stages - 1);
    uint64_t maps[2] = {0, 0};
    uint64_t part = model->stages[0].tokens * config->in_channels *
                    config->patch[0] * config->patch[1] * size;
    for (uint32_t i = 0; i < config->stages; i++) {
        const wa_model_stage *stage = &model->stages[i];
        const uint64_t block = wa_block_workspace(stage->plain);
        const uint64_t shifted =
            stage->shifted ? wa_block_workspace(stage->shifted) : 0;
        /* odd maps are padded before they are merged */
        const uint64_t merged =
            i + 1 < config->stages
                ? model->stages[i + 1].tokens * 4 * stage->channels * size
                : 0;
        maps[i % 2] =
            stage->map_bytes > maps[i % 2] ? stage->map_bytes : maps[i % 2];
        /* statistics are where the map is that is not in use */
        const uint64_t statistics = wa_block_statistics(stage->plain);
        uint64_t *other = &maps[(i + 1) % 2];
        *other = statistics > *other ? statistics : *other;
        part = block > part ? block : part;
        part = shifted > part ? shifted : part;
        part = merged > part ? merged : part;
    }
    model->map_at[0] = 0;
    model->map_at[1] = wa_part_bytes(maps[0]);
    model->part_at = model->map_at[1] + wa_part_bytes(maps[1]);
    model->features_at = model->part_at + wa_part_bytes(part);
    model->workspace =
        model->features_at +
        wa_part_bytes((uint64_t)model->desc.batch * last * size);
}

static void find_norms(const winattn_model *model,
                       wa_stage_norms norms[WA_SWIN_STAGES])
{
    memset(norms, 0, WA_SWIN_STAGES * sizeof *norms); /* WA_NORMS_ALONE */
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        const wa_model_stage *stage = &model->stages[i];
        if (stage->plain)
            norms[i].blocks = wa_block_norms_in(stage->plain);
        if (stage->merger.linear &&
            stage->merger.linear->problem.norms == WA_FINDS_STATISTICS)
            norms[i].merger = WA_NORMS_IN_LAYERS;
    }
}

winattn_status winattn_model_create(cl_context context, cl_device_id device,
                                    const winattn_model_desc *desc,
                                    const winattn_swin_weights *weights,
                                    winattn_model **result)
{
    WA_TRY(wa_models_begin());
    WA_WANT(result, "model");
    *result = NULL;
    winattn_model *model = calloc(1, sizeof *model);
    WA_TRY_MEMORY(model);
    wa_stage_norms norms[WA_SWIN_STAGES];
    winattn_status status = read_desc(desc, weights, model);
    WA_THEN(status, set_shapes(model));
    WA_THEN(status, wa_session_acquire(context, device, &model->session));
    if (status == WINATTN_SUCCESS && !(model->lock = wa_lock_create()))
        status = wa_fail_memory();
    WA_THEN(status, make_plans(model));
    find_norms(model, norms);
    WA_THEN(status,
            wa_model_weights_make(model->session, weights, &model->desc, norms,
                                  &model->weights));
    if (status != WINATTN_SUCCESS) {
        winattn_model_destroy(model);
        return status;
    }
    lay_out(model);
    model->desc.build_options = NULL; /* the caller's memory */
    *result = model;
    return WINATTN_SUCCESS;
}

void winattn_model_destroy(winattn_model *model)
{
    if (!model || wa_session_is_inherited(model->session))
        return;
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        wa_model_stage *stage = &model->stages[i];
        winattn_block_plan_destroy(stage->plain);
        winattn_block_plan_destroy(stage->shifted);
        wa_row_plan_release(&stage->merger.neighbours);
        wa_row_plan_release(&stage->merger.norm);
        winattn_linear_plan_destroy(stage->merger.linear);
    }
    wa_row_plan_release(&model->embed);
    wa_row_plan_release(&model->embed_norm);
    wa_row_plan_release(&model->pool);
    winattn_linear_plan_destroy(model->patch);
    winattn_linear_plan_destroy(model->head);
    wa_model_weights_release(&model->weights);
    wa_lock_destroy(model->lock);
    wa_session_release(model->session);
    free(model);
}

/* ---- What it says of itself ---- */

winattn_status winattn_model_workspace_size(const winattn_model *model,
                                            size_t *size)
{
    WA_TRY(wa_models_begin());
    WA_WANT(model, "model");
    WA_WANT(size, "size");
    *size = (size_t)model->workspace;
    return WINATTN_SUCCESS;
}

winattn_status winattn_model_map_shape(const winattn_model *model,
                                       cl_uint stage, cl_uint shape[4])
{
    WA_TRY(wa_models_begin());
    WA_WANT(model, "model");
    WA_WANT(shape, "shape");
    if (stage >= model->config.stages)
        return WA_INVALID("stage %u is none of the %u that there are", stage,
                          model->config.stages);
    const wa_model_stage *s = &model->stages[stage];
    shape[0] = model->desc.batch;
    shape[1] = s->height;
    shape[2] = s->width;
    shape[3] = s->channels;
    return WINATTN_SUCCESS;
}

static winattn_status describe_block(const void *plan, size_t size, char *text,
                                     size_t *needed)
{
    return winattn_block_plan_describe(plan, size, text, needed);
}

/* A layer that may have the norm behind it. */
static winattn_status describe_layer(const char *name,
                                     const winattn_linear_plan *plan,
                                     uint64_t rows, char *text, size_t size)
{
    if (plan->problem.norms)
        wa_append(text, size, "%s norm: in %s\n", name, name);
    return wa_describe_layer(name, plan, rows, text, size);
}

static winattn_status describe_stage(const winattn_model *model,
                                     uint32_t number, char *text, size_t size)
{
    const wa_model_stage *stage = &model->stages[number];
    char name[32];
    wa_append(text, size, "stage%u: %u blocks on %u x %u x %u\n", number,
              stage->depth, stage->height, stage->width, stage->channels);
    snprintf(name, sizeof name, "stage%u", number);
    WA_TRY(wa_describe_part(name, describe_block, stage->plain, text, size));
    if (stage->shifted) {
        snprintf(name, sizeof name, "stage%u shifted", number);
        WA_TRY(wa_describe_part(name, describe_block, stage->shifted, text,
                                size));
    }
    if (!stage->merger.linear)
        return WINATTN_SUCCESS;
    const uint64_t rows = stage[1].tokens;
    snprintf(name, sizeof name, "stage%u neighbours", number);
    if (stage->merger.neighbours.kernel)
        wa_row_describe(&stage->merger.neighbours, name, rows, text, size);
    else
        wa_append(text, size, "%s: in stage%u merger\n", name, number);
    snprintf(name, sizeof name, "stage%u merger", number);
    return describe_layer(name, stage->merger.linear, rows, text, size);
}

static winattn_status describe(const winattn_model *model, char *text,
                               size_t size)
{
    const winattn_model_desc *desc = &model->desc;
    wa_append(text, size, "model: Swin%s, %u pictures of %u x %u\n",
              model->config.generation == 2 ? " V2" : "", desc->batch,
              desc->height, desc->width);
    wa_append(text, size, "rules: ");
    wa_swin_rules_say(&model->config, text, size);
    wa_append(text, size, "\nweights: %llu bytes\nworkspace: %llu bytes\n",
              (unsigned long long)model->weights.bytes,
              (unsigned long long)model->workspace);
    const wa_model_stage *first = &model->stages[0];
    const wa_model_stage *last = &model->stages[model->config.stages - 1];
    wa_row_describe(&model->embed, "patches", first->tokens, text, size);
    WA_TRY(describe_layer("patch", model->patch, first->tokens, text, size));
    for (uint32_t i = 0; i < model->config.stages; i++)
        WA_TRY(describe_stage(model, i, text, size));
    if (!model->config.no_norm)
        wa_row_describe(&model->pool, "pool", last->tokens, text, size);
    return model->head ? wa_describe_layer("head", model->head, desc->batch,
                                           text, size)
                       : WINATTN_SUCCESS;
}

winattn_status winattn_model_describe(const winattn_model *model, size_t size,
                                      char *text, size_t *needed)
{
    const size_t most = 262144;
    WA_TRY(wa_models_begin());
    WA_WANT(model, "model");
    char *all = calloc(most, 1);
    WA_TRY_MEMORY(all);
    winattn_status status = describe(model, all, most);
    WA_THEN(status, wa_give_text(all, size, text, needed));
    free(all);
    return status;
}
