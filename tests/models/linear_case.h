/* SPDX-License-Identifier: Apache-2.0
 * A linear layer with random tensors, its call on the device under test, and
 * the fp64 computation that the result is compared with. */
#ifndef TESTS_LINEAR_CASE_H
#define TESTS_LINEAR_CASE_H

#include "kit/runner.h"
#include "models/linear.h"

/* What the numbers of a case are like. */
typedef enum linear_data {
    DATA_ORDINARY,
    DATA_CONSTANT_ROWS, /* each row of x has one number, some large */
    DATA_OUTLIERS,      /* ... but the first, which is far larger */
    DATA_OFFSET,        /* rows of x have a mean far from 0 */
    DATA_MEAN,          /* ... and what the mean lacks adds up in y */
    DATA_POSITIVE,      /* nothing cancels */
    DATA_TAILS          /* sums from -12 to 12 */
} linear_data;

/* What a layer has besides a product, as bits. */
enum {
    NORM = 1,
    BIAS = 2,
    GELU = 4,
    RESIDUAL = 8,
    IN_PLACE = 24,      /* y lies where the residual does */
    IN_ODD_MEMORY = 32, /* that the buffers use, from any element on */
    /* norms beside the layer (linear_plan.h): of x, with statistics;
     * statistics of y; of sums, before the residual */
    NORM_ON_THE_WAY = 64,
    STATISTICS = 128,
    NORM_OF_SUMS = 256,
    NORM_FOUND = 512 | 64, /* NORM_ON_THE_WAY, by statistics of its own */
    ODD_NORM = 1024,       /* the norm's weights start anywhere */
    MAP = 2048 /* x is a map, whose neighbours are rows, a third of them in
                * each line */
};

typedef struct linear_case {
    unsigned rows, in, out, has;
    unsigned spread; /* elements between rows, and in front of tensors */
    linear_data data;
    float eps;
    unsigned hidden; /* numbers of a hidden layer, or 0; then x is added */
    winattn_dtype dtype;
    bool allow_tf32;
    winattn_tier tier;
    unsigned seed;
} linear_case;

static inline bool linear_has(const linear_case *c, unsigned what)
{
    return (c->has & what) == what;
}

/* The layer's problem, as plans have it. */
wa_linear_problem linear_problem_of(const linear_case *c);

/* Runs the case, with a shape unless that is NULL, and fails the test where
 * the result is wrong or a byte was written that is not the result's. */
void run_linear(const linear_case *c, const wa_linear_shape *shape);

#endif
