/* SPDX-License-Identifier: Apache-2.0
 * Attention as one does it without a fused kernel, for comparison, all in
 * fp32:
 *
 *   forward    CLBlast's product S = scale Q K^T, a softmax with bias and mask
 *              in its place, CLBlast's product P V
 *   backward   CLBlast's products dV = P^T dO and dP = dO V^T, dS in the place
 *              of dP, its sum over windows for dBias, CLBlast's products dQ =
 *              scale dS K and dK = scale dS^T Q; the cosine variant scales dS
 *              and projects dQ and dK
 *
 * The sliding variant computes all of S and hides what is not seen. Only as
 * many windows are timed as S has room for and the time allows. The backward
 * pass finds P in memory. */
#ifndef BENCH_UNFUSED_H
#define BENCH_UNFUSED_H

#include "measure/workload.h"

typedef struct unfused_result {
    double seconds; /* of one call; 0: not measured */
    double part;    /* of the windows that was timed; seconds are of all */
    double error;   /* as accuracy_error */
    char note[160]; /* why it was not measured */
} unfused_result;

/* Was this program built with CLBlast? */
bool unfused_possible(void);

/* Times the case in fp32, on numbers that the case's own dtype can hold, for
 * about `budget` seconds; CLBlast's builds on a device's first call take up to
 * ten seconds more. */
void unfused_measure(const bench_device *device, const test_case *c,
                     bench_pass pass, double budget, unfused_result *result);

/* Device memory besides the tensors that go in and come out, of all windows.
 */
double unfused_bytes(const test_case *c, bench_pass pass);

/* Frees what CLBlast keeps for a context; to be called before it goes. */
void unfused_forget(void);

#endif
