/* SPDX-License-Identifier: Apache-2.0
 * The kernels and products of an unfused call, for unfused.c. */
#ifndef BENCH_UNFUSED_STEPS_H
#define BENCH_UNFUSED_STEPS_H

#include "compare/unfused.h"

/* The kernels of unfused.cl and unfused_backward.cl. */
typedef enum unfused_kernel {
    UNFUSED_NORMS,
    UNFUSED_SOFTMAX,
    UNFUSED_SOFTMAX_BACKWARD,
    UNFUSED_SCALE_ROWS,
    UNFUSED_PROJECT,
    UNFUSED_SUM_QUERIES,
    UNFUSED_SUM_WINDOWS,
    UNFUSED_SUM_PARTS,
    UNFUSED_KERNELS
} unfused_kernel;

/* Bytes of the buffers of that name, for all windows; 0 where the case has not
 * the like. */
typedef struct unfused_sizes {
    double s, ds, q_norm, k_norm, along, head_sums, partial;
} unfused_sizes;
unfused_sizes unfused_sizes_of(const test_case *c, bench_pass pass);

/* The rows of S that belong to one key head are neighbours, also where
 * several query heads share it: such a group is an item of a batch, a product
 * of [rows x D] by [D x keys]. */
typedef struct unfused {
    const bench_device *device;
    workload w;
    size_t items, item_rows;
    size_t most_items;     /* that fit into s */
    size_t timed_items;    /* of a call: the first so many */
    cl_mem s, ds;          /* S, then P; dP, then dS */
    cl_mem q_norm, k_norm; /* cosine: one over the norm */
    cl_mem along;          /* cosine: q . dq of each query */
    cl_mem head_sums;      /* of along; [windows, heads] */
    cl_mem partial;        /* of sums over windows */
    cl_mem dummy;          /* for what a case has not */
    cl_program program;
    cl_kernel kernel[UNFUSED_KERNELS];
    size_t group; /* work-items of a row; 1: any work-group */
} unfused;

/* Arguments of kernels that go by rows of S, the same in all launches. */
cl_int unfused_set_arguments(const unfused *u);
/* Computes P of the timed items of a set. */
winattn_status unfused_enqueue_p(const unfused *u, unsigned set);
/* A call; `data` is an unfused. The backward pass finds P. */
winattn_status unfused_enqueue(void *data, unsigned round);

#endif
