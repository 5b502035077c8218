/* SPDX-License-Identifier: Apache-2.0
 * Shapes of kernels for a matrix unit: what they follow to, what they take and
 * what refuses them, in either pass. */
#include "family/matrix_tiling.h"

#include <stdio.h>

#include "../cl/matrix/matrix_extents.h"
#include "../cl/unit/row_extents.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* A work-group of NVIDIA's has 16 barriers: one for all, one for each team. */
#define MOST_WINDOWS_PER_GROUP 15u
/* No lane has registers for the scores of more. */
#define MOST_TILES_PER_SUBTILE 64u
/* Arrays start so where a unit swizzles rows. */
#define LINE_BYTES 128u

static uint32_t element_bytes(const wa_problem *problem)
{
    return problem->dtype == WINATTN_FP32 ? 4 : 2;
}

uint32_t wa_matrix_chunk(const wa_problem *problem)
{
    return WA_MATRIX_CHUNK_BYTES / element_bytes(problem);
}

/* By the kernels' formulas, which name switches and what a unit's file says.
 */
wa_matrix_tiling wa_matrix_tiling_of(const wa_problem *problem,
                                     const wa_matrix_unit *unit,
                                     const wa_matrix_shape *s)
{
    const uint64_t HEAD_DIM = problem->head_dim, SEQ_N = problem->keys;
    const uint64_t BLOCK_M = s->block_rows, BLOCK_N = s->block_keys;
    const uint64_t WAVES_PER_WINDOW = s->waves_per_window;
    const uint64_t TILE_M = unit->queries, TILE_N = unit->tile;
    const uint64_t CHUNK = wa_matrix_chunk(problem);
    const bool SWIZZLES_ROWS = unit->swizzles_rows;
    const uint32_t bytes = element_bytes(problem);
    wa_matrix_tiling t = {.row_tiles = (uint32_t)(ROW_TILES),
                          .wave_turns = (uint32_t)(WAVE_TURNS),
                          .key_tiles = (uint32_t)(KEY_TILES),
                          .dim_tiles = (uint32_t)(DIM_TILES),
                          .key_blocks = (uint32_t)(KEY_BLOCKS),
                          .element_bytes = bytes,
                          .dims = (uint32_t)(DIMS),
                          .row_bytes = (uint32_t)(PITCH)*bytes,
                          .key_rows = (uint32_t)(KEY_ROWS),
                          .key_plane_bytes = KEY_PLANE_SIZE * bytes,
                          .out_bytes = OUT_SIZE * bytes,
                          .bias_cache_size = BIAS_CACHE_SIZE,
                          .acc_per_lane =
                              (uint32_t)(TILE_ELEMENTS) / unit->wave,
                          .streaming = KEY_BLOCKS > 1};
    for (int BACKWARD = WA_FORWARD; BACKWARD <= WA_BACKWARD; BACKWARD++)
        t.row_plane_bytes[BACKWARD] = ROW_PLANE_SIZE * bytes;
    return t;
}

wa_problem wa_matrix_transpose(const wa_problem *problem)
{
    wa_problem transposed = *problem;
    transposed.queries = problem->keys;
    transposed.keys = problem->queries;
    return transposed;
}

wa_matrix_shape wa_matrix_transpose_shape(const wa_matrix_shape *s)
{
    wa_matrix_shape transposed = *s;
    transposed.block_rows = s->block_keys;
    transposed.block_keys = s->block_rows;
    return transposed;
}

const char *wa_matrix_bias_place(const wa_problem *problem,
                                 uint32_t bias_cache)
{
    static const char *const places[] = {
        [WA_BIAS_CACHE_NONE] = ", bias and mask from global memory",
        [WA_BIAS_CACHE_LOCAL] = ", bias and mask in local memory",
        [WA_BIAS_CACHE_REGISTERS] = ", bias and mask too",
        [WA_BIAS_CACHE_LOCAL_AND_REGIONS] =
            ", bias and regions in local memory"};
    return wa_problem_has_score_bias(problem) ? places[bias_cache] : "";
}

uint64_t wa_matrix_stage_bytes(const wa_matrix_tiling *t, wa_pass pass,
                               uint32_t row_planes)
{
    return row_planes * t->row_plane_bytes[pass] + 2 * t->key_plane_bytes;
}

/* Of an array, with what may lie before one that needs its alignment. */
static uint64_t array_bytes(const wa_matrix_unit *unit, uint64_t bytes)
{
    const uint64_t line =
        unit->swizzles_rows ? LINE_BYTES : WA_MATRIX_CHUNK_BYTES;
    return (bytes + line - 1) / line * line;
}

/* As the kernels declare their arrays. */
uint64_t wa_matrix_local_bytes(const wa_problem *problem,
                               const wa_device *device,
                               const wa_matrix_shape *s,
                               const wa_matrix_tiling *t, wa_pass pass,
                               uint32_t row_planes)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const uint64_t waves =
        (uint64_t)s->windows_per_group * s->waves_per_window;
    uint64_t bytes = (uint64_t)s->windows_per_group * s->stages *
                     wa_matrix_stage_bytes(t, pass, row_planes);
    bytes = array_bytes(unit, bytes);
    if (pass == WA_BACKWARD) /* each wave's rows that leave */
        bytes += array_bytes(unit, waves * t->out_bytes);
    /* the bias as it is stored, or its sum with the mask */
    const bool sums =
        problem->mask != MASK_NONE && s->bias_cache == WA_BIAS_CACHE_LOCAL;
    const bool keeps_bias = problem->bias != WINATTN_BIAS_NONE &&
                            s->bias_cache != WA_BIAS_CACHE_NONE;
    if (keeps_bias || sums)
        bytes += array_bytes(
            unit, t->bias_cache_size *
                      (sums || problem->bias_dtype == WINATTN_TERM_FP32
                           ? 4
                           : t->element_bytes));
    if (s->bias_cache == WA_BIAS_CACHE_LOCAL_AND_REGIONS)
        bytes +=
            array_bytes(unit, (uint64_t)s->windows_per_group * s->block_rows) +
            array_bytes(unit, (uint64_t)s->windows_per_group * problem->keys);
    if (problem->variant == WINATTN_COSINE)
        bytes += array_bytes(unit, (uint64_t)s->windows_per_group *
                                       s->block_rows * 4) +
                 array_bytes(unit,
                             (uint64_t)s->windows_per_group * t->key_rows * 4);
    if (wa_problem_padding(problem) == 1) /* pad_k and pad_v */
        bytes += array_bytes(unit, 2ull * t->dims * t->element_bytes);
    return bytes;
}

const char *wa_matrix_impossible(const wa_problem *problem,
                                 const wa_device *device, wa_pass pass)
{
    if (!device->matrix_unit)
        return "the device has no matrix unit that is known";
    if (problem->dtype != WINATTN_FP32)
        return NULL;
    if (pass == WA_BACKWARD)
        return "fp32 would be rounded, and TF32 is for the forward pass only";
    if (!device->matrix_unit->has_tf32)
        return "fp32 would be rounded, as its unit has no TF32";
    if (!problem->allows_tf32)
        return "fp32 would be rounded to TF32, which must be allowed";
    return NULL;
}

const char *wa_matrix_unwanted(const wa_problem *problem,
                               const wa_device *device, wa_pass pass)
{
    const char *why = wa_matrix_impossible(problem, device, pass);
    if (!why && !device->matrix_unit->proven &&
        problem->tier != WINATTN_TIER_MATRIX)
        why = "nobody has run it on such a device yet; it must be demanded";
    return why;
}

void wa_matrix_say_none(const wa_device *device, bool fits, char *why)
{
    (void)device;
    snprintf(why, WA_REASON_SIZE, "%s",
             fits ? "its sums fit no lane's registers"
                  : "no shape fits the device's local memory");
}

/* Windows that lie alike in their grids must be masked alike where what masks
 * add is kept. */
static bool masks_follow_grid(const wa_problem *problem)
{
    const uint32_t *windows = problem->grid.windows;
    const uint64_t masks = problem->mask_windows;
    if (!problem->grid.used)
        return true;
    const uint64_t windows_per_grid =
        (uint64_t)windows[0] * windows[1] * windows[2];
    return windows_per_grid % masks == 0 || masks % windows_per_grid == 0;
}

const char *wa_matrix_refusal(const wa_problem *problem,
                              const wa_device *device,
                              const wa_matrix_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    if (!wa_shape_is_sound(&wa_matrix_numbers, s))
        return "a number of the shape is out of its bounds";
    if (s->stages > WA_MATRIX_MOST_STAGES)
        return "a ring has too many stages";
    if (s->subtile_keys > MOST_TILES_PER_SUBTILE * unit->tile)
        return "a pass has too many keys";
    if (s->subtile_keys % unit->tile != 0)
        return "a pass is no whole number of tiles";
    if (problem->variant != WINATTN_SLIDING &&
        s->block_rows < problem->queries && s->block_rows % unit->queries != 0)
        return "blocks of rows are no whole number of tiles";
    if (s->bias_cache == WA_BIAS_CACHE_LOCAL_AND_REGIONS &&
        !MASK_HAS_REGIONS(problem->mask))
        return "the problem has no regions to compare";
    if ((s->bias_cache == WA_BIAS_CACHE_LOCAL ||
         s->bias_cache == WA_BIAS_CACHE_REGISTERS) &&
        !masks_follow_grid(problem))
        return "masks do not repeat from grid to grid";
    if (s->windows_per_group > MOST_WINDOWS_PER_GROUP)
        return "a work-group has no barriers for so many teams";
    if (s->waves_per_window * s->windows_per_group > WA_MATRIX_MOST_WAVES ||
        s->waves_per_window * s->windows_per_group * unit->wave >
            device->max_work_group)
        return "work-groups of the device are too small";
    return NULL;
}

void wa_set_matrix_access(const wa_problem *problem, wa_plan *plan)
{
    const uint32_t chunk = wa_matrix_chunk(problem);
    plan->access_elements = problem->head_dim % chunk == 0 ? chunk : 0;
    plan->access_bytes = WA_MATRIX_CHUNK_BYTES;
}

/* NVIDIA's compiler gives a work-group the registers of a whole compute unit,
 * if there is use for them. */
uint32_t wa_matrix_resident(const wa_device *device, uint32_t local_bytes)
{
    return device->matrix_unit->copies_async
               ? 1
               : MAX(device->local_capacity /
                         (local_bytes + WA_RESERVED_LOCAL_BYTES),
                     1);
}

/* Parts of a compute unit of NVIDIA's, which deal waves among them; each has
 * registers of its own. */
#define UNIT_PARTS 4u

/* On NVIDIA's units a work-group has all registers of a compute unit, of which
 * addresses and operands take 60, and 88 where operands are twice as long
 * (with 76 ptxas spilled more). */
uint32_t wa_matrix_most_sums(const wa_problem *problem,
                             const wa_device *device, uint32_t waves)
{
    const uint32_t others = problem->dtype == WINATTN_FP32 ? 88 : 60;
    const uint32_t wave = MAX(device->matrix_unit->wave, 1);
    if (device->registers >= 200 && device->register_words) {
        const uint32_t own = /* of the part whose waves are most */
            device->register_words / (UNIT_PARTS * wave) /
            wa_ceil_div(waves, UNIT_PARTS);
        return own > others ? MIN(own, 255) - others : 0;
    }
    /* AMD's waves of 32 have half the registers of those of 64; Intel's units
     * get twice what other kernels do */
    return device->vendor == WA_VENDOR_AMD && device->wave == 32 ? 48 : 64;
}

uint32_t wa_matrix_tiles_per_subtile(uint32_t key_tiles, uint32_t most)
{
    most = MIN(most, key_tiles);
    for (uint32_t n = most; n > 0 && 2 * n >= most; n--)
        if (key_tiles % n == 0)
            return n;
    return wa_ceil_div(key_tiles, wa_ceil_div(key_tiles, most));
}
