/* SPDX-License-Identifier: Apache-2.0
 * What the library knows of each tensor: its role, its extents, its strides.
 */
#include <string.h>

#include "base/status.h"
#include "problem/read.h"

/* Strides of a grid's axes, rows and columns are 32-bit kernel arguments. */
#define MAX_INNER_STRIDE UINT32_MAX

static const struct {
    const char *name;
    wa_role role[WA_PASSES]; /* forward, backward */
} traits[WA_TENSORS] = {
    [WA_Q] = {"q", {WA_INPUT, WA_INPUT}},
    [WA_K] = {"k", {WA_INPUT, WA_INPUT}},
    [WA_V] = {"v", {WA_INPUT, WA_INPUT}},
    [WA_BIAS] = {"bias", {WA_INPUT, WA_INPUT}},
    [WA_MASK] = {"mask", {WA_INPUT, WA_INPUT}},
    [WA_QUERY_REGIONS] = {"query_regions", {WA_INPUT, WA_INPUT}},
    [WA_KEY_REGIONS] = {"key_regions", {WA_INPUT, WA_INPUT}},
    [WA_LOGIT_SCALE] = {"logit_scale", {WA_OPTIONAL_INPUT, WA_OPTIONAL_INPUT}},
    [WA_PAD_K] = {"pad_k", {WA_OPTIONAL_INPUT, WA_OPTIONAL_INPUT}},
    [WA_PAD_V] = {"pad_v", {WA_OPTIONAL_INPUT, WA_OPTIONAL_INPUT}},
    [WA_O] = {"o", {WA_OUTPUT, WA_OPTIONAL_INPUT}},
    [WA_LSE] = {"lse", {WA_OPTIONAL_OUTPUT, WA_OPTIONAL_INPUT}},
    [WA_D_O] = {"d_o", {WA_ABSENT, WA_INPUT}},
    [WA_D_LSE] = {"d_lse", {WA_ABSENT, WA_OPTIONAL_INPUT}},
    [WA_DQ] = {"dq", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_DK] = {"dk", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_DV] = {"dv", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_DBIAS] = {"dbias", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_D_LOGIT_SCALE] = {"d_logit_scale", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_D_PAD_K] = {"d_pad_k", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_D_PAD_V] = {"d_pad_v", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
};

static const char *const axis_names[WA_AXES] = {"window",  "head", "axis[0]",
                                                "axis[1]", "row",  "column"};
static const char *const grid_axis_names[WINATTN_AXES] = {"axis[0]", "axis[1]",
                                                          "axis[2]"};

const char *wa_tensor_name(wa_tensor_id id) { return traits[id].name; }

wa_role wa_tensor_role(wa_tensor_id id, wa_pass pass)
{
    return traits[id].role[pass];
}

static bool is_output(wa_tensor_id id)
{
    return traits[id].role[WA_FORWARD] >= WA_OUTPUT ||
           traits[id].role[WA_BACKWARD] >= WA_OUTPUT;
}

/* The same for all windows, or summed over them, so without that axis. */
static bool lacks_windows(wa_tensor_id id)
{
    return id == WA_BIAS || id == WA_LOGIT_SCALE || id == WA_PAD_K ||
           id == WA_PAD_V || id == WA_DBIAS || id == WA_D_LOGIT_SCALE ||
           id == WA_D_PAD_K || id == WA_D_PAD_V;
}

static bool is_of_terms(wa_tensor_id id)
{
    return (id >= WA_BIAS && id <= WA_KEY_REGIONS) || id == WA_DBIAS;
}

/* An element for each token, or for each of a token's channels. */
static bool is_of_tokens(wa_tensor_id id)
{
    return !lacks_windows(id) && !is_of_terms(id);
}

static bool lies_on_grid(const wa_problem *problem, wa_tensor_id id)
{
    return problem->grid.used && is_of_tokens(id);
}

bool wa_tensor_is_adjacent(const wa_tensor *tensor)
{
    return !tensor->used || tensor->extent[WA_COLUMN] <= 1 ||
           tensor->stride[WA_COLUMN] == 1;
}

/* a * b + c into *result; false if it does not fit 63 bits. */
static bool multiply_add(uint64_t a, uint64_t b, uint64_t c, uint64_t *result)
{
    const uint64_t limit = INT64_MAX;
    if (c > limit || (a != 0 && b > (limit - c) / a))
        return false;
    *result = a * b + c;
    return true;
}

/* `order`: the axes, the innermost first. */
static winattn_status fill_contiguous(wa_tensor *tensor, const char *name,
                                      const int order[WA_AXES])
{
    uint64_t stride = 1;
    for (int i = 0; i < WA_AXES; i++) {
        const int axis = order[i];
        tensor->stride[axis] = tensor->extent[axis] > 1 ? stride : 0;
        if (!multiply_add(stride, tensor->extent[axis], 0, &stride))
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "%s has more than 2^63 elements", name);
    }
    return WINATTN_SUCCESS;
}

static const int *contiguous_order(const wa_problem *problem, wa_tensor_id id)
{
    static const int windows[WA_AXES] = {WA_COLUMN, WA_ROW,  WA_AXIS_1,
                                         WA_AXIS_0, WA_HEAD, WA_WINDOW};
    static const int grids[WA_AXES] = {WA_COLUMN, WA_HEAD,   WA_ROW,
                                       WA_AXIS_1, WA_AXIS_0, WA_WINDOW};
    /* a table is [entries, heads] */
    const bool is_table =
        problem->table.used && (id == WA_BIAS || id == WA_DBIAS);
    return lies_on_grid(problem, id) || is_table ? grids : windows;
}

/* Every stride must exceed what the smaller ones span together. */
static bool overlaps_itself(const wa_tensor *tensor)
{
    uint64_t reached = 0; /* offset of the last element so far */
    bool taken[WA_AXES] = {false};
    for (int round = 0; round < WA_AXES; round++) {
        int least = -1;
        for (int axis = 0; axis < WA_AXES; axis++)
            if (!taken[axis] && tensor->extent[axis] > 1 &&
                tensor->stride[axis] != 0 &&
                (least < 0 || tensor->stride[axis] < tensor->stride[least]))
                least = axis;
        if (least < 0)
            break;
        taken[least] = true;
        if (tensor->stride[least] <= reached)
            return true;
        /* cannot overflow: the span was computed before */
        reached += tensor->stride[least] * (tensor->extent[least] - 1);
    }
    return false;
}

/* As the descriptor calls an axis of a tensor. */
static const char *axis_name(const wa_problem *problem, wa_tensor_id id,
                             int axis)
{
    const int before = WINATTN_AXES - (int)problem->grid.axes;
    if (lies_on_grid(problem, id) && axis >= WA_AXIS_0 && axis <= WA_ROW)
        return grid_axis_names[axis - WA_AXIS_0 - before];
    return axis_names[axis];
}

static winattn_status fail_no_axis(const char *name, const char *axis,
                                   uint64_t stride)
{
    return wa_fail(WINATTN_INVALID_LAYOUT,
                   "%s has no axis %s, yet its stride is %llu", name, axis,
                   (unsigned long long)stride);
}

/* The caller's strides by axis; those of a grid with fewer axes than three
 * move to the last of them. */
static winattn_status sort_strides(const wa_problem *problem, wa_tensor_id id,
                                   const winattn_strides *strides,
                                   uint64_t given[WA_AXES])
{
    const bool on_grid = lies_on_grid(problem, id);
    const uint32_t axes = on_grid ? problem->grid.axes : 0;
    memset(given, 0, WA_AXES * sizeof *given);
    given[WA_WINDOW] = strides->window;
    given[WA_HEAD] = strides->head;
    given[WA_COLUMN] = strides->column;
    if (!on_grid)
        given[WA_ROW] = strides->row;
    else if (strides->row != 0)
        return wa_fail(WINATTN_INVALID_LAYOUT,
                       "%s lies on a grid, so it has no axis row, yet its "
                       "stride is %llu",
                       traits[id].name, (unsigned long long)strides->row);
    for (uint32_t a = 0; a < WINATTN_AXES; a++) {
        if (a < axes)
            given[WA_AXIS_0 + WINATTN_AXES - axes + a] = strides->axis[a];
        else if (strides->axis[a] != 0)
            return fail_no_axis(traits[id].name, grid_axis_names[a],
                                strides->axis[a]);
    }
    return WINATTN_SUCCESS;
}

/* Shape and strides of one tensor. An extent of 0 means that the tensor has
 * no such axis. */
static winattn_status read_tensor(wa_problem *problem, wa_tensor_id id,
                                  uint32_t element_size,
                                  const uint64_t extent[WA_AXES],
                                  const winattn_strides *strides)
{
    wa_tensor *tensor = &problem->tensor[id];
    const char *name = traits[id].name;
    uint64_t given[WA_AXES];
    bool contiguous = true;
    tensor->used = true;
    tensor->element_size = element_size;
    WA_TRY(sort_strides(problem, id, strides, given));
    for (int axis = 0; axis < WA_AXES; axis++) {
        const bool exists =
            extent[axis] != 0 || (axis == WA_WINDOW && !lacks_windows(id));
        if (!exists && given[axis] != 0)
            return fail_no_axis(name, axis_name(problem, id, axis),
                                given[axis]);
        tensor->extent[axis] = exists ? extent[axis] : 1;
        tensor->stride[axis] = tensor->extent[axis] > 1 ? given[axis] : 0;
        contiguous = contiguous && given[axis] == 0;
    }
    if (contiguous)
        WA_TRY(fill_contiguous(tensor, name, contiguous_order(problem, id)));

    tensor->span = 1;
    for (int axis = 0; axis < WA_AXES; axis++) {
        const uint64_t count = tensor->extent[axis];
        if (count == 0) {
            tensor->span = 0;
            return WINATTN_SUCCESS;
        }
        if (!multiply_add(tensor->stride[axis], count - 1, tensor->span,
                          &tensor->span))
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "the strides of %s reach past 2^63 elements", name);
        if (is_output(id) && count > 1 && tensor->stride[axis] == 0)
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "%s is an output, so its stride of axis %s must "
                           "not be 0",
                           name, axis_name(problem, id, axis));
        if (axis >= WA_AXIS_0 && tensor->stride[axis] > MAX_INNER_STRIDE)
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "the stride of axis %s of %s is above 2^32",
                           axis_name(problem, id, axis), name);
    }
    /* Kernels address the terms inside a plane with 32 bits. */
    if (is_of_terms(id) &&
        (tensor->extent[WA_ROW] - 1) * tensor->stride[WA_ROW] +
                (tensor->extent[WA_COLUMN] - 1) * tensor->stride[WA_COLUMN] >
            INT32_MAX)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "a plane of %s spans more than 2^31 elements", name);
    /* And a grid's tokens and their channels. */
    uint64_t last = 0;
    for (int axis = WA_AXIS_0; problem->grid.used && axis <= WA_COLUMN; axis++)
        last += tensor->stride[axis] * (tensor->extent[axis] - 1);
    if (last > UINT32_MAX)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "a grid of %s spans more than 2^32 elements", name);
    if (overlaps_itself(tensor))
        return wa_fail(WINATTN_INVALID_LAYOUT,
                       "the strides of %s let elements overlap", name);
    if (tensor->span > UINT64_MAX / 2 / element_size)
        return wa_fail(WINATTN_INVALID_LAYOUT, "%s spans more than 2^63 bytes",
                       name);
    return WINATTN_SUCCESS;
}

bool wa_has_pad_values(const wa_problem *problem)
{
    return problem->grid.used &&
           problem->grid.padding == WINATTN_PADDING_VALUES;
}

winattn_status wa_read_tensors(const winattn_desc *desc, wa_problem *problem)
{
    const uint32_t size = problem->dtype == WINATTN_FP32 ? 4 : 2;
    const uint32_t bias_size =
        desc->bias_dtype == WINATTN_TERM_FP32 ? 4 : size;
    const uint32_t mask_size =
        desc->mask_dtype == WINATTN_TERM_FP32 ? 4 : size;
    const uint64_t heads = problem->heads, kv_heads = problem->kv_heads;
    const uint64_t queries = problem->queries, keys = problem->keys;
    const uint64_t masks = problem->mask_windows, dim = problem->head_dim;
    const wa_grid *grid = &problem->grid;
    const uint64_t windows = grid->used ? grid->batch : problem->windows;
    const uint64_t axis_0 = grid->size[0], axis_1 = grid->size[1];
    const uint64_t rows = grid->used ? grid->size[2] : queries;
    const uint64_t key_rows = grid->used ? grid->size[2] : keys;
    const bool is_table = problem->table.used;
    const uint64_t bias_rows = is_table ? problem->table.entries : queries;
    const uint64_t bias_columns = is_table ? 0 : keys;
    const bool has_pads = wa_has_pad_values(problem);
    const winattn_strides contiguous = {0};
#define READ_AXES(id, size, strides, ...)                                     \
    WA_TRY(read_tensor(problem, id, size,                                     \
                       (const uint64_t[WA_AXES]){__VA_ARGS__}, strides))
#define READ(id, size, strides, window, head, row, column)                    \
    READ_AXES(id, size, strides, window, head, 0, 0, row, column)
#define READ_TOKENS(id, size, strides, head, row, column)                     \
    READ_AXES(id, size, strides, windows, head, axis_0, axis_1, row, column)
    READ_TOKENS(WA_Q, size, &desc->q, heads, rows, dim);
    READ_TOKENS(WA_K, size, &desc->k, kv_heads, key_rows, dim);
    READ_TOKENS(WA_V, size, &desc->v, kv_heads, key_rows, dim);
    READ_TOKENS(WA_O, size, &desc->o, heads, rows, dim);
    READ_TOKENS(WA_LSE, 4, &desc->lse, heads, rows, 0);
    if (desc->bias != WINATTN_BIAS_NONE)
        READ(WA_BIAS, bias_size, &desc->bias_strides, 0, heads, bias_rows,
             bias_columns);
    if (desc->mask == WINATTN_MASK_ADDITIVE)
        READ(WA_MASK, mask_size, &desc->mask_strides, masks, 0, queries, keys);
    if (desc->mask == WINATTN_MASK_REGIONS) {
        READ(WA_QUERY_REGIONS, 1, &desc->query_region_strides, masks, 0,
             queries, 0);
        READ(WA_KEY_REGIONS, 1, &desc->key_region_strides, masks, 0, keys, 0);
    }
    if (desc->variant == WINATTN_COSINE)
        READ(WA_LOGIT_SCALE, 4, &contiguous, 0, heads, 0, 0);
    if (has_pads) {
        READ(WA_PAD_K, size, &desc->pad_k, 0, kv_heads, 0, dim);
        READ(WA_PAD_V, size, &desc->pad_v, 0, kv_heads, 0, dim);
    }
    if (!problem->passes[WA_BACKWARD])
        return WINATTN_SUCCESS;
    READ_TOKENS(WA_D_O, size, &desc->d_o, heads, rows, dim);
    READ_TOKENS(WA_D_LSE, 4, &desc->d_lse, heads, rows, 0);
    READ_TOKENS(WA_DQ, size, &desc->dq, heads, rows, dim);
    READ_TOKENS(WA_DK, size, &desc->dk, kv_heads, key_rows, dim);
    READ_TOKENS(WA_DV, size, &desc->dv, kv_heads, key_rows, dim);
    if (desc->bias != WINATTN_BIAS_NONE)
        READ(WA_DBIAS, 4, &desc->dbias_strides, 0, heads, bias_rows,
             bias_columns);
    if (desc->variant == WINATTN_COSINE)
        READ(WA_D_LOGIT_SCALE, 4, &contiguous, 0, heads, 0, 0);
    if (has_pads) {
        READ(WA_D_PAD_K, 4, &desc->d_pad_k, 0, kv_heads, 0, dim);
        READ(WA_D_PAD_V, 4, &desc->d_pad_v, 0, kv_heads, 0, dim);
    }
#undef READ_TOKENS
#undef READ
#undef READ_AXES
    return WINATTN_SUCCESS;
}
