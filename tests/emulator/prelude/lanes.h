/* SPDX-License-Identifier: Apache-2.0
 * What the compilers of all vendors but NVIDIA know beside OpenCL C: by
 * instructions of PTX, among them some that only the interpreter knows
 * (ptx_units.c). */
#undef __NVPTX__
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define BUILTIN static inline __attribute__((always_inline))

/* The lanes of a wave meet, and see what each has written. */
BUILTIN void meet_lanes(void)
{
    __asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
}

/* ---- Numbers ---- */

/* The vendors' instructions know no subnormal numbers. */
BUILTIN float fast_exp2(float x)
{
    float y;
    __asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

BUILTIN float fast_reciprocal(float x)
{
    float y;
    __asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- Products ---- */

/* Sums that grow, and a lane's words of A and of B. */
#define SUMS_4(c) "+f"(c.s0), "+f"(c.s1), "+f"(c.s2), "+f"(c.s3)
#define SUMS_8(c) SUMS_4(c), "+f"(c.s4), "+f"(c.s5), "+f"(c.s6), "+f"(c.s7)
#define WORDS_2(x) "r"(x.s0), "r"(x.s1)
#define WORDS_4(x) WORDS_2(x), "r"(x.s2), "r"(x.s3)
#define WORDS_8(x) WORDS_4(x), "r"(x.s4), "r"(x.s5), "r"(x.s6), "r"(x.s7)

#define MULTIPLY_4_2_2                                                        \
    " {%0, %1, %2, %3}, {%4, %5}, {%6, %7};" : SUMS_4(sum)                    \
        : WORDS_2(left), WORDS_2(right)
#define MULTIPLY_8_4_4                                                        \
    " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, "                 \
    "{%12, %13, %14, %15};" : SUMS_8(sum)                                     \
        : WORDS_4(left), WORDS_4(right)
#define MULTIPLY_8_4_8                                                        \
    " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, "                 \
    "{%12, %13, %14, %15, %16, %17, %18, %19};" : SUMS_8(sum)                 \
        : WORDS_4(left), WORDS_8(right)
#define MULTIPLY_8_8_8                                                        \
    " {%0, %1, %2, %3, %4, %5, %6, %7}, "                                     \
    "{%8, %9, %10, %11, %12, %13, %14, %15}, "                                \
    "{%16, %17, %18, %19, %20, %21, %22, %23};" : SUMS_8(sum)                 \
        : WORDS_8(left), WORDS_8(right)

/* A function of A, of B, of the sums and of nothing else. */
#define PRODUCT(name, instruction, shape, a_type, a_words, b_type, b_words,   \
                sums)                                                         \
    BUILTIN sums __attribute__((overloadable))                                \
    name(a_type a, b_type b, sums sum)                                        \
    {                                                                         \
        const a_words left = as_##a_words(a);                                 \
        const b_words right = as_##b_words(b);                                \
        __asm("unit.product." instruction MULTIPLY_##shape);                  \
        return sum;                                                           \
    }
