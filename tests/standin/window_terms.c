/* SPDX-License-Identifier: Apache-2.0 */
#include "window.h"

#include <stdio.h>
#include <stdlib.h>

#define AXES 3

/* What -DNAME=... says, 0 if there is none. */
static uint32_t option(const char *options, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "-D%s=", name);
    const char *found = strstr(options, text);
    return found ? (uint32_t)strtoul(found + strlen(text), NULL, 10) : 0;
}

void read_window_options(windows *x, const char *options)
{
    memset(x, 0, sizeof *x);
    x->half = option(options, "DTYPE") == 1;
    x->is_cosine = option(options, "VARIANT") == 1;
    x->dim = option(options, "HEAD_DIM");
    x->has_bias = option(options, "BIAS") == 1;
    x->mask = option(options, "MASK");
    x->is_on_grid = option(options, "GRID") != 0;
    x->window[0] = option(options, "WINDOW_0");
    x->window[1] = option(options, "WINDOW_1");
    x->window[2] = option(options, "WINDOW_2");
    x->table = (table_kind)option(options, "TABLE");
    x->table_window[1] = option(options, "TABLE_WINDOW_1");
    x->table_window[2] = option(options, "TABLE_WINDOW_2");
    x->table_window[0] = UINT32_MAX; /* the first axis has what is left */
    x->table_step[0] = option(options, "TABLE_STEP_0");
    x->table_step[1] = option(options, "TABLE_STEP_1");
    x->table_step[2] = 1;
    x->table_center = option(options, "TABLE_CENTER");
}

/* ---- Tokens ---- */

/* The position of a token, and a bit for each axis along which it came from
 * the other end; returns its grid. */
static size_t locate(const windows *x, size_t window, uint32_t row,
                     uint32_t *at, uint32_t *wrapped)
{
    const grid_layout *grid = &x->args.grid;
    *wrapped = 0;
    for (int axis = AXES; axis-- > 0;) {
        const uint32_t length = x->window[axis], all = grid->windows[axis];
        const uint32_t number = (uint32_t)(window % all);
        at[axis] = number * length + row % length + grid->shift[axis];
        if (at[axis] >= all * length) {
            at[axis] -= all * length;
            *wrapped |= 1u << axis;
        }
        window /= all;
        row /= length;
    }
    return window;
}

size_t window_row(const windows *x, const tensor_layout *t, size_t window,
                  size_t head, uint32_t row)
{
    uint32_t at[AXES] = {0, 0, row}, wrapped;
    const size_t grid =
        x->is_on_grid ? locate(x, window, row, at, &wrapped) : window;
    return (size_t)(t->offset + grid * t->window + head * t->head) +
           at[0] * t->axis[0] + at[1] * t->axis[1] + at[2] * t->row;
}

/* ---- What is added to logits ---- */

/* What a token's position counts in a table. */
static uint32_t place(const windows *x, uint32_t token)
{
    uint32_t sum = 0;
    for (int axis = AXES; axis-- > 0;) {
        sum += token % x->table_window[axis] * x->table_step[axis];
        token /= x->table_window[axis];
    }
    return sum;
}

static double bias_of(const windows *x, size_t head, uint32_t row,
                      uint32_t key)
{
    const tensor_layout *t = &x->args.bias;
    const double *of_head = x->bias + t->offset + head * t->head;
    switch (x->table) {
    case TABLE_BY_POSITION:
        return of_head[(place(x, row) + x->table_center - place(x, key)) *
                       t->row];
    case TABLE_BY_INDEX:
        return of_head[((const cl_int *)(const void *)x->index->buffer
                            ->bytes)[(size_t)row * x->args.keys + key] *
                       (size_t)t->row];
    case NO_TABLE:
        break;
    }
    return of_head[(size_t)row * t->row + (size_t)key * t->column];
}

static uint8_t region(const argument *regions, const tensor_layout *t,
                      size_t mask, uint32_t token)
{
    const uint8_t *all = (const uint8_t *)regions->buffer->bytes;
    return all[t->offset + mask * t->window + token * t->row];
}

static bool are_apart(const windows *x, size_t window, uint32_t row,
                      uint32_t key)
{
    const forward_args *f = &x->args;
    const size_t mask = window % (size_t)f->mask_windows;
    uint32_t at[AXES], of_row, of_key;
    if (x->mask == MASK_REGIONS)
        return region(x->query_regions, &f->query_regions, mask, row) !=
               region(x->key_regions, &f->key_regions, mask, key);
    if (x->mask != MASK_SHIFT)
        return false;
    locate(x, window, row, at, &of_row);
    locate(x, window, key, at, &of_key);
    return ((of_row ^ of_key) & f->grid.shift_boundaries) != 0;
}

double window_score_bias(const windows *x, size_t window, size_t head,
                         uint32_t row, uint32_t key)
{
    return (x->bias ? bias_of(x, head, row, key) : 0) +
           (are_apart(x, window, row, key) ? (double)x->args.region_value : 0);
}
