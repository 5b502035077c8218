/* SPDX-License-Identifier: Apache-2.0
 * Maps of tokens: the grid of windows, and tables of relative positions. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "problem/read.h"

/* Kernels number the windows of one grid with 32 bits. */
#define MAX_GRID_WINDOWS 0x7fffffffu
/* Entries of a table, and pairs of a query and a key, that are worth a list:
 * windows of 1024 tokens. */
#define MAX_LISTED (1u << 20)

/* One axis of the grid; `a` counts as the caller does. */
static winattn_status read_grid_axis(const winattn_desc *desc, uint32_t a,
                                     wa_grid *grid)
{
    const winattn_grid *given = &desc->grid;
    const bool roll_first =
        (desc->grid_options & WINATTN_GRID_ROLL_FIRST) != 0;
    const bool shift_all = desc->grid_options != 0; /* either option */
    const uint32_t at = WINATTN_AXES - given->axes + a;
    const uint64_t size = given->size[a], window = given->window[a];
    char name[32];
    snprintf(name, sizeof name, "grid.size[%u]", a);
    WA_TRY(wa_check_count(name, size, WA_MAX_TOKENS));
    snprintf(name, sizeof name, "grid.window[%u]", a);
    WA_TRY(wa_check_count(name, window, WA_MAX_TOKENS));
    if (given->shift[a] >= window)
        return WA_INVALID(
            "grid.shift[%u], %u, is not less than the window, %u", a,
            given->shift[a], given->window[a]);
    const uint64_t windows = (size + window - 1) / window;
    if (windows * window > WA_MAX_TOKENS)
        return WA_UNSUPPORTED("grid.size[%u], %u, is above 2^31 when padded",
                              a, given->size[a]);
    const bool is_padded = windows * window != size;
    if (given->periodic[a] && is_padded)
        return WA_UNSUPPORTED("grid.size[%u], %u, is no multiple of the "
                              "window, %u, so the axis cannot be periodic",
                              a, given->size[a], given->window[a]);
    grid->size[at] = given->size[a];
    grid->window[at] = given->window[a];
    grid->windows[at] = (uint32_t)windows;
    grid->is_padded = grid->is_padded || is_padded;
    if (windows > 1 || shift_all) { /* else the window covers the axis */
        grid->shift[at] = given->shift[a];
        if (given->shift[a] != 0 && !given->periodic[a])
            grid->shift_boundaries |= 1u << at;
    }
    /* else both orders are the same */
    if (roll_first && is_padded && given->shift[a] != 0)
        grid->rolls_first = true;
    return WINATTN_SUCCESS;
}

/* Field `name`, which follows from the grid, is 0 or what follows. */
static winattn_status check_follows(const char *name, uint64_t given,
                                    uint64_t follows)
{
    if (given == 0 || given == follows)
        return WINATTN_SUCCESS;
    return WA_INVALID("%s is %llu, but the grid makes %llu", name,
                      (unsigned long long)given, (unsigned long long)follows);
}

/* Sets the numbers of windows, queries and keys, too. */
winattn_status wa_read_grid(const winattn_desc *desc, wa_problem *problem)
{
    const winattn_grid *given = &desc->grid;
    wa_grid *grid = &problem->grid;
    uint64_t tokens = 1, windows = 1;
    if (given->axes > WINATTN_AXES)
        return WA_INVALID("grid.axes is %u, above %u", given->axes,
                          (unsigned)WINATTN_AXES);
    for (uint32_t a = given->axes; a < WINATTN_AXES; a++)
        if (given->size[a] || given->window[a] || given->shift[a] ||
            given->periodic[a])
            return WA_INVALID(
                "the grid has %u axes, yet it says something of axis %u",
                given->axes, a);
    WA_TRY(wa_check_enum("grid.padding", (int)given->padding,
                         WINATTN_PADDING_HIDDEN));
    if ((desc->grid_options & ~(cl_bitfield)(WINATTN_GRID_ROLL_FIRST |
                                             WINATTN_GRID_SHIFT_ALL)) != 0)
        return WA_INVALID("grid_options is 0x%llx, which has unknown bits",
                          (unsigned long long)desc->grid_options);
    if (given->axes == 0) {
        if (given->batch != 0 || given->padding != WINATTN_PADDING_VALUES ||
            desc->grid_options != 0)
            return WA_INVALID("grid.batch, grid.padding or grid_options is "
                              "set, but grid.axes is 0");
        problem->windows = desc->windows;
        problem->queries = desc->queries;
        problem->keys = desc->keys;
        return WINATTN_SUCCESS;
    }
    if (desc->variant == WINATTN_SLIDING)
        return WA_UNSUPPORTED("the sliding variant takes no grid");
    for (int i = 0; i < WINATTN_AXES; i++)
        grid->size[i] = grid->window[i] = grid->windows[i] = 1;
    grid->used = true;
    grid->axes = given->axes;
    grid->batch = given->batch;
    grid->padding = given->padding;
    for (uint32_t a = 0; a < given->axes; a++)
        WA_TRY(read_grid_axis(desc, a, grid));
    for (int i = 0; i < WINATTN_AXES; i++) {
        tokens *= grid->window[i];
        windows *= grid->windows[i];
        if (tokens > WA_MAX_TOKENS)
            return WA_UNSUPPORTED(
                "a window of the grid has more than 2^31 tokens");
        if (windows > MAX_GRID_WINDOWS)
            return WA_UNSUPPORTED("the grid has more than 2^31 windows");
    }
    if (given->batch > UINT32_MAX) /* kernels count grids in 32 bits */
        return WA_UNSUPPORTED("grid.batch is 2^32 or more");
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
        return WA_UNSUPPORTED("the table has %u entries, and with an index "
                              "gradients are summed for at most %u",
                              entries, WA_MOST_SUMMED_ENTRIES);
    return WINATTN_SUCCESS;
}

static winattn_status read_index(const winattn_table *given,
                                 const wa_problem *problem, wa_table *table)
{
    const uint64_t pairs = (uint64_t)problem->queries * problem->keys;
    if (given->axes || given->window[0] || given->window[1] ||
        given->window[2] || given->sliced)
        return WA_INVALID("table.index is given, so table.axes, table.window "
                          "and table.sliced must be 0");
    WA_TRY(wa_check_count("table.entries", given->entries, WA_MAX_TOKENS));
    WA_TRY(check_entries(problem, given->entries));
    for (uint64_t i = 0; i < pairs; i++)
        if (given->index[i] < 0 || (uint32_t)given->index[i] >= given->entries)
            return WA_INVALID("table.index[%llu] is %d, not 0 to %u",
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
        return WA_INVALID("table.axes is %u, above %u", given->axes,
                          (unsigned)WINATTN_AXES);
    for (uint32_t a = given->axes; a < WINATTN_AXES; a++)
        if (given->window[a] != 0)
            return WA_INVALID("table.axes is %u, yet table.window[%u] is %u",
                              given->axes, a, given->window[a]);
    if (given->axes == 0) {
        if (!grid->used)
            return WA_INVALID("a table without a grid needs table.axes and "
                              "table.window, or table.index");
        memcpy(window, grid->window, sizeof grid->window);
        return WINATTN_SUCCESS;
    }
    if (grid->used && given->axes != grid->axes)
        return WA_INVALID("table.axes is %u, but the grid has %u", given->axes,
                          grid->axes);
    for (int i = 0; i < WINATTN_AXES; i++)
        window[i] = 1;
    for (uint32_t a = 0; a < given->axes; a++) {
        const uint32_t at = WINATTN_AXES - given->axes + a;
        char name[32];
        snprintf(name, sizeof name, "table.window[%u]", a);
        WA_TRY(wa_check_count(name, given->window[a], WA_MAX_TOKENS));
        window[at] = given->window[a];
        if (grid->used && window[at] < grid->window[at])
            return WA_INVALID("%s, %u, is less than the grid's, %u", name,
                              window[at], grid->window[at]);
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_read_table(const winattn_desc *desc, wa_problem *problem)
{
    const winattn_table *given = &desc->table;
    wa_table *table = &problem->table;
    uint32_t window[WINATTN_AXES];
    uint64_t entries = 1, tokens = 1;
    if (desc->bias != WINATTN_BIAS_TABLE) {
        if (given->axes || given->window[0] || given->window[1] ||
            given->window[2] || given->sliced || given->index ||
            given->entries)
            return WA_INVALID(
                "a field of table is set, but the bias is no table");
        return WINATTN_SUCCESS;
    }
    /* an element for each pair is what gradients are summed in */
    if ((uint64_t)problem->queries * problem->keys > INT32_MAX)
        return WA_UNSUPPORTED("queries x keys is above 2^31 with a table");
    table->used = true;
    if (given->index)
        return read_index(given, problem, table);
    if (given->entries != 0)
        return WA_INVALID("table.entries is set, but table.index is NULL");
    WA_TRY(read_table_window(given, &problem->grid, window));
    for (int i = WINATTN_AXES - 1; i >= 0; i--) {
        table->step[i] = (uint32_t)entries;
        table->center += (window[i] - 1) * table->step[i];
        entries *= 2ull * window[i] - 1;
        tokens *= window[i];
        if (entries > WA_MAX_TOKENS)
            return WA_UNSUPPORTED(
                "a table for such a window has more than 2^31 entries");
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
        return WA_INVALID(
            "the table's window has %llu tokens, but there are %u queries and "
            "%u keys, and table.sliced is not set",
            (unsigned long long)tokens, problem->queries, problem->keys);
    if (tokens < problem->queries || tokens < problem->keys)
        return WA_INVALID(
            "the table's window has %llu tokens, fewer than queries or keys",
            (unsigned long long)tokens);
    return WINATTN_SUCCESS;
}
