/* SPDX-License-Identifier: Apache-2.0
 * How far results may be from the oracle's. */
#ifndef KIT_VERDICT_H
#define KIT_VERDICT_H

#include "data.h"
#include "run.h"

/* ||got - want|| over tolerance * max(||want||, ||size|| * size_share). Where
 * `want` is no finite number, `got` must be the same. */
typedef struct distance {
    double error2, want2, size2;
    const char *mismatch;
} distance;

void measure(distance *d, double got, double want, double size);
double share(const distance *d, double tolerance, double size_share);

/* The same for numbers as `kind` stores them, `count` of them together: of
 * gradients those that the kind may not hold are passed over, with an error of
 * `tolerance` times their size if they are infinite; and what underflow may
 * cost each is no error. */
void measure_gradient(distance *d, storage_kind kind, double got, double want,
                      double size, double tolerance);
double share_stored(distance *d, double underflow, size_t count,
                    double tolerance, double size_share);
/* Results that cancel to nothing are not judged by their own size alone. */
#define ORDINARY_SIZE_SHARE 0.1
/* Keeps the largest errors of an output; part: of what is allowed. */
void note_error(case_result *result, tensor_id id, const distance *d,
                double part, double tolerance);
/* What rounding may lose of the kind's smallest numbers. */
double stored_underflow(storage_kind kind);
/* Is a gradient judged row by row, and not a plane at once? So dq and dk of
 * the cosine variant, whose rows have lengths of their own. */
bool gradient_goes_by_row(int variant, tensor_id id);

/* The gradients of a backward case, against the oracle. */
bool check_gradients(const case_buffers *d,
                     unsigned char *const bytes[TENSORS], case_result *result);

#endif
