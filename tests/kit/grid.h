/* SPDX-License-Identifier: Apache-2.0
 * Where a model that pads its feature map, rolls it and cuts it into windows
 * puts each token, and what it adds to the logits then: the truth about
 * grids, tables and the mask of shifted windows, done step by step on whole
 * maps. */
#ifndef KIT_GRID_H
#define KIT_GRID_H

#include "cases.h"

#define GRID_NONE SIZE_MAX /* a token of the padding */

typedef struct grid_map {
    size_t windows; /* of one grid */
    size_t tokens;  /* of a window */
    /* [windows][tokens]: number of the token on its grid, the last axis
     * running fastest; GRID_NONE: of the padding. */
    size_t *token;
    /* [windows][tokens]: the regions of the shifted map (Swin, figure 4);
     * tokens see each other if they are of one. */
    unsigned char *region;
} grid_map;

/* Of a case with a grid; false: out of memory. */
bool grid_map_make(const test_case *c, grid_map *map);
void grid_map_free(grid_map *map);

/* Entry of the case's table for a query and a key of a window, by relative
 * position. */
size_t grid_table_entry(const test_case *c, size_t query, size_t key);

#endif
