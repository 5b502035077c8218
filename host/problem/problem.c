/* SPDX-License-Identifier: Apache-2.0
 * Reads and checks a descriptor. */
#include "problem/problem.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"

#define MAX_TOKENS 0x7fffffffu
#define MAX_HEAD_DIM 256u
#define MAX_HEADS 65536u
/* Strides of a grid's axes, rows and columns are 32-bit kernel arguments. */
#define MAX_INNER_STRIDE UINT32_MAX
/* Kernels number the windows of one grid with 32 bits. */
#define MAX_GRID_WINDOWS 0x7fffffffu
/* Entries of a table, and pairs of a query and a key, that are worth a list:
 * windows of 1024 tokens. */
#define MAX_LISTED (1u << 20)

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

static winattn_status check_count(const char *name, uint64_t value,
                                  uint64_t most)
{
    if (value == 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is 0", name);
    if (value > most)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s is %llu, above %llu",
                       name, (unsigned long long)value,
                       (unsigned long long)most);
    return WINATTN_SUCCESS;
}

static winattn_status check_enum(const char *name, int value, int last)
{
    if (value < 0 || value > last)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is %d, not 0 to %d", name,
                       value, last);
    return WINATTN_SUCCESS;
}

/* One axis of the grid; `a` counts as the caller does. */
static winattn_status read_grid_axis(const winattn_grid *given, uint32_t a,
                                     wa_grid *grid)
{
    const uint32_t at = WINATTN_AXES - given->axes + a;
    const uint64_t size = given->size[a], window = given->window[a];
    char name[32];
    snprintf(name, sizeof name, "grid.size[%u]", a);
    WA_TRY(check_count(name, size, MAX_TOKENS));
    snprintf(name, sizeof name, "grid.window[%u]", a);
    WA_TRY(check_count(name, window, MAX_TOKENS));
    if (given->shift[a] >= window)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "grid.shift[%u], %u, is not less than the window, %u",
                       a, given->shift[a], given->window[a]);
    const uint64_t windows = (size + window - 1) / window;
    if (windows * window > MAX_TOKENS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "grid.size[%u], %u, is above 2^31 when padded", a,
                       given->size[a]);
    const bool is_padded = windows * window != size;
    if (given->periodic[a] && is_padded)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "grid.size[%u], %u, is no multiple of the window, %u, "
                       "so the axis cannot be periodic",
                       a, given->size[a], given->window[a]);
    grid->size[at] = given->size[a];
    grid->window[at] = given->window[a];
    grid->windows[at] = (uint32_t)windows;
    grid->is_padded = grid->is_padded || is_padded;
    if (windows > 1) { /* else the window covers the axis */
        grid->shift[at] = given->shift[a];
        if (given->shift[a] != 0 && !given->periodic[a])
            grid->seams |= 1u << at;
    }
    return WINATTN_SUCCESS;
}

/* Field `name`, which follows from the grid, is 0 or what follows. */
static winattn_status check_follows(const char *name, uint64_t given,
                                    uint64_t follows)
{
    if (given == 0 || given == follows)
        return WINATTN_SUCCESS;
    return wa_fail(WINATTN_INVALID_ARGUMENT,
                   "%s is %llu, but the grid makes %llu", name,
                   (unsigned long long)given, (unsigned long long)follows);
}

/* Sets the numbers of windows, queries and keys, too. */
static winattn_status read_grid(const winattn_desc *desc, wa_problem *problem)
{
    const winattn_grid *given = &desc->grid;
    wa_grid *grid = &problem->grid;
    uint64_t tokens = 1, windows = 1;
    if (given->axes > WINATTN_AXES)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "grid.axes is %u, above %u",
                       given->axes, (unsigned)WINATTN_AXES);
    for (uint32_t a = given->axes; a < WINATTN_AXES; a++)
        if (given->size[a] || given->window[a] || given->shift[a] ||
            given->periodic[a])
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "the grid has %u axes, yet it says something of "
                           "axis %u",
                           given->axes, a);
    WA_TRY(check_enum("grid.padding", (int)given->padding,
                      WINATTN_PADDING_HIDDEN));
    if (given->axes == 0) {
        if (given->batch != 0 || given->padding != WINATTN_PADDING_VALUES)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "grid.batch or grid.padding is set, but grid.axes "
                           "is 0");
        problem->windows = desc->windows;
        problem->queries = desc->queries;
        problem->keys = desc->keys;
        return WINATTN_SUCCESS;
    }
    if (desc->variant == WINATTN_SLIDING)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "the sliding variant takes no grid");
    for (int i = 0; i < WINATTN_AXES; i++)
        grid->size[i] = grid->window[i] = grid->windows[i] = 1;
    grid->used = true;
    grid->axes = given->axes;
    grid->batch = given->batch;
    grid->padding = given->padding;
    for (uint32_t a = 0; a < given->axes; a++)
        WA_TRY(read_grid_axis(given, a, grid));
    for (int i = 0; i < WINATTN_AXES; i++) {
        tokens *= grid->window[i];
        windows *= grid->windows[i];
        if (tokens > MAX_TOKENS)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "a window of the grid has more than 2^31 tokens");
        if (windows > MAX_GRID_WINDOWS)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "the grid has more than 2^31 windows");
    }
    if (given->batch > UINT32_MAX) /* kernels count grids in 32 bits */
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "grid.batch is 2^32 or more");
    problem->windows = grid->batch * windows;
    problem->queries = problem->keys = (uint32_t)tokens;
    WA_TRY(check_follows("windows", desc->windows, problem->windows));
    WA_TRY(check_follows("queries", desc->queries, tokens));
    return check_follows("keys", desc->keys, tokens);
}

/* Of an index. Lists of what shares an entry are made for gradients. */
static winattn_status check_entries(const wa_problem *problem,
                                    uint32_t entries)
{
    if (problem->passes[WA_BACKWARD] && entries > WA_MOST_SUMMED_ENTRIES)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "the table has %u entries, and with an index gradients "
                       "are summed for at most %u",
                       entries, WA_MOST_SUMMED_ENTRIES);
    return WINATTN_SUCCESS;
}

static winattn_status read_index(const winattn_table *given,
                                 const wa_problem *problem, wa_table *table)
{
    const uint64_t pairs = (uint64_t)problem->queries * problem->keys;
    if (given->axes || given->window[0] || given->window[1] ||
        given->window[2] || given->sliced)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "table.index is given, so table.axes, table.window and "
                       "table.sliced must be 0");
    WA_TRY(check_count("table.entries", given->entries, MAX_TOKENS));
    WA_TRY(check_entries(problem, given->entries));
    for (uint64_t i = 0; i < pairs; i++)
        if (given->index[i] < 0 || (uint32_t)given->index[i] >= given->entries)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "table.index[%llu] is %d, not 0 to %u",
                           (unsigned long long)i, (int)given->index[i],
                           given->entries - 1);
    table->entries = given->entries;
    table->index = given->index;
    table->has_index = table->is_listed = true;
    return WINATTN_SUCCESS;
}

/* The window that the table was made for. */
static winattn_status read_table_window(const winattn_table *given,
                                        const wa_grid *grid,
                                        uint32_t window[WINATTN_AXES])
{
    if (given->axes > WINATTN_AXES)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "table.axes is %u, above %u",
                       given->axes, (unsigned)WINATTN_AXES);
    for (uint32_t a = given->axes; a < WINATTN_AXES; a++)
        if (given->window[a] != 0)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "table.axes is %u, yet table.window[%u] is %u",
                           given->axes, a, given->window[a]);
    if (given->axes == 0) {
        if (!grid->used)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "a table without a grid needs table.axes and "
                           "table.window, or table.index");
        memcpy(window, grid->window, sizeof grid->window);
        return WINATTN_SUCCESS;
    }
    if (grid->used && given->axes != grid->axes)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "table.axes is %u, but the grid has %u", given->axes,
                       grid->axes);
    for (int i = 0; i < WINATTN_AXES; i++)
        window[i] = 1;
    for (uint32_t a = 0; a < given->axes; a++) {
        const uint32_t at = WINATTN_AXES - given->axes + a;
        char name[32];
        snprintf(name, sizeof name, "table.window[%u]", a);
        WA_TRY(check_count(name, given->window[a], MAX_TOKENS));
        window[at] = given->window[a];
        if (grid->used && window[at] < grid->window[at])
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "%s, %u, is less than the grid's, %u", name,
                           window[at], grid->window[at]);
    }
    return WINATTN_SUCCESS;
}

static winattn_status read_table(const winattn_desc *desc, wa_problem *problem)
{
    const winattn_table *given = &desc->table;
    wa_table *table = &problem->table;
    uint32_t window[WINATTN_AXES];
    uint64_t entries = 1, tokens = 1;
    if (desc->bias != WINATTN_BIAS_TABLE) {
        if (given->axes || given->window[0] || given->window[1] ||
            given->window[2] || given->sliced || given->index ||
            given->entries)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "a field of table is set, but the bias is no "
                           "table");
        return WINATTN_SUCCESS;
    }
    /* an element for each pair is what gradients are summed in */
    if ((uint64_t)problem->queries * problem->keys > INT32_MAX)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "queries x keys is above 2^31 with a table");
    table->used = true;
    if (given->index)
        return read_index(given, problem, table);
    if (given->entries != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "table.entries is set, but table.index is NULL");
    WA_TRY(read_table_window(given, &problem->grid, window));
    for (int i = WINATTN_AXES - 1; i >= 0; i--) {
        table->step[i] = (uint32_t)entries;
        table->center += (window[i] - 1) * table->step[i];
        entries *= 2ull * window[i] - 1;
        tokens *= window[i];
        if (entries > MAX_TOKENS)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "a table for such a window has more than 2^31 "
                           "entries");
    }
    table->entries = (uint32_t)entries;
    table->is_listed =
        entries <= MAX_LISTED &&
        (uint64_t)problem->queries * problem->keys <= MAX_LISTED;
    /* the window in which a token's number is its position */
    const bool own = given->sliced || !problem->grid.used;
    memcpy(table->window, own ? window : problem->grid.window, sizeof window);
    if (!problem->grid.used && !given->sliced &&
        (tokens != problem->queries || tokens != problem->keys))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "the table's window has %llu tokens, but there are %u "
                       "queries and %u keys, and table.sliced is not set",
                       (unsigned long long)tokens, problem->queries,
                       problem->keys);
    if (tokens < problem->queries || tokens < problem->keys)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "the table's window has %llu tokens, fewer than "
                       "queries or keys",
                       (unsigned long long)tokens);
    return WINATTN_SUCCESS;
}

static winattn_status read_sizes(const winattn_desc *desc, wa_problem *problem)
{
    WA_TRY(check_enum("variant", (int)desc->variant, WINATTN_SLIDING));
    WA_TRY(check_enum("dtype", (int)desc->dtype, WINATTN_BF16));
    WA_TRY(check_enum("tier", (int)desc->tier, WINATTN_TIER_MATRIX));
    WA_TRY(check_enum("bias", (int)desc->bias, WINATTN_BIAS_TABLE));
    WA_TRY(check_enum("bias_dtype", (int)desc->bias_dtype, WINATTN_TERM_FP32));
    WA_TRY(check_enum("mask", (int)desc->mask, WINATTN_MASK_SHIFT));
    WA_TRY(check_enum("mask_dtype", (int)desc->mask_dtype, WINATTN_TERM_FP32));
    WA_TRY(read_grid(desc, problem));
    WA_TRY(check_count("heads", desc->heads, MAX_HEADS));
    WA_TRY(check_count("queries", problem->queries, MAX_TOKENS));
    WA_TRY(check_count("keys", problem->keys, MAX_TOKENS));
    WA_TRY(check_count("head_dim", desc->head_dim, MAX_HEAD_DIM));
    if (problem->windows > INT64_MAX)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "windows is above 2^63");
    if (desc->kv_heads != 0 &&
        (desc->kv_heads > desc->heads || desc->heads % desc->kv_heads != 0))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "kv_heads, %u, does not divide heads, %u",
                       desc->kv_heads, desc->heads);
    if (desc->allow_tf32 && desc->dtype != WINATTN_FP32)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "allow_tf32 is set, but the tensors are not fp32");
    if (!isfinite(desc->scale))
        return wa_fail(WINATTN_INVALID_ARGUMENT, "scale is not finite");

    if ((desc->passes &
         ~(cl_bitfield)(WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)) != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "passes has a bit that is no WINATTN_PASS_");
    problem->passes[WA_FORWARD] =
        desc->passes == 0 || (desc->passes & WINATTN_PASS_FORWARD) != 0;
    problem->passes[WA_BACKWARD] = (desc->passes & WINATTN_PASS_BACKWARD) != 0;
    problem->variant = desc->variant;
    problem->dtype = desc->dtype;
    problem->tier = desc->tier;
    problem->allows_tf32 = desc->allow_tf32 != CL_FALSE;
    problem->heads = desc->heads;
    problem->kv_heads = desc->kv_heads ? desc->kv_heads : desc->heads;
    problem->head_dim = desc->head_dim;
    problem->scale = desc->scale != 0.0f
                         ? desc->scale
                         : (float)(1.0 / sqrt((double)desc->head_dim));
    return WINATTN_SUCCESS;
}

static winattn_status read_terms(const winattn_desc *desc, wa_problem *problem)
{
    if (desc->variant == WINATTN_SLIDING &&
        (desc->bias != WINATTN_BIAS_NONE || desc->mask != WINATTN_MASK_NONE))
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "the sliding variant takes no bias and no mask");
    if (desc->mask == WINATTN_MASK_NONE && desc->mask_windows != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "mask_windows is set, but there is no mask");
    const bool computed = desc->mask == WINATTN_MASK_SHIFT;
    if (computed && !problem->grid.used)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "the mask of a shift needs a grid");
    if (computed && desc->mask_windows != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "mask_windows is set, but the mask is computed");
    if (desc->mask != WINATTN_MASK_NONE && !computed &&
        (desc->mask_windows == 0 || desc->mask_windows > INT64_MAX))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "a mask needs mask_windows from 1 to 2^63");
    if (desc->has_region_value && desc->mask != WINATTN_MASK_REGIONS &&
        !computed)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "region_value is set, but the mask has no regions");
    if (desc->has_region_value &&
        (isnan(desc->region_value) || desc->region_value == INFINITY))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "region_value is NaN or +infinity");
    problem->bias = desc->bias;
    problem->bias_dtype = desc->bias_dtype;
    problem->mask = desc->mask;
    problem->mask_dtype = desc->mask_dtype;
    problem->mask_windows = desc->mask_windows ? desc->mask_windows : 1;
    problem->region_value =
        desc->has_region_value ? desc->region_value : -100.0f;
    return WINATTN_SUCCESS;
}

static winattn_status read_sliding(const winattn_desc *desc,
                                   wa_problem *problem)
{
    if (desc->variant != WINATTN_SLIDING) {
        if (desc->block || desc->first_block || desc->window_blocks ||
            desc->sink || desc->sink_in_window || desc->query_offset)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "block, first_block, window_blocks, sink, "
                           "sink_in_window and query_offset are for the "
                           "sliding variant");
        return WINATTN_SUCCESS;
    }
    WA_TRY(check_count("block", desc->block, MAX_TOKENS));
    if (desc->first_block > MAX_TOKENS || desc->sink > MAX_TOKENS ||
        desc->window_blocks > MAX_TOKENS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "first_block, window_blocks or sink is above 2^31");
    if ((uint64_t)desc->query_offset + desc->queries > MAX_TOKENS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "query_offset + queries is above 2^31");
    problem->block = desc->block;
    problem->first_block = desc->first_block ? desc->first_block : desc->block;
    problem->window_blocks = desc->window_blocks;
    problem->sink = desc->sink;
    problem->query_offset = desc->query_offset;
    if (desc->sink_in_window && desc->sink != 0 && desc->window_blocks != 0) {
        const uint32_t last = desc->sink - 1;
        const uint32_t touched =
            last < problem->first_block
                ? 1
                : 2 + (last - problem->first_block) / problem->block;
        if (touched >= desc->window_blocks)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "the sink touches %u blocks, which leaves nothing "
                           "of a window of %u",
                           touched, desc->window_blocks);
        problem->window_blocks = desc->window_blocks - touched;
    }
    return WINATTN_SUCCESS;
}

/* Do tokens of the padding take part with given channels, or would they, were
 * there any? */
static bool has_pad_values(const wa_problem *problem)
{
    return problem->grid.used &&
           problem->grid.padding == WINATTN_PADDING_VALUES;
}

static winattn_status read_tensors(const winattn_desc *desc,
                                   wa_problem *problem)
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
    const bool has_pads = has_pad_values(problem);
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

winattn_status wa_problem_read(const winattn_desc *desc, wa_problem *problem)
{
    winattn_desc own;
    memset(problem, 0, sizeof *problem);
    WA_TRY(wa_read_struct("desc", desc, &own, sizeof own,
                          offsetof(winattn_desc, build_options)));

    WA_TRY(read_sizes(&own, problem));
    WA_TRY(read_terms(&own, problem));
    WA_TRY(read_table(&own, problem));
    WA_TRY(read_sliding(&own, problem));
    WA_TRY(read_tensors(&own, problem));
    problem->build_options = own.build_options ? own.build_options : "";
    return WINATTN_SUCCESS;
}

uint32_t wa_problem_padding(const wa_problem *problem)
{
    if (!problem->grid.is_padded)
        return 0;
    return has_pad_values(problem) ? 1 : 2;
}

wa_problem wa_problem_without_table(const wa_problem *problem)
{
    static const wa_tensor_id ids[] = {WA_BIAS, WA_DBIAS};
    const uint64_t keys = problem->keys;
    const uint64_t plane = problem->queries * keys;
    wa_problem dense = *problem;
    if (!problem->table.used)
        return dense;
    memset(&dense.table, 0, sizeof dense.table);
    dense.bias = WINATTN_BIAS_FULL;
    dense.bias_dtype = WINATTN_TERM_FP32;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        wa_tensor *tensor = &dense.tensor[ids[i]];
        if (!tensor->used)
            continue;
        tensor->element_size = 4;
        tensor->extent[WA_ROW] = problem->queries;
        tensor->extent[WA_COLUMN] = keys;
        tensor->stride[WA_HEAD] = problem->heads > 1 ? plane : 0;
        tensor->stride[WA_ROW] = problem->queries > 1 ? keys : 0;
        tensor->stride[WA_COLUMN] = keys > 1 ? 1 : 0;
        tensor->span = problem->heads * plane;
    }
    return dense;
}

uint64_t wa_problem_dense_bias_bytes(const wa_problem *problem)
{
    return 4u * (uint64_t)problem->heads * problem->queries * problem->keys;
}

uint32_t wa_problem_seen_keys(const wa_problem *problem)
{
    if (problem->variant != WINATTN_SLIDING || problem->window_blocks == 0)
        return problem->keys;
    const uint64_t seen =
        (uint64_t)problem->window_blocks * problem->block + problem->sink;
    return seen < problem->keys ? (uint32_t)seen : problem->keys;
}

double wa_problem_row_operations(const wa_problem *problem)
{
    return 4.0 * wa_problem_seen_keys(problem) * problem->head_dim;
}

double wa_problem_operations(const wa_problem *problem)
{
    return wa_problem_row_operations(problem) * (double)problem->windows *
           problem->heads * problem->queries;
}
