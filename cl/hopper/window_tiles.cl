/* SPDX-License-Identifier: Apache-2.0
 * A wave's 16 rows of a window, of those that its work-group owns, and tiles
 * of TILE_KEYS of the other side that its warpgroup multiplies them by. */
#include "hopper/gradient_windows.cl"

/* Rows behind the window's last are computed of whatever is there, and do not
 * leave. */
typedef struct wave_rows {
    const window_ring *ring;
    uint stage;         /* that has the window */
    uint first, second; /* addresses of its warpgroup's of both tensors */
    uint tile;          /* among those of the work-group */
    uint row;           /* its first, of the window */
    int lane;
    float region_value;
} wave_rows;

/* Awaits window n of the work-group's, and says where its rows are.
 * first_tile: of the warpgroup. */
INLINE void await_rows(wave_rows *rows, const window_call *call, uint n,
                       uint first_tile, uint tile, int lane)
{
    const window_ring *ring = call->ring;
    const uint of_warpgroup = first_tile * 16 * WINDOW_PITCH;
    rows->ring = ring;
    rows->stage = n % STAGES;
    rows->first = window_rows(ring, rows->stage, OWN_FIRST) + of_warpgroup;
    rows->second = window_rows(ring, rows->stage, OWN_SECOND) + of_warpgroup;
    rows->tile = tile;
    rows->row = call->job->first + tile * 16;
    rows->lane = lane;
    rows->region_value = call->args->forward.region_value;
    await_phase(window_filled(ring, rows->stage), n / STAGES % 2);
    show_to_products();
}

/* Has the window several regions? One question for each loop, as one for each
 * tile costs as much as what is added there. */
INLINE int have_regions(const wave_rows *rows)
{
    return has_regions(window_regions(rows->ring, rows->stage));
}
INLINE lane_regions regions_of_lane(const wave_rows *rows)
{
    return find_regions(window_regions(rows->ring, rows->stage),
                        rows->region_value, rows->tile * 16, rows->lane);
}

/* Rows of the other side from `first` on. */
INLINE uint other_rows(const wave_rows *rows, const window_part part,
                       uint first)
{
    return window_rows(rows->ring, rows->stage, part) + first * WINDOW_PITCH;
}

/* Products of a warpgroup's rows with a tile, in two groups: scores and dP. */
INLINE void start_tile(float *s, float *dp, const wave_rows *rows, uint first)
{
    start_products();
    multiply_keys(s, rows->first, other_rows(rows, OTHER_FIRST, first));
    end_products();
    multiply_keys(dp, rows->second, other_rows(rows, OTHER_SECOND, first));
    end_products();
}

/* A tile's biases. Loops load them while the tile before is computed: ptxas
 * puts what makes floats of them, and waits for local memory, between products
 * that start. Behind the last tile comes the first again, so that nobody asks.
 * With regions that takes registers that there are not. */
#define LOADS_AHEAD (!HAS_REGIONS)
#define NEXT_TILE(first)                                                      \
    ((first) + TILE_KEYS < OTHER_ROWS ? (first) + TILE_KEYS : 0)
#define BIAS_WORDS (PAIR_WORDS * TILE_KEYS / 16)
INLINE void load_biases(uint *words, const wave_rows *rows, uint first)
{
    UNROLL_FOR (uint c = 0; c < TILE_KEYS; c += 16)
        load_pairs(words + PAIR_WORDS * c / 16, rows->ring, rows->tile,
                   first + c, rows->lane);
}

/* A number of each of the lane's two rows. */
INLINE void load_row_numbers(float *to, uint numbers, const wave_rows *rows)
{
    UNROLL_FOR (int r = 0; r < 2; r++)
        to[r] = load_number(numbers +
                            4 * (rows->tile * 16 + rows->lane / 4 + 8 * r));
}
