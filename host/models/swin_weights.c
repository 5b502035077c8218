/* SPDX-License-Identifier: Apache-2.0
 * Memory for a Swin's weights, and weights at random. */
#include "models/swin_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "models/levels.h"

/* ---- All tensors ---- */

/* Extents of the group's tensors, the first 0 where the model has none. */
static void set_extents(const wa_swin_tensor *t, uint64_t extent[][4])
{
    const wa_swin_config *config = t->config;
    const uint64_t c = wa_swin_channels(config, t->stage);
    const uint64_t normed = config->generation == 2 ? 2 * c : 4 * c;
    const uint64_t last = config->no_norm ? 0 : c, classes = config->classes;
    const uint64_t in = config->in_channels;
    const cl_uint *patch = config->patch, *window = config->window[t->stage];
    const uint64_t start[][4] = {{c, in, patch[0], patch[1]}, {c}, {c}, {c}};
    const uint64_t merge[][4] = {{normed}, {normed}, {2 * c, 4 * c}};
    const uint64_t end[][4] = {{last}, {last}, {classes, c}, {classes}};
    const wa_block_shape shape = {.channels = c,
                                  .hidden = config->hidden[t->stage],
                                  .heads = config->heads[t->stage],
                                  .window = {window[0], window[1]},
                                  .is_cosine = config->generation == 2};
    if (t->group == WA_SWIN_START)
        memcpy(extent, start, sizeof start);
    else if (t->group == WA_SWIN_MERGE)
        memcpy(extent, merge, sizeof merge);
    else if (t->group == WA_SWIN_END)
        memcpy(extent, end, sizeof end);
    else
        wa_block_extents(&shape, extent);
}

static winattn_status visit_group(wa_swin_tensor t, const float **values,
                                  wa_swin_visitor *visit, void *data)
{
    static const struct {
        uint32_t count, axes[WA_BLOCK_TENSORS];
    } groups[] = {[WA_SWIN_START] = {4, {4, 1, 1, 1}},
                  [WA_SWIN_BLOCK] =
                      {WA_BLOCK_TENSORS,
                       {1, 1, 2, 1, 2, 1, 1, 1, 2, 1, 2,
                        1, [WA_BLOCK_TABLE] = 2, [WA_BLOCK_LOGIT_SCALE] = 3}},
                  [WA_SWIN_MERGE] = {3, {1, 1, 2}},
                  [WA_SWIN_END] = {4, {1, 1, 2, 1}}};
    uint64_t extent[WA_BLOCK_TENSORS][4];
    set_extents(&t, extent);
    for (t.index = 0; t.index < groups[t.group].count; t.index++) {
        t.axes = groups[t.group].axes[t.index];
        t.count = 1;
        memcpy(t.extent, extent[t.index], sizeof t.extent);
        for (uint32_t axis = 0; axis < t.axes; axis++)
            t.count *= t.extent[axis];
        if (t.count)
            WA_TRY(visit(data, &t, &values[t.index]));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_swin_visit(wa_swin_weights *w, wa_swin_visitor *visit,
                             void *data)
{
    wa_swin_tensor t = {.config = &w->config, .group = WA_SWIN_START};
    wa_swin_block_weights *block = w->blocks;
    WA_TRY(visit_group(t, &w->patch_weight, visit, data));
    for (t.stage = 0; t.stage < w->config.stages; t.stage++) {
        t.group = WA_SWIN_BLOCK;
        for (t.block = 0; t.block < w->config.depths[t.stage]; t.block++)
            WA_TRY(visit_group(t, (block++)->all, visit, data));
        t.block = 0;
        t.group = WA_SWIN_MERGE;
        if (t.stage + 1 < w->config.stages)
            WA_TRY(visit_group(t, &w->stages[t.stage].merge_norm_weight, visit,
                               data));
    }
    t.stage--;
    t.group = WA_SWIN_END;
    return visit_group(t, &w->norm_weight, visit, data);
}

/* ---- One array for all ---- */

/* Deals parts of it out; without an array it only counts. */
typedef struct dealer {
    float *values;
    uint64_t count;
} dealer;

static winattn_status deal(void *data, const wa_swin_tensor *t,
                           const float **values)
{
    dealer *d = data;
    *values = d->values ? d->values + d->count : NULL;
    d->count += (t->count + 15) / 16 * 16; /* lines of caches */
    return WINATTN_SUCCESS;
}

winattn_status wa_swin_weights_create(const wa_swin_config *config,
                                      wa_swin_weights **weights)
{
    size_t blocks = 0;
    dealer counted = {0};
    *weights = NULL;
    WA_TRY(wa_swin_config_check(config));
    wa_swin_weights *w = calloc(1, sizeof *w);
    WA_TRY_MEMORY(w);
    w->config = *config;
    for (uint32_t i = 0; i < config->stages; i++)
        blocks += config->depths[i];
    w->blocks = calloc(blocks, sizeof *w->blocks);
    if (!w->blocks) {
        free(w);
        return wa_fail_memory();
    }
    blocks = 0;
    for (uint32_t i = 0; i < config->stages; blocks += config->depths[i++])
        w->stages[i].blocks = w->blocks + blocks;
    wa_swin_visit(w, deal, &counted);
    w->count = counted.count;
    *weights = w;
    return WINATTN_SUCCESS;
}

winattn_status wa_swin_weights_allocate(wa_swin_weights *weights)
{
    if (weights->count <= SIZE_MAX / sizeof(float))
        weights->values = calloc((size_t)weights->count, sizeof(float));
    WA_TRY_MEMORY(weights->values);
    dealer dealt = {.values = weights->values};
    return wa_swin_visit(weights, deal, &dealt);
}

void winattn_swin_weights_destroy(winattn_swin_weights *weights)
{
    if (!weights)
        return;
    free(weights->blocks);
    free(weights->values);
    free(weights);
}

winattn_status winattn_swin_weights_config(const winattn_swin_weights *weights,
                                           winattn_swin_config *config)
{
    WA_TRY(wa_models_begin());
    WA_WANT(weights, "weights");
    return wa_swin_config_give(&weights->config, config);
}

winattn_status
winattn_swin_weights_describe(const winattn_swin_weights *weights, size_t size,
                              char *text, size_t *needed)
{
    WA_TRY(wa_models_begin());
    WA_WANT(weights, "weights");
    return wa_give_text(weights->origin, size, text, needed);
}

/* ---- At random ---- */

/* SplitMix64 (Steele, Lea and Flood 2014, figure 15): integers only, so that
 * every machine draws the same. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* mean + deviation * x, x of variance 1: what four uniform numbers of 16 bits
 * sum to, which is near enough to a normal distribution. */
static void fill(uint64_t *state, const float *to, uint64_t count, float mean,
                 float deviation)
{
    static const float unit = 1.7320508F / 65536; /* sqrt(12 / 4) */
    float *values = wa_writable(to);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits = draw(state);
        int32_t sum = -2 * 65535;
        for (int part = 0; part < 4; part++)
            sum += (int32_t)(bits >> (16 * part) & 0xffff);
        const float number = (float)sum * unit;
        const float scaled = deviation * number; /* no fma: it would differ */
        values[i] = mean + scaled;
    }
}

static winattn_status fill_tensor(void *state, const wa_swin_tensor *t,
                                  const float **values)
{
    const bool is_v2 = t->config->generation == 2;
    const bool in_block = t->group == WA_SWIN_BLOCK;
    const uint64_t inputs = t->count / t->extent[0];
    if (in_block && t->index == WA_BLOCK_TABLE)
        fill(state, *values, t->count, is_v2 ? 8.0F : 0.0F, 1);
    else if (in_block ? inputs > 1 : t->axes > 1)
        /* sums over inputs of variance 1 get variance 1, too */
        fill(state, *values, t->count, 0, 1 / sqrtf((float)inputs));
    else
        fill(state, *values, t->count,
             in_block && t->index == WA_BLOCK_LOGIT_SCALE ? 2.3F
             : t->index % 2 == 0 && t->axes == 1          ? 1.0F
                                                          : 0.0F,
             0.1F);
    if (is_v2 && in_block && t->index == WA_BLOCK_QKV_BIAS) /* k has none */
        memset(wa_writable(*values + t->count / 3), 0,
               (size_t)t->count / 3 * sizeof(float));
    return WINATTN_SUCCESS;
}

winattn_status winattn_swin_weights_random(const winattn_swin_config *config,
                                           cl_ulong seed,
                                           winattn_swin_weights **weights)
{
    wa_swin_config own;
    WA_TRY(wa_models_begin());
    WA_WANT(weights, "weights");
    *weights = NULL;
    WA_TRY(wa_read_struct("swin_config", config, &own, sizeof own,
                          offsetof(winattn_swin_config, resize)));
    wa_swin_config_complete(&own);
    WA_TRY(wa_swin_weights_create(&own, weights));
    const winattn_status status = wa_swin_weights_allocate(*weights);
    if (status != WINATTN_SUCCESS) {
        winattn_swin_weights_destroy(*weights);
        *weights = NULL;
        return status;
    }
    uint64_t state = seed;
    wa_swin_visit(*weights, fill_tensor, &state);
    snprintf((*weights)->origin, sizeof(*weights)->origin, "random, seed %llu",
             (unsigned long long)seed);
    return WINATTN_SUCCESS;
}
