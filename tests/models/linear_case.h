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
    DATA_OFFSET,        /* rows of x have a mean far from 0 */
    DATA_MEAN,          /* ... and what the mean lacks adds up in y */
    DATA_POSITIVE,      /* nothing cancels */
    DATA_TAILS          /* sums from -12 to 12 */
} linear_data;

typedef struct linear_case {
    unsigned rows, in, out;
    bool layer_norm, has_bias, gelu, has_residual;
    bool in_place;      /* y lies where residual does */
    unsigned spread;    /* elements between rows, and in front of tensors */
    bool in_odd_memory; /* that the buffers use, from any element on */
    linear_data data;
    float eps;
    winattn_dtype dtype;
    bool allow_tf32;
    winattn_tier tier;
    unsigned seed;
} linear_case;

/* Runs the case, with a shape unless that is NULL, and fails the test where
 * the result is wrong or a byte was written that is not the result's. */
void run_linear(const linear_case *c, const wa_linear_shape *shape);

#endif
