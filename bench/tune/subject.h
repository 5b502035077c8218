/* SPDX-License-Identifier: Apache-2.0
 * What is tuned: a pass of attention (attention.c) or a linear layer
 * (layer.c), as the search sees it. All plans are made through the
 * public interface, with a candidate as a row of the tuning table: what counts
 * is what users get. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include "measure/measure.h"
#include "plan/tuning_row.h"
#include <stdbool.h>
#include <stddef.h>

/* ---- The shapes of a kernel that may be measured (search.c) ---- */

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

#define SUBJECT_WHAT_SIZE 512

typedef struct subject subject;
struct subject {
    const bench_device *device;
    const wa_device *capabilities; /* of the device, as planners see them */
    int kind; /* of the kernel that is tuned, as the subject counts them */
    char what[SUBJECT_WHAT_SIZE]; /* in words */
    double bytes, operations;     /* of a call */
    double promised;              /* error */

    /* A plan and what its calls need; NULL, with winattn_last_reason. */
    void *(*open)(const subject *s);
    void (*close)(void *call);
    bench_enqueue *enqueue; /* of what open makes */
    /* Does it take a row that was loaded? Else why not. */
    bool (*takes_row)(const subject *s, const void *call, char *why,
                      size_t size);
    /* The error of a call that must write everything; NaN: it failed. */
    double (*error)(const subject *s, void *call);

    /* Shapes are texts, as candidates have them. Is it one of the kernel? */
    bool (*is_shape)(const subject *s, const char *shape);
    /* Can the device have it, and is it no larger than the problem? */
    bool (*is_legal)(const subject *s, const char *shape);
    void (*print_row)(const subject *s, const char *shape, char *text,
                      size_t size);
    /* Those that a search starts with, the most promising first. */
    void (*collect)(const subject *s, candidates *c);
};

#endif
