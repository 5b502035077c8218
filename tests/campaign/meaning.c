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
    [T_Q] = {D(q), REQUIRED},
    [T_K] = {D(k), REQUIRED},
    [T_V] = {D(v), REQUIRED},
    [T_BIAS] = {D(bias_strides), REQUIRED},
    [T_MASK] = {D(mask_strides), REQUIRED},
    [T_QUERY_REGIONS] = {D(query_region_strides), REQUIRED},
    [T_KEY_REGIONS] = {D(key_region_strides), REQUIRED},
    [T_LOGIT_SCALE] = {NOWHERE, OPTIONAL},
    [T_PAD_K] = {D(pad_k), OPTIONAL},
    [T_PAD_V] = {D(pad_v), OPTIONAL},
    [T_O] = {D(o), {ROLE_OUTPUT, ROLE_INPUT_OR_NULL}},
    [T_LSE] = {D(lse), {ROLE_OUTPUT_OR_NULL, ROLE_INPUT_OR_NULL}},
    [T_D_O] = {D(d_o), {ROLE_NONE, ROLE_INPUT}},
    [T_D_LSE] = {D(d_lse), {ROLE_NONE, ROLE_INPUT_OR_NULL}},
    [T_DQ] = {D(dq), GRADIENT},
    [T_DK] = {D(dk), GRADIENT},
    [T_DV] = {D(dv), GRADIENT},
    [T_DBIAS] = {D(dbias_strides), GRADIENT},
    [T_D_LOGIT_SCALE] = {NOWHERE, GRADIENT},
    [T_D_PAD_K] = {D(d_pad_k), GRADIENT},
    [T_D_PAD_V] = {D(d_pad_v), GRADIENT},
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

static bool has_query_tokens(tensor_id id)
{
    return id == T_Q || id == T_O || id == T_LSE || id == T_D_O ||
           id == T_D_LSE || id == T_DQ;
}

static bool has_key_tokens(tensor_id id)
{
    return id == T_K || id == T_V || id == T_DK || id == T_DV;
}

static bool is_used(const winattn_desc *desc, tensor_id id)
{
    if (id >= T_D_O && (desc->passes & WINATTN_PASS_BACKWARD) == 0)
        return false;
    switch (id) {
    case T_BIAS:
    case T_DBIAS:
        return desc->bias != WINATTN_BIAS_NONE;
    case T_MASK:
        return desc->mask == WINATTN_MASK_ADDITIVE;
    case T_QUERY_REGIONS:
    case T_KEY_REGIONS:
        return desc->mask == WINATTN_MASK_REGIONS;
    case T_LOGIT_SCALE:
    case T_D_LOGIT_SCALE:
        return desc->variant == WINATTN_COSINE;
    case T_PAD_K:
    case T_PAD_V:
    case T_D_PAD_K:
    case T_D_PAD_V:
        return desc->grid.axes != 0 &&
               desc->grid.padding == WINATTN_PADDING_VALUES;
    default:
        return true;
    }
}

static unsigned element_bytes(const winattn_desc *desc, tensor_id id)
{
    const unsigned same = desc->dtype == WINATTN_FP32 ? 4 : 2;
    switch (id) {
    case T_BIAS:
        return desc->bias_dtype == WINATTN_TERM_FP32 ? 4 : same;
    case T_MASK:
        return desc->mask_dtype == WINATTN_TERM_FP32 ? 4 : same;
    case T_QUERY_REGIONS:
    case T_KEY_REGIONS:
        return 1;
    case T_LSE:
    case T_D_LSE:
    case T_LOGIT_SCALE:
        return 4;
    default:
        return id >= T_DBIAS ? 4 : same;
    }
}

/* Where the last axis of the grid is a row, the others are before it. */
static void set_token_extents(const winattn_desc *desc, tensor_id id,
                              tensor_meaning *t)
{
    const problem_size size = size_of(desc);
    const cl_uint axes = desc->grid.axes;
    const cl_uint kv_heads = desc->kv_heads ? desc->kv_heads : desc->heads;
    t->on_grid = axes != 0;
    t->extent[AXIS_WINDOW] = axes ? desc->grid.batch : size.windows;
    t->extent[AXIS_HEAD] = has_query_tokens(id) ? desc->heads : kv_heads;
    t->extent[AXIS_COLUMN] = id == T_LSE || id == T_D_LSE ? 1 : desc->head_dim;
    if (axes == 0)
        t->extent[AXIS_ROW] = has_query_tokens(id) ? size.queries : size.keys;
    for (cl_uint a = 0; a < axes; a++)
        t->extent[AXIS_COLUMN - axes + a] = desc->grid.size[a];
}

static void set_extents(const winattn_desc *desc, tensor_id id,
                        tensor_meaning *t)
{
    const problem_size size = size_of(desc);
    switch (id) {
    case T_BIAS:
    case T_DBIAS:
        t->extent[AXIS_HEAD] = desc->heads;
        if (desc->bias == WINATTN_BIAS_TABLE) {
            t->extent[AXIS_ROW] = table_entries(desc);
        } else {
            t->extent[AXIS_ROW] = size.queries;
            t->extent[AXIS_COLUMN] = size.keys;
        }
        break;
    case T_MASK:
        t->extent[AXIS_WINDOW] = desc->mask_windows;
        t->extent[AXIS_ROW] = size.queries;
        t->extent[AXIS_COLUMN] = size.keys;
        break;
    case T_QUERY_REGIONS:
    case T_KEY_REGIONS:
        t->extent[AXIS_WINDOW] = desc->mask_windows;
        t->extent[AXIS_ROW] = id == T_QUERY_REGIONS ? size.queries : size.keys;
        break;
    case T_LOGIT_SCALE:
    case T_D_LOGIT_SCALE:
        t->extent[AXIS_HEAD] = desc->heads;
        break;
    default: /* channels of the padding */
        t->extent[AXIS_HEAD] = desc->kv_heads ? desc->kv_heads : desc->heads;
        t->extent[AXIS_COLUMN] = desc->head_dim;
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
    if (has_query_tokens(id) || has_key_tokens(id))
        set_token_extents(desc, id, &t);
    else
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
