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
        return WA_BAD_FILE("%s: the file lacks this tensor", name);
    if (tensor->axes != axes ||
        memcmp(tensor->extent, extent, axes * sizeof *extent) != 0) {
        wa_shape_text(tensor->axes, tensor->extent, has);
        wa_shape_text(axes, extent, needs);
        return WA_BAD_FILE("%s: has shape %s; this model needs %s", name, has,
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

/* ---- Blocks ---- */

/* A tensor of the same block, of a shape of its own. */
static winattn_status take_part(loader *l, const wa_swin_tensor *t,
                                wa_swin_part part, const char *suffix,
                                const float *to, uint32_t axes,
                                const uint64_t *extent)
{
    char name[WA_NAME_SIZE];
    wa_name_block(l->file->names, l->file->prefix.model, t->stage, t->block,
                  part, suffix, name);
    return take(l, name, to, axes, extent);
}

/* Three projections become one; k has no bias in generation 2. */
static winattn_status join_qkv(loader *l, const wa_swin_tensor *t,
                               const float *to)
{
    const bool is_bias = t->index == WA_BLOCK_QKV_BIAS;
    const uint64_t extent[] = {t->extent[0] / 3, t->extent[1]};
    for (uint32_t i = 0; i < 3; i++) {
        const wa_swin_part part = (wa_swin_part)(WA_PART_QUERY + i);
        if (!is_bias || t->config->generation == 1 || part != WA_PART_KEY)
            WA_TRY(take_part(l, t, part, is_bias ? "bias" : "weight",
                             part_of(to, i * t->count / 3), t->axes, extent));
    }
    return WINATTN_SUCCESS;
}

/* Of generation 2, biases stand by themselves, or k's is without effect. */
static winattn_status take_qkv_bias(loader *l, const wa_swin_tensor *t,
                                    const float *to)
{
    const bool is_v2 = t->config->generation == 2;
    const uint64_t channels = t->count / 3;
    const bool separate =
        is_v2 && (wa_swin_find(l->file, t->stage, t->block, WA_PART_ATTENTION,
                               "q_bias") ||
                  wa_swin_find(l->file, t->stage, t->block, WA_PART_ATTENTION,
                               "v_bias"));
    if (separate) {
        WA_TRY(take_part(l, t, WA_PART_ATTENTION, "q_bias", to, 1, &channels));
        WA_TRY(take_part(l, t, WA_PART_ATTENTION, "v_bias",
                         part_of(to, 2 * channels), 1, &channels));
    } else {
        WA_TRY(take_part(l, t, WA_PART_QKV, "bias", to, 1, &t->count));
    }
    if (is_v2 && !l->only_looks)
        memset(wa_writable(to + channels), 0,
               (size_t)channels * sizeof(float));
    return WINATTN_SUCCESS;
}

/* The three tensors of a position MLP, one behind the other. */
static winattn_status take_mlp(loader *l, const wa_swin_tensor *t,
                               uint64_t units, const float *values)
{
    const uint64_t first[] = {units, 2}, second[] = {t->extent[1], units};
    WA_TRY(
        take_part(l, t, WA_PART_POSITION_MLP, "0.weight", values, 2, first));
    WA_TRY(take_part(l, t, WA_PART_POSITION_MLP, "0.bias",
                     part_of(values, 2 * units), 1, first));
    return take_part(l, t, WA_PART_POSITION_MLP, "2.weight",
                     part_of(values, 3 * units), 2, second);
}

/* The file says how many units there are: that many only once all three
 * tensors are known to have them, and in all blocks no more than a model can
 * have. */
static winattn_status take_positions(loader *l, const wa_swin_tensor *t,
                                     const float *table)
{
    const uint64_t heads = t->extent[1];
    const wa_file_tensor *inner = wa_swin_find(
        l->file, t->stage, t->block, WA_PART_POSITION_MLP, "0.weight");
    const uint64_t units = inner && inner->axes ? inner->extent[0] : 0;
    if (units > WA_SWIN_HIDDEN_MOST)
        return WA_BAD_FILE("%s: has %llu units, more than %u", inner->name,
                           (unsigned long long)units, WA_SWIN_HIDDEN_MOST);
    if (l->only_looks) {
        WA_TRY(take_mlp(l, t, units, NULL));
        l->position_steps += wa_position_steps(t->config, t->stage, units);
        if (l->position_steps > WA_POSITION_STEPS_MOST)
            return WA_BAD_FILE(
                "%s: the position MLPs up to this one are for more windows, "
                "heads and units than any model has",
                inner->name);
        return WINATTN_SUCCESS;
    }
    float *values = malloc((size_t)(units * (3 + heads) + 1) * sizeof *values);
    WA_TRY_MEMORY(values);
    const winattn_status status = take_mlp(l, t, units, values);
    if (status == WINATTN_SUCCESS)
        wa_position_table(t->config, t->stage, units, values,
                          values + 2 * units, values + 3 * units,
                          wa_writable(table));
    free(values);
    return status;
}

/* ---- All ---- */

static void name_of(const loader *l, const wa_swin_tensor *t,
                    char name[WA_NAME_SIZE])
{
    static const wa_swin_part of_block[] = {WA_PART_NORM1, WA_PART_QKV,
                                            WA_PART_PROJ,  WA_PART_NORM2,
                                            WA_PART_FC1,   WA_PART_FC2};
    static const wa_swin_part of_merge[] = {WA_PART_MERGE_NORM,
                                            WA_PART_MERGE_LINEAR};
    const wa_swin_names *names = l->file->names;
    const wa_swin_prefix *prefix = &l->file->prefix;
    const char *suffix = t->index % 2 ? "bias" : "weight";
    const uint32_t pair = t->index / 2;
    if (t->group == WA_SWIN_START)
        wa_name_rest(prefix->model, pair ? names->patch_norm : names->patch,
                     suffix, name);
    else if (t->group == WA_SWIN_END)
        wa_name_rest(pair ? prefix->wrapper : prefix->model,
                     pair ? names->head : names->norm, suffix, name);
    else if (t->group == WA_SWIN_MERGE)
        wa_name_merge(names, prefix->model, t->stage, of_merge[pair], suffix,
                      name);
    else if (t->index < WA_BLOCK_TABLE)
        wa_name_block(names, prefix->model, t->stage, t->block, of_block[pair],
                      suffix, name);
    else
        wa_name_block(
            names, prefix->model, t->stage, t->block, WA_PART_ATTENTION,
            t->index == WA_BLOCK_TABLE ? "relative_position_bias_table"
                                       : "logit_scale",
            name);
}

static winattn_status load(void *data, const wa_swin_tensor *t,
                           const float **values)
{
    loader *l = data;
    const bool in_block = t->group == WA_SWIN_BLOCK;
    const bool is_bias = in_block && t->index == WA_BLOCK_QKV_BIAS;
    const bool is_qkv =
        is_bias || (in_block && t->index == WA_BLOCK_QKV_WEIGHT);
    char name[WA_NAME_SIZE];
    if (is_bias && !l->has_qkv_bias)
        return WINATTN_SUCCESS;
    if (is_qkv && !l->file->names->parts[WA_PART_QKV])
        return join_qkv(l, t, *values);
    if (is_bias)
        return take_qkv_bias(l, t, *values);
    if (in_block && t->index == WA_BLOCK_TABLE && t->config->generation == 2)
        return take_positions(l, t, *values);
    name_of(l, t, name);
    return take(l, name, *values, t->axes, t->extent);
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
            return WA_BAD_FILE("%s: this model has no such tensor; names are "
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

winattn_status wa_swin_load(const wa_swin_file *file,
                            const wa_swin_config *config,
                            wa_swin_weights **weights)
{
    loader l = {.file = file, .only_looks = true};
    WA_TRY(wa_swin_weights_create(config, weights));
    wa_swin_weights *w = *weights;
    l.has_qkv_bias = wa_swin_has_qkv_bias(file, config);
    l.used = calloc(wa_safetensors_count(file->tensors) + 1, sizeof *l.used);
    winattn_status status =
        l.used ? wa_swin_visit(w, load, &l) : wa_fail_memory();
    WA_THEN(status, check_rest(&l));
    WA_THEN(status, wa_swin_weights_allocate(w));
    l.only_looks = false;
    WA_THEN(status, wa_swin_visit(w, load, &l));
    if (status == WINATTN_SUCCESS)
        describe(&l, w);
    free(l.used);
    if (status != WINATTN_SUCCESS) {
        winattn_swin_weights_destroy(w);
        *weights = NULL;
    }
    return status;
}
