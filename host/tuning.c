/* SPDX-License-Identifier: Apache-2.0
 * The table of measured shapes. A row is worth having where it beats the model
 * by 3% or more; winattn-tune finds it, and the comment says on what device.
 */
#include "tuning.h"

#include <stddef.h>

typedef struct tuned_row {
    wa_vendor vendor;
    uint32_t least_capability; /* NVIDIA: 80 is 8.0 */
    bool sliding;
    uint32_t queries, keys; /* 0: any, as in the sliding variant */
    uint32_t head_dim;
    wa_local_shape shape;
} tuned_row;

/* Sorted by vendor, capability (highest first), then size. Measured on one
 * H200, driver 580.159.04, November 2026; other devices from compute
 * capability 8.0 on share its compute units' balance of arithmetic and local
 * memory. */
static const tuned_row rows[] = {
    {WA_VENDOR_NVIDIA,
     80,
     false,
     49,
     49,
     32,
     {.block_rows = 49,
      .block_keys = 49,
      .team = 64,
      .teams = 1,
      .stage_keys = 49,
      .stage_dims = 32,
      .score_rows = 7,
      .score_cols = 7,
      .out_rows = 7,
      .row_items = 1}},
    {WA_VENDOR_NVIDIA,
     80,
     false,
     64,
     64,
     64,
     {.block_rows = 64,
      .block_keys = 64,
      .team = 128,
      .teams = 1,
      .stage_keys = 64,
      .stage_dims = 64,
      .score_rows = 4,
      .score_cols = 8,
      .out_rows = 8,
      .row_items = 2}},
    {WA_VENDOR_NVIDIA,
     80,
     false,
     196,
     196,
     32,
     {.block_rows = 98,
      .block_keys = 196,
      .team = 128,
      .teams = 1,
      .stage_keys = 100,
      .stage_dims = 32,
      .score_rows = 7,
      .score_cols = 7,
      .out_rows = 7,
      .row_items = 1}},
    {WA_VENDOR_NVIDIA,
     80,
     false,
     256,
     256,
     32,
     {.block_rows = 64,
      .block_keys = 256,
      .team = 128,
      .teams = 1,
      .stage_keys = 256,
      .stage_dims = 32,
      .score_rows = 8,
      .score_cols = 8,
      .out_rows = 4,
      .row_items = 2}},
    {WA_VENDOR_NVIDIA,
     80,
     true,
     0,
     0,
     64,
     {.block_rows = 64,
      .block_keys = 128,
      .team = 128,
      .teams = 1,
      .stage_keys = 128,
      .stage_dims = 64,
      .score_rows = 8,
      .score_cols = 8,
      .out_rows = 8,
      .row_items = 2}},
};

const wa_local_shape *wa_tuned_local_shape(const wa_problem *problem,
                                           const wa_device *device)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tuned_row *row = &rows[i];
        if (row->vendor == device->vendor &&
            row->least_capability <= device->compute_capability &&
            row->sliding == sliding && row->head_dim == problem->head_dim &&
            (row->queries == 0 || row->queries == problem->queries) &&
            (row->keys == 0 || row->keys == problem->keys))
            return &row->shape;
    }
    return NULL;
}

/* ---- Tier matrix ---- */

typedef struct tuned_matrix_row {
    uint32_t queries, keys, head_dim;
    wa_matrix_shape shape;
} tuned_matrix_row;

/* Measured on the H200 of the rows above, fp16, with a bias in the storage
 * type (bench/notes.md). */
static const tuned_matrix_row matrix_rows[] = {
    {49,
     49,
     32,
     {.block_rows = 49,
      .block_keys = 49,
      .team_waves = 4,
      .teams = 4,
      .stages = 2,
      .pass_keys = 64,
      .keeps_terms = 2}},
    {64,
     64,
     64,
     {.block_rows = 64,
      .block_keys = 64,
      .team_waves = 4,
      .teams = 2,
      .stages = 3,
      .pass_keys = 64,
      .keeps_terms = 2}},
    {64,
     64,
     256,
     {.block_rows = 64,
      .block_keys = 64,
      .team_waves = 4,
      .teams = 1,
      .stages = 2,
      .pass_keys = 64,
      .keeps_terms = 2}},
    {144,
     144,
     32,
     {.block_rows = 144,
      .block_keys = 144,
      .team_waves = 3,
      .teams = 4,
      .stages = 1,
      .pass_keys = 48,
      .keeps_terms = 1}},
    {256,
     256,
     32,
     {.block_rows = 128,
      .block_keys = 256,
      .team_waves = 8,
      .teams = 2,
      .stages = 1,
      .pass_keys = 64,
      .keeps_terms = 1}},
    {576,
     576,
     32,
     {.block_rows = 64,
      .block_keys = 64,
      .team_waves = 4,
      .teams = 4,
      .stages = 2,
      .pass_keys = 64,
      .keeps_terms = 1}},
};

/* Where the mask is made of regions, whose sum with the bias finds no room. */
static const tuned_matrix_row region_rows[] = {
    {256,
     256,
     32,
     {.block_rows = 128,
      .block_keys = 256,
      .team_waves = 8,
      .teams = 2,
      .stages = 1,
      .pass_keys = 32,
      .keeps_terms = 3}},
    {576,
     576,
     32,
     {.block_rows = 64,
      .block_keys = 64,
      .team_waves = 4,
      .teams = 4,
      .stages = 2,
      .pass_keys = 64,
      .keeps_terms = 3}},
};

static const wa_matrix_shape *find_matrix_row(const tuned_matrix_row *table,
                                              size_t count,
                                              const wa_problem *problem)
{
    for (size_t i = 0; i < count; i++)
        if (table[i].queries == problem->queries &&
            table[i].keys == problem->keys &&
            table[i].head_dim == problem->head_dim)
            return &table[i].shape;
    return NULL;
}

const wa_matrix_shape *wa_tuned_matrix_shape(const wa_problem *problem,
                                             const wa_device *device)
{
    const wa_matrix_shape *shape = NULL;
    if (device->vendor != WA_VENDOR_NVIDIA ||
        device->compute_capability < 90 || problem->dtype == WINATTN_FP32)
        return NULL;
    if (problem->mask == WINATTN_MASK_REGIONS ||
        problem->mask == WINATTN_MASK_SHIFT)
        shape = find_matrix_row(
            region_rows, sizeof region_rows / sizeof *region_rows, problem);
    return shape ? shape
                 : find_matrix_row(matrix_rows,
                                   sizeof matrix_rows / sizeof *matrix_rows,
                                   problem);
}

/* ---- Backward ---- */

typedef struct tuned_backward_row {
    uint32_t queries, keys, head_dim;
    wa_tuned_backward backward;
} tuned_backward_row;

/* Measured as the rows above, in the variant dot. */
static const tuned_backward_row backward_rows[] = {
    {49,
     49,
     32,
     {.whole = {.block_rows = 49,
                .block_keys = 49,
                .team = 128,
                .stage_dims = 32,
                .score_rows = 7,
                .score_cols = 4,
                .out_rows = 4,
                .key_quads = 1,
                .keeps_tiles = true},
      .resident = 4}},
    {144,
     144,
     32,
     {.whole = {.block_rows = 72,
                .block_keys = 144,
                .team = 192,
                .stage_dims = 32,
                .score_rows = 8,
                .score_cols = 8,
                .out_rows = 3,
                .key_quads = 2,
                .keeps_tiles = true},
      .resident = 2}},
    {64,
     64,
     64,
     {.whole = {.block_rows = 64,
                .block_keys = 64,
                .team = 256,
                .stage_dims = 64,
                .score_rows = 4,
                .score_cols = 4,
                .out_rows = 4,
                .key_quads = 1,
                .keeps_tiles = true},
      .resident = 2}},
};

const wa_tuned_backward *wa_tuned_backward_of(const wa_problem *problem,
                                              const wa_device *device)
{
    if (device->vendor != WA_VENDOR_NVIDIA ||
        device->compute_capability < 80 || problem->variant != WINATTN_DOT)
        return NULL;
    for (size_t i = 0; i < sizeof backward_rows / sizeof *backward_rows; i++) {
        const tuned_backward_row *row = &backward_rows[i];
        if (row->queries == problem->queries && row->keys == problem->keys &&
            row->head_dim == problem->head_dim)
            return &row->backward;
    }
    return NULL;
}
