/* SPDX-License-Identifier: Apache-2.0
 * Nests axes. */
#include "random_layout.h"

#include <stdlib.h>
#include <string.h>

/* What alignment a buffer has at least, in bytes
 * (CL_DEVICE_MEM_BASE_ADDR_ALIGN of all devices that are tested). */
#define BASE_ALIGN 128
#define MOST_AXES 7 /* window, head, three of a grid, column, part */
/* Elements from the first to the last, where an axis leads far away. */
#define MOST_SPAN ((size_t)1 << 35)

typedef struct axis {
    size_t extent, *stride;
    size_t most; /* stride; 0: any */
} axis;

/* What layouts are drawn from. */
typedef struct drawing {
    random_state *r;
    bool far;
    bool aligned; /* as whole vectors of channels are, with luck */
} drawing;

static bool chance(random_state *r, int percent)
{
    return random_int(r, 1, 100) <= percent;
}

/* Tensors that may be interleaved, in whichever order. */
static bool may_share(tensor_id id)
{
    return id <= T_V || id == T_O || (id >= T_D_O && id <= T_DV);
}

static bool same_shape(const tensor_data *a, const tensor_data *b)
{
    return a->kind == b->kind && a->on_grid == b->on_grid &&
           memcmp(a->extent, b->extent, sizeof a->extent) == 0;
}

/* The axes of a tensor, its column first. */
static int list_axes(const case_buffers *d, tensor_id id, tensor_data *t,
                     axis axes[MOST_AXES])
{
    const bool is_term = id == T_BIAS || id == T_MASK || id == T_DBIAS ||
                         id == T_QUERY_REGIONS || id == T_KEY_REGIONS;
    int count = 0;
    memset(axes, 0, sizeof *axes * MOST_AXES);
    axes[count++] = (axis){t->extent[3], &t->stride[3], UINT32_MAX};
    if (!t->on_grid)
        axes[count++] = (axis){t->extent[2], &t->stride[2], UINT32_MAX};
    for (int a = 0; a < d->c.grid && t->on_grid; a++)
        axes[count++] =
            (axis){t->axis_extent[a], &t->axis_stride[a], UINT32_MAX};
    /* with a grid, these together span less than 2^32 elements, of terms less
     * than 2^31: one of them may have half of it */
    for (int i = 0; i < count; i++)
        if (is_term || d->c.grid)
            axes[i].most =
                (is_term ? INT32_MAX : UINT32_MAX) / 2 / axes[i].extent;
    axes[count++] = (axis){t->extent[0], &t->stride[0], 0};
    axes[count++] = (axis){t->extent[1], &t->stride[1], 0};
    return count;
}

static void shuffle(random_state *r, axis *axes, int from, int count)
{
    for (int i = from + 1; i < count; i++) {
        const int j = random_int(r, from, i);
        const axis other = axes[i];
        axes[i] = axes[j];
        axes[j] = other;
    }
}

/* The last axis with several elements gets a stride that leads far away. */
static void stretch(random_state *r, const axis *axes, int count)
{
    int last = count - 1;
    while (last > 0 && axes[last].extent <= 1)
        last--;
    const axis *a = &axes[last];
    size_t stride = ((size_t)1 << 32) + 64 * (size_t)random_int(r, 0, 99) +
                    (size_t)random_int(r, 0, 9);
    if (a->most && a->most < stride)
        stride = a->most;
    if (MOST_SPAN / a->extent < stride)
        stride = MOST_SPAN / a->extent;
    if (stride > *a->stride)
        *a->stride = stride;
}

/* A gap of some elements, or none. */
static size_t draw_gap(const drawing *from, int percent)
{
    if (!chance(from->r, percent))
        return 0;
    return (size_t)random_int(from->r, 0, 9) * (from->aligned ? 8 : 1);
}

/* Strides of a tensor, or of `parts` tensors that are interleaved; returns
 * those between the parts. */
static size_t nest(case_buffers *d, tensor_id id, size_t parts,
                   const drawing *from)
{
    axis axes[MOST_AXES];
    size_t part_stride = 0;
    int count = list_axes(d, id, &d->tensor[id], axes);
    /* channels side by side, as models have them, or not */
    const int first = from->aligned || chance(from->r, 60) ? 1 : 0;
    shuffle(from->r, axes, first, count);
    if (parts > 1) { /* inside, so that it cannot be stretched */
        const int at = random_int(from->r, first, count - 1);
        memmove(axes + at + 1, axes + at, sizeof *axes * (size_t)(count - at));
        axes[at] = (axis){parts, &part_stride, 0};
        count++;
    }
    size_t step = !from->aligned && chance(from->r, 15) ? 2 : 1;
    for (int i = 0; i < count; i++) {
        *axes[i].stride = step;
        if (axes[i].extent > 1)
            step = step * axes[i].extent + draw_gap(from, 25);
    }
    if (from->far)
        stretch(from->r, axes, count);
    return part_stride;
}

static bool can_broadcast(const case_buffers *d, tensor_id id)
{
    /* what a forward pass left would not belong to such inputs */
    return !d->c.given &&
           (id <= T_KEY_REGIONS || id == T_D_O || id == T_D_LSE);
}

/* One value for all of an axis, now and then; never along all axes, which
 * would be taken for contiguous. */
static void broadcast(case_buffers *d, tensor_id id, random_state *r)
{
    axis axes[MOST_AXES];
    const int count = list_axes(d, id, &d->tensor[id], axes);
    int left = 0;
    for (int i = 0; i < count; i++)
        left += axes[i].extent > 1;
    for (int i = 0; i < count; i++) {
        /* the padding's channels lie like those of k and v */
        const bool of_pads = i == 0 && d->c.pads != 0;
        if (axes[i].extent <= 1 || of_pads || left <= 1 || !chance(r, 6))
            continue;
        *axes[i].stride = 0;
        left--;
    }
}

static void place_pad(case_buffers *d, tensor_id id, const drawing *from)
{
    tensor_data *pad = &d->tensor[id];
    const size_t step = d->tensor[id == T_PAD_K ? T_K : T_V].stride[3];
    pad->stride[3] = step;
    pad->stride[1] = step * pad->extent[3] + draw_gap(from, 30);
    pad->stride[0] = pad->stride[2] = pad->stride[1] * pad->extent[1];
}

static void place_scale(tensor_data *t)
{
    t->stride[1] = 1;
    t->stride[0] = t->stride[2] = t->stride[3] = t->extent[1];
}

static size_t end_of(const tensor_data *t)
{
    return data_at(t, t->extent[0] - 1, t->extent[1] - 1, t->extent[2] - 1,
                   t->extent[3] - 1) +
           kind_size(t->kind);
}

/* Other tensors that share a buffer with this one. */
static size_t draw_group(const case_buffers *d, const bool *placed,
                         random_state *r, tensor_id group[TENSORS])
{
    const tensor_id id = group[0];
    size_t members = 1;
    for (int other = id + 1; may_share(id) && other < TENSORS; other++)
        if (d->tensor[other].used && !placed[other] &&
            may_share((tensor_id)other) &&
            same_shape(&d->tensor[id], &d->tensor[other]) && chance(r, 40))
            group[members++] = (tensor_id)other;
    return members;
}

/* The tensor, and those that share its buffer. */
static void place_group(case_buffers *d, tensor_id id, bool *placed,
                        const drawing *from)
{
    tensor_data *first = &d->tensor[id];
    tensor_id group[TENSORS] = {id};
    const size_t members = draw_group(d, placed, from->r, group);
    const size_t size = kind_size(first->kind);
    size_t part = 0;
    if (id == T_LOGIT_SCALE || id == T_D_LOGIT_SCALE)
        place_scale(first);
    else if (id == T_PAD_K || id == T_PAD_V)
        place_pad(d, id, from);
    else
        part = nest(d, id, members, from);
    if (members == 1 && can_broadcast(d, id))
        broadcast(d, id, from->r);
    const size_t offset = size * draw_gap(from, 90);
    size_t end = 0;
    for (size_t i = 0; i < members; i++) {
        tensor_data *t = &d->tensor[group[i]];
        memcpy(t->stride, first->stride, sizeof t->stride);
        memcpy(t->axis_stride, first->axis_stride, sizeof t->axis_stride);
        t->offset = offset + i * part * size;
        t->buffer = d->buffers;
        placed[group[i]] = true;
        end = end_of(t) > end ? end_of(t) : end;
    }
    const size_t behind =
        chance(from->r, 50) ? (BASE_ALIGN - end % BASE_ALIGN) % BASE_ALIGN : 0;
    for (size_t i = 0; i < members; i++)
        d->tensor[group[i]].offset += behind;
    d->buffer[d->buffers++].size = end + behind;
}

void layout_random(case_buffers *d, random_state *r, bool far)
{
    bool placed[TENSORS] = {false};
    const drawing from = {r, far, chance(r, 40)};
    for (int i = 0; i < TENSORS; i++) {
        free(d->buffer[i].bytes);
        d->buffer[i].bytes = NULL;
    }
    d->buffers = 0;
    d->c.layout = LAYOUT_STRIDED; /* any but contiguous */
    for (int id = 0; id < TENSORS; id++)
        if (d->tensor[id].used && !placed[id])
            place_group(d, (tensor_id)id, placed, &from);
}
