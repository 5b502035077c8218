/* SPDX-License-Identifier: Apache-2.0
 * Numbers of the self-test of windows with wgmma: what the kernel is given,
 * and in fp64 what must come out. No OpenCL calls. */
#ifndef WINATTN_WINDOW_NUMBERS_H
#define WINATTN_WINDOW_NUMBERS_H

#include "problem/problem.h"

/* So many that stages of the ring come again, and teams have windows of their
 * own or none; heads share keys and values. */
#define WA_WINDOW_TEST_WINDOWS 3u
#define WA_WINDOW_TEST_HEADS 2u

/* The test of a problem's kernel: windows of as many tokens, contiguous, with
 * the same bias. */
wa_problem wa_window_test_problem(const wa_problem *problem);

typedef struct wa_window_numbers {
    const wa_problem *problem; /* the test's */
    uint32_t random;
    void *stored[WA_TENSORS]; /* NULL: the kernel has no such tensor */
    size_t bytes[WA_TENSORS];
} wa_window_numbers;

/* Inputs, and room for outputs, which are no numbers yet; to be freed, also
 * after a failure. The problem must live as long. */
winattn_status wa_window_numbers_make(const wa_problem *test,
                                      wa_window_numbers *x);
void wa_window_numbers_free(wa_window_numbers *x);

/* Holds some rows of each head and window against fp64, and fails with the
 * first number that differs. */
winattn_status wa_window_numbers_compare(const wa_window_numbers *x);

#endif
