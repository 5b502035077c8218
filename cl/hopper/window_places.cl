/* SPDX-License-Identifier: Apache-2.0
 * Where rows of windows are, in tensors that have an element for each token:
 * one after the other, or on a grid (common/tokens.cl). */
#include "common/problem.cl"

/* Where tokens of a window lie; found where it is needed, as it would take
 * registers all along. */
typedef struct window_place {
    const grid_layout *grid;
    window_coord coord;
} window_place;

INLINE window_place find_place(const forward_args *args, ulong window)
{
    const window_place place = {&args->grid,
                                locate_window(&args->grid, window)};
    return place;
}

/* Of a head, in a tensor that has an element for each token. */
INLINE ulong plane_at(const tensor_layout *layout, const window_place *place,
                      uint head)
{
    return plane(layout, place->coord.grid, head);
}

/* A row of the window from there on. */
INLINE plane_offset row_at(const tensor_layout *layout,
                           const window_place *place, uint row)
{
    const token t = find_token(place->grid, &place->coord, row);
    return token_offset(layout, &t);
}

/* From a row to the one so many behind it, number `row`: an addition where it
 * can be, as copies that wait for addresses are slow. */
INLINE __global const storage *go_on_to_row(__global const storage *from,
                                            __global const storage *head_rows,
                                            const tensor_layout *layout,
                                            const window_place *place,
                                            uint row, uint step)
{
    return GRID ? head_rows + row_at(layout, place, row)
                : from + step * layout->row;
}
