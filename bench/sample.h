/* SPDX-License-Identifier: Apache-2.0
 * Rows of one window-head, read back from a workload for the oracle. */
#ifndef BENCH_SAMPLE_H
#define BENCH_SAMPLE_H

#include "workload.h"

typedef struct sample {
    oracle_problem problem; /* `queries` counts the rows */
    double *numbers;
    unsigned char *regions;
    float logit_scale;
} sample;

/* Query rows first .. first + rows and all keys. False if they could not be
 * read; then there is nothing to close. */
bool sample_open(const workload *w, size_t window, size_t head, size_t first,
                 size_t rows, sample *s);
void sample_close(sample *s);

/* `count` elements of a buffer as doubles; false if they could not be read. */
bool sample_read(const workload *w, cl_mem mem, storage_kind kind,
                 size_t first, size_t count, double *to);

/* The place of row `row` of a window-head in q and its like. */
size_t sample_query_row(const test_case *c, size_t window, size_t head,
                        size_t row);
/* The same for a row of k, of a key head. */
size_t sample_key_row(const test_case *c, size_t window, size_t kv_head,
                      size_t row);

#endif
