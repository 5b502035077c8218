/* SPDX-License-Identifier: Apache-2.0
 * Windowed attention in double precision, as plainly as it can be written:
 * the truth that every kernel is compared with. */
#ifndef KIT_ORACLE_H
#define KIT_ORACLE_H

#include <stdbool.h>
#include <stddef.h>

/* One window-head. Arrays are contiguous: q [queries][dim], k and v
 * [keys][dim], bias and mask [queries][keys]. */
typedef struct oracle_problem {
    size_t queries, keys, dim;
    const double *q, *k, *v;
    const double *bias;                             /* NULL: none */
    const double *mask;                             /* NULL: none */
    const unsigned char *query_region, *key_region; /* NULL: none */
    double region_value;
    double scale; /* of q k^T */
    bool cosine;
    const float *logit_scale; /* NULL: scale is used */
    bool sliding;
    size_t block, first_block, window_blocks, sink, query_offset;
    bool sink_in_window;
} oracle_problem;

/* o [queries][dim], lse [queries]. o_size [queries][dim] and lse_size
 * [queries] are the same sums over absolute values, against which errors are
 * measured. largest_logit: the largest finite |logit|. */
void oracle_forward(const oracle_problem *p, double *o, double *o_size,
                    double *lse, double *lse_size, double *largest_logit);

/* Gradients of one window-head, and against what their errors are measured:
 * the same sums over absolute values. Arrays as in oracle_problem; dbias
 * [queries][keys] is dS. All must be given. */
typedef struct oracle_gradients {
    double *dq, *dk, *dv, *dbias;
    double *dq_size, *dk_size, *dv_size, *dbias_size;
    double d_logit_scale, d_logit_scale_size;
} oracle_gradients;

/* d_o [queries][dim] and d_lse [queries], which may be NULL, are what flows
 * back into o and lse. */
void oracle_backward(const oracle_problem *p, const double *d_o,
                     const double *d_lse, oracle_gradients *g);

/* What visibility rule of the sliding variant says. */
bool oracle_sees(const oracle_problem *p, size_t query, size_t key);

/* How many keys a query sees under that rule. */
size_t oracle_seen(const oracle_problem *p, size_t query);

#endif
