/* SPDX-License-Identifier: Apache-2.0
 * What becomes of the fastest shape: it is compared with the plan's own
 * choice, and is a row of the tuning table, or none. */
#ifndef BENCH_VERDICT_H
#define BENCH_VERDICT_H

#include <stdio.h>

#include "measure/measure.h"

/* Turns in which the two are timed. */
#define VERDICT_TURNS 5

/* Seconds of one call. */
typedef struct verdict_times {
    double with_row[VERDICT_TURNS], without[VERDICT_TURNS];
} verdict_times;

typedef struct verdict_job {
    const bench_device *device;
    const char *output; /* file that rows are appended to; NULL: as all else */
    double gain;        /* that a row must have, as a part of 1 */
    const char *what;   /* was computed, in words */
} verdict_job;

/* What columns of the lines mean that are printed before. */
void verdict_explain(FILE *to, const bench_device *device);

/* Says who is faster, and writes the row if it is worth one; orders the times.
 * False, said on stderr, if the row cannot be written. */
bool verdict_report(FILE *to, const verdict_job *j, verdict_times *times,
                    const char *row);

#endif
