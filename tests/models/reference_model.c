/* SPDX-License-Identifier: Apache-2.0
 * Whole models in fp64: what is around the blocks of reference.c. */
#include "reference_model.h"

#include <stdlib.h>
#include <string.h>

double *ref_rounded(storage_kind kind, const float *values, size_t count)
{
    double *to = malloc((count + 1) * sizeof *to);
    assert_non_null(to);
    for (size_t i = 0; i < count; i++)
        to[i] = kind_round(kind, values[i]);
    return to;
}

void ref_free(double **values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(values[i]);
}

void ref_stage_block(const wa_swin_config *config, uint32_t stage,
                     const wa_swin_block_weights *w, bool shifted,
                     storage_kind kind, ref_map *map)
{
    const size_t *size = &map->height;
    const bool is_v2 = config->generation == 2;
    ref_shape shape = {.batch = map->batch,
                       .height = map->height,
                       .width = map->width,
                       .channels = map->channels,
                       .heads = config->heads[stage],
                       .hidden = config->hidden[stage],
                       .eps = config->norm_eps,
                       .is_cosine = is_v2,
                       .post_norm = is_v2};
    for (int a = 0; a < 2; a++) {
        shape.window[a] = config->window[stage][a];
        shape.shift[a] =
            shifted && shape.window[a] < size[a] ? shape.window[a] / 2 : 0;
    }
    uint64_t extent[WA_BLOCK_TENSORS][2];
    double *v[WA_BLOCK_TENSORS];
    ref_weights weights;
    wa_swin_block_extents(config, stage, extent);
    for (int i = 0; i < WA_BLOCK_TENSORS; i++)
        v[i] = ref_rounded(is_v2 && i >= WA_BLOCK_TABLE ? KIND_FP32 : kind,
                           w->all[i], (size_t)(extent[i][0] * extent[i][1]));
    assert_int_equal(sizeof weights, sizeof v);
    memcpy(&weights, v, sizeof v);
    ref_block(&shape, &weights, map->value);
    ref_free(v, WA_BLOCK_TENSORS);
}

void ref_merge(const winattn_swin_weights *w, uint32_t stage,
               storage_kind kind, ref_map *map)
{
    const size_t c = map->channels;
    const bool is_v2 = w->config.generation == 2;
    const size_t norm = is_v2 ? 2 * c : 4 * c;
    const size_t height = (map->height + 1) / 2, width = (map->width + 1) / 2;
    const size_t rows = map->batch * height * width;
    const wa_swin_stage_weights *s = &w->stages[stage];
    double *v[] = {ref_rounded(kind, s->merge_norm_weight, norm),
                   ref_rounded(kind, s->merge_norm_bias, norm),
                   ref_rounded(kind, s->merge_weight, 8 * c * c)};
    double *x = malloc(rows * 4 * c * sizeof *x);
    double *y = malloc(rows * 2 * c * sizeof *y);
    assert_true(x && y);
    ref_neighbours(map->value, map->batch, map->height, map->width, c, x);
    if (!is_v2)
        ref_norm(x, v[0], v[1], rows, 4 * c, w->config.norm_eps, x);
    ref_linear(x, v[2], NULL, rows, 4 * c, 2 * c, y);
    if (is_v2)
        ref_norm(y, v[0], v[1], rows, 2 * c, w->config.norm_eps, y);
    ref_free(v, 3);
    free(x);
    free(map->value);
    *map = (ref_map){map->batch, height, width, 2 * c, y};
}

ref_map ref_embed(const winattn_swin_weights *w, const winattn_model_desc *d,
                  const winattn_model_call *call, storage_kind kind,
                  const double *pictures)
{
    const wa_swin_config *config = &w->config;
    const size_t ph = config->patch[0], pw = config->patch[1];
    const size_t channels = config->in_channels, c = config->channels;
    const size_t size = channels * ph * pw;
    ref_map map = {d->batch, d->height / ph, d->width / pw, c, NULL};
    const size_t rows = map.batch * map.height * map.width;
    double *x = malloc(rows * size * sizeof *x);
    map.value = malloc(rows * c * sizeof *x);
    assert_true(x && map.value);
    for (size_t i = 0; i < rows * size; i++) {
        const size_t row = i / size, channel = i % size / (ph * pw);
        const size_t y =
            row / map.width % map.height * ph + i % (ph * pw) / pw;
        const size_t column = row % map.width * pw + i % pw;
        const size_t picture = row / (map.width * map.height);
        const double pixel =
            pictures[((picture * d->height + y) * d->width + column) *
                         channels +
                     channel] /
            255;
        /* the device stores patches */
        x[i] = kind_round(kind, (pixel - call->mean[channel]) /
                                    call->deviation[channel]);
    }
    double *v[] = {ref_rounded(kind, w->patch_weight, c * size),
                   ref_rounded(kind, w->patch_bias, c),
                   ref_rounded(kind, w->patch_norm_weight, c),
                   ref_rounded(kind, w->patch_norm_bias, c)};
    ref_linear(x, v[0], v[1], rows, size, c, map.value);
    ref_norm(map.value, v[2], v[3], rows, c, config->norm_eps, map.value);
    ref_free(v, 4);
    free(x);
    return map;
}

void ref_pool(const winattn_swin_weights *w, storage_kind kind,
              const ref_map *map, double *features)
{
    const size_t c = map->channels, tokens = map->height * map->width;
    double *v[] = {ref_rounded(kind, w->norm_weight, c),
                   ref_rounded(kind, w->norm_bias, c)};
    ref_norm(map->value, v[0], v[1], map->batch * tokens, c,
             w->config.norm_eps, map->value);
    memset(features, 0, map->batch * c * sizeof *features);
    for (size_t i = 0; i < map->batch * tokens * c; i++)
        features[i / (tokens * c) * c + i % c] +=
            map->value[i] / (double)tokens;
    ref_free(v, 2);
}
