/* SPDX-License-Identifier: Apache-2.0
 * Windows as kernels of cl/hopper/ have them: what options and arguments say
 * of tokens and of what is added to logits (window_terms.c). */
#ifndef STANDIN_WINDOW_H
#define STANDIN_WINDOW_H

#include "internal.h"

#include "../cl/common/args.h"
#include "../cl/common/switches.h"

typedef enum table_kind {
    NO_TABLE,
    TABLE_BY_POSITION,
    TABLE_BY_INDEX
} table_kind;

typedef struct windows {
    forward_args args;
    backward_args gradients; /* of that pass */
    bool half, is_cosine, is_on_grid, has_bias;
    uint32_t dim, mask;
    uint32_t window[3]; /* of the grid */
    table_kind table;
    uint32_t table_window[3], table_step[3], table_center;
    double *q, *k, *v, *bias, *d_o; /* all that the buffers have */
    const argument *index, *query_regions, *key_regions;
    const argument *logit_scale, *o, *lse, *dq, *dk, *dv, *workspace;
} windows;

/* Sets all but tensors and arguments. */
void read_window_options(windows *x, const char *options);

/* Where a row of a window starts in a tensor that has one for each token. */
size_t window_row(const windows *x, const tensor_layout *t, size_t window,
                  size_t head, uint32_t row);

/* What is added to a logit. */
double window_score_bias(const windows *x, size_t window, size_t head,
                         uint32_t row, uint32_t key);

#endif
