/* SPDX-License-Identifier: Apache-2.0
 * The kernels and products of an unfused call, for unfused.c. */
#ifndef BENCH_UNFUSED_STEPS_H
#define BENCH_UNFUSED_STEPS_H

#include "compare/unfused.h"

/* Of unfused.cl and unfused_backward.cl. */
typedef enum unfused_kernel {
    UNFUSED_NORMS,
    UNFUSED_SOFTMAX,
    UNFUSED_SOFTMAX_BACKWARD, /* from here on of the backward pass */
    UNFUSED_SCALE_ROWS,
    UNFUSED_PROJECT,
    UNFUSED_SUM_QUERIES,
    UNFUSED_SUM_WINDOWS,
    UNFUSED_SUM_PARTS,
    UNFUSED_KERNELS
} unfused_kernel;

/* The rows of S that belong to one key head are neighbours, also where
 * several query heads share it: such a group is an item of a batch, a product
 * of [rows x D] by [D x keys]. */
typedef struct unfused {
    const bench_device *device;
    workload w;
    size_t items, item_rows;
    size_t timed_items;             /* of a call: the first so many */
    size_t chunk_items, chunk_rows; /* that fit into s; rows of one item */
    bool finds_p;                   /* s holds P of all timed items */
    cl_mem s, ds;                   /* S, then P; dP, then dS */
    cl_mem q_norm, k_norm;          /* cosine: one over the norm */
    cl_mem along;                   /* cosine: q . dq of each query */
    cl_mem head_sums;               /* of along; [windows, heads] */
    cl_mem partial;                 /* of sums over windows */
    cl_mem dummy;                   /* for what a case has not */
    cl_program program;
    cl_kernel kernel[UNFUSED_KERNELS];
    size_t group; /* work-items of a row; 1: any work-group */
} unfused;

/* Bytes of S or dS for so many rows. */
double unfused_plane_bytes(const test_case *c, double rows);
/* Bytes of norms, and of the other members, by their names; 0 where the case
 * has not the like. */
double unfused_row_bytes(const test_case *c, bool of_keys);
double unfused_along_bytes(const test_case *c);
double unfused_head_sums_bytes(const test_case *c);
double unfused_partial_bytes(const test_case *c);

/* Arguments that are the same in all launches of the softmax. */
cl_int unfused_set_arguments(const unfused *u);
/* Computes P of the timed items for the calls that find it. */
winattn_status unfused_enqueue_p(const unfused *u);
/* A call; `data` is an unfused. */
winattn_status unfused_enqueue(void *data, unsigned round);

#endif
