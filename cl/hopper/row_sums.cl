/* SPDX-License-Identifier: Apache-2.0
 * dQ of sliding attention on NVIDIA's Hopper, and what dS sums to, by the same
 * products. */
#ifndef ROW_SUMS_CL
#define ROW_SUMS_CL
#include "hopper/tile_ring.cl"
#include "hopper/wgmma.cl"

/* Of 64 channels, products sum dS, too: keys have 8 channels more, which are
 * 1. An operand's descriptor says how far it is from its first 64 channels to
 * more: 16 rows of ones behind all stages serve every 16 keys of each. */
#define DS_SUMS (HEAD_DIM == 64 ? 4 : 0)
INLINE uint ones_of(const tile_ring *ring) { return ring->kept + ONES_AT; }
INLINE void make_ones(const tile_ring *ring, uint item)
{
    const uint two = PACK(1.0f, 1.0f);
    if (item < ONES_BYTES / 16)
        store_chunk(ones_of(ring) + item * 16, (uint4)(two));
    show_to_products();
}

/* Registers that dQ has, and behind it what dS sums to. */
#if DS_SUMS
#define HOLD_DQ(x)                                                            \
    __asm__ volatile("" : OUT_SUMS(x), ADD_4(x, OUTS) : : "memory")
#else
#define HOLD_DQ(x) HOLD_OUTS(x)
#endif

/* dQ += dS K, of 64 keys in local memory from `keys` on. */
INLINE void add_keys(float *dq, const uint *ds, uint keys, uint ones)
{
#if DS_SUMS
    const uint k = operand_at(keys, ones - keys);
    UNROLL_FOR (uint i = 0; i < 4; i++)
        add_values_and_sums(
            dq, ds + 4 * i,
            describe(k + i * (PANEL_PITCH - ((uint)PANEL_PITCH << 16))));
#else
    const uint k = operand_at(keys, 64 * PANEL_PITCH);
    UNROLL_FOR (uint i = 0; i < 4; i++)
        add_values(dq, ds + 4 * i, describe(k + i * PANEL_PITCH));
#endif
}

#endif
