/* SPDX-License-Identifier: Apache-2.0
 * The values of a case: drawn, spoilt as its kind of data says, computed. */
#include "data_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double draw(const test_case *c, int id, random_state *r, size_t head)
{
    const double x = random_normal(r);
    switch (id) {
    case T_Q:
    case T_K:
        return c->data == DATA_TINY   ? x * 1e-4
               : c->data == DATA_HUGE ? x * 1e4
                                      : x;
    case T_MASK:
        if (c->data == DATA_MASKED && random_int(r, 0, 3) == 0)
            return -INFINITY;
        return random_int(r, 0, 3) == 0 ? -100.0 : 0.0;
    case T_QUERY_REGIONS:
    case T_KEY_REGIONS:
        return random_int(r, 0, 2);
    case T_LOGIT_SCALE:
        return c->logit_scale + 0.01 * (double)head;
    default:
        return x;
    }
}

/* Multiplies row i of n by 2^(10 i / n - 8). */
static void raise_rows(tensor_data *t)
{
    const size_t rows = t->extent[2], columns = t->extent[3];
    for (size_t i = 0; t->used && i < data_count(t); i++)
        t->value[i] *=
            exp2(10.0 * (double)(i / columns % rows) / (double)rows - 8);
}

/* Adds 0, 12 and -12 to the q of four windows after the other, and 1 to k. */
static void swing_windows(tensor_data *q, tensor_data *k)
{
    static const double swings[] = {0, 12, -12};
    const size_t per_window = q->extent[1] * q->extent[2] * q->extent[3];
    for (size_t i = 0; i < q->extent[0] * per_window; i++)
        q->value[i] += swings[i / per_window / 4 % 3];
    for (size_t i = 0; i < data_count(k); i++)
        k->value[i] += 1;
}

static void shift_values(tensor_data *t, double by)
{
    for (size_t i = 0; t->used && i < data_count(t); i++)
        t->value[i] += by;
}

static void stretch_values(tensor_data *t, size_t each_row, double by)
{
    const size_t rows = t->extent[2], columns = t->extent[3];
    for (size_t i = 0; t->used && i < data_count(t); i++)
        t->value[i] *= i / columns % rows % each_row == 0 ? by : 1;
}

/* Common parts, which the padding's keys and values have too. */
static void add_common(tensor_data *t, int data)
{
    if (data == DATA_DOMINANT)
        stretch_values(&t[T_K], 16, 8);
    if (data == DATA_STEEP)
        stretch_values(&t[T_Q], 1, 100);
    shift_values(&t[T_K], data == DATA_COMMON ? 3 : 0);
    shift_values(&t[T_PAD_K], data == DATA_COMMON ? 3 : 0);
    shift_values(&t[T_V], 3);
    shift_values(&t[T_PAD_V], 3);
}

/* Row i of n has the value i. */
static void number_rows(tensor_data *t)
{
    const size_t rows = t->extent[2];
    for (size_t i = 0; t->used && i < t->extent[0] * t->extent[1] * rows; i++)
        t->value[i] = (double)(i % rows);
}

static void spoil(tensor_data *t, size_t window, size_t head, size_t row,
                  size_t column)
{
    t->value[data_index(t, window, head, row, column)] = NAN;
}

/* What a data kind puts into whole rows. */
static void mark_rows(case_buffers *d)
{
    const test_case *c = &d->c;
    tensor_data *t = d->tensor;
    random_state r = random_seeded((unsigned long long)c->seed + 77);
    /* of a bias where there is no mask */
    tensor_data *mask =
        &t[c->data == DATA_LOWEST && !t[T_MASK].used ? T_BIAS : T_MASK];
    if ((c->data == DATA_MASKED || c->data == DATA_LOWEST) && mask->used)
        for (size_t w = 0; w < mask->extent[0]; w++)
            for (size_t i = 0; i < mask->extent[2]; i++) {
                const double lowest = mask->kind == KIND_FP32 ? -FLT_MAX
                                      : mask->kind == KIND_FP16
                                          ? -65504.0
                                          : -3.3895313892515355e38;
                if (random_int(&r, 0, 4) == 0)
                    for (size_t j = 0; j < mask->extent[3]; j++)
                        mask->value[data_index(mask, w, 0, i, j)] =
                            c->data == DATA_MASKED ? -INFINITY : lowest;
            }
    if (c->windows == 0)
        return;
    const size_t last = t[T_Q].extent[0] - 1; /* window, or grid */
    if (c->data == DATA_NAN) {
        /* q and bias spoil a row, k and v what sees them */
        const tensor_data *v = &t[T_V], *bias = &t[T_BIAS];
        spoil(&t[T_Q], 0, 0, t[T_Q].extent[2] / 2, 0);
        spoil(&t[T_K], last, 0, t[T_K].extent[2] - 1, 0);
        spoil(&t[T_V], last, v->extent[1] - 1, v->extent[2] / 2,
              v->extent[3] - 1);
        if (bias->used)
            spoil(&t[T_BIAS], 0, 0,
                  case_has_table(c) ? bias->extent[2] / 3 : 0,
                  bias->extent[3] / 2);
    }
    if (c->data == DATA_RISING) {
        raise_rows(&t[T_V]);
        raise_rows(&t[T_D_O]);
    }
    if (c->data == DATA_SWINGING)
        swing_windows(&t[T_Q], &t[T_K]);
    if (case_has_common_parts(c))
        add_common(t, c->data);
    if (c->data == DATA_ALONE)
        for (int id = T_QUERY_REGIONS; id <= T_KEY_REGIONS; id++)
            number_rows(&t[id]);
    if (c->data == DATA_ZERO)
        for (int id = T_Q; id <= T_K; id++)
            for (size_t h = 0; h < t[id].extent[1]; h++)
                for (size_t x = 0; x < t[id].extent[3]; x++)
                    t[id].value[data_index(&t[id], last, h,
                                           t[id].extent[2] / 3, x)] = 0;
}

bool data_fill(case_buffers *d)
{
    random_state r = random_seeded((unsigned long long)d->c.seed);
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        const bool added = id >= T_DQ && (d->c.accumulate >> (id - T_DQ)) & 1;
        if (!t->used || (t->is_output && !added))
            continue;
        const size_t count = data_count(t);
        t->value = malloc(sizeof(double) * (count ? count : 1));
        if (!t->value)
            return false;
        for (size_t i = 0; i < count; i++)
            t->value[i] =
                draw(&d->c, id, &r,
                     i / (t->extent[2] * t->extent[3]) % t->extent[1]);
    }
    mark_rows(d);
    return true;
}

bool data_fill_entries(case_buffers *d)
{
    const test_case *c = &d->c;
    const size_t queries = (size_t)c->queries, keys = (size_t)c->keys;
    random_state r = random_seeded((unsigned long long)c->seed + 99);
    if (!case_has_table(c))
        return true;
    d->entry = malloc(sizeof *d->entry * queries * keys);
    for (size_t i = 0; d->entry && i < queries * keys; i++)
        d->entry[i] = c->entries
                          ? random_int(&r, 0, c->entries - 1)
                          : (cl_int)grid_table_entry(c, i / keys, i % keys);
    return d->entry != NULL;
}
