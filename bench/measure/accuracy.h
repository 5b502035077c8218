/* SPDX-License-Identifier: Apache-2.0
 * How far the results of a workload's first set are from the oracle's. */
#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include "measure/workload.h"

/* The largest relative error of what the pass computes, on samples of the
 * first `all` window-heads; NaN where a result is none or could not be read.
 * Of o it is ||error|| / ||o|| over rows of a window-head; gradients are
 * compared with the larger of their norm and what kit/gradients.c grants those
 * that cancel. */
double accuracy_error(const workload *w, size_t all, int samples);

/* Window-heads of a case. */
size_t accuracy_all(const test_case *c);

/* The gradients' part of accuracy_error. (accuracy_backward.c) */
double accuracy_gradients(const workload *w, size_t all, int samples);

/* ---- Rows of one window-head of a workload, for the oracle ---- */

typedef struct sample {
    oracle_problem problem; /* `queries` counts the rows */
    double *numbers;
    unsigned char *regions;
    float logit_scale;
} sample;

/* Query rows first .. first + rows and all keys. False if memory does not
 * suffice; then there is nothing to close. */
bool sample_open(const workload *w, size_t window, size_t head, size_t first,
                 size_t rows, sample *s);
void sample_close(sample *s);

/* Rows of a window and a head of a tensor of tokens: of inputs as they were
 * drawn, of outputs as the first set has them. Rows of the padding are the
 * values that it has there: pad_k and pad_v, else 0. False if they could not
 * be read. */
bool sample_rows(const workload *w, tensor_id id, size_t window, size_t head,
                 size_t first, size_t rows, double *to);
/* `count` elements from one on of an output of fp32; false, as above. */
bool sample_sums(const workload *w, tensor_id id, size_t first, size_t count,
                 double *to);
/* False: a row of the padding. */
bool sample_exists(const workload *w, size_t window, size_t row);

#endif
