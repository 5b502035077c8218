/* SPDX-License-Identifier: Apache-2.0 */
#include "session/window_places.h"

/* ---- Tokens ---- */

void wa_place_windows(wa_problem *test)
{
    wa_grid *grid = &test->grid;
    const uint32_t windows = (uint32_t)test->windows;
    if (!grid->used)
        return;
    grid->batch = 1;
    grid->shift_boundaries = 0;
    grid->windows[0] = 1;
    grid->windows[1] = windows % 2 == 0 ? 2 : 1;
    grid->windows[2] = windows / grid->windows[1];
    for (int axis = 0; axis < WINATTN_AXES; axis++) {
        grid->size[axis] = grid->windows[axis] * grid->window[axis];
        grid->shift[axis] = grid->window[axis] / 2;
        if (MASK_FOLLOWS_GRID(test->mask) && grid->shift[axis] > 0)
            grid->shift_boundaries |= 1u << axis;
    }
}

uint64_t wa_window_plane_rows(const wa_problem *test, uint64_t rows)
{
    return test->grid.used ? rows * test->windows : rows;
}

/* A token of the grid. */
typedef struct grid_token {
    size_t number;    /* as they follow each other there */
    uint32_t wrapped; /* a bit for each axis along which it came from the other
                         end */
} grid_token;

static grid_token find_token(const wa_grid *grid, size_t window, uint32_t row)
{
    grid_token token = {0, 0};
    size_t pitch = 1;
    for (int axis = WINATTN_AXES; axis-- > 0;) {
        const size_t size = grid->size[axis], length = grid->window[axis];
        const size_t at = window % grid->windows[axis] * length +
                          row % length + grid->shift[axis];
        token.number += at % size * pitch;
        if (at >= size)
            token.wrapped |= 1u << axis;
        pitch *= size;
        window /= grid->windows[axis];
        row /= grid->window[axis];
    }
    return token;
}

size_t wa_window_row(const wa_problem *test, size_t window, uint32_t head,
                     uint32_t heads, uint32_t rows, uint32_t row)
{
    if (!test->grid.used)
        return (window * heads + head) * rows + row;
    return head * wa_window_plane_rows(test, rows) +
           find_token(&test->grid, window, row).number;
}

/* ---- What is added to logits ---- */

bool wa_window_is_parted(const wa_problem *test, size_t window, uint32_t row,
                         uint32_t key)
{
    return MASK_FOLLOWS_GRID(test->mask) &&
           find_token(&test->grid, window, row).wrapped !=
               find_token(&test->grid, window, key).wrapped;
}

size_t wa_window_biases(const wa_problem *test)
{
    return test->table.used ? test->table.entries
                            : (size_t)test->queries * test->keys;
}

/* What a token's position counts in a table. */
static size_t place_in_table(const wa_table *table, uint32_t token)
{
    size_t place = 0;
    for (int axis = WINATTN_AXES; axis-- > 0;) {
        place += (size_t)(token % table->window[axis]) * table->step[axis];
        token /= table->window[axis];
    }
    return place;
}

size_t wa_window_bias(const wa_problem *test, uint32_t row, uint32_t key)
{
    const size_t pair = (size_t)row * test->keys + key;
    const wa_table *table = &test->table;
    if (!table->used)
        return pair;
    return table->has_index ? (size_t)table->index[pair]
                            : place_in_table(table, row) + table->center -
                                  place_in_table(table, key);
}
