/* SPDX-License-Identifier: Apache-2.0
 * Rows of one window-head, read back from a workload for the oracle. */
#ifndef BENCH_SAMPLE_H
#define BENCH_SAMPLE_H

#include "measure/workload.h"

/* Tokens of a grid that were read once stay here: a window's tokens lie
 * scattered, and the next window's are not far. Results of later calls need
 * another sampler. */
typedef struct sample_chunk {
    cl_mem mem;
    size_t first, count; /* tokens, of all grids */
    unsigned char *bytes;
} sample_chunk;

#define SAMPLE_CHUNKS 8 /* one for each buffer of tokens */
typedef struct sampler {
    const workload *w;
    sample_chunk chunk[SAMPLE_CHUNKS];
} sampler;

sampler sampler_open(const workload *w);
void sampler_close(sampler *from);

typedef struct sample {
    oracle_problem problem; /* `queries` counts the rows */
    double *numbers;
    unsigned char *regions;
    float logit_scale;
} sample;

/* Query rows first .. first + rows and all keys. False if they could not be
 * read; then there is nothing to close. */
bool sample_open(sampler *from, size_t window, size_t head, size_t first,
                 size_t rows, sample *s);
void sample_close(sample *s);

/* `count` elements of a buffer as doubles; false if they could not be read. */
bool sample_read(const workload *w, cl_mem mem, storage_kind kind,
                 size_t first, size_t count, double *to);

/* Rows of a window and a head of the tensor, which is a tensor of tokens; with
 * a grid they are gathered. Rows of the padding are the values that it has
 * there: pad_k and pad_v, else 0. */
bool sample_rows(sampler *from, tensor_id id, cl_mem mem, size_t window,
                 size_t head, size_t first, size_t rows, double *to);
/* False: a row of the padding. */
bool sample_exists(const workload *w, size_t window, size_t row);

#endif
