/* SPDX-License-Identifier: Apache-2.0
 * The shapes of a kernel that winattn-tune may measure. */
#ifndef BENCH_CANDIDATES_H
#define BENCH_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>

#define SHAPE_SIZE 128

typedef struct candidate {
    char shape[SHAPE_SIZE]; /* its numbers, with colons between them */
    double cost;       /* of the planner's model; 0: measured; NaN: unknown */
    bool tried;        /* measured, or found not to work */
    double seconds;    /* of a call; INFINITY: it does not work */
    double error;      /* see subject */
    bool has_followed; /* its neighbours are candidates too */
} candidate;

typedef struct candidates {
    candidate *all;
    size_t count, room;
} candidates;

void candidates_free(candidates *c);

/* Whether it is there already or not; nothing where memory does not suffice.
 */
void candidates_append(candidates *c, const char *shape, double cost);
/* Not if it is there already. */
void candidates_add(candidates *c, const char *shape, double cost);
void candidates_sort(candidates *c);

typedef bool candidates_filter(const void *data, const char *shape);

/* Those that differ in one number from the `of`-th, as far as `is_legal` has
 * them. */
void candidates_follow(candidates *c, size_t of, candidates_filter *is_legal,
                       const void *data);

#endif
