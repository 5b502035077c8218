/* SPDX-License-Identifier: Apache-2.0
 * Attention as one does it without a fused kernel, for comparison: CLBlast's
 * product S = scale Q K^T, a softmax with bias and mask, CLBlast's product
 * P V. All in fp32. S of all windows may not fit, so windows are taken in
 * chunks; the sliding variant computes all of S and hides what is not seen. */
#ifndef BENCH_UNFUSED_H
#define BENCH_UNFUSED_H

#include "workload.h"

typedef struct unfused_result {
    double seconds; /* of one call; 0: not measured */
    double part;    /* of the windows that was timed; seconds are of all */
    double error;   /* as workload_error */
    char note[160]; /* why it was not measured */
} unfused_result;

/* Was this program built with CLBlast? */
bool unfused_possible(void);

/* Times the case in fp32, on numbers that the case's own dtype can hold, for
 * about `budget` seconds; CLBlast's builds on a device's first call take up to
 * ten seconds more. */
void unfused_measure(const bench_device *device, const test_case *c,
                     double budget, unfused_result *result);

/* Frees what CLBlast keeps for a context; to be called before it goes. */
void unfused_forget(void);

#endif
