/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: mma.sync of NVIDIA, compute capability 8.0 and later (PTX ISA,
 * "Matrix Fragments for mma.m16n8k16"). What a unit's file defines is listed
 * in fragment.cl. */
#define UNIT_NAME mma
#define WAVE 32
#define MMA_M 16
#define MMA_N 8
#define MMA_K 16
#define A_ELEMENTS 8
#define B_ELEMENTS 4
#define C_ELEMENTS 4
#define QUERIES_DOWN 1
#define UNIT_TILE 16
#define UNROLL_PASSES 1

INLINE int a_m(int l, int i) { return (l >> 2) + 8 * ((i >> 1) & 1); }
INLINE int a_k(int l, int i) { return 2 * (l & 3) + (i & 1) + 8 * (i >> 2); }
INLINE int b_k(int l, int i) { return 2 * (l & 3) + (i & 1) + 8 * (i >> 1); }
INLINE int b_n(int l, int i) { return l >> 2; }
INLINE int c_m(int l, int i) { return (l >> 2) + 8 * (i >> 1); }
INLINE int c_n(int l, int i) { return 2 * (l & 3) + (i & 1); }

#define LANE_ROWS 2
#define LANE_ROW(i) (((i) >> 1) & 1)
#define REDUCE(x, op)                                                         \
    x = op(x, LANE_XOR(x, 1));                                                \
    x = op(x, LANE_XOR(x, 2))

#if !EMULATED
#if DTYPE == 1
#define UNIT_TYPE "f16"
#else
#define UNIT_TYPE "bf16"
#endif

INLINE void mma(const uint *a, const uint *b, float *c)
{
    /* not volatile: the compiler may mix it with other work */
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32." UNIT_TYPE "." UNIT_TYPE
            ".f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
              "r"(b[1]));
}

INLINE float lane_xor(float x, int mask)
{
    float y;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                     : "=f"(y)
                     : "f"(x), "r"(mask));
    return y;
}
#define LANE_XOR(x, mask) lane_xor(x, mask)

INLINE uint pack(float low, float high)
{
    uint both;
    __asm__("cvt.rn." UNIT_TYPE "x2.f32 %0, %1, %2;"
            : "=r"(both)
            : "f"(high), "f"(low));
    return both;
}
#define PACK(low, high) pack(low, high)

INLINE float exp2_unit(float x)
{
    float y;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define EXP2(x) exp2_unit(x)

INLINE float reciprocal(float x)
{
    float y;
    __asm__("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define RECIPROCAL(x) reciprocal(x)

#define FORGET(x) __asm__ volatile("" : "+r"(x))

INLINE uint shared_address(__local const void *p) { return (uint)(size_t)p; }

/* Four 8 x 8 matrices, one row's address from each lane. */
#define LOAD_MATRICES(to, from, how)                                          \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" how                      \
                     ".shared.b16 {%0, %1, %2, %3}, [%4];"                    \
                     : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]),           \
                       "=r"((to)[3])                                          \
                     : "r"(shared_address(from)))

#define NATIVE_QUERIES 1
#define NATIVE_KEYS 1
#define NATIVE_VALUES 1
#define NATIVE_WEIGHTS 1
INLINE void load_native_query(uint *to, __local const ushort *tile, int pitch,
                              int row, int last, int lane)
{
    LOAD_MATRICES(
        to, tile + min(row + (lane & 15), last) * pitch + 8 * (lane >> 4), "");
}
INLINE void load_native_key(uint *to, __local const ushort *tile, int pitch,
                            int row, int last, int lane)
{
    LOAD_MATRICES(to,
                  tile +
                      min(row + (lane & 7) + 8 * (lane >> 4), last) * pitch +
                      (lane & 8),
                  "");
}
INLINE void load_native_value(uint *to, __local const ushort *tile, int pitch,
                              int row, int last, int lane)
{
    LOAD_MATRICES(
        to, tile + min(row + (lane & 15), last) * pitch + 8 * (lane >> 4),
        ".trans");
}
INLINE void load_native_weights(uint *to, __local const ushort *weights,
                                int pitch, int query, int key, int lane)
{
    LOAD_MATRICES(to,
                  weights + (query + (lane & 7) + 8 * (lane >> 4)) * pitch +
                      key + (lane & 8),
                  ".trans");
}

#define ASYNC_COPIES 1
/* 16 bytes, or as many zeros. */
INLINE void copy_16(__local ushort *to, __global const void *from, int exists)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(shared_address(to)), "l"((size_t)from),
                       "r"(exists ? 16 : 0)
                     : "memory");
}
INLINE void copy_4(__local float *to, __global const float *from)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                     :
                     : "r"(shared_address(to)), "l"((size_t)from)
                     : "memory");
}
#define END_COPIES() __asm__ volatile("cp.async.commit_group;" : : : "memory")
#define AWAIT_COPIES(newer)                                                   \
    __asm__ volatile("cp.async.wait_group %0;" : : "n"(newer) : "memory")

#define WAVE_SYNC()                                                           \
    __asm__ volatile("bar.warp.sync 0xffffffff;" : : : "memory")
#define TEAM_SYNC(team)                                                       \
    __asm__ volatile("bar.sync %0, %1;"                                       \
                     :                                                        \
                     : "r"((team) + 1), "n"(WAVE * TEAM_WAVES)                \
                     : "memory")
#endif
