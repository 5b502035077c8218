/* SPDX-License-Identifier: Apache-2.0
 * All shapes of a kernel for windows: blocks of rows and keys, teams, stages,
 * and where bias and mask wait. */
#include "family/matrix_tiling.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* What searches of kernels of the same pass share. */
typedef struct space {
    wa_search *find;
    const wa_problem *problem;
    wa_pass pass;
    uint32_t most_splits;
    wa_shape_trier *try;
} space;

/* Has local memory room for a stage of each window? */
static bool has_room(const space *of, const wa_matrix_shape *s)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(of->problem, of->find->device->matrix_unit, s);
    of->find->visited++;
    return s->windows_per_group *
               wa_matrix_stage_bytes(&t, of->pass,
                                     of->pass == WA_BACKWARD ? 2 : 1) <=
           of->find->device->local_bytes;
}

static void try_stages(const space *of, wa_matrix_shape s)
{
    const bool async = of->find->device->matrix_unit->copies_async;
    const uint32_t most_stages = !async ? 1
                                 : of->pass == WA_BACKWARD
                                     ? WA_MATRIX_GRADIENT_STAGES
                                     : WA_MATRIX_MOST_STAGES;
    const uint32_t bias_caches = MASK_HAS_REGIONS(of->problem->mask)      ? 4
                                 : wa_problem_has_score_bias(of->problem) ? 3
                                                                          : 1;
    for (s.stages = 1; s.stages <= most_stages; s.stages++)
        for (s.bias_cache = 0; s.bias_cache < bias_caches; s.bias_cache++) {
            of->find->visited++;
            of->try(of->find, of->problem, s);
        }
}

/* All ways to compute blocks of so many tiles of rows. Forward, a wave may
 * have several of them, if a block has all keys. Without asynchronous copies
 * neither a ring nor several windows at once pay. */
static void try_teams(const space *of, wa_matrix_shape s, uint32_t rows,
                      bool streams)
{
    const bool async = of->find->device->matrix_unit->copies_async;
    const uint32_t step = of->pass == WA_FORWARD && !streams ? 1 : rows;
    const uint32_t most = MIN(of->most_splits * rows, WA_MATRIX_PLANNED_WAVES);
    for (s.waves_per_window = step; s.waves_per_window <= most;
         s.waves_per_window += step) {
        const uint32_t windows =
            async ? WA_MATRIX_PLANNED_WAVES / s.waves_per_window : 1;
        for (s.windows_per_group = 1;
             s.windows_per_group <= windows && has_room(of, &s);
             s.windows_per_group++)
            try_stages(of, s);
    }
}

/* Where searches end: tokens of one tensor that local memory has room for
 * beside nothing else. */
static uint32_t most_tokens(const wa_problem *problem, const wa_device *device)
{
    const wa_matrix_shape one = {
        .block_rows = 1, .block_keys = 1, .waves_per_window = 1};
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, &one);
    return device->local_bytes / t.row_bytes;
}

void wa_visit_matrix_shapes(wa_search *find, const wa_problem *problem,
                            wa_pass pass, uint32_t most_splits,
                            bool has_windows, wa_shape_trier *try)
{
    const space of = {find, problem, pass, most_splits, try};
    const wa_matrix_unit *unit = find->device->matrix_unit;
    const uint32_t all_rows = wa_ceil_div(problem->queries, unit->queries);
    const uint32_t all_keys = wa_ceil_div(problem->keys, unit->tile);
    const uint32_t most = most_tokens(problem, find->device);
    const uint32_t most_rows =
        pass == WA_FORWARD ? most / unit->queries : WA_MATRIX_PLANNED_WAVES;
    /* of keys there are k and v, and the last tile may have one */
    const uint32_t most_keys = most / 2 / unit->tile + 1;
    for (uint32_t rows = wa_even_size(all_rows, most_rows);
         rows > 0 && (rows == all_rows || !has_windows);
         rows = wa_even_size(all_rows, rows - 1))
        for (uint32_t keys = wa_even_size(all_keys, most_keys);
             keys > 0 && (keys == all_keys || !has_windows);
             keys = wa_even_size(all_keys, keys - 1)) {
            const wa_matrix_shape s = {
                .block_rows = MIN(rows * unit->queries, problem->queries),
                .block_keys = MIN(keys * unit->tile, problem->keys),
                .waves_per_window = 1,
                .windows_per_group = 1,
                .stages = 1,
                .subtile_keys = unit->tile};
            if (has_room(&of, &s))
                try_teams(&of, s, rows, keys < all_keys);
        }
}
