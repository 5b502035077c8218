/* SPDX-License-Identifier: Apache-2.0
 * Device buffers for a case, filled with random numbers and repeated so often
 * that calls that rotate over them find nothing in a cache. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "kit/data.h"
#include "kit/grid.h"
#include "measure/measure.h"

#define MOST_SETS 64

/* What a call computes. The backward pass is given o and lse, and gives all
 * gradients that the case has. */
typedef enum bench_pass {
    BENCH_FORWARD,
    BENCH_BACKWARD,
    BENCH_BOTH, /* one after the other */
    BENCH_PASSES
} bench_pass;

typedef struct workload {
    const bench_device *device;
    test_case c;
    bench_pass pass;
    winattn_desc desc;
    int sets;
    /* of packed tensors all three are the same buffer */
    cl_mem q[MOST_SETS], k[MOST_SETS], v[MOST_SETS], o[MOST_SETS];
    cl_mem bias, mask, query_regions, key_regions, logit_scale;
    cl_mem pad_k, pad_v; /* NULL where the case does not give them */
    /* NULL in the forward pass; all gradients are NaN at first */
    cl_mem lse[MOST_SETS], d_o[MOST_SETS];
    cl_mem dq[MOST_SETS], dk[MOST_SETS], dv[MOST_SETS];
    cl_mem dbias, d_logit_scale, d_pad_k, d_pad_v;
    grid_map map;  /* with a grid */
    size_t *entry; /* [queries][keys]: of the table, if the bias is one */
} workload;

/* Tokens of a grid lie in their order there, channels last:
 *   o, d_o          [batch, axes, heads, dim]
 *   q, k, v         [batch, axes, heads + 2 kv_heads, dim] in one buffer with
 *                   layout=packed, so dq, dk, dv, else one buffer each like o
 *   lse             [batch, axes, heads]
 * Without a grid all tensors are contiguous in the order of winattn_desc. */
typedef struct workload_place {
    size_t first; /* elements in front of the tensor */
    size_t token; /* elements from token to token */
    size_t heads; /* of the tensor */
} workload_place;
workload_place workload_place_of(const test_case *c, tensor_id id);
/* Tokens of all grids; without one, queries of all windows. */
double workload_tokens(const test_case *c);
/* What a plan of the case computes. */
winattn_desc workload_desc(const test_case *c);

/* Makes buffers for about so many calls: fewer need fewer. False if memory
 * does not suffice. */
bool workload_create(const bench_device *device, const test_case *c,
                     bench_pass pass, int calls, workload *w);
/* Makes them of the same numbers, converted to fp32. */
bool workload_create_widened(const bench_device *device, const test_case *c,
                             bench_pass pass, int calls, workload *w);
void workload_release(workload *w);
/* Makes the outputs of the first set NaN again; false if that fails. */
bool workload_poison(const workload *w);
winattn_forward workload_forward(const workload *w, unsigned round);
/* The call has no workspace. */
winattn_backward workload_backward(const workload *w, unsigned round);

/* Bytes that a call must move: forward q, k, v, o once each; backward q, k, v,
 * d_o, dq, dk, dv. Of a grid its tokens count, not those of the padding. */
double workload_bytes(const test_case *c, bench_pass pass);
/* Bytes of lse, which a backward pass takes from the forward one; 0 for a
 * forward pass alone. */
double workload_lse_bytes(const test_case *c, bench_pass pass);
/* Operations on what is visible; an FMA counts 2. Forward Q K^T and P V;
 * backward five products of that size. Padding counts as keys where it takes
 * part, and never as queries. */
double workload_operations(const test_case *c, bench_pass pass);

/* How q, k, v and o are stored. */
storage_kind workload_kind(const test_case *c);
/* The oracle's problem of one window-head, without its tensors. */
oracle_problem workload_oracle(const test_case *c);

#endif
