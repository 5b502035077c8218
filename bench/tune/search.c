/* SPDX-License-Identifier: Apache-2.0
 * Tries one candidate after the other. */
#include "tune/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tune/subject.h"

/* ---- Candidates ---- */

#define MOST_NUMBERS 15

void candidates_free(candidates *c)
{
    free(c->all);
    c->all = NULL;
    c->count = c->room = 0;
}

void candidates_append(candidates *c, const char *shape, double cost)
{
    if (c->count == c->room) {
        const size_t room = c->room ? 2 * c->room : 1024;
        candidate *all = realloc(c->all, room * sizeof *all);
        if (!all)
            return;
        c->all = all;
        c->room = room;
    }
    candidate fresh = {.cost = cost};
    snprintf(fresh.shape, sizeof fresh.shape, "%s", shape);
    c->all[c->count++] = fresh;
}

void candidates_add(candidates *c, const char *shape, double cost)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->all[i].shape, shape) == 0)
            return;
    candidates_append(c, shape, cost);
}

static int by_cost(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->cost;
    const double y = ((const candidate *)b)->cost;
    return (x > y) - (x < y);
}

void candidates_sort(candidates *c)
{
    if (c->count > 0)
        qsort(c->all, c->count, sizeof *c->all, by_cost);
}

/* ---- Neighbours ---- */

/* Adds those that differ in one number from the `of`-th, as far as they are
 * legal. */
static void follow(candidates *c, size_t of, const subject *s)
{
    /* one more or less of what is counted, of tiles and of waves */
    static const unsigned long steps[] = {1, 8, 16, 32};
    unsigned long numbers[MOST_NUMBERS];
    char text[SHAPE_SIZE], *rest = text;
    size_t count = 0;
    c->all[of].has_followed = true;
    memcpy(text, c->all[of].shape, sizeof text);
    for (; count < MOST_NUMBERS && *rest; rest += *rest == ':')
        numbers[count++] = strtoul(rest, &rest, 10);
    for (size_t at = 0; at < count; at++) {
        unsigned long others[2 + 2 * sizeof steps / sizeof *steps];
        size_t many = 0;
        others[many++] = numbers[at] * 2;
        others[many++] = numbers[at] / 2;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            if (i > 0 && steps[i] >= numbers[at])
                break;
            others[many++] = numbers[at] + steps[i];
            if (numbers[at] >= steps[i])
                others[many++] = numbers[at] - steps[i];
        }
        for (size_t i = 0; i < many; i++) {
            char shape[SHAPE_SIZE] = "";
            for (size_t j = 0; j < count; j++)
                wa_append(shape, sizeof shape, "%s%lu", j ? ":" : "",
                          j == at ? others[i] : numbers[j]);
            if (s->is_legal(s, shape))
                candidates_add(c, shape, NAN);
        }
    }
}

#define TRIAL_SECONDS 0.05 /* of a candidate, at most */
#define FINALISTS 3
/* Parts of the time: for candidates of the planner, for neighbours after
 * them; the rest is the finalists'. */
#define PLANNED_PART 0.4
#define SEARCH_PART 0.8

void search_print_time(const subject *s, const char *name, double seconds,
                       double error)
{
    printf("%10.1f us  %-36s %7.2f TFLOP/s copy %.3f error %.1e",
           seconds * 1e6, name, s->operations / seconds * 1e-12,
           s->bytes / seconds / s->device->copy_bandwidth, error);
}

/* ---- One candidate ---- */

/* A plan that takes the candidate's row; NULL, with the reason, if it does
 * not. */
static void *open_with_row(const subject *s, const candidate *one, char *why,
                           size_t size)
{
    char row[WA_ROW_TEXT_SIZE];
    void *call = NULL;
    s->print_row(s, one->shape, row, sizeof row);
    winattn_load_tuning(NULL);
    if (winattn_load_tuning(row) == WINATTN_SUCCESS)
        call = s->open(s);
    winattn_load_tuning(NULL);
    if (!call) {
        snprintf(why, size, "%s", winattn_last_reason());
    } else if (!s->takes_row(s, call, why, size)) {
        s->close(call);
        call = NULL;
    }
    return call;
}

/* Measures it and prints a line. */
static void try_one(search *found, candidate *one, double seconds)
{
    const subject *s = found->of;
    char why[WA_REASON_SIZE] = "";
    one->tried = true;
    one->seconds = INFINITY;
    void *call = open_with_row(s, one, why, sizeof why);
    if (call) {
        one->error = s->error(s, call);
        if (!(one->error <= found->allowed_error)) {
            snprintf(why, sizeof why, "wrong: error %.1e", one->error);
        } else {
            const double time =
                measure_calls(s->device, s->enqueue, call, seconds);
            if (time > 0)
                one->seconds = time;
            else
                snprintf(why, sizeof why, "a call failed: %s",
                         winattn_last_reason());
        }
    }
    s->close(call);
    if (isinf(one->seconds)) {
        printf("%10s     %-36s %s\n", "-", one->shape, why);
    } else {
        search_print_time(s, one->shape, one->seconds, one->error);
        /* of shapes that the planner did not consider there is none */
        if (isnan(one->cost))
            printf("\n");
        else
            printf(" cost %.3f\n", one->cost);
    }
    fflush(stdout);
}

/* ---- All of them ---- */

void search_all(search *s)
{
    for (size_t i = 0; i < s->found.count; i++)
        try_one(s, &s->found.all[i], TRIAL_SECONDS);
}

const candidate *search_best(const search *s)
{
    const candidate *best = NULL;
    for (size_t i = 0; i < s->found.count; i++) {
        const candidate *one = &s->found.all[i];
        if (one->tried && isfinite(one->seconds) &&
            (!best || one->seconds < best->seconds))
            best = one;
    }
    return best;
}

/* The first that was not tried yet, from there on; else `count`. */
static size_t next_untried(const search *s, size_t from)
{
    while (from < s->found.count && s->found.all[from].tried)
        from++;
    return from;
}

/* 1/2, 1/4, 3/4, 1/8, 5/8, ... */
static double spread(unsigned turn)
{
    double part = 0, bit = 0.5;
    for (; turn; turn /= 2, bit /= 2)
        part += turn % 2 ? bit : 0;
    return part;
}

/* In turns the next best of the model and one from anywhere. */
static void try_planned(search *s, double until, double trial)
{
    const size_t count = s->found.count;
    for (unsigned turn = 0; now_seconds() < until || turn < 2; turn++) {
        size_t i = 0;
        if (turn % 2)
            i = (size_t)(spread(turn / 2 + 1) * (double)count);
        i = next_untried(s, i);
        if (i == count)
            i = next_untried(s, 0);
        if (i == count)
            return;
        try_one(s, &s->found.all[i], trial);
    }
}

static int by_time(const void *a, const void *b)
{
    const candidate *x = *(const candidate *const *)a;
    const candidate *y = *(const candidate *const *)b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* The fastest, in order; returns how many there are. */
static size_t find_fastest(search *s, candidate *fastest[FINALISTS])
{
    size_t count = 0;
    candidate **all = malloc((s->found.count + 1) * sizeof *all);
    if (!all)
        return 0;
    for (size_t i = 0; i < s->found.count; i++)
        if (s->found.all[i].tried && isfinite(s->found.all[i].seconds))
            all[count++] = &s->found.all[i];
    qsort(all, count, sizeof *all, by_time);
    count = count < FINALISTS ? count : FINALISTS;
    memcpy(fastest, all, count * sizeof *all);
    free(all);
    return count;
}

/* Neighbours of the fastest, as long as that leads on; then of the next. */
static void try_neighbours(search *s, double until, double trial)
{
    size_t at = s->found.count; /* neighbours start here */
    while (now_seconds() < until) {
        candidate *fastest[FINALISTS];
        const size_t many = find_fastest(s, fastest);
        size_t i = 0;
        at = next_untried(s, at);
        while (i < many && fastest[i]->has_followed)
            i++;
        if (i < many && (i == 0 || at == s->found.count))
            follow(&s->found, (size_t)(fastest[i] - s->found.all), s->of);
        else if (at < s->found.count)
            try_one(s, &s->found.all[at], trial);
        else if ((at = next_untried(s, 0)) == s->found.count)
            return;
    }
}

void search_widely(search *s, double seconds)
{
    const double start = now_seconds();
    const double trial = fmin(TRIAL_SECONDS, seconds / 40);
    candidate *fastest[FINALISTS];
    try_planned(s, start + PLANNED_PART * seconds, trial);
    try_neighbours(s, start + SEARCH_PART * seconds, trial);
    const size_t many = find_fastest(s, fastest);
    if (many > 1)
        printf("  again, for longer:\n");
    for (size_t i = 0; many > 1 && i < many; i++)
        try_one(s, fastest[i], (1 - SEARCH_PART) * seconds / (double)many);
}

/* ---- The winner ---- */

bool search_compare(const search *found, const candidate *one, double seconds,
                    verdict_times *times)
{
    const subject *s = found->of;
    char why[WA_REASON_SIZE] = "";
    double *to[2] = {times->with_row, times->without};
    void *calls[2] = {open_with_row(s, one, why, sizeof why), s->open(s)};
    bool good = calls[0] && calls[1];
    for (int turn = 0; good && turn < VERDICT_TURNS; turn++)
        for (int i = 0; i < 2; i++) {
            to[i][turn] = measure_calls(s->device, s->enqueue, calls[i],
                                        seconds / (2 * VERDICT_TURNS));
            good = good && to[i][turn] > 0;
        }
    if (!good)
        fprintf(stderr, "the best shape cannot be compared: %s %s\n", why,
                winattn_last_reason());
    s->close(calls[0]);
    s->close(calls[1]);
    return good;
}
