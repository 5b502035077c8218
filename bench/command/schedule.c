/* SPDX-License-Identifier: Apache-2.0
 * Orders units and shares time among them. */
#include "command/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds besides timed calls, before the device has shown something. */
#define FIRST_OVERHEAD 0.5

/* What the summary tells apart. */
typedef enum case_kind {
    CASE_WINDOW,
    CASE_MAP,
    CASE_SLIDING,
    CASE_KINDS
} case_kind;

static case_kind kind_of(const test_case *c)
{
    return c->grid                         ? CASE_MAP
           : c->variant == WINATTN_SLIDING ? CASE_SLIDING
                                           : CASE_WINDOW;
}

/* ---- Order ---- */

/* What one pass of a case has, type by type; `compared` says of which kinds
 * and passes there is a comparison already. */
static void add_pass(const options *o, size_t number, bench_pass pass,
                     bool unfused, bool *compared, schedule *s)
{
    bool first = true;
    for (int dtype = 0; dtype < 3; dtype++) {
        schedule_unit unit = {UNIT_ROW, number, pass, dtype, true};
        if (!options_take_row(o, &o->cases.all[number], pass, dtype))
            continue;
        s->units[s->count++] = unit;
        if (unfused && first) {
            unit.kind = UNIT_UNFUSED;
            unit.must = !*compared;
            s->units[s->count++] = unit;
            *compared = true;
        }
        first = false;
    }
}

bool schedule_make(const options *o, bool unfused, schedule *s)
{
    bool compared[CASE_KINDS][BENCH_PASSES] = {{false}};
    memset(s, 0, sizeof *s);
    s->units = calloc(o->cases.count * BENCH_PASSES * 4 + 1, sizeof *s->units);
    for (size_t i = 0; s->units && i < o->cases.count; i++)
        for (bench_pass pass = 0; pass < BENCH_PASSES; pass++)
            add_pass(o, i, pass, unfused && o->unfused,
                     &compared[kind_of(&o->cases.all[i].c)][pass], s);
    return s->units != NULL;
}

void schedule_free(schedule *s)
{
    free(s->units);
    memset(s, 0, sizeof *s);
}

void schedule_restart(schedule *s)
{
    s->next = 0;
    memset(s->seen, 0, sizeof s->seen);
    memset(s->seen_count, 0, sizeof s->seen_count);
}

size_t schedule_rows(const schedule *s)
{
    size_t rows = 0;
    for (size_t i = 0; i < s->count; i++)
        rows += s->units[i].kind == UNIT_ROW;
    return rows;
}

const schedule_unit *schedule_next(const schedule *s, unit_kind kind)
{
    return s->next < s->count && s->units[s->next].kind == kind
               ? &s->units[s->next]
               : NULL;
}

/* ---- Time ---- */

/* The median of what was seen, and of two the smaller: the first unit of a
 * kind may compile what the others find. */
static double seen_overhead(const schedule *s, unit_kind kind, bench_pass pass)
{
    double sorted[SCHEDULE_SEEN];
    const unsigned all = s->seen_count[kind][pass];
    const unsigned count = all < SCHEDULE_SEEN ? all : SCHEDULE_SEEN;
    if (count == 0)
        return 0;
    memcpy(sorted, s->seen[kind][pass], count * sizeof *sorted);
    measure_sort(sorted, count);
    return sorted[(count - 1) / 2];
}

/* A pass that was not seen yet is like the others of its kind. */
static double expected(const schedule *s, const schedule_unit *unit)
{
    double most = 0;
    if (s->seen_count[unit->kind][unit->pass] > 0)
        return seen_overhead(s, unit->kind, unit->pass);
    for (bench_pass pass = 0; pass < BENCH_PASSES; pass++)
        most = fmax(most, seen_overhead(s, unit->kind, pass));
    return most > 0 ? most : FIRST_OVERHEAD;
}

double schedule_timed(const schedule *s, double left)
{
    const schedule_unit *unit = &s->units[s->next];
    const double own = expected(s, unit);
    double needed = 0, overhead = 0, sharing = 1;
    for (size_t i = s->next + 1; i < s->count; i++) {
        const schedule_unit *later = &s->units[i];
        const double seconds = expected(s, later);
        overhead += seconds;
        sharing++;
        if (later->must)
            needed += seconds + SCHEDULE_LEAST;
    }
    if (!unit->must && left - needed < own + SCHEDULE_LEAST)
        return -1;
    return fmin(fmax((left - own - overhead) / sharing, SCHEDULE_LEAST),
                SCHEDULE_MOST);
}

void schedule_finish(schedule *s, double overhead)
{
    const schedule_unit *unit = &s->units[s->next++];
    if (overhead < 0)
        return;
    unsigned *count = &s->seen_count[unit->kind][unit->pass];
    s->seen[unit->kind][unit->pass][(*count)++ % SCHEDULE_SEEN] = overhead;
}
