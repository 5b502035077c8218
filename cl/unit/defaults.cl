/* SPDX-License-Identifier: Apache-2.0
 * What no unit needs to define, in OpenCL C 1.2: hints to the compiler that do
 * nothing, rounding, copies that are not asynchronous, and sums and maxima of
 * a wave through local memory. */
#ifndef DEFAULTS_CL
#define DEFAULTS_CL
#include "unit/vendors.cl"

#ifndef WAVE_ATTRIBUTE
#define WAVE_ATTRIBUTE
#endif
/* Keeps the compiler from computing what follows from an int x before a loop:
 * it would take registers all along. HIDE_LANE is for the lane of a kernel's
 * outermost loop, and of a rare one. */
#ifndef HIDE_FROM_OPTIMIZER
#define HIDE_FROM_OPTIMIZER(x)
#endif
/* Keeps the compiler from computing a float behind what comes now. */
#ifndef FORCE_EARLY
#define FORCE_EARLY(x)
#endif
#ifndef HIDE_LANE
#define HIDE_LANE(x)
#endif
/* 1: addresses of tiles and of the score bias are not kept from one to the
 * next either.
 */
#ifndef HIDES_TILE_LANES
#define HIDES_TILE_LANES 0
#endif
/* A pointer to local memory that a loop starts from again and again. */
#ifndef KEEP_LOCAL
#define KEEP_LOCAL(p) (p)
#endif
/* Within a loop: declares `name`, which points to the kernel's first argument,
 * as `from` does; or to what is read of it again. */
#ifndef RELOAD_ARGS
#define RELOAD_ARGS(type, name, from) const type *name = from;
#endif
#if DTYPE == 0
#ifndef TO_TF32
/* To nearest, ties away from 0, as the units that have TF32 do. */
INLINE uint round_to_tf32(float x)
{
    const uint bits = as_uint(x);
    return (isnan(x) ? bits | 0x400000u : bits + 0x1000u) & ~0x1fffu;
}
#define TO_TF32(x) round_to_tf32(x)
#endif
#elif !defined(PACK)
INLINE uint bits_of(float x)
{
#if DTYPE == 1
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
#else
    return round_to_bf16(x);
#endif
}
#define PACK(low, high) (bits_of(low) | bits_of(high) << 16)
#endif
#ifndef EXP2
#define EXP2(x) exp2(x)
#endif
#ifndef RECIPROCAL
#define RECIPROCAL(x) (1.0f / (x))
#endif
#ifndef ASYNC_COPIES
#define ASYNC_COPIES 0
#define END_COPIES()
#define AWAIT_COPIES(newer)
INLINE void copy_16(__local storage_bits *to, __global const void *from,
                    int exists, int wanted)
{
    if (wanted)
        *(__local uint4 *)to =
            exists ? *(__global const uint4 *)from : (uint4)(0u);
}
INLINE void copy_4(__local void *to, __global const void *from, int exists)
{
    *(__local uint *)to = exists ? *(__global const uint *)from : 0u;
}
#endif
/* Of a team alone, or TEAMS_SYNC_TOGETHER, all teams of a work-group. */
#ifdef TEAM_SYNC
#define TEAMS_SYNC_TOGETHER 0
#else
#define TEAM_SYNC(team) barrier(CLK_LOCAL_MEM_FENCE)
#define TEAMS_SYNC_TOGETHER (WINDOWS_PER_GROUP > 1)
#endif
/* The largest of what a wave's lanes have; scratch: for it, in local memory.
 */
#ifndef LARGEST_OF_WAVE
INLINE uint find_largest(uint x, __local uint *scratch, const wave *w)
{
    uint y;
    if (w->lane == 0)
        *scratch = 0;
    WAVE_SYNC();
    atomic_max(scratch, x);
    WAVE_SYNC();
    y = *scratch;
    WAVE_SYNC();
    return y;
}
#define LARGEST_OF_WAVE(x, scratch, w) find_largest(x, scratch, w)
#endif
/* x = the sum of what a wave's lanes have, always in the same order. scratch:
 * [WAVE], in local memory. */
#ifndef SUM_OF_WAVE
INLINE float add_lanes(float x, __local float *scratch, const wave *w)
{
    float sum = 0.0f;
    WAVE_SYNC();
    scratch[w->lane] = x;
    WAVE_SYNC();
    for (int l = 0; l < WAVE; l++)
        sum += scratch[l];
    WAVE_SYNC();
    return sum;
}
#define SUM_OF_WAVE(x, scratch, w) x = add_lanes(x, scratch, w)
#endif

#endif
