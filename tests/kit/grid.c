/* SPDX-License-Identifier: Apache-2.0
 * Pad, roll, cut; or roll, pad, cut. No cleverness here. */
#include "grid.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* An axis that a grid lacks is one token long, behind the others. */
typedef struct axis {
    size_t size, padded, window, shift;
    size_t rolled; /* tokens that are rolled, from the first on */
    bool periodic;
} axis;

static axis axis_of(const test_case *c, int i)
{
    axis a = {1, 1, 1, 0, 1, false};
    if (i >= c->grid)
        return a;
    a.size = (size_t)c->size[i];
    a.window = (size_t)c->window[i];
    while (a.padded % a.window != 0 || a.padded < a.size)
        a.padded++;
    if (a.window < a.padded || c->roll_first || c->shift_all)
        a.shift = (size_t)c->shift[i];
    a.rolled = c->roll_first ? a.size : a.padded;
    a.periodic = c->periodic[i] != 0;
    return a;
}

/* Which of the slices (0, -window), (-window, -shift), (-shift, end) of the
 * rolled axis a token is in. */
static unsigned slice(const axis *a, size_t x)
{
    if (a->shift == 0 || a->periodic)
        return 0;
    return x < a->padded - a->window ? 0 : x < a->padded - a->shift ? 1 : 2;
}

/* Where a token was that the roll brought to x. */
static size_t unrolled(const axis *a, size_t x)
{
    return x < a->rolled ? (x + a->shift) % a->rolled : x;
}

bool grid_map_make(const test_case *c, grid_map *map)
{
    const axis a[3] = {axis_of(c, 0), axis_of(c, 1), axis_of(c, 2)};
    const size_t all = a[0].padded * a[1].padded * a[2].padded;
    size_t *padded = malloc(sizeof *padded * all);
    size_t *rolled = malloc(sizeof *rolled * all);
    map->tokens = a[0].window * a[1].window * a[2].window;
    map->windows = all / map->tokens;
    map->token = malloc(sizeof *map->token * all);
    map->region = malloc(all);
    if (!padded || !rolled || !map->token || !map->region) {
        free(padded);
        free(rolled);
        grid_map_free(map);
        return false;
    }
#define AT(x0, x1, x2) (((x0)*a[1].padded + (x1)) * a[2].padded + (x2))
    for (size_t i = 0; i < all; i++)
        padded[i] = GRID_NONE;
    for (size_t x = 0, n = 0; x < a[0].size; x++)
        for (size_t y = 0; y < a[1].size; y++)
            for (size_t z = 0; z < a[2].size; z++)
                padded[AT(x, y, z)] = n++;
    for (size_t x = 0; x < a[0].padded; x++)
        for (size_t y = 0; y < a[1].padded; y++)
            for (size_t z = 0; z < a[2].padded; z++)
                rolled[AT(x, y, z)] =
                    padded[AT(unrolled(&a[0], x), unrolled(&a[1], y),
                              unrolled(&a[2], z))];
    size_t n = 0;
    for (size_t x = 0; x < a[0].padded; x += a[0].window)
        for (size_t y = 0; y < a[1].padded; y += a[1].window)
            for (size_t z = 0; z < a[2].padded; z += a[2].window)
                for (size_t i = x; i < x + a[0].window; i++)
                    for (size_t j = y; j < y + a[1].window; j++)
                        for (size_t k = z; k < z + a[2].window; k++) {
                            map->token[n] = rolled[AT(i, j, k)];
                            map->region[n++] =
                                (unsigned char)(slice(&a[0], i) * 9 +
                                                slice(&a[1], j) * 3 +
                                                slice(&a[2], k));
                        }
#undef AT
    free(padded);
    free(rolled);
    return true;
}

void grid_map_free(grid_map *map)
{
    free(map->token);
    free(map->region);
    memset(map, 0, sizeof *map);
}

/* Coordinates of the `number`-th token of a box. */
static void unravel(size_t number, const size_t box[3], size_t at[3])
{
    size_t n = 0;
    for (at[0] = 0; at[0] < box[0]; at[0]++)
        for (at[1] = 0; at[1] < box[1]; at[1]++)
            for (at[2] = 0; at[2] < box[2]; at[2]++)
                if (n++ == number)
                    return;
}

size_t grid_table_entry(const test_case *c, size_t query, size_t key)
{
    size_t own[3], box[3], q[3], k[3], entry = 0;
    for (int i = 0; i < 3; i++) {
        own[i] = (size_t)case_table_window(c, i);
        own[i] = own[i] ? own[i] : 1;
        box[i] = !c->grid || c->sliced ? own[i] : (size_t)c->window[i];
        box[i] = box[i] ? box[i] : 1;
    }
    unravel(query, box, q);
    unravel(key, box, k);
    for (int i = 0; i < 3; i++)
        entry = entry * (2 * own[i] - 1) + (q[i] + own[i] - 1 - k[i]);
    return entry;
}
