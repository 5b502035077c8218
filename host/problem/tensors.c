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
            return WA_INVALID("%s has more than 2^63 elements", name);
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
    return WA_BAD_LAYOUT("%s has no axis %s, yet its stride is %llu", name,
                         axis, (unsigned long long)stride);
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
        return WA_BAD_LAYOUT(
            "%s lies on a grid, so it has no axis row, yet its stride is %llu",
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

/* Extents and strides; those of a tensor without strides follow. */
static winattn_status read_axes(wa_problem *problem, wa_tensor_id id,
                                const uint64_t extent[WA_AXES],
                                const winattn_strides *strides)
{
    wa_tensor *tensor = &problem->tensor[id];
    const char *name = traits[id].name;
    uint64_t given[WA_AXES];
    bool contiguous = true;
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
    return contiguous
               ? fill_contiguous(tensor, name, contiguous_order(problem, id))
               : WINATTN_SUCCESS;
}

/* From the first to the last element; 0 for an empty tensor, which nothing
 * else is asked of. */
static winattn_status find_span(const wa_problem *problem, wa_tensor_id id,
                                wa_tensor *tensor)
{
    const char *name = traits[id].name;
    tensor->span = 1;
    for (int axis = 0; axis < WA_AXES; axis++) {
        const uint64_t count = tensor->extent[axis];
        if (count == 0) {
            tensor->span = 0;
            return WINATTN_SUCCESS;
        }
        if (!multiply_add(tensor->stride[axis], count - 1, tensor->span,
                          &tensor->span))
            return WA_BAD_LAYOUT("the strides of %s reach past 2^63 elements",
                                 name);
        if (is_output(id) && count > 1 && tensor->stride[axis] == 0)
            return WA_BAD_LAYOUT(
                "%s is an output, so its stride of axis %s must not be 0",
                name, axis_name(problem, id, axis));
        if (axis >= WA_AXIS_0 && tensor->stride[axis] > MAX_INNER_STRIDE)
            return WA_BAD_LAYOUT("the stride of axis %s of %s is above 2^32",
                                 axis_name(problem, id, axis), name);
    }
    return WINATTN_SUCCESS;
}

/* Kernels address the terms inside a plane, and a grid's tokens and their
 * channels, with 32 bits. */
static winattn_status check_planes(const wa_problem *problem, wa_tensor_id id,
                                   const wa_tensor *tensor)
{
    const char *name = traits[id].name;
    if (is_of_terms(id) &&
        (tensor->extent[WA_ROW] - 1) * tensor->stride[WA_ROW] +
                (tensor->extent[WA_COLUMN] - 1) * tensor->stride[WA_COLUMN] >
            INT32_MAX)
        return WA_UNSUPPORTED("a plane of %s spans more than 2^31 elements",
                              name);
    uint64_t last = 0;
    for (int axis = WA_AXIS_0; problem->grid.used && axis <= WA_COLUMN; axis++)
        last += tensor->stride[axis] * (tensor->extent[axis] - 1);
    if (last > UINT32_MAX)
        return WA_UNSUPPORTED("a grid of %s spans more than 2^32 elements",
                              name);
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
    tensor->used = true;
    tensor->element_size = element_size;
    WA_TRY(read_axes(problem, id, extent, strides));
    WA_TRY(find_span(problem, id, tensor));
    if (tensor->span == 0)
        return WINATTN_SUCCESS;
    WA_TRY(check_planes(problem, id, tensor));
    if (overlaps_itself(tensor))
        return WA_BAD_LAYOUT("the strides of %s let elements overlap",
                             traits[id].name);
    if (tensor->span > UINT64_MAX / 2 / element_size)
        return WA_BAD_LAYOUT("%s spans more than 2^63 bytes", traits[id].name);
    return WINATTN_SUCCESS;
}

bool wa_has_pad_values(const wa_problem *problem)
{
    return problem->grid.used &&
           problem->grid.padding == WINATTN_PADDING_VALUES;
}

/* Of each kind of tensor; 0: it has no such axis. */
typedef struct all_extents {
    uint64_t queries[WA_AXES], keys[WA_AXES], rows[WA_AXES];
    uint64_t bias[WA_AXES], mask[WA_AXES];
    uint64_t query_regions[WA_AXES], key_regions[WA_AXES];
    uint64_t scale[WA_AXES], pad[WA_AXES];
} all_extents;

static all_extents extents_of(const wa_problem *p)
{
    const uint32_t *g = p->grid.size;
    const bool on_grid = p->grid.used, table = p->table.used;
    const uint64_t n = on_grid ? p->grid.batch : p->windows;
    const uint64_t rows = on_grid ? g[2] : p->queries;
    const uint64_t key_rows = on_grid ? g[2] : p->keys;
    const uint64_t h = p->heads, kh = p->kv_heads, d = p->head_dim;
    const all_extents all = {
        .queries = {n, h, g[0], g[1], rows, d},
        .keys = {n, kh, g[0], g[1], key_rows, d},
        .rows = {n, h, g[0], g[1], rows, 0},
        .bias = {0, h, 0, 0, table ? p->table.entries : p->queries,
                 table ? 0 : p->keys},
        .mask = {p->mask_windows, 0, 0, 0, p->queries, p->keys},
        .query_regions = {p->mask_windows, 0, 0, 0, p->queries, 0},
        .key_regions = {p->mask_windows, 0, 0, 0, p->keys, 0},
        .scale = {0, h, 0, 0, 0, 0},
        .pad = {0, kh, 0, 0, 0, d},
    };
    return all;
}

winattn_status wa_read_tensors(const winattn_desc *desc, wa_problem *problem)
{
    static const winattn_strides none = {0};
    const all_extents e = extents_of(problem);
    const bool bias = desc->bias != WINATTN_BIAS_NONE;
    const bool array = MASK_READS_ARRAY(problem->mask);
    const bool regions = MASK_READS_REGIONS(problem->mask);
    const bool cosine = desc->variant == WINATTN_COSINE;
    const bool pads = wa_has_pad_values(problem);
    const bool back = problem->passes[WA_BACKWARD];
    const uint32_t size = problem->dtype == WINATTN_FP32 ? 4 : 2;
    const uint32_t bias_size =
        desc->bias_dtype == WINATTN_TERM_FP32 ? 4 : size;
    const uint32_t mask_size =
        desc->mask_dtype == WINATTN_TERM_FP32 ? 4 : size;
    const struct {
        bool used;
        wa_tensor_id id;
        uint32_t size; /* of an element */
        const winattn_strides *strides;
        const uint64_t *extent;
    } all[] = {
        {true, WA_Q, size, &desc->q, e.queries},
        {true, WA_K, size, &desc->k, e.keys},
        {true, WA_V, size, &desc->v, e.keys},
        {true, WA_O, size, &desc->o, e.queries},
        {true, WA_LSE, 4, &desc->lse, e.rows},
        {bias, WA_BIAS, bias_size, &desc->bias_strides, e.bias},
        {array, WA_MASK, mask_size, &desc->mask_strides, e.mask},
        {regions, WA_QUERY_REGIONS, 1, &desc->query_region_strides,
         e.query_regions},
        {regions, WA_KEY_REGIONS, 1, &desc->key_region_strides, e.key_regions},
        {cosine, WA_LOGIT_SCALE, 4, &none, e.scale},
        {pads, WA_PAD_K, size, &desc->pad_k, e.pad},
        {pads, WA_PAD_V, size, &desc->pad_v, e.pad},
        {back, WA_D_O, size, &desc->d_o, e.queries},
        {back, WA_D_LSE, 4, &desc->d_lse, e.rows},
        {back, WA_DQ, size, &desc->dq, e.queries},
        {back, WA_DK, size, &desc->dk, e.keys},
        {back, WA_DV, size, &desc->dv, e.keys},
        {back && bias, WA_DBIAS, 4, &desc->dbias_strides, e.bias},
        {back && cosine, WA_D_LOGIT_SCALE, 4, &none, e.scale},
        {back && pads, WA_D_PAD_K, 4, &desc->d_pad_k, e.pad},
        {back && pads, WA_D_PAD_V, 4, &desc->d_pad_v, e.pad},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].used)
            WA_TRY(read_tensor(problem, all[i].id, all[i].size, all[i].extent,
                               all[i].strides));
    return WINATTN_SUCCESS;
}
