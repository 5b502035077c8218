/* SPDX-License-Identifier: Apache-2.0
 * Device buffers for a case, filled with random numbers and repeated so often
 * that calls that rotate over them find nothing in a cache. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "kit/run.h"
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

/* Tensors are contiguous in the order of winattn_desc; on a grid tokens lie in
 * their order there, channels last:
 *   o, d_o          [batch, axes, heads, dim]
 *   q, k, v         [batch, axes, 3, heads, dim] in one buffer with
 *                   layout=packed, so dq, dk, dv, else one buffer each like o
 *   lse             [batch, axes, heads] */
typedef struct workload {
    const bench_device *device;
    bench_pass pass;
    winattn_desc desc;
    /* The case, and where its tensors lie. Of the values there are only those
     * that are repeated over each buffer. */
    case_buffers *d;
    int sets;
    /* Each set has buffers of its own for tensors of tokens. Outputs are NaN
     * at first. */
    device_buffers set[MOST_SETS];
} workload;

/* What a plan of the case computes. */
winattn_desc workload_desc(const test_case *c);

/* Makes buffers for about so many calls: fewer need fewer. widens: of the same
 * numbers, converted to fp32. False if memory does not suffice. */
bool workload_create(const bench_device *device, const test_case *c,
                     bench_pass pass, int calls, bool widens, workload *w);
void workload_release(workload *w);
/* NULL: the case has no such tensor. */
cl_mem workload_mem(const workload *w, unsigned set, tensor_id id);
/* What was drawn for an element of an input; on a grid the window is a whole
 * grid, the row one of its tokens. */
double workload_value(const workload *w, tensor_id id, size_t window,
                      size_t head, size_t row, size_t column);
/* Makes the outputs of the first set NaN again; false if that fails. */
bool workload_poison(const workload *w);

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

/* The oracle's problem of one window-head, without its tensors. */
oracle_problem workload_oracle(const test_case *c);

/* ---- Calls: a plan and its workspace, on the tensors of a workload ---- */

typedef struct bench_call {
    const workload *w; /* may be set later than the rest */
    winattn_plan *plan;
    winattn_tensor workspace;
    size_t workspace_size;
} bench_call;

/* A call is closed even if this fails. */
winattn_status call_open(const bench_device *device, const test_case *c,
                         cl_bitfield passes, bench_call *call);
void call_close(bench_call *call);

/* What is behind `name`, such as "tier: ", in winattn_plan_describe's line
 * that starts so; "" if there is none. */
void call_described(const winattn_plan *plan, const char *name, char *value,
                    size_t size);

/* What enqueues each pass; its `data` is a bench_call. */
extern bench_enqueue *const call_pass[BENCH_PASSES];

/* Gives the first so many sets the o and lse that a backward pass takes. */
winattn_status call_provide_outputs(const workload *w, int sets);

#endif
