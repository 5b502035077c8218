/* SPDX-License-Identifier: Apache-2.0
 * Tries one candidate after the other. */
#include "tune/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/accuracy.h"

/* Window-heads that are compared with the oracle. */
#define SAMPLES 4
/* Of a candidate, at most. */
#define TRIAL_SECONDS 0.05
#define FINALISTS 3
/* Parts of the time: for candidates of the planner, for neighbours after
 * them; the rest is the finalists'. */
#define PLANNED_PART 0.4
#define SEARCH_PART 0.8

winattn_status search_open(const workload *w, bench_call *call)
{
    const winattn_status status =
        call_open(w->device, &w->c,
                  w->pass == BENCH_FORWARD ? WINATTN_PASS_FORWARD
                                           : WINATTN_PASS_BACKWARD,
                  call);
    call->w = w;
    return status;
}

double search_error(const workload *w, bench_call *call)
{
    if (!workload_poison(w) ||
        call_pass[w->pass](call, 0) != WINATTN_SUCCESS ||
        clFinish(w->device->queue) != CL_SUCCESS)
        return NAN;
    return accuracy_error(w, accuracy_all(&w->c), SAMPLES);
}

void search_print_row(const search *s, const candidate *one, char *text,
                      size_t size)
{
    const wa_tuned_row row = wa_tuned_row_of(s->found.kernel, s->found.problem,
                                             s->found.device, &one->shape);
    wa_tuned_row_print(&row, text, size);
}

/* ---- One candidate ---- */

/* A plan that takes the candidate's row; false, with the reason, if it does
 * not. The row stays loaded. */
static bool open_with_row(const search *s, const candidate *one,
                          bench_call *call, char *why, size_t size)
{
    const bool forward = s->w->pass == BENCH_FORWARD;
    char row[WA_ROW_TEXT_SIZE], reason[WA_REASON_SIZE];
    search_print_row(s, one, row, sizeof row);
    winattn_load_tuning(NULL);
    memset(call, 0, sizeof *call);
    if (winattn_load_tuning(row) != WINATTN_SUCCESS ||
        search_open(s->w, call) != WINATTN_SUCCESS) {
        snprintf(why, size, "%s", winattn_last_reason());
        return false;
    }
    call_described(call->plan,
                   forward ? "reason: " : "backward reason: ", reason,
                   sizeof reason);
    if (strstr(reason, "row that was loaded"))
        return true;
    call_described(call->plan,
                   forward ? "measured shape not taken: "
                           : "backward measured shape not taken: ",
                   why, size);
    return false;
}

/* Measures it and prints a line. */
static void try_one(search *s, candidate *one, double seconds)
{
    const workload *w = s->w;
    char shape[128], why[WA_REASON_SIZE] = "";
    bench_call call;
    wa_tuned_shape_print(s->found.kernel, &one->shape, shape, sizeof shape);
    one->tried = true;
    one->seconds = INFINITY;
    if (open_with_row(s, one, &call, why, sizeof why)) {
        one->error = search_error(w, &call);
        if (!(one->error <= s->allowed_error)) {
            snprintf(why, sizeof why, "wrong: error %.1e", one->error);
        } else {
            const double time =
                measure_calls(w->device, call_pass[w->pass], &call, seconds);
            if (time > 0)
                one->seconds = time;
            else
                snprintf(why, sizeof why, "a call failed: %s",
                         winattn_last_reason());
        }
    }
    call_close(&call);
    winattn_load_tuning(NULL);
    /* of shapes that the planner did not consider there is none */
    char cost[32] = "";
    if (!isnan(one->cost))
        snprintf(cost, sizeof cost, " cost %.3f", one->cost);
    if (isinf(one->seconds))
        printf("%10s     %-40s %s\n", "-", shape, why);
    else
        printf("%10.1f us  %-40s copy %.3f error %.1e%s\n", one->seconds * 1e6,
               shape,
               workload_bytes(&w->c, w->pass) / one->seconds /
                   w->device->copy_bandwidth,
               one->error, cost);
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
            candidates_follow(&s->found, (size_t)(fastest[i] - s->found.all));
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

bool search_compare(const search *s, const candidate *one, double seconds,
                    verdict_times *times)
{
    const workload *w = s->w;
    char why[WA_REASON_SIZE] = "";
    double *to[2] = {times->with_row, times->without};
    bench_call calls[2];
    bool good = open_with_row(s, one, &calls[0], why, sizeof why);
    winattn_load_tuning(NULL);
    const winattn_status status = search_open(w, &calls[1]);
    good = good && status == WINATTN_SUCCESS;
    for (int turn = 0; good && turn < VERDICT_TURNS; turn++)
        for (int i = 0; i < 2; i++) {
            to[i][turn] =
                measure_calls(w->device, call_pass[w->pass], &calls[i],
                              seconds / (2 * VERDICT_TURNS));
            good = good && to[i][turn] > 0;
        }
    if (!good)
        fprintf(stderr, "the best shape cannot be compared: %s %s\n", why,
                winattn_last_reason());
    call_close(&calls[0]);
    call_close(&calls[1]);
    return good;
}
