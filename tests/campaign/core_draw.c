/* SPDX-License-Identifier: Apache-2.0
 * Descriptors of winattn.h that are right: random ones, and what tests and
 * bench have. */
#include "core_level.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kit/workloads.h"

static void draw_sizes(random_state *r, winattn_desc *d)
{
    d->variant = (winattn_variant)ONE_OF(r, 0, 0, 0, 1, 1, 2);
    d->dtype = (winattn_dtype)below(r, 3);
    d->tier = (winattn_tier)ONE_OF(r, 0, 0, 0, 0, 1, 2, 3);
    d->allow_tf32 = d->dtype == WINATTN_FP32 && chance(r, 20);
    d->windows = ONE_OF(r, 1, 2, 3, 8, 64, 100, 4096, 0, 70000);
    d->kv_heads = (cl_uint)ONE_OF(r, 0, 0, 1, 2, 3);
    d->heads =
        (d->kv_heads ? d->kv_heads : 1) * (cl_uint)ONE_OF(r, 1, 2, 3, 4, 32);
    d->queries = (cl_uint)ONE_OF(r, 1, 2, 7, 16, 49, 64, 100, 144, 196, 256,
                                 300, 576, 1000);
    d->keys = chance(r, 70)
                  ? d->queries
                  : (cl_uint)ONE_OF(r, 1, 2, 7, 16, 49, 64, 144, 256, 577);
    d->head_dim =
        (cl_uint)ONE_OF(r, 1, 3, 4, 8, 16, 24, 32, 32, 64, 80, 128, 255, 256);
    if (chance(r, 20))
        d->scale = (cl_float)random_normal(r);
    d->passes = ONE_OF(r, 0, 1, 2, 3, 3);
}

static void draw_sliding(random_state *r, winattn_desc *d)
{
    d->block = (cl_uint)ONE_OF(r, 1, 2, 16, 64, 100, 2000);
    d->first_block = (cl_uint)ONE_OF(r, 0, 0, 1, 7, 5000);
    d->window_blocks = (cl_uint)ONE_OF(r, 0, 1, 2, 5, 100);
    d->sink = (cl_uint)ONE_OF(r, 0, 0, 1, 64, 3000);
    d->query_offset = (cl_uint)ONE_OF(r, 0, 0, 1, 100, 100000);
    /* as many blocks as any sink above touches, and one more */
    if (chance(r, 20)) {
        d->sink_in_window = CL_TRUE;
        d->window_blocks = d->window_blocks ? 3002 : 0;
    }
}

static void draw_grid(random_state *r, winattn_desc *d)
{
    winattn_grid *grid = &d->grid;
    grid->axes = 1 + below(r, WINATTN_AXES);
    grid->batch = ONE_OF(r, 1, 2, 5, 0, 64);
    grid->padding = (winattn_padding)below(r, 2);
    d->grid_options = chance(r, 30) ? (cl_bitfield)below(r, 4) : 0;
    for (cl_uint a = 0; a < grid->axes; a++) {
        grid->window[a] = grid->axes == 1
                              ? (cl_uint)ONE_OF(r, 1, 7, 49, 64, 200)
                              : (cl_uint)ONE_OF(r, 1, 2, 4, 7, 8, 12);
        grid->size[a] = chance(r, 50) ? grid->window[a] * (1 + below(r, 8))
                                      : 1 + below(r, 60);
        grid->shift[a] = chance(r, 50) ? below(r, grid->window[a]) : 0;
        grid->periodic[a] =
            grid->size[a] % grid->window[a] == 0 && chance(r, 20);
    }
    d->windows = 0;
    d->queries = d->keys = 0;
}

static void draw_table(random_state *r, winattn_desc *d)
{
    const problem_size size = size_of(d);
    winattn_table *table = &d->table;
    if (chance(r, 40) || (d->grid.axes == 0 && size.queries != size.keys)) {
        table->entries = 1 + below(r, 1000); /* of an index */
    } else if (d->grid.axes == 0) {
        table->axes = 1;
        table->sliced = chance(r, 30);
        table->window[0] = (cl_uint)size.queries;
        table->window[0] += table->sliced ? below(r, 9) : 0;
    } else if (chance(r, 40)) {
        table->axes = d->grid.axes;
        table->sliced = chance(r, 40);
        for (cl_uint a = 0; a < table->axes; a++)
            table->window[a] =
                d->grid.window[a] + (chance(r, 40) ? below(r, 5) : 0);
    }
}

static void draw_terms(random_state *r, winattn_desc *d)
{
    d->bias = (winattn_bias)below(r, 3);
    d->bias_dtype = (winattn_term_dtype)below(r, 2);
    if (d->bias == WINATTN_BIAS_TABLE)
        draw_table(r, d);
    d->mask = (winattn_mask)ONE_OF(r, 0, 0, 1, 2, 3);
    if (d->mask == WINATTN_MASK_SHIFT && d->grid.axes == 0)
        d->mask = WINATTN_MASK_NONE;
    d->mask_dtype = (winattn_term_dtype)below(r, 2);
    if (d->mask == WINATTN_MASK_ADDITIVE || d->mask == WINATTN_MASK_REGIONS)
        d->mask_windows = ONE_OF(r, 1, 2, 64, 100);
    if (d->mask >= WINATTN_MASK_REGIONS && chance(r, 30)) {
        d->has_region_value = CL_TRUE;
        d->region_value = chance(r, 50) ? -INFINITY : 3.0f;
    }
}

/* Strides that put the axes in any order, with gaps, and broadcast inputs. */
static void draw_strides(random_state *r, winattn_desc *d, tensor_id id)
{
    const tensor_meaning t = meaning_of(d, id);
    winattn_strides *strides =
        (winattn_strides *)(void *)((char *)d + tensor_traits[id].strides);
    int order[AXES] = {AXIS_COLUMN, AXIS_ROW,  AXIS_1,
                       AXIS_0,      AXIS_HEAD, AXIS_WINDOW};
    cl_ulong stride[AXES] = {0};
    wide step = chance(r, 15) ? 2 : 1;
    for (int i = 1; i < AXES; i++)
        if (chance(r, 50)) {
            const int other = random_int(r, 0, i), kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
    for (int i = 0; i < AXES; i++) {
        if (t.extent[order[i]] <= 1)
            continue;
        const bool is_output = id == T_O || id == T_LSE || id >= T_DQ;
        if (is_output || !chance(r, 5))
            stride[order[i]] = (cl_ulong)step;
        step = step * t.extent[order[i]] + (chance(r, 20) ? below(r, 9) : 0);
    }
    strides->window = stride[AXIS_WINDOW];
    strides->head = stride[AXIS_HEAD];
    strides->column = stride[AXIS_COLUMN];
    strides->row = t.on_grid ? 0 : stride[AXIS_ROW];
    for (cl_uint a = 0; t.on_grid && a < d->grid.axes; a++)
        strides->axis[a] = stride[AXIS_COLUMN - d->grid.axes + a];
}

static void draw_desc(random_state *r, winattn_desc *d)
{
    draw_sizes(r, d);
    if (d->variant == WINATTN_SLIDING) {
        draw_sliding(r, d);
    } else {
        if (chance(r, 35))
            draw_grid(r, d);
        draw_terms(r, d);
    }
    for (tensor_id id = 0; id < TENSORS; id++)
        /* pads lie like k and v, or a call is refused */
        if (tensor_traits[id].strides != NOWHERE && chance(r, 15) &&
            meaning_of(d, id).is_used && id != T_PAD_K && id != T_PAD_V)
            draw_strides(r, d, id);
}

/* What is printed of a case is that case. */
static void check_text(const test_case *c)
{
    char first[1024], second[1024];
    test_case again = case_default();
    case_print(c, first, sizeof first);
    const bool taken = case_parse(first, &again, NULL);
    case_print(&again, second, sizeof second);
    if (!taken || strcmp(first, second) != 0)
        report("a case is not what its text says:", first);
}

/* A case of the tests or of the bench, without its layout. */
static void take_case(random_state *r, winattn_desc *d)
{
    const int seed = random_int(r, 1, 1 << 30);
    test_case c = case_default();
    switch (below(r, 4)) {
    case 0:
        c = case_random_grid(seed, 0, random_int(r, 0, 1));
        break;
    case 1:
        c = case_random_small(r, WINATTN_TIER_MATRIX, random_int(r, 0, 1), 0);
        break;
    case 2:
        case_parse(workload_rows[below(r, (cl_uint)workload_count)].text, &c,
                   NULL);
        break;
    default:
        case_parse(map_rows[below(r, (cl_uint)map_count)].text, &c, NULL);
    }
    check_text(&c);
    case_derive(&c);
    *d = case_desc(&c);
    d->table.entries = (cl_uint)c.entries;
    d->passes = ONE_OF(r, 0, 1, 2, 3, 3);
    d->dtype = (winattn_dtype)below(r, 3);
    d->allow_tf32 = d->dtype == WINATTN_FP32 && chance(r, 20);
    d->tier = (winattn_tier)ONE_OF(r, 0, 0, 0, 0, 1, 2, 3);
}

void core_draw(random_state *r, level_desc *made)
{
    if (chance(r, 40))
        take_case(r, &made->u.core);
    else
        draw_desc(r, &made->u.core);
}

void core_draw_small(random_state *r, level_desc *made)
{
    winattn_desc d = {.struct_size = sizeof d,
                      .variant = (winattn_variant)below(r, 2),
                      .dtype = (winattn_dtype)below(r, 3),
                      .windows = 5,
                      .heads = 2,
                      .queries = 16 + below(r, 3),
                      .keys = 16,
                      .head_dim = 16,
                      .bias = (winattn_bias)below(r, 2),
                      .passes = 1 + below(r, 3),
                      .build_options = chance(r, 30) ? "-DX=1" : NULL};
    made->u.core = d;
}

/* ---- What pointers point to ---- */

/* Whatever the library may read of an index must be there: the product of
 * what it takes for queries and keys. NULL where that is more than is worth
 * while. */
static void give_index(random_state *r, level_desc *made)
{
    winattn_desc *d = &made->u.core;
    wide queries = d->queries, keys = d->keys;
    if (d->grid.axes >= 1 && d->grid.axes <= WINATTN_AXES) {
        queries = 1;
        for (cl_uint a = 0; a < d->grid.axes; a++)
            queries *= d->grid.window[a];
        keys = queries;
    }
    if (d->bias != WINATTN_BIAS_TABLE || d->table.entries == 0 ||
        d->table.entries > 0x7fffffffu || d->table.axes != 0 ||
        queries > 2000 || keys > 2000)
        return;
    const size_t pairs = (size_t)(queries * keys);
    made->index = malloc(pairs * sizeof *made->index + 1);
    if (!made->index)
        return;
    for (size_t i = 0; i < pairs; i++)
        made->index[i] = (cl_int)(i * 7 % d->table.entries);
    d->table.index = made->index;
    if (pairs != 0 && chance(r, 5)) {
        made->index[below(r, (cl_uint)pairs)] = (cl_int)special_number(r);
        made->is_spoilt = true;
    }
}

static void give_build_options(random_state *r, level_desc *made)
{
    const size_t length = (size_t)ONE_OF(r, 0, 4, 100, 3000, 70000);
    made->build_options = malloc(length + 1);
    if (!made->build_options)
        return;
    memset(made->build_options, ' ', length);
    made->build_options[length] = 0;
    if (length > 3)
        memcpy(made->build_options + length - 4, "-DY1", 4);
    made->u.core.build_options = made->build_options;
}

void core_finish(random_state *r, level_desc *made)
{
    give_index(r, made);
    if (chance(r, 2))
        give_build_options(r, made);
}

void core_release(level_desc *made)
{
    free(made->index);
    free(made->build_options);
    made->index = NULL;
    made->build_options = NULL;
}
