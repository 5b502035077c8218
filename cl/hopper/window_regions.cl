/* SPDX-License-Identifier: Apache-2.0
 * Regions of a window's rows, on their way from the producer to consumers:
 * four rows' are a word in local memory. A work-group owns REGION_OWN rows of
 * a window, or keys, and has scores with REGION_OTHERS of the other side. From
 * an address on lie words of the others, of 16 those whose scores a lane has;
 * of rows that are owned, neighbours; and a flag of each producer wave:
 * has it seen several? */
#include "common/problem.cl"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"

#define HAS_REGIONS MASK_HAS_REGIONS(MASK)
typedef char a_mask_is_of_regions[MASK_READS_ARRAY(MASK) ? -1 : 1];

#define REGION_WORDS (REGION_OTHERS / 4)
#define OWN_REGION_WORDS (REGION_OWN / 4)
#define REGION_FLAGS (4 * (REGION_WORDS + OWN_REGION_WORDS))

/* Where pair e of a lane's chunk is among 16 rows and the chunk's columns. */
INLINE uint row_of_pair(uint lane, uint e) { return lane / 4 + e / 2 % 2 * 8; }
INLINE uint column_of_pair(uint lane, uint e)
{
    return e / 4 * 8 + lane % 4 * 2 + e % 2;
}

/* ---- The producer ---- */

/* A word, and whether there are several in it, or others than the first row's.
 */
typedef struct fetched_regions {
    uint word;
    int differ;
} fetched_regions;

#if HAS_REGIONS
/* Of a grid's windows most have one. */
INLINE int may_have_regions(const score_bias_view *view)
{
#if MASK_FOLLOWS_GRID(MASK)
    return view->coord.shift_boundaries != 0;
#else
    return 1;
#endif
}

/* Word `number` of all. first: of the rows that are owned, which are keys if
 * owns_keys. */
INLINE fetched_regions fetch_region_word(const score_bias_view *view,
                                         const forward_args *args, uint first,
                                         const int owns_keys, uint number)
{
    fetched_regions x = {.word = 0};
    const int is_own = number >= REGION_WORDS;
    const uint one = query_region(args, view, 0);
    UNROLL_FOR (uint e = 0; e < 4; e++) {
        const uint n = is_own ? first + (number - REGION_WORDS) * 4 + e
                              : number / 4 * 16 +
                                    column_of_pair(number, e / 2 * 4 + e % 2);
        const uint region =
            is_own == owns_keys
                ? key_region(args, view, (int)min(n, NK - 1u))
                : query_region(args, view, (int)min(n, NQ - 1u));
        x.word |= region << 8 * e;
        x.differ |= region != one;
    }
    return x;
}

/* By all of a wave. */
INLINE void keep_region_flag(uint regions, uint wave, int differ)
{
    store_word(regions + REGION_FLAGS + wave * 4, (uint)WAVE_ANY(differ));
}
#endif

/* ---- Consumers ---- */

/* Has a window several? */
INLINE int has_regions(uint regions)
{
#if HAS_REGIONS
    const uint4 flags = load_chunk(regions + REGION_FLAGS);
    return (flags.x | flags.y | flags.z | flags.w) != 0;
#else
    return 0;
#endif
}

/* What a lane knows then. It is found where it is needed, as it would take
 * registers all along. */
typedef struct lane_regions {
    uint region[2]; /* of its rows, in all bytes */
    uint others;    /* address of those that its scores are with */
    float value;    /* what is added to scores of two that differ */
} lane_regions;

/* own: number of the wave's first row among those that are owned. */
INLINE lane_regions find_regions(uint regions, float value, uint own, int lane)
{
    lane_regions x = {.others = regions + lane % 4 * 4, .value = value};
    UNROLL_FOR (uint r = 0; r < 2; r++) {
        const uint row = own + lane / 4 + 8 * r;
        x.region[r] = (load_word(regions + 4 * REGION_WORDS + row / 4 * 4) >>
                           row % 4 * 8 &
                       255) *
                      0x01010101u;
    }
    return x;
}

/* Adds to eight numbers, of a lane's rows and 16 columns from `column` on. */
INLINE void add_region_values(float *to, const lane_regions *x, uint column)
{
    const uint word = load_word(x->others + column);
    const uint differs[2] = {word ^ x->region[0], word ^ x->region[1]};
    UNROLL_FOR (uint e = 0; e < 8; e++)
        if (differs[e / 2 % 2] & 255u << (e / 4 * 16 + e % 2 * 8))
            to[e] += x->value;
}
