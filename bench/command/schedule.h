/* SPDX-License-Identifier: Apache-2.0
 * What a run does on each device, in which order, and how long it may take.
 * Every row is measured: each unit leaves the later ones the time that they
 * need besides timed calls (most of it compiles kernels), and all share what
 * remains. A comparison with other kernels is made if the rows to come can
 * spare the time, but the first of each kind of attention and pass always. */
#ifndef BENCH_SCHEDULE_H
#define BENCH_SCHEDULE_H

#include "command/options.h"

/* Seconds that timed calls of a unit get at most and at least. */
#define SCHEDULE_MOST 2.0
#define SCHEDULE_LEAST 0.15
#define SCHEDULE_SEEN 5

typedef enum unit_kind {
    UNIT_ROW,
    UNIT_UNFUSED, /* compares the row, and later types' of its shape, with
                     unfused kernels */
    UNIT_KINDS
} unit_kind;

typedef struct schedule_unit {
    unit_kind kind;
    size_t number; /* of the case */
    bench_pass pass;
    int dtype;
    bool must; /* even if time runs short */
} schedule_unit;

typedef struct schedule {
    schedule_unit *units;
    size_t count, next;
    /* the latest seconds that units of a kind and pass took besides what was
     * asked for */
    double seen[UNIT_KINDS][BENCH_PASSES][SCHEDULE_SEEN];
    unsigned seen_count[UNIT_KINDS][BENCH_PASSES];
} schedule;

/* `unfused`: such comparisons are possible. False: out of memory. */
bool schedule_make(const options *o, bool unfused, schedule *s);
void schedule_free(schedule *s);
/* Begins anew for the next device, of which nothing is known. */
void schedule_restart(schedule *s);
size_t schedule_rows(const schedule *s);

/* The unit to come if it is of that kind (and case and so on), else NULL. */
const schedule_unit *schedule_next(const schedule *s, unit_kind kind);
/* Seconds for its timed calls, of `left` that the device has for all units to
 * come; negative: it is to be left out. */
double schedule_timed(const schedule *s, double left);
/* The unit is over; `overhead`: seconds that it took besides, negative if it
 * was left out or cost nothing. */
void schedule_finish(schedule *s, double overhead);

#endif
