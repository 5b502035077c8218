/* SPDX-License-Identifier: Apache-2.0
 * When windows are computed by cl/hopper/window_forward_wgmma.cl, and in which
 * shape: blocks of rows whose biases local memory holds beside a ring of keys
 * and values. What is not faster than fragments is left to them, as measured
 * on an H200 (bench/decisions/windows-use-wgmma-where-faster.md). */
#include <stdio.h>

#include "family/hopper.h"
#include "plan/defines.h"
#include "plan/schedule.h"

/* the first says what the second would */
#include "../cl/hopper/window_extents.h"

#include "../cl/hopper/warpgroup_extents.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#define MOST_TOKENS 576u
#define MOST_STAGES 8u
/* Keys and values of a team that are on their way or in use: with fewer,
 * products wait. */
#define LEAST_RING_BYTES (36u << 10)
#define LEAST_RING_OF_FOUR_BYTES (24u << 10)
/* Consumers: as many as registers allow, as with fewer nothing else is
 * there to be done while one waits (three, 144 rows of 576: 508 us; four, 96
 * rows of two windows: 431). */
#define COMPUTING_WARPGROUPS 4u
/* Windows whose rows are three warpgroups' come one at a time, or two where
 * registers of six suffice. */
#define WARPGROUPS_OF_ONE 3u
#define WARPGROUPS_OF_TWO 6u

typedef struct window_shape {
    uint32_t block_rows, block_keys, windows, stages;
} window_shape;

/* ---- What the kernel computes ---- */

/* Windows of which it was seen that fragments are not faster. Of 144 and 160
 * tokens they are: of nine or ten tiles of rows three warpgroups have too many
 * waves without any. On a grid the producer is slow (14x14, shifted: 230 us in
 * place of 208), and the cosine variant needs more of a window, with 64
 * channels more still (121 tokens: 68 us in place of 62). */
static bool pays(const wa_problem *problem, uint32_t tokens)
{
    const bool is_cosine = problem->variant == WINATTN_COSINE;
    if (problem->grid.used)
        return tokens >= (is_cosine ? 256 : 225);
    if (tokens > 128)
        return tokens > 160;
    return tokens >= (!is_cosine ? 97u : problem->head_dim == 32 ? 113 : 128);
}

/* NULL if the kernel computes the problem, else why not. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           wa_pass pass)
{
    WA_REFUSE(wa_wgmma_windows_refusal(problem, device, pass));
    if (problem->grid.used &&
        (problem->head_dim != 32 || problem->grid.window[0] > 1))
        return "maps of more channels or axes are faster on fragments";
    if (problem->bias == WINATTN_BIAS_NONE && problem->mask != MASK_NONE)
        return "it knows no masks without a bias";
    if (problem->head_dim != 32 && problem->head_dim != 64)
        return "its head dims are 32 and 64";
    if (problem->queries > MOST_TOKENS || problem->keys > MOST_TOKENS)
        return "its windows have at most 576 tokens";
    if (!pays(problem, problem->queries) || !pays(problem, problem->keys))
        return "windows of so few tokens are faster on fragments";
    return NULL;
}

/* ---- Shapes ---- */

/* The names are those of cl/hopper/window_extents.h. */
static uint32_t local_bytes(const wa_problem *problem, const window_shape *s)
{
    const uint32_t HEAD_DIM = problem->head_dim, NK = problem->keys;
    const uint32_t VARIANT = problem->variant;
    const uint32_t BIAS = problem->bias != WINATTN_BIAS_NONE;
    const bool HAS_REGIONS = MASK_HAS_REGIONS(problem->mask);
    const bool GRID = problem->grid.used;
    const uint32_t BLOCK_ROWS = s->block_rows, BLOCK_KEYS = s->block_keys;
    const uint32_t WINDOWS_PER_GROUP = s->windows, STAGES = s->stages;
    return WINDOW_LOCAL_BYTES;
}

static uint32_t warpgroups(const window_shape *s)
{
    const uint32_t BLOCK_ROWS = s->block_rows, WINDOWS_PER_GROUP = s->windows;
    return WARPGROUPS;
}

static uint32_t work_items(const wa_problem *problem, const window_shape *s)
{
    const uint32_t BLOCK_ROWS = s->block_rows, WINDOWS_PER_GROUP = s->windows;
    const uint32_t VARIANT = problem->variant;
    return WORK_ITEMS;
}

static uint32_t ring_bytes(const wa_problem *problem, const window_shape *s)
{
    const uint32_t HEAD_DIM = problem->head_dim, BLOCK_KEYS = s->block_keys;
    return s->stages * 2 * KEY_TILE_BYTES;
}

/* As many stages as there is room for; false if they are too few. */
static bool find_stages(const wa_problem *problem, const wa_device *device,
                        window_shape *s)
{
    const uint32_t least = s->windows == COMPUTING_WARPGROUPS
                               ? LEAST_RING_OF_FOUR_BYTES
                               : LEAST_RING_BYTES;
    for (s->stages = MOST_STAGES; ring_bytes(problem, s) >= least; s->stages--)
        if (local_bytes(problem, s) <= device->local_bytes)
            return true;
    return false;
}

/* Do a lane's registers hold what it has of a tile of so many keys? */
static bool has_registers(const wa_problem *problem, const window_shape *s,
                          uint32_t block_keys)
{
    const uint32_t groups = warpgroups(s);
    const bool is_dot = problem->variant != WINATTN_COSINE;
    if (block_keys == 48)
        return true;
    if (block_keys == 64)
        return groups <= COMPUTING_WARPGROUPS &&
               (is_dot || s->windows < COMPUTING_WARPGROUPS);
    return problem->head_dim == 32 &&
           (block_keys == 80 ? groups == COMPUTING_WARPGROUPS && is_dot
                             : groups == WARPGROUPS_OF_ONE);
}

/* In the cosine variant a wave alone fetches what each of two windows has, and
 * on a grid it is too slow for that: V2 with 576 tokens takes 581 us where
 * fragments take 586, and shifted 912 in place of 675. */
static bool is_fetched_slowly(const wa_problem *problem, uint32_t windows)
{
    return problem->grid.used && windows > 1 &&
           problem->variant == WINATTN_COSINE;
}

/* Tiles of as many keys as leave the fewest without a key, and stages for
 * them; false if there is no room. Where several do, of more keys: 576 tokens
 * take 308 us with 64, 332 with 48. Of fewer where the cosine variant has
 * several windows at a time, which takes 372 us then, and 375. */
static bool find_tiles(const wa_problem *problem, const wa_device *device,
                       window_shape *s)
{
    static const uint32_t sizes[] = {48, 64, 80, 96};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    const bool prefers_few =
        problem->variant == WINATTN_COSINE && s->windows > 1;
    uint32_t least = UINT32_MAX;
    if (is_fetched_slowly(problem, s->windows))
        return false;
    for (int i = 0; i < COUNT; i++)
        if (has_registers(problem, s, sizes[i]))
            least =
                MIN(least, wa_ceil_div(problem->keys, sizes[i]) * sizes[i]);
    for (int i = 0; i < COUNT; i++) {
        s->block_keys = sizes[prefers_few ? i : COUNT - 1 - i];
        if (has_registers(problem, s, s->block_keys) &&
            wa_ceil_div(problem->keys, s->block_keys) * s->block_keys ==
                least &&
            find_stages(problem, device, s))
            return true;
    }
    return false;
}

/* A window at a time, or two, in blocks of which none lacks rows. */
static bool find_whole_blocks(const wa_problem *problem,
                              const wa_device *device, window_shape *s)
{
    for (s->windows = 1; s->windows <= 2; s->windows++) {
        s->block_rows = COMPUTING_WARPGROUPS / s->windows * WARPGROUP_ROWS;
        if (problem->queries % s->block_rows == 0 &&
            find_tiles(problem, device, s))
            return true;
    }
    return false;
}

/* A window for each warpgroup, where four have not all rows of one and blocks
 * that are larger would leave waves without rows: 576 tokens take 341 us in
 * place of 370 with 96 rows of two windows, without cosine 266 in place of
 * 298. But keys come for each 64 rows (256 tokens take 310 us so, 251 with 128
 * rows of two windows, 246 with all of one). Not where more than an eighth of
 * the rows of blocks are missing (324 tokens, cosine: 284 us in place of 267),
 * and on a grid, where a window's rows are looked for again for each of its
 * blocks, not where any are (20x20: 239 us in place of 230). */
static bool find_four_windows(const wa_problem *problem,
                              const wa_device *device, window_shape *s)
{
    const uint32_t rows =
        wa_ceil_div(problem->queries, WARPGROUP_ROWS) * WARPGROUP_ROWS;
    const uint32_t missing = rows - problem->queries;
    s->block_rows = WARPGROUP_ROWS;
    s->windows = COMPUTING_WARPGROUPS;
    return problem->head_dim == 32 &&
           rows > COMPUTING_WARPGROUPS * WARPGROUP_ROWS &&
           missing <= (problem->grid.used ? 0 : rows / 8) &&
           find_tiles(problem, device, s);
}

/* As many as registers are shared among; those of three or six have all rows
 * of a window. */
static bool has_warpgroups(const wa_problem *problem, const window_shape *s)
{
    const uint32_t groups = warpgroups(s);
    if (groups == COMPUTING_WARPGROUPS)
        return true;
    return s->block_rows == problem->queries &&
           (groups == WARPGROUPS_OF_ONE ||
            (groups == WARPGROUPS_OF_TWO &&
             problem->variant != WINATTN_COSINE && problem->head_dim == 32));
}

/* The largest blocks of whole waves that share a window's rows evenly and
 * whose biases leave room for the ring: two windows at a time, or one. */
static const char *find_even_blocks(const wa_problem *problem,
                                    const wa_device *device, window_shape *s)
{
    const uint32_t tiles = wa_ceil_div(problem->queries, WAVE_ROWS);
    for (uint32_t n = wa_even_size(tiles, 4 * COMPUTING_WARPGROUPS); n > 1;
         n = wa_even_size(tiles, n - 1)) {
        s->block_rows = MIN(n * WAVE_ROWS, problem->queries);
        for (s->windows = 2; s->windows > 0; s->windows--) {
            if (has_warpgroups(problem, s) && find_tiles(problem, device, s))
                return NULL;
        }
    }
    return is_fetched_slowly(problem, 2)
               ? "two windows at a time are fetched too slowly"
               : "the device's local memory is too small";
}

/* ---- The plan ---- */

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *none, wa_plan *plan)
{
    window_shape s;
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    (void)none;
    if (!find_whole_blocks(problem, device, &s) &&
        !find_four_windows(problem, device, &s))
        WA_REFUSE(find_even_blocks(problem, device, &s));
    if (work_items(problem, &s) > device->max_work_group)
        return "the device's work-groups are too small";
    wa_set_wgmma_access(plan);
    wa_begin_step(problem, device, "window_forward_wgmma", s.block_rows,
                  s.block_keys, work_items(problem, &s),
                  local_bytes(problem, &s), step);
    wa_step_switch(step, WA_SWITCH(STAGES), s.stages);
    wa_step_switch(step, WA_SWITCH(WINDOWS_PER_GROUP), s.windows);
    plan->schedule.work_tiles_per_group = s.windows;
    wa_share_windows(problem, device, 1, plan);
    wa_step_matrix_unit(step, device);
    snprintf(plan->reason, sizeof plan->reason,
             "wgmma: %u warpgroups with scores in registers%s, and %s",
             warpgroups(&s),
             problem->bias == WINATTN_BIAS_NONE
                 ? ""
                 : " and biases in local memory",
             work_items(problem, &s) > (warpgroups(&s) + 1) * WARPGROUP
                 ? "two that fetch"
                 : "one that fetches");
    return NULL;
}

const wa_family wa_hopper_window = {.engine = WA_ENGINE_SPECIAL,
                                    .name = "wgmma",
                                    .pass = WA_FORWARD,
                                    .tuned = WA_TUNED_KERNELS,
                                    .speed = WA_WGMMA_SPEED,
                                    .refusal = refusal,
                                    .take = take};
