/* SPDX-License-Identifier: Apache-2.0
 * Numbers of the self-test of windows with wgmma: what the kernels of a pass
 * are given, and in fp64 what must come out. No OpenCL calls. */
#ifndef WINATTN_WINDOW_NUMBERS_H
#define WINATTN_WINDOW_NUMBERS_H

#include "problem/problem.h"

/* So many that stages of the ring come again, and teams have windows of their
 * own or none. Heads share keys and values, unless gradients are wanted: then
 * stages are whole windows. */
#define WA_WINDOW_TEST_WINDOWS 3u
#define WA_GRADIENT_TEST_WINDOWS 4u
#define WA_WINDOW_TEST_HEADS 2u

/* The test of a problem's kernels: windows of as many tokens, contiguous or on
 * a contiguous grid, with a bias of the same kind. */
wa_problem wa_window_test_problem(const wa_problem *problem, wa_pass pass);

typedef struct wa_window_numbers {
    const wa_problem *problem; /* the test's */
    wa_pass pass;
    uint32_t random;
    void *stored[WA_TENSORS]; /* NULL: the kernel has no such tensor */
    size_t bytes[WA_TENSORS];
} wa_window_numbers;

/* Inputs, and room for outputs, which are no numbers yet; to be freed, also
 * after a failure. The problem must live as long. twin: NULL, or the same that
 * were made before, whose lse then need not be found again; gradients are not
 * given o then. */
winattn_status wa_window_numbers_make(const wa_problem *test, wa_pass pass,
                                      const wa_window_numbers *twin,
                                      wa_window_numbers *x);
void wa_window_numbers_free(wa_window_numbers *x);

/* Holds what came out of two launches, with tensors that are aligned and with
 * their twins, which are not, against fp64, and fails with the first number
 * that differs: all gradients of both; of the forward pass some rows of o and
 * lse of each head and window, and the second launch's against the first's,
 * bit by bit. */
winattn_status wa_window_numbers_compare(const wa_window_numbers *aligned,
                                         const wa_window_numbers *shifted);

/* ---- Of both passes (window_numbers.c; gradients are in
 * window_gradients.c) ---- */

winattn_status wa_compare_window_gradients(const wa_window_numbers *x,
                                           const wa_window_numbers *twin);
/* What gradients are given of the forward pass; the other inputs are there. o
 * is rounded, in every other window so much that it shows. */
winattn_status wa_find_window_outputs(const wa_window_numbers *x, float *lse,
                                      uint16_t *o);

/* A number of a tensor that has the test's type. */
double wa_window_value(const wa_window_numbers *x, wa_tensor_id id, size_t i);
/* What is added to a logit. */
double wa_window_score_bias(const wa_window_numbers *x, size_t window,
                            uint32_t head, uint32_t row, uint32_t key);
/* By which products of a head's rows are multiplied. */
double wa_window_scale(const wa_window_numbers *x, uint32_t head);

/* A row of logits becomes weights, which sum to 1 unless it sees nothing; and
 * its lse is returned. */
double wa_weigh_window_row(double *row, uint32_t keys);

winattn_status wa_fail_window_number(const char *what, size_t window,
                                     uint32_t head, uint32_t row, double is,
                                     double exact);

#endif
