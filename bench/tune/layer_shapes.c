/* SPDX-License-Identifier: Apache-2.0
 * Which shapes of a linear layer's kernel are worth measuring. */
#include "tune/layer_shapes.h"

#include <stdlib.h>

#include "device/matrix_unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Work-items of a work-group. */
#define LEAST_ITEMS 64u
#define MOST_ITEMS 512u
#define MOST_SUMS 128u /* of a work-item */

void layer_shapes_free(layer_shapes *s)
{
    free(s->all);
    s->all = NULL;
    s->count = s->room = 0;
}

void layer_shapes_add(layer_shapes *s, const wa_linear_shape *shape,
                      double cost)
{
    if (s->count == s->room) {
        const size_t room = s->room ? 2 * s->room : 1024;
        layer_shape *all = realloc(s->all, room * sizeof *all);
        if (!all) {
            s->overflowed = true;
            return;
        }
        s->all = all;
        s->room = room;
    }
    const layer_shape fresh = {.shape = *shape, .cost = cost};
    s->all[s->count++] = fresh;
}

int layer_shape_distance(const wa_linear_shape *a, const wa_linear_shape *b)
{
    return (a->block_rows != b->block_rows) +
           (a->block_columns != b->block_columns) +
           (a->stage_dims != b->stage_dims) + (a->item_rows != b->item_rows) +
           (a->item_columns != b->item_columns) + (a->lanes != b->lanes) +
           (a->tile_rows != b->tile_rows) + (a->tile_vecs != b->tile_vecs) +
           (a->stages != b->stages) + (a->row_waves != b->row_waves) +
           (a->column_waves != b->column_waves) +
           (a->dim_waves != b->dim_waves) +
           (a->keeps_weight != b->keeps_weight);
}

/* What is computed, also in vain, for an element that is wanted: blocks hang
 * over the edges, and the last of them leave units idle. at_once: work-groups
 * that a compute unit holds. */
static double waste_of(const layer_shapes *s, const wa_linear_shape *shape,
                       double at_once)
{
    const double slots = MAX(at_once, 1) * s->device->compute_units;
    const double blocks =
        (double)wa_linear_blocks(s->rows, shape->block_rows) *
        (double)wa_linear_blocks(s->problem->out, shape->block_columns);
    double rounds = blocks / slots;
    if (rounds < 8) /* later, whoever is ready takes the next */
        rounds = (double)(uint64_t)(rounds + 0.999);
    return rounds * slots * shape->block_rows * shape->block_columns /
           ((double)s->rows * s->problem->out);
}

/* If the device can have it, and blocks are hardly larger than the matrix. */
static void consider(layer_shapes *s, const wa_linear_shape *shape,
                     double at_once, double cost)
{
    const uint64_t rows = s->rows > 16 ? s->rows : 16;
    if (shape->block_rows >= 2 * rows ||
        shape->block_columns >= 2 * MAX(s->problem->out, 16u) ||
        wa_linear_check_shape(s->problem, s->device, s->tier, shape))
        return;
    layer_shapes_add(s, shape, cost * waste_of(s, shape, at_once));
}

/* ---- Tier matrix ---- */

/* Bytes of local memory, about. */
static double ring_bytes(const layer_shapes *s, const wa_linear_shape *m)
{
    const double size = s->problem->dtype == WINATTN_FP32 ? 4 : 2;
    const double x = (double)m->stages * m->block_rows * m->stage_dims;
    const double w =
        m->keeps_weight ? (double)m->block_columns * s->problem->in
                        : (double)m->stages * m->block_columns * m->stage_dims;
    const double out =
        m->keeps_weight ? (double)m->block_rows * m->block_columns : 0;
    return (x + w + out) * size;
}

static void consider_matrix(layer_shapes *s, const wa_linear_shape *m)
{
    const wa_matrix_unit *unit = s->device->matrix_unit;
    const double rows = (double)m->block_rows / m->row_waves / unit->queries;
    const double columns =
        (double)m->block_columns / m->column_waves / unit->tile;
    const uint32_t items =
        m->row_waves * m->column_waves * m->dim_waves * unit->wave;
    const double sums =
        rows * columns * unit->queries * unit->tile / unit->wave;
    if (items < LEAST_ITEMS || items > MOST_ITEMS || sums > MOST_SUMS)
        return;
    double at_once = s->device->local_capacity / ring_bytes(s, m);
    const double registers = (sums > 64 ? 255.0 : 128.0) * items;
    if (at_once > s->device->register_words / registers)
        at_once = s->device->register_words / registers;
    at_once = at_once < 1 ? 1 : (double)(int)at_once;
    const double waves = at_once * items / unit->wave;
    double cost = 1.0 + 0.35 * (rows + columns) / (rows * columns) +
                  12.0 / m->block_rows + 12.0 / m->block_columns;
    cost *= 1.0 + 2.0 / waves;
    if (m->keeps_weight) /* nothing of it comes again */
        cost *= s->problem->in <= 256 ? 0.7 : 1.1;
    consider(s, m, at_once, cost);
}

static void collect_stages(layer_shapes *s, wa_linear_shape m)
{
    const wa_matrix_unit *unit = s->device->matrix_unit;
    static const uint32_t dims[] = {32, 48, 64, 96, 128, 192};
    for (size_t d = 0; d < COUNT(dims); d++) {
        m.stage_dims = dims[d];
        if (m.stage_dims >= s->problem->in + m.dim_waves * unit->tile)
            break;
        for (m.stages = 2; m.stages <= (unit->copies_async ? 4u : 2u);
             m.stages++)
            for (m.keeps_weight = 0; m.keeps_weight < 2; m.keeps_weight++)
                consider_matrix(s, &m);
    }
}

static void collect_matrix(layer_shapes *s)
{
    static const uint32_t waves[] = {1, 2, 3, 4, 6, 8};
    static const uint32_t tiles[] = {1, 2, 3, 4, 6, 8};
    const wa_matrix_unit *unit = s->device->matrix_unit;
    wa_linear_shape m = {.dim_waves = 1};
    const uint32_t most_dim_waves = s->id == WA_LINEAR_FEW ? 4 : 1;
    for (; m.dim_waves <= most_dim_waves; m.dim_waves *= 2)
        for (size_t a = 0; a < COUNT(waves); a++)
            for (size_t b = 0; b < COUNT(waves); b++)
                for (size_t r = 0; r < COUNT(tiles); r++)
                    for (size_t c = 0; c < COUNT(tiles); c++) {
                        m.row_waves = waves[a];
                        m.column_waves = waves[b];
                        m.block_rows = waves[a] * tiles[r] * unit->queries;
                        m.block_columns = waves[b] * tiles[c] * unit->tile;
                        collect_stages(s, m);
                    }
}

/* ---- Tiers local and cpu ---- */

static void collect_local(layer_shapes *s)
{
    static const uint32_t blocks[] = {16, 32, 48, 64, 96, 128, 144, 192, 256};
    static const uint32_t items[] = {4, 8, 16};
    wa_linear_shape l = {0};
    for (size_t a = 0; a < COUNT(blocks); a++)
        for (size_t b = 0; b < COUNT(blocks); b++)
            for (size_t r = 0; r < COUNT(items); r++)
                for (size_t c = 0; c < COUNT(items); c++)
                    for (l.stage_dims = 8; l.stage_dims <= 32;
                         l.stage_dims *= 2) {
                        l.block_rows = blocks[a];
                        l.block_columns = blocks[b];
                        l.item_rows = items[r];
                        l.item_columns = items[c];
                        const uint32_t group =
                            l.block_rows / l.item_rows *
                            (l.block_columns / l.item_columns);
                        if (group < LEAST_ITEMS || group > MOST_ITEMS ||
                            l.item_rows * l.item_columns > MOST_SUMS)
                            continue;
                        consider(
                            s, &l, 512.0 / group,
                            1.0 + 1.0 / l.item_rows + 1.0 / l.item_columns +
                                8.0 / l.block_rows + 8.0 / l.block_columns);
                    }
}

static void collect_cpu(layer_shapes *s)
{
    const uint32_t lanes = s->device->vector_lanes;
    wa_linear_shape c = {.lanes = lanes >= 16 ? 16 : lanes >= 8 ? 8 : 4};
    for (c.tile_rows = 2; c.tile_rows <= 8; c.tile_rows++)
        for (c.tile_vecs = 1; c.tile_vecs <= 4; c.tile_vecs++)
            for (uint32_t r = 1; r <= 16; r *= 2)
                for (uint32_t p = 1; p <= 8; p *= 2)
                    for (c.stage_dims = 16; c.stage_dims <= 192;
                         c.stage_dims += 16) {
                        if (c.stage_dims >= s->problem->in + 16)
                            break;
                        c.block_rows = r * c.tile_rows;
                        c.block_columns = p * c.lanes * c.tile_vecs;
                        consider(s, &c, 1,
                                 1.0 + 1.0 / c.tile_rows + 1.0 / c.tile_vecs +
                                     16.0 / c.block_rows +
                                     24.0 / c.block_columns +
                                     16.0 / c.stage_dims);
                    }
}

static int by_cost(const void *a, const void *b)
{
    const double x = ((const layer_shape *)a)->cost;
    const double y = ((const layer_shape *)b)->cost;
    return (x > y) - (x < y);
}

void layer_shapes_collect(layer_shapes *s)
{
    if (s->tier == WINATTN_TIER_MATRIX)
        collect_matrix(s);
    else if (s->tier == WINATTN_TIER_LOCAL)
        collect_local(s);
    else
        collect_cpu(s);
    if (s->count > 0)
        qsort(s->all, s->count, sizeof *s->all, by_cost);
}
