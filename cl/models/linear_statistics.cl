/* SPDX-License-Identifier: Apache-2.0
 * Mean and 1 / sqrt(variance + eps) of each row of x, for linear layers that
 * normalise rows as they read them. ROW_ITEMS work-items share a row, and a
 * work-group has ROW_GROUP rows. */
#include "common/storage.cl"
#include "models/linear_args.h"

REQUIRE(ROW_ITEMS)
REQUIRE(ROW_GROUP)
REQUIRE(LANES)

DEFINE_VECTOR_ACCESS(LANES)
typedef JOIN(float, LANES) vec;
#define ADD(a, b) ((a) + (b))
#if LANES == 16
#define FOLD4(x) (((x).lo.lo + (x).lo.hi) + ((x).hi.lo + (x).hi.hi))
#elif LANES == 8
#define FOLD4(x) ((x).lo + (x).hi)
#else
#define FOLD4(x) (x)
#endif

INLINE float sum_of(vec x)
{
    const float4 y = FOLD4(x);
    return (y.x + y.y) + (y.z + y.w);
}

/* The sum of what the work-items of a row have, which all of them get. All of
 * a work-group call it. */
INLINE float sum_of_row(float own, __local float *all, int item)
{
#if ROW_ITEMS > 1
    const int first = item / ROW_ITEMS * ROW_ITEMS;
    float sum = 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    all[item] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < ROW_ITEMS; i++)
        sum += all[first + i];
    return sum;
#else
    return own;
#endif
}

__kernel
    __attribute__((reqd_work_group_size(ROW_ITEMS * ROW_GROUP, 1, 1))) void
    linear_statistics(const linear_args args, __global const storage *x,
                      __global float *statistics)
{
#if ROW_ITEMS > 1
    __local float all[ROW_ITEMS * ROW_GROUP];
#else
    __local float *all = 0;
#endif
    const int item = (int)get_local_id(0);
    const uint lane = (uint)item % ROW_ITEMS;
    const ulong row =
        args.first_row + (ulong)get_group_id(0) * ROW_GROUP + item / ROW_ITEMS;
    /* all of a work-group must come to the barriers */
    const int exists = row < args.rows;
    const uint in = exists ? args.in : 0;
    const uint whole = in / LANES * LANES;
    x += args.x + (exists ? row : 0) * args.x_stride;

    vec sums = (vec)(0.0f);
    float sum = 0.0f;
    for (uint i = lane * LANES; i < whole; i += ROW_ITEMS * LANES)
        sums += LOAD_VECTOR(LANES)(x + i);
    for (uint i = whole + lane; i < in; i += ROW_ITEMS)
        sum += LOAD(x, i);
    const float all_in = (float)args.in;
    const float mean = sum_of_row(sum_of(sums) + sum, all, item) / all_in;

    /* the mean's own rounding shows in the sum of what differs from it */
    vec squares = (vec)(0.0f);
    float square = 0.0f;
    sums = (vec)(0.0f);
    sum = 0.0f;
    for (uint i = lane * LANES; i < whole; i += ROW_ITEMS * LANES) {
        const vec d = LOAD_VECTOR(LANES)(x + i) - mean;
        sums += d;
        squares = FMA(d, d, squares);
    }
    for (uint i = whole + lane; i < in; i += ROW_ITEMS) {
        const float d = LOAD(x, i) - mean;
        sum += d;
        square = FMA(d, d, square);
    }
    const float shift = sum_of_row(sum_of(sums) + sum, all, item) / all_in;
    const float variance =
        sum_of_row(sum_of(squares) + square, all, item) / all_in -
        shift * shift;
    if (exists && lane == 0) {
        statistics += args.statistics + row * LINEAR_STATISTICS;
        statistics[0] = mean + shift;
        statistics[1] = 1.0f / sqrt(fmax(variance, 0.0f) + args.eps);
    }
}
