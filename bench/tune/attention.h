/* SPDX-License-Identifier: Apache-2.0
 * A pass of attention that is tuned. It calls the rooms behind the public
 * interface, for the planners' models and refusals. */
#ifndef BENCH_ATTENTION_H
#define BENCH_ATTENTION_H

#include "measure/workload.h"
#include "tune/subject.h"

typedef struct attention {
    subject s; /* the first member: where it is, the rest is */
    workload w;
    wa_problem problem;
} attention;

/* The kernel is that of the shape, or, where it is NULL, the one that the plan
 * takes. False, said on stdout, if that cannot be tuned; it is closed all the
 * same. */
bool attention_open(attention *a, const bench_device *device,
                    const wa_device *capabilities, const test_case *c,
                    bench_pass pass, const char *shape);
void attention_close(attention *a);

#endif
