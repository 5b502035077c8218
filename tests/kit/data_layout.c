/* SPDX-License-Identifier: Apache-2.0
 * Which tensors a case has, how large they are, and where they lie in memory.
 */
#include "data_parts.h"

#include <math.h>

#include "meaning.h"

/* ---- Shapes ---- */

/* Has the case a tensor that its descriptor allows? */
static bool is_given(const test_case *c, tensor_id id)
{
    const bool back = c->pass == PASS_BACKWARD;
    if (id >= T_DQ && !(back && (c->outputs >> (id - T_DQ) & 1)))
        return false;
    switch (id) {
    case T_LOGIT_SCALE:
    case T_D_LOGIT_SCALE:
        return !isnan(c->logit_scale);
    case T_PAD_K:
        return c->pads & 1;
    case T_PAD_V:
        return c->pads & 2;
    case T_O:
        return !back || c->given;
    case T_LSE:
        return back ? c->given : c->lse;
    case T_D_LSE:
        return c->d_lse;
    default:
        return true;
    }
}

static storage_kind kind_of(const test_case *c, unsigned element_bytes)
{
    return element_bytes == 1              ? KIND_U8
           : element_bytes == 4            ? KIND_FP32
           : c->dtype == (int)WINATTN_FP16 ? KIND_FP16
                                           : KIND_BF16;
}

void data_describe(case_buffers *d)
{
    const test_case *c = &d->c;
    winattn_desc desc = case_desc(c);
    desc.table.entries = (cl_uint)c->entries;
    for (int id = 0; id < TENSORS; id++) {
        const tensor_meaning is = meaning_of(&desc, (tensor_id)id);
        tensor_data *t = &d->tensor[id];
        t->used = is.is_used && is_given(c, (tensor_id)id);
        t->is_output = tensor_traits[id].role[c->pass] >= ROLE_OUTPUT;
        t->kind = kind_of(c, is.element_bytes);
        t->on_grid = is.on_grid;
        t->extent[0] = (size_t)is.extent[AXIS_WINDOW];
        t->extent[1] = (size_t)is.extent[AXIS_HEAD];
        t->extent[2] = (size_t)is.extent[AXIS_ROW];
        t->extent[3] = (size_t)is.extent[AXIS_COLUMN];
        if (!t->on_grid)
            continue;
        t->extent[2] = 1;
        for (int axis = 0; axis < c->grid; axis++) {
            t->axis_extent[axis] =
                (size_t)is.extent[AXIS_COLUMN - c->grid + axis];
            t->extent[2] *= t->axis_extent[axis];
        }
    }
}

/* ---- Layouts ---- */

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

size_t data_first_row(const tensor_data *t, size_t row)
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

/* What is read alone has as many bytes as it needs, and where it is contiguous
 * begins with its buffer: a GPU in software tells of reads before and behind
 * it. */
void data_place(case_buffers *d)
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
        t->offset = t->is_output || layout != LAYOUT_CONTIGUOUS ? GUARD : 0;
        /* tokens on a grid and tables have their heads inside */
        const bool inside = t->on_grid || ((id == T_BIAS || id == T_DBIAS) &&
                                           case_has_table(&d->c));
        nest(t,
             inside != (layout == LAYOUT_TOKENS) ? tokens_first : heads_first,
             layout == LAYOUT_PADDED       ? padded
             : layout == LAYOUT_ALIGNED    ? aligned
             : layout == LAYOUT_MISALIGNED ? aligned
             : layout == LAYOUT_STRIDED    ? strided
                                           : none);
        if (layout == LAYOUT_PADDED || layout == LAYOUT_MISALIGNED)
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
        const size_t bytes = span_bytes(t);
        const size_t end =
            t->offset + bytes + (t->is_output || bytes == 0 ? GUARD : 0);
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

size_t data_place_of(const tensor_data *t, size_t index)
{
    const size_t column = index % t->extent[3], rows = index / t->extent[3];
    const size_t row = rows % t->extent[2], heads = rows / t->extent[2];
    return data_at(t, heads / t->extent[1], heads % t->extent[1], row, column);
}

size_t data_count(const tensor_data *t)
{
    return t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
}

size_t data_index(const tensor_data *t, size_t window, size_t head, size_t row,
                  size_t column)
{
    return ((window * t->extent[1] + head) * t->extent[2] + row) *
               t->extent[3] +
           column;
}
