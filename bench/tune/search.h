/* SPDX-License-Identifier: Apache-2.0
 * Measures candidates in the time that there is. */
#ifndef BENCH_SEARCH_H
#define BENCH_SEARCH_H

#include "tune/subject.h"
#include "tune/verdict.h"

typedef struct search {
    const subject *of;
    candidates found;
    double allowed_error;
} search;

/* Measures all candidates, and prints a line for each. */
void search_all(search *s);
/* Measures as many as there is time for: those that the model likes best, some
 * of the others, neighbours of the fastest; then the fastest again, for
 * longer. */
void search_widely(search *s, double seconds);

/* The fastest that gives right results; NULL: none. */
const candidate *search_best(const search *s);

/* One call's time and what it is worth, as in the lines of candidates. */
void search_print_time(const subject *s, const char *name, double seconds,
                       double error);

/* Times a plan with the candidate's row and one without rows, in turns. False,
 * said on stderr, if the row is not taken after all. */
bool search_compare(const search *s, const candidate *one, double seconds,
                    verdict_times *times);

#endif
