/* SPDX-License-Identifier: Apache-2.0
 * The shapes of a kernel that winattn-tune may measure. It calls the rooms
 * behind the public interface, for the planners' models and refusals. */
#ifndef BENCH_CANDIDATES_H
#define BENCH_CANDIDATES_H

#include "plan/tuning_row.h"

typedef struct candidate {
    wa_tuned_shape shape;
    double cost;       /* of the planner's model; 0: measured; NaN: unknown */
    bool tried;        /* measured, or found not to work */
    double seconds;    /* of a call; INFINITY: it does not work */
    double error;      /* see accuracy_error */
    bool has_followed; /* its neighbours are candidates too */
} candidate;

typedef struct candidates {
    wa_tuned_kernel kernel;
    const wa_problem *problem;
    const wa_device *device;
    candidate *all;
    size_t count, room;
    bool overflowed; /* memory did not suffice for some */
} candidates;

void candidates_free(candidates *c);

/* Not if it is there already. */
void candidates_add(candidates *c, const wa_tuned_shape *shape, double cost);

/* The built-in row's shape, if there is one, and all that the planner chooses
 * from, cheapest first. */
void candidates_collect(candidates *c);

/* Those that differ in one number from the `of`-th, as far as kernel and
 * device allow them. */
void candidates_follow(candidates *c, size_t of);

#endif
