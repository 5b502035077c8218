/* SPDX-License-Identifier: Apache-2.0
 * Measures candidates in the time that there is, through the public interface:
 * as rows of the tuning table, so that what counts is what users get. */
#ifndef BENCH_SEARCH_H
#define BENCH_SEARCH_H

#include "measure/call.h"
#include "tune/candidates.h"
#include "tune/verdict.h"

typedef struct search {
    const workload *w; /* of the forward or the backward pass */
    candidates found;
    double allowed_error;
} search;

/* Measures all candidates, and prints a line for each. */
void search_all(search *s);
/* As many as there is time for: those that the model likes best, some of the
 * others, neighbours of the fastest; then the fastest again, for longer. */
void search_widely(search *s, double seconds);

/* The fastest that gives right results; NULL: none. */
const candidate *search_best(const search *s);

/* The line of the tuning table. */
void search_print_row(const search *s, const candidate *one, char *text,
                      size_t size);

/* Times a plan with the candidate's row and one without rows, in turns. False,
 * said on stderr, if the row is not taken after all. */
bool search_compare(const search *s, const candidate *one, double seconds,
                    verdict_times *times);

/* The error of one call, see accuracy_error; NaN: it failed. */
double search_error(const workload *w, bench_call *call);
/* A plan for the workload's case and pass; to be closed even if it fails. */
winattn_status search_open(const workload *w, bench_call *call);

#endif
