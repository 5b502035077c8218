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

/* ---- One array for all ---- */

/* Deals parts of it out; without an array it only counts. */
typedef struct dealer {
    float *values;
    uint64_t count;
} dealer;

static const float *deal(dealer *d, uint64_t count)
{
    const float *part = d->values ? d->values + d->count : NULL;
    d->count += (count + 15) / 16 * 16; /* lines of caches */
    return part;
}

void wa_swin_block_extents(const wa_swin_config *config, uint32_t stage,
                           uint64_t extent[WA_BLOCK_TENSORS][2])
{
    const wa_block_shape shape = {
        .channels = wa_swin_channels(config, stage),
        .hidden = config->hidden[stage],
        .heads = config->heads[stage],
        .window = {config->window[stage][0], config->window[stage][1]},
        .is_cosine = config->generation == 2};
    wa_block_extents(&shape, extent);
}

static void deal_block(dealer *d, const wa_swin_config *config, uint32_t stage,
                       wa_swin_block_weights *block)
{
    uint64_t extent[WA_BLOCK_TENSORS][2];
    wa_swin_block_extents(config, stage, extent);
    for (int i = 0; i < WA_BLOCK_TENSORS; i++)
        block->all[i] =
            extent[i][0] ? deal(d, extent[i][0] * extent[i][1]) : NULL;
}

static void deal_all(dealer *d, wa_swin_weights *w)
{
    const wa_swin_config *config = &w->config;
    const uint64_t first = config->channels;
    const uint64_t last = wa_swin_channels(config, config->stages - 1);
    wa_swin_block_weights *block = w->blocks;
    w->patch_weight = deal(d, first * config->in_channels * config->patch[0] *
                                  config->patch[1]);
    w->patch_bias = deal(d, first);
    w->patch_norm_weight = deal(d, first);
    w->patch_norm_bias = deal(d, first);
    for (uint32_t i = 0; i < config->stages; i++) {
        const uint64_t channels = wa_swin_channels(config, i);
        const uint64_t normed = channels * (config->generation == 2 ? 2 : 4);
        w->stages[i].blocks = block;
        for (uint32_t j = 0; j < config->depths[i]; j++)
            deal_block(d, config, i, block++);
        if (i + 1 == config->stages)
            break;
        w->stages[i].merge_norm_weight = deal(d, normed);
        w->stages[i].merge_norm_bias = deal(d, normed);
        w->stages[i].merge_weight = deal(d, 8 * channels * channels);
    }
    w->norm_weight = config->no_norm ? NULL : deal(d, last);
    w->norm_bias = config->no_norm ? NULL : deal(d, last);
    w->head_weight = config->classes ? deal(d, config->classes * last) : NULL;
    w->head_bias = config->classes ? deal(d, config->classes) : NULL;
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
    deal_all(&counted, w);
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
    deal_all(&dealt, weights);
    return WINATTN_SUCCESS;
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
    if (!weights || (!text && size))
        return wa_fail(WINATTN_INVALID_ARGUMENT, "weights or text is NULL");
    if (needed)
        *needed = strlen(weights->origin) + 1;
    if (size)
        snprintf(text, size, "%s", weights->origin);
    return WINATTN_SUCCESS;
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

/* Sums over inputs of variance 1 get variance 1, too. */
static void fill_matrix(uint64_t *state, const float *to, uint64_t outputs,
                        uint64_t inputs)
{
    fill(state, to, outputs * inputs, 0, 1 / sqrtf((float)inputs));
}

static void fill_norm(uint64_t *state, const float *weight, const float *bias,
                      uint64_t channels)
{
    fill(state, weight, channels, 1, 0.1F);
    fill(state, bias, channels, 0, 0.1F);
}

static void fill_block(uint64_t *state, const wa_swin_config *config,
                       uint32_t stage, const wa_swin_block_weights *block)
{
    const bool is_v2 = config->generation == 2;
    uint64_t extent[WA_BLOCK_TENSORS][2];
    wa_swin_block_extents(config, stage, extent);
    for (int i = 0; i < WA_BLOCK_TENSORS; i++) {
        const uint64_t count = extent[i][0] * extent[i][1];
        if (i == WA_BLOCK_TABLE)
            fill(state, block->table, count, is_v2 ? 8.0F : 0.0F, 1);
        else if (extent[i][1] > 1)
            fill_matrix(state, block->all[i], extent[i][0], extent[i][1]);
        else
            fill(state, block->all[i], count,
                 i == WA_BLOCK_NORM1_WEIGHT || i == WA_BLOCK_NORM2_WEIGHT
                     ? 1.0F
                 : i == WA_BLOCK_LOGIT_SCALE ? 2.3F
                                             : 0.0F,
                 0.1F);
    }
    const uint64_t c = wa_swin_channels(config, stage);
    if (is_v2)
        memset(wa_writable(block->qkv_bias + c), 0, (size_t)c * sizeof(float));
}

static void fill_all(uint64_t *state, const wa_swin_weights *w)
{
    const wa_swin_config *config = &w->config;
    const uint64_t first = config->channels;
    const uint64_t last = wa_swin_channels(config, config->stages - 1);
    fill_matrix(state, w->patch_weight, first,
                (uint64_t)config->in_channels * config->patch[0] *
                    config->patch[1]);
    fill(state, w->patch_bias, first, 0, 0.1F);
    fill_norm(state, w->patch_norm_weight, w->patch_norm_bias, first);
    for (uint32_t i = 0; i < config->stages; i++) {
        const uint64_t channels = wa_swin_channels(config, i);
        for (uint32_t j = 0; j < config->depths[i]; j++)
            fill_block(state, config, i, &w->stages[i].blocks[j]);
        if (i + 1 == config->stages)
            break;
        fill_norm(state, w->stages[i].merge_norm_weight,
                  w->stages[i].merge_norm_bias,
                  channels * (config->generation == 2 ? 2 : 4));
        fill_matrix(state, w->stages[i].merge_weight, 2 * channels,
                    4 * channels);
    }
    if (!config->no_norm)
        fill_norm(state, w->norm_weight, w->norm_bias, last);
    if (config->classes) {
        fill_matrix(state, w->head_weight, config->classes, last);
        fill(state, w->head_bias, config->classes, 0, 0.1F);
    }
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
    fill_all(&state, *weights);
    snprintf((*weights)->origin, sizeof(*weights)->origin, "random, seed %llu",
             (unsigned long long)seed);
    return WINATTN_SUCCESS;
}
