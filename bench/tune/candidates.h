/* SPDX-License-Identifier: Apache-2.0
 * The shapes of a kernel that winattn-tune may measure. */
#ifndef BENCH_CANDIDATES_H
#define BENCH_CANDIDATES_H

#include "models/linear_shapes.h"
#include "plan/tuning_row.h"

/* Of a kernel of attention, or of a linear layer. */
typedef union tuned_shape {
    wa_tuned_shape attention;
    wa_linear_shape linear;
} tuned_shape;

/* A shape's numbers with colons between them. kind: of either which kernel. */
typedef struct shape_text {
    int kind;
    bool (*parse)(int kind, const char *text, tuned_shape *shape);
    void (*print)(int kind, const tuned_shape *shape, char *text, size_t size);
} shape_text;

typedef struct candidate {
    tuned_shape shape;
    double cost;       /* of the planner's model; 0: measured; NaN: unknown */
    bool tried;        /* measured, or found not to work */
    double seconds;    /* of a call; INFINITY: it does not work */
    double error;      /* see subject */
    bool has_followed; /* its neighbours are candidates too */
} candidate;

typedef struct candidates {
    shape_text text;
    candidate *all;
    size_t count, room;
} candidates;

void candidates_free(candidates *c);

/* Whether it is there already or not; nothing where memory does not suffice.
 */
void candidates_append(candidates *c, const tuned_shape *shape, double cost);
/* Not if it is there already. */
void candidates_add(candidates *c, const tuned_shape *shape, double cost);
void candidates_sort(candidates *c);

typedef bool candidates_filter(const void *data, const tuned_shape *shape);

/* Those that differ in one number from the `of`-th, as far as `is_legal` has
 * them. */
void candidates_follow(candidates *c, size_t of, candidates_filter *is_legal,
                       const void *data);

#endif
