/* SPDX-License-Identifier: Apache-2.0
 * Device buffers for a case, filled with random numbers and repeated so often
 * that calls that rotate over them find nothing in a cache. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "kit/data.h"
#include "measure.h"

#define MOST_SETS 64

typedef struct workload {
    const bench_device *device;
    test_case c; /* contiguous */
    winattn_desc desc;
    int sets;
    cl_mem q[MOST_SETS], k[MOST_SETS], v[MOST_SETS], o[MOST_SETS];
    cl_mem bias, mask, query_regions, key_regions, logit_scale;
} workload;

/* For about so many calls: fewer need fewer buffers. False if memory does not
 * suffice. */
bool workload_create(const bench_device *device, const test_case *c, int calls,
                     workload *w);
/* The same numbers, converted to fp32. */
bool workload_create_widened(const bench_device *device, const test_case *c,
                             int calls, workload *w);
void workload_release(workload *w);
winattn_forward workload_forward(const workload *w, unsigned round);

/* Bytes that a forward pass must move: q, k, v, o once each. */
double workload_bytes(const test_case *c);
/* Operations of Q K^T and P V on what is visible; an FMA counts 2. */
double workload_operations(const test_case *c);

/* Largest relative error of o in the first set over sampled window-heads
 * (one block of rows each), NaN if results could not be read. */
double workload_error(const workload *w, int samples);
/* The same over the first `all` window-heads. */
double workload_error_within(const workload *w, size_t all, int samples);

#endif
