/* SPDX-License-Identifier: Apache-2.0
 * Vectors of LANES numbers, which kernels for CPUs compute with: 4, 8 or 16.
 */
#include "common/storage.cl"

REQUIRE(LANES)

/* How vectors longer than a CPU's would be handed to functions, of which none
 * is called. Compilers that do not know this warning warn of it, as NVIDIA's
 * does. */
#ifdef __has_warning
#if __has_warning("-Wpsabi")
#pragma clang diagnostic ignored "-Wpsabi"
#endif
#endif

DEFINE_VECTOR_ACCESS(LANES)
typedef JOIN(float, LANES) vec;
typedef JOIN(int, LANES) ivec;

#if LANES == 16
#define LANE_NUMBERS                                                          \
    ((ivec)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define ZIP(a, b)                                                             \
    ((vec)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3,    \
           (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7))
#define FOLD4(f, x) f(f((x).lo.lo, (x).lo.hi), f((x).hi.lo, (x).hi.hi))
#elif LANES == 8
#define LANE_NUMBERS ((ivec)(0, 1, 2, 3, 4, 5, 6, 7))
#define ZIP(a, b)                                                             \
    ((vec)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3))
#define FOLD4(f, x) f((x).lo, (x).hi)
#else
#define LANE_NUMBERS ((ivec)(0, 1, 2, 3))
#define ZIP(a, b) ((vec)((a).s0, (b).s0, (a).s1, (b).s1))
#define FOLD4(f, x) (x)
#endif
#define ADD(a, b) ((a) + (b))

/* Vector i of an array. */
INLINE vec vec_at(const float *from, int i)
{
    return JOIN(vload, LANES)(i, from);
}
INLINE void set_vec(float *to, int i, vec x) { JOIN(vstore, LANES)(x, i, to); }

INLINE float lanes_max(vec x)
{
    const float4 y = FOLD4(fmax, x);
    return fmax(fmax(y.x, y.y), fmax(y.z, y.w));
}

INLINE float lanes_sum(vec x)
{
    const float4 y = FOLD4(ADD, x);
    return (y.x + y.y) + (y.z + y.w);
}

/* Rows <-> columns of a LANES x LANES block, by perfect shuffles. */
INLINE void transpose(vec *t)
{
    UNROLL_FOR (int width = 1; width < LANES; width *= 2) {
        vec s[LANES];
        UNROLL_FOR (int i = 0; i < LANES / 2; i++) {
            const vec a = t[i], b = t[i + LANES / 2];
            s[2 * i] = ZIP(a.lo, b.lo);
            s[2 * i + 1] = ZIP(a.hi, b.hi);
        }
        UNROLL_FOR (int i = 0; i < LANES; i++)
            t[i] = s[i];
    }
}
