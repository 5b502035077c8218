/* SPDX-License-Identifier: Apache-2.0
 * A file's tensors, one by one, into a Swin's weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "models/levels.h"
#include "models/swin_file.h"
#include "models/swin_rules.h"

/* The first time round, tensors are looked at only: what a file does not have,
 * it must not make us take memory for. */
typedef struct loader {
    const wa_swin_file *file;
    bool only_looks;
    bool has_qkv_bias; /* any block; else none has, and they are 0 */
    bool *used;        /* per tensor of the file */
    bool types[WA_TENSOR_OTHER];
    uint64_t position_steps;
} loader;

/* ---- One tensor ---- */

/* The tensor of that name and shape. */
static winattn_status find(loader *l, const char *name, uint32_t axes,
                           const uint64_t *extent,
                           const wa_file_tensor **found)
{
    char has[WA_SHAPE_TEXT], needs[WA_SHAPE_TEXT];
    const wa_file_tensor *tensor = wa_safetensors_find(l->file->tensors, name);
    if (!tensor)
        return wa_fail(WINATTN_INVALID_FILE, "%s: the file lacks this tensor",
                       name);
    if (tensor->axes != axes ||
        memcmp(tensor->extent, extent, axes * sizeof *extent) != 0) {
        wa_shape_text(tensor->axes, tensor->extent, has);
        wa_shape_text(axes, extent, needs);
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s: has shape %s; this model needs %s", name, has,
                       needs);
    }
    l->used[tensor - wa_safetensors_at(l->file->tensors, 0)] = true;
    if (tensor->type < WA_TENSOR_OTHER)
        l->types[tensor->type] = true;
    *found = tensor;
    return WINATTN_SUCCESS;
}

static winattn_status take(loader *l, const char *name, const float *to,
                           uint32_t axes, const uint64_t *extent)
{
    const wa_file_tensor *tensor = NULL;
    WA_TRY(find(l, name, axes, extent, &tensor));
    return l->only_looks ? WINATTN_SUCCESS
                         : wa_tensor_floats(tensor, wa_writable(to));
}

/* From the start-th number on, of an array that may not be there yet. */
static const float *part_of(const float *values, uint64_t start)
{
    return values ? values + start : NULL;
}

/* Shapes by their extents. */
#define AXES(...)                                                             \
    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[])        \
    {                                                                         \
        __VA_ARGS__                                                           \
    }

/* ---- Blocks ---- */

/* Where the tensors of a block, or of a merging, are. */
typedef struct place {
    uint32_t stage, block;
} place;

static winattn_status take_part(loader *l, place at, wa_swin_part part,
                                const char *suffix, const float *to,
                                uint32_t axes, const uint64_t *extent)
{
    char name[WA_NAME_SIZE];
    wa_name_block(l->file->names, l->file->prefix.model, at.stage, at.block,
                  part, suffix, name);
    return take(l, name, to, axes, extent);
}

static winattn_status take_linear(loader *l, place at, wa_swin_part part,
                                  const float *weight, const float *bias,
                                  uint64_t outputs, uint64_t inputs)
{
    WA_TRY(take_part(l, at, part, "weight", weight, AXES(outputs, inputs)));
    return take_part(l, at, part, "bias", bias, AXES(outputs));
}

static winattn_status take_norm(loader *l, place at, wa_swin_part part,
                                const float *weight, const float *bias,
                                uint64_t channels)
{
    WA_TRY(take_part(l, at, part, "weight", weight, AXES(channels)));
    return take_part(l, at, part, "bias", bias, AXES(channels));
}

/* Three projections become one; k has no bias in generation 2. */
static winattn_status join_qkv(loader *l, place at,
                               const wa_swin_block_weights *block,
                               uint64_t channels, uint32_t generation)
{
    for (uint32_t i = 0; i < 3; i++) {
        const wa_swin_part part = (wa_swin_part)(WA_PART_QUERY + i);
        WA_TRY(take_part(l, at, part, "weight",
                         part_of(block->qkv_weight, i * channels * channels),
                         AXES(channels, channels)));
        if (l->has_qkv_bias && (generation == 1 || part != WA_PART_KEY))
            WA_TRY(take_part(l, at, part, "bias",
                             part_of(block->qkv_bias, i * channels),
                             AXES(channels)));
    }
    return WINATTN_SUCCESS;
}

/* Of generation 2, biases stand by themselves, or k's is without effect. */
static winattn_status take_qkv_bias(loader *l, place at,
                                    const wa_swin_block_weights *block,
                                    uint64_t channels, uint32_t generation)
{
    const bool separate =
        generation == 2 && (wa_swin_find(l->file, at.stage, at.block,
                                         WA_PART_ATTENTION, "q_bias") ||
                            wa_swin_find(l->file, at.stage, at.block,
                                         WA_PART_ATTENTION, "v_bias"));
    if (!l->has_qkv_bias)
        return WINATTN_SUCCESS;
    if (!separate)
        WA_TRY(take_part(l, at, WA_PART_QKV, "bias", block->qkv_bias,
                         AXES(3 * channels)));
    else {
        WA_TRY(take_part(l, at, WA_PART_ATTENTION, "q_bias", block->qkv_bias,
                         AXES(channels)));
        WA_TRY(take_part(l, at, WA_PART_ATTENTION, "v_bias",
                         part_of(block->qkv_bias, 2 * channels),
                         AXES(channels)));
    }
    if (generation == 2 && !l->only_looks)
        memset(wa_writable(block->qkv_bias + channels), 0,
               (size_t)channels * sizeof(float));
    return WINATTN_SUCCESS;
}

/* The three tensors of a position MLP, one behind the other. */
static winattn_status take_mlp(loader *l, place at, uint64_t units,
                               uint64_t heads, const float *values)
{
    WA_TRY(take_part(l, at, WA_PART_POSITION_MLP, "0.weight", values,
                     AXES(units, 2)));
    WA_TRY(take_part(l, at, WA_PART_POSITION_MLP, "0.bias",
                     part_of(values, 2 * units), AXES(units)));
    return take_part(l, at, WA_PART_POSITION_MLP, "2.weight",
                     part_of(values, 3 * units), AXES(heads, units));
}

/* The file says how many units there are: that many only once all three
 * tensors are known to have them, and in all blocks no more than a model can
 * have. */
static winattn_status take_positions(loader *l, const wa_swin_config *config,
                                     place at,
                                     const wa_swin_block_weights *block)
{
    const uint64_t heads = config->heads[at.stage];
    const wa_file_tensor *inner = wa_swin_find(
        l->file, at.stage, at.block, WA_PART_POSITION_MLP, "0.weight");
    const uint64_t units = inner && inner->axes ? inner->extent[0] : 0;
    if (units > WA_SWIN_HIDDEN_MOST)
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s: has %llu units, more than %u", inner->name,
                       (unsigned long long)units, WA_SWIN_HIDDEN_MOST);
    if (l->only_looks) {
        WA_TRY(take_mlp(l, at, units, heads, NULL));
        l->position_steps += wa_position_steps(config, at.stage, units);
        if (l->position_steps > WA_POSITION_STEPS_MOST)
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: the position MLPs up to this one are for more "
                           "windows, heads and units than any model has",
                           inner->name);
        return WINATTN_SUCCESS;
    }
    float *values = malloc((size_t)(units * (3 + heads) + 1) * sizeof *values);
    WA_TRY_MEMORY(values);
    const winattn_status status = take_mlp(l, at, units, heads, values);
    if (status == WINATTN_SUCCESS)
        wa_position_table(config, at.stage, units, values, values + 2 * units,
                          values + 3 * units, wa_writable(block->table));
    free(values);
    return status;
}

static winattn_status load_block(loader *l, const wa_swin_config *config,
                                 place at, const wa_swin_block_weights *block)
{
    const uint64_t channels = wa_swin_channels(config, at.stage);
    const uint64_t hidden = config->hidden[at.stage];
    const uint64_t heads = config->heads[at.stage];
    WA_TRY(take_norm(l, at, WA_PART_NORM1, block->norm1_weight,
                     block->norm1_bias, channels));
    WA_TRY(take_norm(l, at, WA_PART_NORM2, block->norm2_weight,
                     block->norm2_bias, channels));
    if (l->file->names->parts[WA_PART_QKV]) {
        WA_TRY(take_part(l, at, WA_PART_QKV, "weight", block->qkv_weight,
                         AXES(3 * channels, channels)));
        WA_TRY(take_qkv_bias(l, at, block, channels, config->generation));
    } else {
        WA_TRY(join_qkv(l, at, block, channels, config->generation));
    }
    WA_TRY(take_linear(l, at, WA_PART_PROJ, block->proj_weight,
                       block->proj_bias, channels, channels));
    WA_TRY(take_linear(l, at, WA_PART_FC1, block->fc1_weight, block->fc1_bias,
                       hidden, channels));
    WA_TRY(take_linear(l, at, WA_PART_FC2, block->fc2_weight, block->fc2_bias,
                       channels, hidden));
    if (config->generation == 1)
        return take_part(l, at, WA_PART_ATTENTION,
                         "relative_position_bias_table", block->table,
                         AXES(wa_table_entries(config, at.stage), heads));
    WA_TRY(take_part(l, at, WA_PART_ATTENTION, "logit_scale",
                     block->logit_scale, AXES(heads, 1, 1)));
    return take_positions(l, config, at, block);
}

/* ---- The rest ---- */

static winattn_status take_merge(loader *l, uint32_t stage, wa_swin_part part,
                                 const char *suffix, const float *to,
                                 uint32_t axes, const uint64_t *extent)
{
    char name[WA_NAME_SIZE];
    wa_name_merge(l->file->names, l->file->prefix.model, stage, part, suffix,
                  name);
    return take(l, name, to, axes, extent);
}

static winattn_status load_stage(loader *l, const wa_swin_weights *w,
                                 uint32_t stage)
{
    const wa_swin_config *config = &w->config;
    const wa_swin_stage_weights *s = &w->stages[stage];
    const uint64_t channels = wa_swin_channels(config, stage);
    const uint64_t normed = channels * (config->generation == 2 ? 2 : 4);
    for (uint32_t block = 0; block < config->depths[stage]; block++)
        WA_TRY(
            load_block(l, config, (place){stage, block}, &s->blocks[block]));
    if (stage + 1 == config->stages)
        return WINATTN_SUCCESS;
    WA_TRY(take_merge(l, stage, WA_PART_MERGE_NORM, "weight",
                      s->merge_norm_weight, AXES(normed)));
    WA_TRY(take_merge(l, stage, WA_PART_MERGE_NORM, "bias", s->merge_norm_bias,
                      AXES(normed)));
    return take_merge(l, stage, WA_PART_MERGE_LINEAR, "weight",
                      s->merge_weight, AXES(2 * channels, 4 * channels));
}

static winattn_status take_rest(loader *l, const char *prefix,
                                const char *part, const char *suffix,
                                const float *to, uint32_t axes,
                                const uint64_t *extent)
{
    char name[WA_NAME_SIZE];
    wa_name_rest(prefix, part, suffix, name);
    return take(l, name, to, axes, extent);
}

static winattn_status load_ends(loader *l, const wa_swin_weights *w)
{
    const wa_swin_names *names = l->file->names;
    const wa_swin_config *c = &w->config;
    const char *prefix = l->file->prefix.model;
    const uint64_t first = c->channels;
    const uint64_t last = wa_swin_channels(c, c->stages - 1);
    WA_TRY(take_rest(l, prefix, names->patch, "weight", w->patch_weight,
                     AXES(first, c->in_channels, c->patch[0], c->patch[1])));
    WA_TRY(take_rest(l, prefix, names->patch, "bias", w->patch_bias,
                     AXES(first)));
    WA_TRY(take_rest(l, prefix, names->patch_norm, "weight",
                     w->patch_norm_weight, AXES(first)));
    WA_TRY(take_rest(l, prefix, names->patch_norm, "bias", w->patch_norm_bias,
                     AXES(first)));
    if (c->no_norm)
        return WINATTN_SUCCESS;
    WA_TRY(take_rest(l, prefix, names->norm, "weight", w->norm_weight,
                     AXES(last)));
    WA_TRY(
        take_rest(l, prefix, names->norm, "bias", w->norm_bias, AXES(last)));
    if (!c->classes)
        return WINATTN_SUCCESS;
    WA_TRY(take_rest(l, l->file->prefix.wrapper, names->head, "weight",
                     w->head_weight, AXES(c->classes, last)));
    return take_rest(l, l->file->prefix.wrapper, names->head, "bias",
                     w->head_bias, AXES(c->classes));
}

/* What is not behind the wrapper's prefix is of something else, of which the
 * model is a part. */
static bool is_outside(const loader *l, const char *name)
{
    const char *wrapper = l->file->prefix.wrapper;
    return strncmp(name, wrapper, strlen(wrapper)) != 0;
}

static winattn_status check_rest(const loader *l)
{
    const wa_safetensors *tensors = l->file->tensors;
    for (size_t i = 0; i < wa_safetensors_count(tensors); i++) {
        const char *name = wa_safetensors_at(tensors, i)->name;
        if (!l->used[i] && !is_outside(l, name) && !wa_name_is_buffer(name))
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: this model has no such tensor; names are "
                           "taken for those of %s",
                           name, l->file->names->origin);
    }
    return WINATTN_SUCCESS;
}

static void describe(const loader *l, wa_swin_weights *w)
{
    static const char *const types[] = {"F32", "F16", "BF16"};
    const wa_safetensors *tensors = l->file->tensors;
    const char *between = " in ";
    size_t others = 0;
    w->origin[0] = 0;
    wa_append(w->origin, sizeof w->origin, "names of %s",
              l->file->names->origin);
    if (l->file->prefix.wrapper[0])
        wa_append(w->origin, sizeof w->origin, " behind %.64s",
                  l->file->prefix.wrapper);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (l->types[i]) {
            wa_append(w->origin, sizeof w->origin, "%s%s", between, types[i]);
            between = ", ";
        }
    for (size_t i = 0; i < wa_safetensors_count(tensors); i++)
        others += is_outside(l, wa_safetensors_at(tensors, i)->name);
    if (others)
        wa_append(w->origin, sizeof w->origin,
                  ", without %zu tensors of other parts", others);
    wa_append(w->origin, sizeof w->origin, "; ");
    wa_swin_rules_say(&w->config, w->origin, sizeof w->origin);
}

static winattn_status load_all(loader *l, wa_swin_weights *w)
{
    for (uint32_t i = 0; i < w->config.stages; i++)
        WA_TRY(load_stage(l, w, i));
    return load_ends(l, w);
}

winattn_status wa_swin_load(const wa_swin_file *file,
                            const wa_swin_config *config,
                            wa_swin_weights **weights)
{
    loader l = {.file = file, .only_looks = true};
    WA_TRY(wa_swin_weights_create(config, weights));
    wa_swin_weights *w = *weights;
    l.has_qkv_bias = wa_swin_has_qkv_bias(file, config);
    l.used = calloc(wa_safetensors_count(file->tensors) + 1, sizeof *l.used);
    winattn_status status = l.used ? load_all(&l, w) : wa_fail_memory();
    WA_THEN(status, check_rest(&l));
    WA_THEN(status, wa_swin_weights_allocate(w));
    l.only_looks = false;
    WA_THEN(status, load_all(&l, w));
    if (status == WINATTN_SUCCESS)
        describe(&l, w);
    free(l.used);
    if (status != WINATTN_SUCCESS) {
        winattn_swin_weights_destroy(w);
        *weights = NULL;
    }
    return status;
}
