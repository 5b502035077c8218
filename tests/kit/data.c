/* SPDX-License-Identifier: Apache-2.0
 * Values, storage types and memory layouts of a case. */
#include "data.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 256 /* bytes before and behind every buffer's tensors */
#define GUARD_BYTE 0xa5
#define POISON_BYTE 0xff /* NaN in every floating-point type */

size_t kind_size(storage_kind kind)
{
    return kind == KIND_FP32 ? 4 : kind == KIND_U8 ? 1 : 2;
}

/* ---- Storage types ---- */

/* x rounded to `digits` binary digits, at most so fine as 2^lowest. */
static double round_binary(double x, int digits, int lowest)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent);
    int unit = exponent - digits;
    unit = unit < lowest ? lowest : unit;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

double kind_round(storage_kind kind, double x)
{
    double y = x;
    if (kind == KIND_FP32)
        return (float)x;
    if (kind == KIND_U8)
        return x;
    if (kind == KIND_FP16) {
        y = round_binary(x, 11, -24);
        return fabs(y) > 65504 ? copysign(INFINITY, y) : y;
    }
    y = round_binary(x, 8, -133);
    return fabs(y) > 3.3895313892515355e38 ? copysign(INFINITY, y) : y;
}

void kind_write(storage_kind kind, double x, void *to)
{
    const float single = (float)kind_round(kind, x);
    uint32_t bits;
    memcpy(&bits, &single, 4);
    /* all bits of a NaN set: arithmetic on its bits would show */
    if (isnan(x))
        bits = 0x7fffffff;
    if (kind == KIND_FP32) {
        memcpy(to, &bits, 4);
    } else if (kind == KIND_U8) {
        *(unsigned char *)to = (unsigned char)x;
    } else if (kind == KIND_BF16) {
        const uint16_t half = (uint16_t)(bits >> 16);
        memcpy(to, &half, 2);
    } else {
        const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
        const double size = fabs((double)single);
        uint16_t half;
        if (isnan(x))
            half = 0x7fff;
        else if (isinf(size))
            half = 0x7c00;
        else if (size < 0x1p-14)
            half = (uint16_t)(size * 0x1p24);
        else
            half = (uint16_t)(((bits >> 13) & 0x3ff) |
                              ((((bits >> 23) & 0xff) - 112) << 10));
        half |= sign;
        memcpy(to, &half, 2);
    }
}

double kind_read(storage_kind kind, const void *from)
{
    uint16_t half;
    float single;
    if (kind == KIND_U8)
        return *(const unsigned char *)from;
    if (kind == KIND_FP32) {
        memcpy(&single, from, 4);
        return single;
    }
    memcpy(&half, from, 2);
    if (kind == KIND_BF16) {
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&single, &bits, 4);
        return single;
    }
    const int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    double x = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(fraction + 1024, exponent - 25);
    return half & 0x8000 ? -x : x;
}

/* ---- Shapes and layouts ---- */

/* Has it an element for each token? */
static bool has_tokens(tensor_id id)
{
    return id <= T_V || (id >= T_O && id <= T_DV);
}

static void describe_tensors(case_buffers *d)
{
    const test_case *c = &d->c;
    const storage_kind kind = c->dtype == WINATTN_FP32   ? KIND_FP32
                              : c->dtype == WINATTN_FP16 ? KIND_FP16
                                                         : KIND_BF16;
    const size_t windows = (size_t)c->windows, heads = (size_t)c->heads;
    const size_t kv_heads = (size_t)c->kv_heads, dim = (size_t)c->dim;
    const size_t queries = (size_t)c->queries, keys = (size_t)c->keys;
    const size_t masks = (size_t)c->mask_windows;
    const bool back = c->pass == PASS_BACKWARD;
    const int wanted = back ? c->outputs : 0;
    const bool table = case_has_table(c);
    const size_t bias_rows = table ? (size_t)case_table_entries(c) : queries;
    const size_t bias_columns = table ? 1 : keys;
    const bool pads = c->grid && c->padding == WINATTN_PADDING_VALUES;
    const struct {
        int used;
        storage_kind kind;
        size_t extent[4];
    } all[TENSORS] = {
        [T_Q] = {1, kind, {windows, heads, queries, dim}},
        [T_K] = {1, kind, {windows, kv_heads, keys, dim}},
        [T_V] = {1, kind, {windows, kv_heads, keys, dim}},
        [T_BIAS] = {c->bias != TERM_NONE,
                    c->bias == TERM_FP32 || c->bias == TERM_TABLE_FP32
                        ? KIND_FP32
                        : kind,
                    {1, heads, bias_rows, bias_columns}},
        [T_MASK] = {c->mask == TERM_SAME || c->mask == TERM_FP32,
                    c->mask == TERM_FP32 ? KIND_FP32 : kind,
                    {masks, 1, queries, keys}},
        [T_QUERY_REGIONS] = {c->mask == TERM_REGIONS,
                             KIND_U8,
                             {masks, 1, queries, 1}},
        [T_KEY_REGIONS] = {c->mask == TERM_REGIONS,
                           KIND_U8,
                           {masks, 1, keys, 1}},
        [T_LOGIT_SCALE] = {c->variant == WINATTN_COSINE &&
                               !isnan(c->logit_scale),
                           KIND_FP32,
                           {1, heads, 1, 1}},
        [T_PAD_K] = {pads && (c->pads & 1), kind, {1, kv_heads, 1, dim}},
        [T_PAD_V] = {pads && (c->pads & 2), kind, {1, kv_heads, 1, dim}},
        [T_O] = {!back || c->given, kind, {windows, heads, queries, dim}},
        [T_LSE] = {back ? c->given : c->lse,
                   KIND_FP32,
                   {windows, heads, queries, 1}},
        [T_D_O] = {back, kind, {windows, heads, queries, dim}},
        [T_D_LSE] = {back && c->d_lse,
                     KIND_FP32,
                     {windows, heads, queries, 1}},
        [T_DQ] = {(wanted & WINATTN_DQ) != 0,
                  kind,
                  {windows, heads, queries, dim}},
        [T_DK] = {(wanted & WINATTN_DK) != 0,
                  kind,
                  {windows, kv_heads, keys, dim}},
        [T_DV] = {(wanted & WINATTN_DV) != 0,
                  kind,
                  {windows, kv_heads, keys, dim}},
        [T_DBIAS] = {(wanted & WINATTN_DBIAS) != 0 && c->bias != TERM_NONE,
                     KIND_FP32,
                     {1, heads, bias_rows, bias_columns}},
        [T_D_LOGIT_SCALE] = {(wanted & WINATTN_D_LOGIT_SCALE) != 0 &&
                                 c->variant == WINATTN_COSINE &&
                                 !isnan(c->logit_scale),
                             KIND_FP32,
                             {1, heads, 1, 1}},
        [T_D_PAD_K] = {(wanted & WINATTN_D_PAD_K) != 0 && pads,
                       KIND_FP32,
                       {1, kv_heads, 1, dim}},
        [T_D_PAD_V] = {(wanted & WINATTN_D_PAD_V) != 0 && pads,
                       KIND_FP32,
                       {1, kv_heads, 1, dim}},
    };
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        t->used = all[id].used;
        t->is_output = (!back && (id == T_O || id == T_LSE)) || id >= T_DQ;
        t->kind = all[id].kind;
        memcpy(t->extent, all[id].extent, sizeof t->extent);
        t->on_grid = c->grid && has_tokens((tensor_id)id);
        if (!t->on_grid)
            continue;
        t->extent[0] = (size_t)c->batch;
        t->extent[2] = 1;
        for (int axis = 0; axis < c->grid; axis++) {
            t->axis_extent[axis] = (size_t)c->size[axis];
            t->extent[2] *= t->axis_extent[axis];
        }
    }
}

/* Strides for axes nested in the given order, outermost first, each axis
 * followed by a gap of `gap[axis]` elements. */
static void nest(tensor_data *t, const int order[4], const size_t gap[4])
{
    size_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        const int axis = order[i];
        stride *= axis == 3 && gap[3] ? gap[3] + 1 : 1;
        t->stride[axis] = stride;
        for (int a = WINATTN_AXES - 1; axis == 2 && a >= 0; a--) {
            if (!t->axis_extent[a])
                continue;
            t->axis_stride[a] = stride;
            stride = stride * t->axis_extent[a] + gap[2];
        }
        if (axis != 2 || !t->on_grid)
            stride *= t->extent[axis] ? t->extent[axis] : 1;
        stride += axis == 3 ? gap[2] : axis == 2 ? gap[1] : gap[0];
    }
}

/* [windows, tokens, parts, heads, dim], part `part` of it. */
static void pack(tensor_data *t, size_t parts, size_t part)
{
    const size_t row = t->extent[1] * t->extent[3];
    t->stride[3] = 1;
    t->stride[1] = t->extent[3];
    t->stride[2] = parts * row;
    t->stride[0] = parts * row * t->extent[2];
    size_t stride = parts * row;
    for (int a = WINATTN_AXES - 1; a >= 0; a--) {
        t->axis_stride[a] = stride;
        stride *= t->axis_extent[a] ? t->axis_extent[a] : 1;
    }
    t->offset += part * row * kind_size(t->kind);
}

/* Coordinates of a row's token. */
static void row_position(const tensor_data *t, size_t row,
                         size_t at[WINATTN_AXES])
{
    for (int a = WINATTN_AXES - 1; a >= 0; a--) {
        const size_t extent = t->axis_extent[a] ? t->axis_extent[a] : 1;
        at[a] = row % extent;
        row /= extent;
    }
}

static size_t row_offset(const tensor_data *t, size_t row)
{
    size_t at[WINATTN_AXES], offset = 0;
    if (!t->on_grid)
        return row * t->stride[2];
    row_position(t, row, at);
    for (int a = 0; a < WINATTN_AXES; a++)
        offset += at[a] * t->axis_stride[a];
    return offset;
}

/* The row that stands for this one where an axis is broadcast. */
static size_t first_row(const tensor_data *t, size_t row)
{
    size_t at[WINATTN_AXES], first = 0;
    if (!t->on_grid)
        return t->stride[2] ? row : 0;
    row_position(t, row, at);
    for (int a = 0; a < WINATTN_AXES; a++)
        if (t->axis_extent[a])
            first =
                first * t->axis_extent[a] + (t->axis_stride[a] ? at[a] : 0);
    return first;
}

static size_t span_bytes(const tensor_data *t)
{
    size_t last = 0;
    for (int axis = 0; axis < 4; axis++) {
        if (t->extent[axis] == 0)
            return 0;
        last += axis == 2 ? row_offset(t, t->extent[2] - 1)
                          : (t->extent[axis] - 1) * t->stride[axis];
    }
    return (last + 1) * kind_size(t->kind);
}

static void place_tensors(case_buffers *d)
{
    static const int heads_first[4] = {0, 1, 2, 3};
    static const int tokens_first[4] = {0, 2, 1, 3};
    static const size_t none[4] = {0, 0, 0, 0};
    /* behind a row, a head, a window; between columns */
    static const size_t padded[4] = {7, 5, 3, 0};
    static const size_t aligned[4] = {16, 8, 8, 0};
    static const size_t strided[4] = {0, 0, 0, 1};
    const int layout = d->c.layout;
    const int shared = layout == LAYOUT_PACKED        ? 3
                       : layout == LAYOUT_INTERLEAVED ? 4
                                                      : 0;
    d->buffers = 0;
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        /* q, k, v (and o) share a buffer, dq, dk, dv another */
        const int first = id >= T_DQ ? T_DQ : T_Q;
        const int part = id == T_O ? 3 : id - first;
        const bool complete = (d->c.outputs & 7) == 7;
        if (!t->used)
            continue;
        const int packs = (id <= T_V || (id == T_O && t->is_output) ||
                           (id >= T_DQ && id <= T_DV && complete)) &&
                          part < shared;
        t->buffer = packs && part > 0 ? d->tensor[first].buffer : d->buffers++;
        t->offset = GUARD;
        /* tokens on a grid and tables have their heads inside */
        const bool inside = t->on_grid || ((id == T_BIAS || id == T_DBIAS) &&
                                           case_has_table(&d->c));
        nest(t,
             inside != (layout == LAYOUT_TOKENS) ? tokens_first : heads_first,
             layout == LAYOUT_PADDED    ? padded
             : layout == LAYOUT_ALIGNED ? aligned
             : layout == LAYOUT_STRIDED ? strided
                                        : none);
        if (layout == LAYOUT_PADDED)
            t->offset += kind_size(t->kind) * (size_t)(id + 1);
        if (packs)
            pack(t, (size_t)shared, (size_t)part);
        if (layout == LAYOUT_BROADCAST) {
            if (id == T_K || id == T_V)
                t->stride[0] = 0;
            if (id == T_V) /* and one row of a map for all */
                t->axis_stride[0] = 0;
            if (id == T_PAD_V)
                t->stride[1] = 0;
            if (id == T_BIAS)
                t->stride[1] = 0;
            if (id == T_MASK)
                t->stride[2] = 0;
        }
        if (id == T_LOGIT_SCALE || id == T_D_LOGIT_SCALE) /* no strides */
            nest(t, heads_first, none);
        const size_t end = t->offset + span_bytes(t) + GUARD;
        buffer_image *image = &d->buffer[t->buffer];
        image->size = end > image->size ? end : image->size;
    }
}

size_t data_at(const tensor_data *t, size_t window, size_t head, size_t row,
               size_t column)
{
    return t->offset +
           kind_size(t->kind) * (window * t->stride[0] + head * t->stride[1] +
                                 row_offset(t, row) + column * t->stride[3]);
}

/* ---- Values ---- */

static size_t index_of(const tensor_data *t, size_t window, size_t head,
                       size_t row, size_t column)
{
    return ((window * t->extent[1] + head) * t->extent[2] + row) *
               t->extent[3] +
           column;
}

static double draw(const test_case *c, int id, const tensor_data *t,
                   random_state *r, size_t head)
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
        (void)t;
        return x;
    }
}

/* Multiplies row i of n by 2^(10 i / n - 8). */
static void raise_rows(tensor_data *t)
{
    const size_t rows = t->extent[2], columns = t->extent[3];
    for (size_t i = 0; t->used && i < t->extent[0] * t->extent[1] * rows; i++)
        for (size_t x = 0; x < columns; x++)
            t->value[i * columns + x] *=
                exp2(10.0 * (double)(i % rows) / (double)rows - 8);
}

/* Adds 0, 12 and -12 to the q of four windows after the other, and 1 to k. */
static void swing_windows(tensor_data *q, tensor_data *k)
{
    static const double swings[] = {0, 12, -12};
    const size_t per_window = q->extent[1] * q->extent[2] * q->extent[3];
    for (size_t i = 0; i < q->extent[0] * per_window; i++)
        q->value[i] += swings[i / per_window / 4 % 3];
    for (size_t i = 0;
         i < k->extent[0] * k->extent[1] * k->extent[2] * k->extent[3]; i++)
        k->value[i] += 1;
}

static size_t count_of(const tensor_data *t)
{
    return t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
}

static void shift_values(tensor_data *t, double by)
{
    for (size_t i = 0; t->used && i < count_of(t); i++)
        t->value[i] += by;
}

static void stretch_values(tensor_data *t, size_t each_row, double by)
{
    const size_t rows = t->extent[2], columns = t->extent[3];
    for (size_t i = 0; t->used && i < count_of(t); i++)
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

/* What a data kind puts into whole rows. */
static void mark_rows(case_buffers *d)
{
    const test_case *c = &d->c;
    tensor_data *t = d->tensor;
    random_state r = random_seeded((unsigned long long)c->seed + 77);
    tensor_data *mask = &t[T_MASK];
    if ((c->data == DATA_MASKED || c->data == DATA_LOWEST) && mask->used)
        for (size_t w = 0; w < mask->extent[0]; w++)
            for (size_t i = 0; i < mask->extent[2]; i++) {
                const double lowest = mask->kind == KIND_FP32 ? -FLT_MAX
                                      : mask->kind == KIND_FP16
                                          ? -65504.0
                                          : -3.3895313892515355e38;
                if (random_int(&r, 0, 4) == 0)
                    for (size_t j = 0; j < mask->extent[3]; j++)
                        mask->value[index_of(mask, w, 0, i, j)] =
                            c->data == DATA_MASKED ? -INFINITY : lowest;
            }
    if (c->windows == 0)
        return;
    const size_t last = t[T_Q].extent[0] - 1; /* window, or grid */
    if (c->data == DATA_NAN) {
        /* q and bias spoil a row, k and v what sees them */
        t[T_Q].value[index_of(&t[T_Q], 0, 0, t[T_Q].extent[2] / 2, 0)] = NAN;
        t[T_K].value[index_of(&t[T_K], last, 0, t[T_K].extent[2] - 1, 0)] =
            NAN;
        t[T_V].value[index_of(&t[T_V], last, t[T_V].extent[1] - 1,
                              t[T_V].extent[2] / 2, t[T_V].extent[3] - 1)] =
            NAN;
        if (t[T_BIAS].used)
            t[T_BIAS].value[index_of(
                &t[T_BIAS], 0, 0,
                case_has_table(c) ? t[T_BIAS].extent[2] / 3 : 0,
                t[T_BIAS].extent[3] / 2)] = NAN;
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
                    t[id].value[index_of(&t[id], last, h, t[id].extent[2] / 3,
                                         x)] = 0;
}

static int fill_values(case_buffers *d)
{
    random_state r = random_seeded((unsigned long long)d->c.seed);
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        const bool added = id >= T_DQ && (d->c.accumulate >> (id - T_DQ)) & 1;
        if (!t->used || (t->is_output && !added))
            continue;
        const size_t count =
            t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
        t->value = malloc(sizeof(double) * (count ? count : 1));
        if (!t->value)
            return 0;
        for (size_t i = 0; i < count; i++)
            t->value[i] =
                draw(&d->c, id, t, &r,
                     i / (t->extent[2] * t->extent[3]) % t->extent[1]);
    }
    mark_rows(d);
    return 1;
}

/* Rounds every value, copies it to its image and, where it is broadcast, to
 * the values of all that share it. */
void data_write(case_buffers *d)
{
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        for (size_t w = 0; t->used && w < t->extent[0]; w++)
            for (size_t h = 0; h < t->extent[1]; h++)
                for (size_t i = 0; i < t->extent[2]; i++)
                    for (size_t j = 0; j < t->extent[3]; j++) {
                        unsigned char *at = d->buffer[t->buffer].bytes +
                                            data_at(t, w, h, i, j);
                        if (!t->value) {
                            memset(at, POISON_BYTE, kind_size(t->kind));
                            continue;
                        }
                        double *x = &t->value[index_of(t, w, h, i, j)];
                        const double first = t->value[index_of(
                            t, t->stride[0] ? w : 0, t->stride[1] ? h : 0,
                            first_row(t, i), t->stride[3] ? j : 0)];
                        *x = kind_round(t->kind, first);
                        kind_write(t->kind, *x, at);
                    }
    }
}

/* o and lse as a forward pass leaves them. False: out of memory. */
static int fill_given(case_buffers *d)
{
    tensor_data *o = &d->tensor[T_O], *lse = &d->tensor[T_LSE];
    const size_t queries = (size_t)d->c.queries, dim = o->extent[3];
    const size_t values = queries * dim;
    double *x = malloc(sizeof(double) * 2 * (values + queries));
    for (size_t w = 0; x && w < (size_t)d->c.windows; w++)
        for (size_t h = 0; h < o->extent[1]; h++) {
            double *lses = x + values, largest = 0;
            data_oracle(d, w, h, x, lses + queries, lses,
                        lses + queries + values, &largest);
            for (size_t i = 0; i < queries; i++) {
                size_t at = w, row = i;
                if (!data_find(d, T_O, &at, &row))
                    continue;
                memcpy(o->value + index_of(o, at, h, row, 0), x + i * dim,
                       sizeof(double) * dim);
                lse->value[index_of(lse, at, h, row, 0)] = lses[i];
            }
        }
    free(x);
    return x != NULL;
}

/* Which entry of the table each query and key takes. */
static int fill_entries(case_buffers *d)
{
    const test_case *c = &d->c;
    const size_t queries = (size_t)c->queries, keys = (size_t)c->keys;
    random_state r = random_seeded((unsigned long long)c->seed + 99);
    if (!case_has_table(c))
        return 1;
    d->entry = malloc(sizeof *d->entry * queries * keys);
    for (size_t i = 0; d->entry && i < queries * keys; i++)
        d->entry[i] = c->entries
                          ? random_int(&r, 0, c->entries - 1)
                          : (cl_int)grid_table_entry(c, i / keys, i % keys);
    return d->entry != NULL;
}

case_buffers *data_make(const test_case *c)
{
    case_buffers *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->c = *c;
    describe_tensors(d);
    place_tensors(d);
    int complete = (!c->grid || grid_map_make(c, &d->map)) &&
                   fill_entries(d) && fill_values(d);
    for (int i = 0; i < d->buffers; i++) {
        d->buffer[i].bytes = malloc(d->buffer[i].size);
        if (!d->buffer[i].bytes)
            complete = 0;
        else
            memset(d->buffer[i].bytes, GUARD_BYTE, d->buffer[i].size);
    }
    if (!complete) {
        data_free(d);
        return NULL;
    }
    data_write(d);
    if (c->pass == PASS_BACKWARD && c->given == 1) {
        if (!fill_given(d)) {
            data_free(d);
            return NULL;
        }
        data_write(d);
    }
    return d;
}

void data_free(case_buffers *d)
{
    if (!d)
        return;
    for (int id = 0; id < TENSORS; id++)
        free(d->tensor[id].value);
    for (int i = 0; i < d->buffers; i++)
        free(d->buffer[i].bytes);
    grid_map_free(&d->map);
    free(d->entry);
    free(d);
}

/* Strides of the axes that the tensor has, also where their extent is 1: all
 * strides 0 would mean contiguous. */
static winattn_strides strides_of(const case_buffers *d, tensor_id id)
{
    const tensor_data *t = &d->tensor[id];
    const bool regions = id == T_QUERY_REGIONS || id == T_KEY_REGIONS;
    const bool is_bias = id == T_BIAS || id == T_DBIAS;
    const bool is_pad =
        id == T_PAD_K || id == T_PAD_V || id == T_D_PAD_K || id == T_D_PAD_V;
    const bool has_head = id != T_MASK && !regions;
    winattn_strides s;
    memset(&s, 0, sizeof s);
    if (!t->used)
        return s;
    const bool has_column = id != T_LSE && id != T_D_LSE && !regions &&
                            !(is_bias && case_has_table(&d->c));
    s.window = !is_bias && !is_pad ? t->stride[0] : 0;
    s.head = has_head ? t->stride[1] : 0;
    s.row = !is_pad && !t->on_grid ? t->stride[2] : 0;
    s.column = has_column ? t->stride[3] : 0;
    for (int axis = 0; t->on_grid && axis < d->c.grid; axis++)
        s.axis[axis] = t->axis_stride[axis];
    return s;
}

winattn_desc data_desc(const case_buffers *d)
{
    winattn_desc desc = case_desc(&d->c);
    desc.build_options = getenv("WINATTN_TEST_BUILD_OPTIONS");
    if (d->entry && d->c.entries) {
        desc.table.index = d->entry;
        desc.table.entries = (cl_uint)d->c.entries;
    }
    if (d->c.layout == LAYOUT_CONTIGUOUS)
        return desc;
    desc.q = strides_of(d, T_Q);
    desc.k = strides_of(d, T_K);
    desc.v = strides_of(d, T_V);
    desc.o = strides_of(d, T_O);
    desc.lse = strides_of(d, T_LSE);
    desc.bias_strides = strides_of(d, T_BIAS);
    desc.mask_strides = strides_of(d, T_MASK);
    desc.query_region_strides = strides_of(d, T_QUERY_REGIONS);
    desc.key_region_strides = strides_of(d, T_KEY_REGIONS);
    desc.d_o = strides_of(d, T_D_O);
    desc.d_lse = strides_of(d, T_D_LSE);
    desc.dq = strides_of(d, T_DQ);
    desc.dk = strides_of(d, T_DK);
    desc.dv = strides_of(d, T_DV);
    desc.dbias_strides = strides_of(d, T_DBIAS);
    desc.pad_k = strides_of(d, T_PAD_K);
    desc.pad_v = strides_of(d, T_PAD_V);
    desc.d_pad_k = strides_of(d, T_D_PAD_K);
    desc.d_pad_v = strides_of(d, T_D_PAD_V);
    return desc;
}

static const double *plane_of(const tensor_data *t, size_t window, size_t head)
{
    return t->used ? t->value + index_of(t, window, head, 0, 0) : NULL;
}

double data_value(const tensor_data *t, size_t window, size_t head, size_t row,
                  size_t column)
{
    return t->value ? t->value[index_of(t, window, head, row, column)] : 0;
}

bool data_find(const case_buffers *d, tensor_id id, size_t *window,
               size_t *row)
{
    if (!d->tensor[id].on_grid)
        return true;
    const size_t at = *window % d->map.windows * d->map.tokens + *row;
    *window /= d->map.windows;
    *row = d->map.token[at];
    return *row != GRID_NONE;
}

size_t data_rows(const case_buffers *d, tensor_id id)
{
    const tensor_data *t = &d->tensor[id];
    return t->on_grid ? d->map.tokens : t->extent[2];
}

/* The tokens of a window, with those of the padding. */
static double *gather(const case_buffers *d, tensor_id id, size_t window,
                      size_t head)
{
    const tensor_data *t = &d->tensor[id], *pad = NULL;
    const size_t dim = t->extent[3];
    if (id == T_K || id == T_V)
        pad = &d->tensor[id == T_K ? T_PAD_K : T_PAD_V];
    double *x = calloc(d->map.tokens * dim, sizeof *x);
    for (size_t i = 0; i < d->map.tokens; i++) {
        size_t at = window, row = i;
        if (data_find(d, id, &at, &row))
            memcpy(x + i * dim, t->value + index_of(t, at, head, row, 0),
                   sizeof *x * dim);
        else if (pad && pad->used)
            memcpy(x + i * dim, pad->value + index_of(pad, 0, head, 0, 0),
                   sizeof *x * dim);
    }
    return x;
}

/* The bias of each query and key, and their mask where tokens are hidden. */
static void expand_terms(const case_buffers *d, size_t window, size_t head,
                         data_view *view)
{
    const test_case *c = &d->c;
    const size_t queries = (size_t)c->queries, keys = (size_t)c->keys;
    const tensor_data *t = &d->tensor[T_BIAS];
    const bool hides = c->grid && c->padding == WINATTN_PADDING_HIDDEN;
    oracle_problem *p = &view->problem;
    if (t->used && (d->entry || hides)) {
        view->own[3] = malloc(sizeof(double) * queries * keys);
        for (size_t i = 0; i < queries * keys; i++)
            view->own[3][i] =
                d->entry
                    ? t->value[index_of(t, 0, head, (size_t)d->entry[i], 0)]
                    : p->bias[i];
        p->bias = view->own[3];
    }
    if (!hides)
        return;
    view->own[4] = malloc(sizeof(double) * queries * keys);
    for (size_t i = 0; i < queries; i++)
        for (size_t j = 0; j < keys; j++) {
            size_t at = window, row = j;
            const size_t ij = i * keys + j;
            view->own[4][ij] = p->mask ? p->mask[ij] : 0;
            if (data_find(d, T_K, &at, &row))
                continue;
            view->own[4][ij] = -INFINITY;
            if (t->used) /* hidden, whatever its bias */
                view->own[3][ij] = 0;
        }
    p->mask = view->own[4];
}

void data_view_open(const case_buffers *d, size_t window, size_t head,
                    data_view *view)
{
    const test_case *c = &d->c;
    const tensor_data *t = d->tensor;
    const size_t kv_head = head / (size_t)(c->heads / c->kv_heads);
    const bool shifted = c->mask == TERM_SHIFT;
    const size_t mask_window =
        c->mask == TERM_NONE || shifted ? 0 : window % (size_t)c->mask_windows;
    memset(view, 0, sizeof *view);
    for (int i = 0; c->mask == TERM_REGIONS && i < 2; i++) {
        const tensor_data *region = &t[T_QUERY_REGIONS + i];
        view->regions[i] = malloc(region->extent[2]);
        for (size_t j = 0; j < region->extent[2]; j++)
            view->regions[i][j] =
                (unsigned char)
                    region->value[index_of(region, mask_window, 0, j, 0)];
    }
    for (int i = 0; shifted && i < 2; i++) {
        view->regions[i] = malloc(d->map.tokens);
        memcpy(view->regions[i],
               d->map.region + window % d->map.windows * d->map.tokens,
               d->map.tokens);
    }
    for (int id = T_Q; c->grid && id <= T_V; id++)
        view->own[id] =
            gather(d, (tensor_id)id, window, id == T_Q ? head : kv_head);
    if (t[T_LOGIT_SCALE].used)
        view->logit_scale = (float)t[T_LOGIT_SCALE].value[head];
    const oracle_problem p = {
        .queries = (size_t)c->queries,
        .keys = (size_t)c->keys,
        .dim = (size_t)c->dim,
        .q = c->grid ? view->own[0] : plane_of(&t[T_Q], window, head),
        .k = c->grid ? view->own[1] : plane_of(&t[T_K], window, kv_head),
        .v = c->grid ? view->own[2] : plane_of(&t[T_V], window, kv_head),
        .bias = plane_of(&t[T_BIAS], 0, head),
        .mask = plane_of(&t[T_MASK], mask_window, 0),
        .query_region = view->regions[0],
        .key_region = view->regions[1],
        .region_value =
            isnan(c->region_value) ? -100.0 : (float)c->region_value,
        .scale = c->scale != 0 ? (float)c->scale : 1.0 / sqrt(c->dim),
        .cosine = c->variant == WINATTN_COSINE,
        .logit_scale = t[T_LOGIT_SCALE].used ? &view->logit_scale : NULL,
        .sliding = c->variant == WINATTN_SLIDING,
        .block = (size_t)c->block,
        .first_block = (size_t)c->first_block,
        .window_blocks = (size_t)c->window_blocks,
        .sink = (size_t)c->sink,
        .query_offset = (size_t)c->query_offset,
        .sink_in_window = c->sink_in_window != 0,
    };
    view->problem = p;
    expand_terms(d, window, head, view);
}

void data_view_close(data_view *view)
{
    free(view->regions[0]);
    free(view->regions[1]);
    for (size_t i = 0; i < sizeof view->own / sizeof *view->own; i++)
        free(view->own[i]);
}

void data_oracle(const case_buffers *d, size_t window, size_t head, double *o,
                 double *o_size, double *lse, double *lse_size,
                 double *largest_logit)
{
    data_view view;
    data_view_open(d, window, head, &view);
    oracle_forward(&view.problem, o, o_size, lse, lse_size, largest_logit);
    data_view_close(&view);
}
