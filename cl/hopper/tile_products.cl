/* SPDX-License-Identifier: Apache-2.0
 * Products of attention by warpgroups (wgmma.cl): of tiles of queries and of
 * keys, and of weights and values. */
#include "common/problem.cl"
#include "hopper/wgmma.cl"

/* A lane's sums: of scores of TILE_KEYS keys, packed weights of these, and
 * channels of o. */
#define SCORES (TILE_KEYS / 2)
#define WEIGHTS (TILE_KEYS / 4)
#define OUTS (HEAD_DIM / 2)

/* Where products are in flight, the compiler must neither move nor copy what
 * they read and write. */
#define HOLD_SCORES(s)                                                        \
    __asm__ volatile("" : JOIN(ADD_, TILE_KEYS)(s) : : "memory")
#define HOLD_WEIGHTS(p)                                                       \
    __asm__ volatile("" : JOIN(HOLD_, TILE_KEYS)(p) : : "memory")
#define HOLD_OUTS(o)                                                          \
    __asm__ volatile("" : JOIN(ADD_, HEAD_DIM)(o) : : "memory")

/* scores = queries keys^T, of 16 channels; and more channels. */
DEFINE_PRODUCT(set_scores, TILE_KEYS, JOIN(SET_, TILE_KEYS), "0", "0, 0")
DEFINE_PRODUCT(add_scores, TILE_KEYS, JOIN(ADD_, TILE_KEYS), "1", "0, 0")
/* The same of queries in registers. */
DEFINE_HELD_PRODUCT(set_scores_held, TILE_KEYS, JOIN(SET_, TILE_KEYS), "0",
                    "0")
DEFINE_HELD_PRODUCT(add_scores_held, TILE_KEYS, JOIN(ADD_, TILE_KEYS), "1",
                    "0")
/* o += weights values, of 16 keys. */
DEFINE_HELD_PRODUCT(add_values, HEAD_DIM, JOIN(ADD_, HEAD_DIM), "1", "1")

/* The same, or o = weights values where it `adds` not. */
INLINE void add_or_set_values(float *o, const uint *p, ulong values, int adds)
{
    __asm__ volatile(WGMMA(HEAD_DIM, "%[adds]", HELD_LEFT, "1")
                     : JOIN(ADD_, HEAD_DIM)(o)
                     : HELD(p), [right] "l"(values), [adds] "r"(adds)
                     : "memory");
}

/* Addresses in local memory. */
INLINE void multiply_keys(float *s, uint queries, uint keys)
{
    const uint q = operand_at(queries, 16), k = operand_at(keys, 16);
    set_scores(s, describe(q), describe(k));
    UNROLL_FOR (uint i = 1; i < HEAD_DIM / 16; i++)
        add_scores(
            s,
            describe(q + i / 4 * (WARPGROUP_ROWS * ROW_BYTES / 16) +
                     i % 4 * 2),
            describe(k + i / 4 * (TILE_KEYS * ROW_BYTES / 16) + i % 4 * 2));
}

INLINE void multiply_held(float *s, const uint *queries, uint keys)
{
    const uint k = operand_at(keys, 16);
    set_scores_held(s, queries, describe(k));
    UNROLL_FOR (uint i = 1; i < HEAD_DIM / 16; i++)
        add_scores_held(
            s, queries + 4 * i,
            describe(k + i / 4 * (TILE_KEYS * ROW_BYTES / 16) + i % 4 * 2));
}

/* Multiplies by the first `count` of a tile's values, in 16s. */
INLINE void multiply_values(float *o, const uint *p, uint values,
                            const uint count)
{
    const uint v = operand_at(values, TILE_KEYS * ROW_BYTES);
    UNROLL_FOR (uint i = 0; i < count / 16; i++)
        add_values(o, p + 4 * i, describe(v + i * ROW_BYTES));
}

INLINE void add_or_set_products(float *o, const uint *p, uint values, int adds)
{
    const uint v = operand_at(values, TILE_KEYS * ROW_BYTES);
    add_or_set_values(o, p, describe(v), adds);
    UNROLL_FOR (uint i = 1; i < TILE_KEYS / 16; i++)
        add_values(o, p + 4 * i, describe(v + i * ROW_BYTES));
}
