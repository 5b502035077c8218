/* SPDX-License-Identifier: Apache-2.0
 * A plan and its workspace, called on the tensors of a workload. */
#ifndef BENCH_CALL_H
#define BENCH_CALL_H

#include "measure/workload.h"

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
