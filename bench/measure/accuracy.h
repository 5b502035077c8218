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

#endif
