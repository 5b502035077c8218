/* SPDX-License-Identifier: Apache-2.0
 * Weights of a block, drawn. */
#include "block_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

block_weights weights_drawn(const winattn_block_desc *d)
{
    const size_t c = d->channels, h = d->hidden;
    const size_t entries =
        (2 * (size_t)d->window[0] - 1) * (2 * (size_t)d->window[1] - 1);
    const size_t count[WEIGHTS] = {
        c,     c, 3 * c * c,          3 * c,   c * c, c, c, c, h * c, h,
        c * h, c, entries * d->heads, d->heads};
    block_weights w;
    memset(&w, 0, sizeof w);
    for (int i = 0; i < WEIGHTS; i++) {
        const size_t in = i == FC2_WEIGHT ? h : c;
        const bool is_matrix = count[i] >= c * c && i < TABLE;
        const bool is_fp32 =
            i == LOGIT_SCALE ||
            (i == TABLE && d->table_dtype == WINATTN_TERM_FP32);
        double *value = draw_numbers(100 + (uint64_t)i, count[i],
                                     is_matrix    ? sqrt(3.0 / (double)in)
                                     : i == TABLE ? 2
                                                  : 0.3);
        for (size_t j = 0; j < count[i]; j++)
            value[j] += i == NORM1_WEIGHT || i == NORM2_WEIGHT ? 1
                        : i == LOGIT_SCALE ? (j % 2 ? 5 : 2)
                                           : 0;
        /* no bias of keys, as Swin V2 has it */
        if (i == QKV_BIAS && d->variant == WINATTN_COSINE)
            memset(value + c, 0, c * sizeof *value);
        w.t[i] = tensor_of(is_fp32 ? KIND_FP32 : kind_of(d->dtype), value,
                           count[i], i % 2 ? 8 : 3);
        free(value);
    }
    const winattn_tensor *at[WEIGHTS];
    winattn_tensor *to = &w.given.norm1_weight;
    const double **ref = &w.ref.norm1_weight;
    assert_int_equal(sizeof w.given, sizeof *to * WEIGHTS);
    assert_int_equal(sizeof w.ref, sizeof *ref * WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++) {
        at[i] = &w.t[i].at;
        to[i] = *at[i];
        ref[i] = w.t[i].value;
    }
    if (d->variant != WINATTN_COSINE)
        w.given.logit_scale.buffer = NULL;
    return w;
}

void weights_free(block_weights *w)
{
    for (int i = 0; i < WEIGHTS; i++)
        tensor_free(&w->t[i]);
}
