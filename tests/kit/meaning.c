/* SPDX-License-Identifier: Apache-2.0
 * Works out tensors from a descriptor. */
#include "meaning.h"

#include <stdlib.h>
#include <string.h>

#define D(field) offsetof(winattn_desc, field)
#define REQUIRED                                                              \
    {                                                                         \
        ROLE_INPUT, ROLE_INPUT                                                \
    }
#define OPTIONAL                                                              \
    {                                                                         \
        ROLE_INPUT_OR_NULL, ROLE_INPUT_OR_NULL                                \
    }
#define GRADIENT                                                              \
    {                                                                         \
        ROLE_NONE, ROLE_OUTPUT_OR_NULL                                        \
    }
const tensor_trait tensor_traits[TENSORS] = {
    [T_Q] = {D(q), REQUIRED, "whqd", ALWAYS, LIKE_Q},
    [T_K] = {D(k), REQUIRED, "wgkd", ALWAYS, LIKE_Q},
    [T_V] = {D(v), REQUIRED, "wgkd", ALWAYS, LIKE_Q},
    [T_BIAS] = {D(bias_strides), REQUIRED, "1hqk", WITH_BIAS, LIKE_BIAS},
    [T_MASK] = {D(mask_strides), REQUIRED, "m1qk", WITH_MASK, LIKE_MASK},
    [T_QUERY_REGIONS] = {D(query_region_strides), REQUIRED, "m1q1",
                         WITH_REGIONS, BYTES},
    [T_KEY_REGIONS] = {D(key_region_strides), REQUIRED, "m1k1", WITH_REGIONS,
                       BYTES},
    [T_LOGIT_SCALE] = {NOWHERE, OPTIONAL, "1h11", WITH_COSINE, FLOATS},
    [T_PAD_K] = {D(pad_k), OPTIONAL, "1g1d", WITH_PADS, LIKE_Q},
    [T_PAD_V] = {D(pad_v), OPTIONAL, "1g1d", WITH_PADS, LIKE_Q},
    [T_O] = {D(o), {ROLE_OUTPUT, ROLE_INPUT_OR_NULL}, "whqd", ALWAYS, LIKE_Q},
    [T_LSE] = {D(lse),
               {ROLE_OUTPUT_OR_NULL, ROLE_INPUT_OR_NULL},
               "whq1",
               ALWAYS,
               FLOATS},
    [T_D_O] = {D(d_o), {ROLE_NONE, ROLE_INPUT}, "whqd", ALWAYS, LIKE_Q},
    [T_D_LSE] =
        {D(d_lse), {ROLE_NONE, ROLE_INPUT_OR_NULL}, "whq1", ALWAYS, FLOATS},
    [T_DQ] = {D(dq), GRADIENT, "whqd", ALWAYS, LIKE_Q},
    [T_DK] = {D(dk), GRADIENT, "wgkd", ALWAYS, LIKE_Q},
    [T_DV] = {D(dv), GRADIENT, "wgkd", ALWAYS, LIKE_Q},
    [T_DBIAS] = {D(dbias_strides), GRADIENT, "1hqk", WITH_BIAS, FLOATS},
    [T_D_LOGIT_SCALE] = {NOWHERE, GRADIENT, "1h11", WITH_COSINE, FLOATS},
    [T_D_PAD_K] = {D(d_pad_k), GRADIENT, "1g1d", WITH_PADS, FLOATS},
    [T_D_PAD_V] = {D(d_pad_v), GRADIENT, "1g1d", WITH_PADS, FLOATS},
};

problem_size size_of(const winattn_desc *desc)
{
    problem_size size = {desc->windows, desc->queries, desc->keys};
    if (desc->grid.axes == 0)
        return size;
    size.windows = desc->grid.batch;
    size.queries = 1;
    for (cl_uint a = 0; a < desc->grid.axes; a++) {
        const cl_ulong extent = desc->grid.size[a];
        const cl_ulong window = desc->grid.window[a];
        size.windows *= (extent + window - 1) / window;
        size.queries *= window;
    }
    size.keys = size.queries;
    return size;
}

static wide table_entries(const winattn_desc *desc)
{
    const bool own = desc->table.axes != 0;
    wide entries = 1;
    if (desc->table.entries != 0) /* of an index */
        return desc->table.entries;
    for (cl_uint a = 0; a < (own ? desc->table.axes : desc->grid.axes); a++)
        entries *=
            2ull * (own ? desc->table.window[a] : desc->grid.window[a]) - 1;
    return entries;
}

static bool is_used(const winattn_desc *desc, tensor_id id)
{
    const bool uses[] = {[ALWAYS] = true,
                         [WITH_BIAS] = desc->bias != WINATTN_BIAS_NONE,
                         [WITH_MASK] = desc->mask == WINATTN_MASK_ADDITIVE,
                         [WITH_REGIONS] = desc->mask == WINATTN_MASK_REGIONS,
                         [WITH_COSINE] = desc->variant == WINATTN_COSINE,
                         [WITH_PADS] =
                             desc->grid.axes != 0 &&
                             desc->grid.padding == WINATTN_PADDING_VALUES};
    return uses[tensor_traits[id].use] &&
           (id < T_D_O || (desc->passes & WINATTN_PASS_BACKWARD) != 0);
}

static unsigned element_bytes(const winattn_desc *desc, tensor_id id)
{
    const unsigned same = desc->dtype == WINATTN_FP32 ? 4 : 2;
    const unsigned bytes[] = {
        [LIKE_Q] = same,
        [LIKE_BIAS] = desc->bias_dtype == WINATTN_TERM_FP32 ? 4 : same,
        [LIKE_MASK] = desc->mask_dtype == WINATTN_TERM_FP32 ? 4 : same,
        [BYTES] = 1,
        [FLOATS] = 4};
    return bytes[tensor_traits[id].type];
}

static wide extent_of(const winattn_desc *desc, char axis)
{
    const problem_size size = size_of(desc);
    switch (axis) {
    case 'w':
        return desc->grid.axes ? desc->grid.batch : size.windows;
    case 'm':
        return desc->mask_windows;
    case 'h':
        return desc->heads;
    case 'g':
        return desc->kv_heads ? desc->kv_heads : desc->heads;
    case 'q':
        return size.queries;
    case 'k':
        return size.keys;
    default:
        return axis == 'd' ? desc->head_dim : 1;
    }
}

/* Where the last axis of the grid is a row, the others are before it. */
static void set_extents(const winattn_desc *desc, tensor_id id,
                        tensor_meaning *t)
{
    static const int places[] = {AXIS_WINDOW, AXIS_HEAD, AXIS_ROW,
                                 AXIS_COLUMN};
    const char *axes = tensor_traits[id].axes;
    for (int i = 0; i < 4; i++)
        t->extent[places[i]] = extent_of(desc, axes[i]);
    t->on_grid = axes[0] == 'w' && desc->grid.axes != 0;
    for (cl_uint a = 0; t->on_grid && a < desc->grid.axes; a++)
        t->extent[AXIS_COLUMN - desc->grid.axes + a] = desc->grid.size[a];
    if (tensor_traits[id].use == WITH_BIAS &&
        desc->bias == WINATTN_BIAS_TABLE) {
        t->extent[AXIS_ROW] = table_entries(desc);
        t->extent[AXIS_COLUMN] = 1;
    }
}

/* True if any is not 0. */
static bool read_strides(const winattn_desc *desc, tensor_id id,
                         tensor_meaning *t)
{
    winattn_strides given;
    const size_t place = tensor_traits[id].strides;
    bool any = false;
    memset(&given, 0, sizeof given);
    if (place != NOWHERE)
        memcpy(&given, (const char *)desc + place, sizeof given);
    t->stride[AXIS_WINDOW] = given.window;
    t->stride[AXIS_HEAD] = given.head;
    t->stride[AXIS_COLUMN] = given.column;
    if (!t->on_grid)
        t->stride[AXIS_ROW] = given.row;
    for (cl_uint a = 0; t->on_grid && a < desc->grid.axes; a++)
        t->stride[AXIS_COLUMN - desc->grid.axes + a] = given.axis[a];
    for (int i = 0; i < AXES; i++)
        any = any || t->stride[i] != 0;
    return any;
}

/* The axes of tokens on a grid, and of tables, have the heads inside. */
static void make_contiguous(const winattn_desc *desc, tensor_id id,
                            tensor_meaning *t)
{
    static const int usual[AXES] = {AXIS_COLUMN, AXIS_ROW,  AXIS_1,
                                    AXIS_0,      AXIS_HEAD, AXIS_WINDOW};
    static const int heads_inside[AXES] = {
        AXIS_COLUMN, AXIS_HEAD, AXIS_ROW, AXIS_1, AXIS_0, AXIS_WINDOW};
    const bool is_table =
        desc->bias == WINATTN_BIAS_TABLE && (id == T_BIAS || id == T_DBIAS);
    const int *order = t->on_grid || is_table ? heads_inside : usual;
    wide step = 1;
    for (int i = 0; i < AXES; i++) {
        t->stride[order[i]] = step;
        step *= t->extent[order[i]];
    }
}

tensor_meaning meaning_of(const winattn_desc *desc, tensor_id id)
{
    tensor_meaning t;
    memset(&t, 0, sizeof t);
    for (int i = 0; i < AXES; i++)
        t.extent[i] = 1;
    t.is_used = is_used(desc, id);
    if (!t.is_used)
        return t;
    t.element_bytes = element_bytes(desc, id);
    set_extents(desc, id, &t);
    if (!read_strides(desc, id, &t))
        make_contiguous(desc, id, &t);
    for (int i = 0; i < AXES; i++)
        t.is_empty = t.is_empty || t.extent[i] == 0;
    for (int i = 0; i < AXES && !t.is_empty; i++)
        t.last += (t.extent[i] - 1) * t.stride[i];
    return t;
}

/* ---- Overlaps ---- */

#define MOST_ELEMENTS 4000

static int compare(const void *a, const void *b)
{
    const wide x = *(const wide *)a, y = *(const wide *)b;
    return (x > y) - (x < y);
}

bool meaning_overlaps(const tensor_meaning *tensor)
{
    static wide place[MOST_ELEMENTS];
    wide count = 1;
    if (tensor->is_empty)
        return false;
    for (int i = 0; i < AXES; i++)
        if (tensor->stride[i] != 0) {
            count *= tensor->extent[i];
            if (count > MOST_ELEMENTS || count == 0)
                return false;
        }
    for (wide n = 0; n < count; n++) {
        wide left = n;
        place[n] = 0;
        for (int i = 0; i < AXES; i++)
            if (tensor->stride[i] != 0) {
                place[n] += left % tensor->extent[i] * tensor->stride[i];
                left /= tensor->extent[i];
            }
    }
    qsort(place, (size_t)count, sizeof *place, compare);
    for (wide n = 1; n < count; n++)
        if (place[n] == place[n - 1])
            return true;
    return false;
}
