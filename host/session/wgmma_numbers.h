/* SPDX-License-Identifier: Apache-2.0
 * Numbers of the self-test of kernels with wgmma: what they are given, and in
 * fp64 what must come out. No OpenCL calls. */
#ifndef WINATTN_WGMMA_NUMBERS_H
#define WINATTN_WGMMA_NUMBERS_H

#include "problem/problem.h"

/* More than a work tile has rows, and no whole number of tiles; blocks, window
 * and sink such that tiles are seen entirely, partly and not at all. The heads
 * share keys and values. */
#define WA_TEST_HEADS 2u
#define WA_TEST_TOKENS 330u
#define WA_TEST_BLOCK 90u
#define WA_TEST_FIRST_BLOCK 70u
#define WA_TEST_WINDOW_BLOCKS 2u
#define WA_TEST_SINK 9u
#define WA_TEST_SCALE 0.5f

/* Of [head][token][channel]. */
typedef struct wa_test_tensor {
    uint32_t heads, channels;
    uint32_t element_size;         /* 2, or of lse that of a float */
    void *stored;                  /* as the device has it */
    double *exact;                 /* what that stands for, or should */
    double *sizes;                 /* of a gradient: sums of |terms| */
    double allowed[WA_TEST_HEADS]; /* difference of an output */
} wa_test_tensor;

typedef struct wa_test_numbers {
    winattn_dtype dtype;
    uint32_t dim, random;
    wa_test_tensor tensor[WA_TENSORS]; /* heads 0: the pass has no such one */
} wa_test_numbers;

/* Inputs of a pass, and room for outputs, which are no numbers yet; to be
 * freed, also after a failure. */
winattn_status wa_test_numbers_make(winattn_dtype dtype, uint32_t dim,
                                    wa_pass pass, wa_test_numbers *x);
void wa_test_numbers_free(wa_test_numbers *x);

size_t wa_test_bytes(const wa_test_tensor *tensor);

/* Computes the outputs, and fails with the first one that differs. */
winattn_status wa_test_numbers_compare(wa_pass pass, wa_test_numbers *x);

#endif
