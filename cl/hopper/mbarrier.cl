/* SPDX-License-Identifier: Apache-2.0
 * Barriers in local memory that some work-items arrive at and others wait for
 * (PTX ISA, "mbarrier"), and copies that complete at one. A barrier's phases
 * end one after the other, each when as many have arrived as it was made for;
 * who waits says by its parity, 0 at first, which phase it waits for. */
#include "common/language.cl"
#include "hopper/warpgroup_extents.h"

INLINE uint local_address(__local const void *p) { return (uint)(size_t)p; }

INLINE void make_mbarrier(uint at, uint arrivals)
{
    __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     :
                     : "r"(at), "r"(arrivals)
                     : "memory");
}

/* A wave's lanes make theirs one after the other, so that each wave's first
 * lane makes some of `count`: with all in one wave a launch began a
 * microsecond later. Of windows forward alone, as the driver's compiler makes
 * worse code of others behind such a loop: products of sliding gradients of
 * 128 channels wait for each other, and gradients of maps take a tenth more
 * (bench/decisions/window-gradients-use-wgmma.md). */
#define FOR_MBARRIERS(n, count, item)                                         \
    if ((item) % WAVE == 0)                                                   \
        NO_UNROLL_FOR (uint n = (item) / WAVE; n < (count);                   \
                       n += WORK_ITEMS / WAVE)

INLINE void arrive(uint at)
{
    __asm__ volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                     :
                     : "r"(at)
                     : "memory");
}

/* Once the work-item's copies so far are complete. */
INLINE void arrive_after_copies(uint at)
{
    __asm__ volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                     :
                     : "r"(at)
                     : "memory");
}

/* Once what the work-item has fetched is there: copies, if it is wide. */
INLINE void arrive_filled(uint at, int wide)
{
    if (wide)
        arrive_after_copies(at);
    else
        arrive(at);
}

/* A wave has read it all, as its first lane says. */
INLINE void leave(uint at, int lane)
{
    if (lane == 0)
        arrive(at);
}

INLINE void await_phase(uint at, uint parity)
{
    __asm__ volatile("{.reg .pred p;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                     "@!p bra again;}"
                     :
                     : "r"(at), "r"(parity)
                     : "memory");
}

/* All waves of a warpgroup, which has a barrier of its own; the work-group's
 * is number 0. */
INLINE void sync_warpgroup(uint warpgroup)
{
    __asm__ volatile("bar.sync %0, %1;"
                     :
                     : "r"(warpgroup + 1), "n"(WARPGROUP)
                     : "memory");
}

/* All consumer waves. */
INLINE void sync_computing(void)
{
    __asm__ volatile("bar.sync %0, %1;"
                     :
                     : "n"(WARPGROUPS + 1), "n"(WARPGROUPS * WARPGROUP)
                     : "memory");
}

/* 16 bytes, to a multiple of 16. */
INLINE void copy_chunk(uint to, __global const void *from)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :
                     : "r"(to), "l"((size_t)from)
                     : "memory");
}
INLINE void copy_word(uint to, __global const void *from)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                     :
                     : "r"(to), "l"((size_t)from)
                     : "memory");
}
INLINE void await_copies(void)
{
    __asm__ volatile("cp.async.wait_all;" : : : "memory");
}
INLINE void store_chunk(uint to, uint4 x)
{
    __asm__ volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                     : "memory");
}
INLINE uint4 load_chunk(uint from)
{
    uint4 x;
    __asm__ volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(from)
                     : "memory");
    return x;
}
INLINE void store_floats(uint to, float2 x)
{
    __asm__ volatile("st.shared.v2.f32 [%0], {%1, %2};"
                     :
                     : "r"(to), "f"(x.x), "f"(x.y)
                     : "memory");
}
INLINE float2 load_floats(uint from)
{
    float2 x;
    __asm__ volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(x.x), "=f"(x.y)
                     : "r"(from)
                     : "memory");
    return x;
}
/* A chunk of elements that copies do not reach, in halves of words. */
INLINE void fetch_elements(uint to, __global const void *from)
{
    __global const ushort *bits = (__global const ushort *)from;
    const uint4 x = {
        bits[0] | (uint)bits[1] << 16, bits[2] | (uint)bits[3] << 16,
        bits[4] | (uint)bits[5] << 16, bits[6] | (uint)bits[7] << 16};
    store_chunk(to, x);
}
INLINE void store_word(uint to, uint x)
{
    __asm__ volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(x) : "memory");
}
INLINE uint load_word(uint from)
{
    uint x;
    __asm__ volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(x)
                     : "r"(from)
                     : "memory");
    return x;
}
