/* SPDX-License-Identifier: Apache-2.0
 * Attention on grids as one does it with a library that knows windows only,
 * for comparison:
 *
 *   forward    one kernel pads, rolls and cuts q, k, v into contiguous
 *              [windows, heads, tokens, dim]; winattn on these, with a bias
 *              that was expanded from its table before and regions that were
 *              computed before (hidden padding: a mask); one kernel takes o
 *              back to its grid
 *   backward   the same of q, k, v and d_o (in the pass `both` of d_o alone:
 *              the others are still there); winattn; one kernel takes dq, dk,
 *              dv back. dbias stays dense, and nothing sums what flows into
 *              padding: the chain does less than a training step needs.
 *
 * Both kernels move 16 bytes or more at a time where rows allow it. The
 * tensors in between are the same in all calls. */
#ifndef BENCH_CHAIN_H
#define BENCH_CHAIN_H

#include "measure/workload.h"

typedef struct chain_result {
    double seconds;    /* of one call; 0: not measured */
    double moves;      /* of both kernels without winattn between; 0: ... */
    double error;      /* as accuracy_error; NaN: unknown */
    test_case windows; /* what is computed between them, if it was measured */
    char note[160];    /* why it was not measured */
} chain_result;

typedef struct chain chain;

/* For a case with a grid. NULL, with the reason, if it cannot be done. */
chain *chain_create(const bench_device *device, const test_case *c,
                    bench_pass pass, int calls, char note[160]);
void chain_destroy(chain *made);
/* Each a bench_enqueue; `data` is a chain. chain_move leaves out winattn. */
winattn_status chain_enqueue(void *data, unsigned round);
winattn_status chain_move(void *data, unsigned round);
/* Its tensors on grids. After a call of the first set and chain_finish they
 * hold what winattn would have computed in place, but no d_pad_k, d_pad_v. */
const workload *chain_workload(const chain *made);
winattn_status chain_finish(chain *made);

/* Times the case for about `budget` seconds of calls. */
void chain_measure(const bench_device *device, const test_case *c,
                   bench_pass pass, int calls, double budget,
                   chain_result *result);

#endif
