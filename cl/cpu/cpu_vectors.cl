/* SPDX-License-Identifier: Apache-2.0
 * Vectors of the attention kernels for CPUs: exponentials, and how channels of
 * a token, and neighbouring elements, are loaded into them. */
#include "common/problem.cl"
#include "cpu/vectors.cl"

#define CHANNEL_VECS ((HEAD_DIM + LANES - 1) / LANES)
#define CHANNEL_TAIL (HEAD_DIM % LANES)

/* 2^x for x <= 0 or NaN; 0 where the result is no normal number. The integer
 * next to x becomes the exponent of a factor; for the rest, in [-1/2, 1/2], a
 * polynomial with minimal relative error (fitted for this file, 1.3 ulp). */
INLINE vec exp2_nonpositive(vec x)
{
    /* 1.5 * 2^23 rounds to an integer, 127 is the bias of an exponent */
    const vec shift = (vec)(12582912.0f + 127.0f);
    const vec shifted = x + shift;
    const vec rest = x - (shifted - shift);
    vec p = FMA((vec)(1.53533620e-04f), rest, (vec)(1.33988750e-03f));
    p = FMA(p, rest, (vec)(9.61843692e-03f));
    p = FMA(p, rest, (vec)(5.55033237e-02f));
    p = FMA(p, rest, (vec)(2.40226477e-01f));
    p = FMA(p, rest, (vec)(6.93147182e-01f));
    p = FMA(p, rest, (vec)(1.0f));
    const vec factor =
        JOIN(as_float, LANES)(JOIN(as_int, LANES)(shifted) << 23);
    return select(p * factor, (vec)(0.0f), isless(x, (vec)(-126.0f)));
}

#define EXP2(x) exp2_nonpositive(x) /* of weights (weights.h) */

/* LANES elements `stride` apart, of which the first `count` exist; zeros
 * stand for the others. Callers pass a constant count. */
#define DEFINE_LANE_LOAD(suffix, type)                                        \
    INLINE vec JOIN(load_lanes, suffix)(__global const type *p, uint stride,  \
                                        int count)                            \
    {                                                                         \
        if (stride == 1 && count == LANES)                                    \
            return JOIN(JOIN(load, LANES), suffix)(p);                        \
        float x[LANES];                                                       \
        UNROLL_FOR (int i = 0; i < LANES; i++)                                \
            x[i] =                                                            \
                i < count ? JOIN(load, suffix)(p, (ulong)i * stride) : 0.0f;  \
        return vec_at(x, 0);                                                  \
    }
DEFINE_LANE_LOAD(_f32, float)
#if DTYPE == 1
DEFINE_LANE_LOAD(_fp16, half)
#elif DTYPE == 2
DEFINE_LANE_LOAD(_bf16, ushort)
#endif

/* Vector `cv` of the channels of one row. */
INLINE vec load_channels(__global const storage *row, uint stride, int cv)
{
    row += (ulong)(cv * LANES) * stride;
    if (CHANNEL_TAIL == 0 || cv < HEAD_DIM / LANES)
        return JOIN(load_lanes, SUFFIX)(row, stride, LANES);
    return JOIN(load_lanes, SUFFIX)(row, stride, CHANNEL_TAIL);
}

INLINE void store_channels(vec x, __global storage *row, uint stride, int cv)
{
    const int count = min(LANES, HEAD_DIM - cv * LANES);
    row += (ulong)(cv * LANES) * stride;
    if (stride == 1 && count == LANES) {
        STORE_VECTOR(LANES)(x, row);
    } else {
        float y[LANES];
        set_vec(y, 0, x);
        for (int i = 0; i < count; i++)
            STORE(y[i], row, (ulong)i * stride);
    }
}

/* Vector `cv` of the channels of a token, whose row may be 0: zeros. */
INLINE vec load_token(__global const storage *row, uint stride, int cv)
{
    return PADDING && row == 0 ? (vec)(0.0f) : load_channels(row, stride, cv);
}

/* Asks for a head's channels of a token that are read, or written, later. */
INLINE void prefetch_channels(__global const storage *tensor,
                              const tensor_layout *layout, ulong grid,
                              uint head, const token *at)
{
    for (uint c = 0; c < HEAD_DIM; c += 64 / sizeof(storage)) {
        __global const storage *line = tensor + plane(layout, grid, head) +
                                       token_offset(layout, at) +
                                       (ulong)c * layout->column;
#if defined(__x86_64__) || defined(__aarch64__)
        /* compiled for the processor itself; PoCL's prefetch is empty */
        __builtin_prefetch((const void *)(size_t)line);
#else
        prefetch((__global const uchar *)line, (size_t)64);
#endif
    }
}
