/* SPDX-License-Identifier: Apache-2.0
 * Where the producer finds the rows of a head in a window. A work-item has a
 * chunk of a row, and of each ROW_STEP rows one; its wave WAVE_STEP_ROWS of
 * these. Copies follow each other as fast as their addresses are there, so
 * without a grid one is an addition behind the other, and on a grid a wave
 * finds the places of its rows before it copies any, each once, in local
 * memory. */
#include "common/problem.cl"
#include "hopper/window_extents.h"

#include "hopper/mbarrier.cl"
#include "hopper/window_places.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(NQ)
REQUIRE(WINDOWS_PER_GROUP)

#define ROW_CHUNKS (HEAD_DIM / 8)
/* Work-items of a team that do not compute, and of these those that do not
 * measure. */
#define TEAM_HELPERS (FETCHING_WARPGROUPS * WARPGROUP / WINDOWS_PER_GROUP)
#define FETCHING (TEAM_HELPERS / (VARIANT == COSINE ? 2 : 1))
#define ROW_STEP (FETCHING / ROW_CHUNKS)
#define WAVE_STEP_ROWS (WAVE / ROW_CHUNKS)

typedef struct row_source {
    __global const storage *rows; /* of the head, the work-item's chunk */
    const tensor_layout *layout;
    const window_place *place;
    uint places; /* address of those of the work-item */
} row_source;

#if GRID
/* Do blocks and tiles begin with the first of ROW_STEP rows? */
#define STEPS_FIT                                                             \
    (TILE_KEYS % ROW_STEP == 0 &&                                             \
     (BLOCK_ROWS % ROW_STEP == 0 || BLOCK_ROWS >= NQ))
/* Of a wave. */
#define PLACES (KEY_TILES * TILE_KEYS / ROW_STEP * WAVE_STEP_ROWS)
#endif

/* By a wave, which no longer reads what was there; all of a window's rows. At
 * `places` are those of the team. Returns the work-item's. */
INLINE uint keep_places(uint places, const tensor_layout *layout,
                        const window_place *place, uint item)
{
#if GRID
    const uint wave = item / WAVE, lane = item % WAVE;
    const uint of_wave = places + wave * (4 * PLACES);
    if (STEPS_FIT)
        NO_UNROLL_FOR (uint n = lane; n < PLACES; n += WAVE) {
            const uint row = n / WAVE_STEP_ROWS * ROW_STEP +
                             wave * WAVE_STEP_ROWS + n % WAVE_STEP_ROWS;
            store_word(of_wave + 4 * n,
                       row_at(layout, place, min(row, NK - 1u)));
        }
    return of_wave + lane / ROW_CHUNKS * 4;
#else
    return places;
#endif
}

/* The work-item's row of those from `step` on, number `row` of the window.
 * from: where it is without a grid. */
INLINE __global const storage *find_row(const row_source *of,
                                        __global const storage *from,
                                        uint step, uint row)
{
#if GRID
    return of->rows +
           (STEPS_FIT ? load_word(of->places + step * (4 * WAVE_STEP_ROWS))
                      : row_at(of->layout, of->place, row));
#else
    return from;
#endif
}

/* Do rows of both lie alike? */
INLINE int are_alike(const tensor_layout *a, const tensor_layout *b)
{
    return a->axis[0] == b->axis[0] && a->axis[1] == b->axis[1] &&
           a->row == b->row;
}
