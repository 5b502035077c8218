/* SPDX-License-Identifier: Apache-2.0
 * Weights of a block, drawn. */
#include "block_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

block_weights weights_drawn(const winattn_block_desc *d)
{
    /* the test frees a scale, too, where the variant has none */
    const wa_block_shape shape = {
        d->channels, d->hidden, d->heads, {d->window[0], d->window[1]}, true};
    uint64_t extent[WA_BLOCK_TENSORS][2];
    block_weights w;
    winattn_tensor *given = &w.given.norm1_weight;
    const double **ref = &w.ref.norm1_weight;
    memset(&w, 0, sizeof w);
    wa_block_extents(&shape, extent);
    assert_int_equal(sizeof w.ref, sizeof *ref * WA_BLOCK_TENSORS);
    for (uint64_t i = 0; i < WA_BLOCK_TENSORS; i++) {
        const size_t count = (size_t)(extent[i][0] * extent[i][1]);
        const bool is_fp32 =
            i == WA_BLOCK_LOGIT_SCALE ||
            (i == WA_BLOCK_TABLE && d->table_dtype == WINATTN_TERM_FP32);
        double *value = draw_numbers(100 + i, count,
                                     i == WA_BLOCK_TABLE ? 2
                                     : extent[i][1] == 1
                                         ? 0.3
                                         : sqrt(3.0 / (double)extent[i][1]));
        for (size_t j = 0; j < count; j++)
            value[j] +=
                i == WA_BLOCK_NORM1_WEIGHT || i == WA_BLOCK_NORM2_WEIGHT ? 1
                : i == WA_BLOCK_LOGIT_SCALE ? (j % 2 ? 5 : 2)
                                            : 0;
        /* no bias of keys, as Swin V2 has it */
        if (i == WA_BLOCK_QKV_BIAS && d->variant == WINATTN_COSINE)
            memset(value + d->channels, 0, d->channels * sizeof *value);
        w.t[i] = tensor_of(is_fp32 ? KIND_FP32 : kind_of(d->dtype), value,
                           count, i % 2 ? 8 : 3);
        given[i] = w.t[i].at;
        ref[i] = w.t[i].value;
        free(value);
    }
    if (d->variant != WINATTN_COSINE)
        w.given.logit_scale.buffer = NULL;
    return w;
}

void weights_free(block_weights *w)
{
    for (int i = 0; i < WA_BLOCK_TENSORS; i++)
        tensor_free(&w->t[i]);
}
