/* SPDX-License-Identifier: Apache-2.0
 * Tensors of tests of models: numbers on the host, and on the device between
 * guards that nothing may write. They are there until tensors_free. Whatever
 * fails here fails the test. Includes cmocka. */
#ifndef MODELS_TENSORS_H
#define MODELS_TENSORS_H

#include "kit/runner.h"
#include "kit/storage.h"

typedef struct model_tensor {
    winattn_tensor at; /* of element 0 */
    storage_kind kind;
    size_t count, before; /* elements; those in front of element 0 */
    double *value; /* of an input, as the kind holds them; else what was read
                    */
} model_tensor;

/* Releases all that came from the functions below. */
void tensors_free(void);

/* ---- What is tested ---- */

/* As runner_main of a program whose words are a tier, and few (the default),
 * each or all. */
int models_main(const test_group *groups, size_t group_count, int count,
                char **arguments);
winattn_tier tier_under_test(void);
/* Does the tier compute it? */
bool is_computed(winattn_dtype dtype);
/* Does the part have row `row` of a table in this type? `each` has every row
 * in one type, `few` those that are marked. */
bool is_chosen(size_t row, bool is_marked, winattn_dtype dtype);
/* As device_build_options says of the tier. */
const char *build_options(void);

/* ---- Tensors ---- */

/* The kind of winattn_dtype. */
storage_kind kind_of(winattn_dtype dtype);

/* Zeros; then those that a seed draws: from -1 to 1, times `scale`. */
double *numbers(size_t count);
double *draw_numbers(uint64_t seed, size_t count, double scale);

/* An input with these values, rounded to the kind; they are copied. `before`:
 * elements in front of it, which are NaN, as those behind it. */
model_tensor tensor_of(storage_kind kind, const double *value, size_t count,
                       size_t before);
/* The same, drawn. */
model_tensor tensor_drawn(storage_kind kind, uint64_t seed, size_t count,
                          double scale, size_t before);
/* An output, whose elements and guards are NaN. */
model_tensor tensor_empty(storage_kind kind, size_t count, size_t before);

/* From now on tensors are in such memory, which buffers use in place, and
 * offsets are multiples of 16 bytes. */
void put_tensors_in_odd_memory(bool so);

/* Reads `value` from the device, and checks that no guard was written. */
void tensor_read(model_tensor *t);

/* A buffer of NaNs, so that what is read before it is written shows. */
cl_mem workspace_of_nans(size_t bytes);

/* The 2-norm of the error, relative to that of `want`; INFINITY if a number is
 * not finite. */
double relative_error(const double *got, const double *want, size_t count);
/* It is at most `most`; else the test fails and says `what`. */
void assert_error(const char *what, const double *got, const double *want,
                  size_t count, double most);

#endif
