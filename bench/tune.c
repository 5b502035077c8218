/* SPDX-License-Identifier: Apache-2.0
 * Times the shapes of the tier `local` that the model of plan_local.c likes
 * best, to check the model and to find rows for tuning.c. A tool of the
 * library's developers: it calls the rooms behind the public interface.
 *
 *   winattn-tune DEVICE COUNT [SHAPE ...] 'CASE' [[SHAPE ...] 'CASE' ...]
 *
 * times COUNT shapes of the search for each case. A SHAPE is ten numbers,
 * block_rows:block_keys:team:teams:stage_keys:stage_dims:score_rows:
 * score_cols:out_rows:row_items, or seven for the tier `matrix`, rows:keys:
 * team_waves:teams:stages:pass_keys:keeps_terms; once some are given,
 * cases that follow try just these, until the word `search`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "kit/planned.h"
#include "launch.h"
#include "session.h"

typedef struct candidate {
    winattn_tier tier;
    wa_local_shape local;
    wa_matrix_shape matrix;
    double cost;
} candidate;

typedef struct candidates {
    candidate *all;
    size_t count, room;
} candidates;

static void add(candidates *c, const candidate *new)
{
    if (c->count == c->room) {
        const size_t room = c->room ? 2 * c->room : 1024;
        candidate *all = realloc(c->all, room * sizeof *all);
        if (!all)
            return;
        c->all = all;
        c->room = room;
    }
    c->all[c->count++] = *new;
}

static void collect(void *data, const wa_local_shape *shape, double cost)
{
    const candidate new = {
        .tier = WINATTN_TIER_LOCAL, .local = *shape, .cost = cost};
    add(data, &new);
}

static bool candidate_parse(const char *text, candidate *new)
{
    memset(new, 0, sizeof *new);
    new->tier = WINATTN_TIER_LOCAL;
    if (shape_parse(text, &new->local))
        return true;
    new->tier = WINATTN_TIER_MATRIX;
    return matrix_shape_parse(text, &new->matrix);
}

static int by_cost(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->cost;
    const double y = ((const candidate *)b)->cost;
    return (x > y) - (x < y);
}

typedef struct timed {
    const workload *w;
    const wa_problem *problem;
    const wa_plan *plan;
    cl_kernel kernel;
} timed;

static winattn_status enqueue(void *data, unsigned round)
{
    const timed *t = data;
    const winattn_forward f = workload_forward(t->w, round);
    const wa_buffers buffers = planned_buffers(&f);
    const wa_forward_kernels kernels = {t->kernel, NULL};
    return wa_launch_forward(t->problem, t->plan, &kernels,
                             t->w->device->queue, &buffers, 0, NULL, NULL);
}

/* Keeps shapes that differ enough from better ones to be worth a build. */
static size_t thin_out(candidates *c, size_t wanted)
{
    size_t kept = 0;
    const size_t step = c->count > wanted * 8 ? c->count / (wanted * 8) : 1;
    /* half of them the model's best, half spread over the rest */
    for (size_t i = 0; i < c->count && kept < wanted;
         i += kept < wanted / 2 ? 1 : step * 2)
        c->all[kept++] = c->all[i];
    return kept;
}

static void tune(const bench_device *device, wa_session *session,
                 const test_case *c, size_t wanted, const candidates *demanded)
{
    workload w;
    wa_problem problem;
    candidates found = {NULL, 0, 0};
    const wa_device *capabilities = wa_session_device(session);
    char text[256];
    case_print(c, text, sizeof text);
    if (!workload_create(device, c, BENCH_FORWARD, MOST_SETS, &w)) {
        printf("%s: out of memory\n", text);
        return;
    }
    if (wa_problem_read(&w.desc, &problem) != WINATTN_SUCCESS) {
        printf("%s: %s\n", text, winattn_last_reason());
        workload_release(&w);
        return;
    }
    for (size_t i = 0; i < demanded->count; i++)
        add(&found, &demanded->all[i]);
    if (demanded->count == 0 && c->variant != WINATTN_SLIDING)
        wa_visit_local_shapes(&problem, capabilities, problem.keys, collect,
                              &found);
    if (c->variant == WINATTN_SLIDING || found.count == 0)
        for (uint32_t keys = 32; keys <= 128; keys *= 2)
            wa_visit_local_shapes(&problem, capabilities, keys, collect,
                                  &found);
    qsort(found.all, found.count, sizeof *found.all, by_cost);
    printf("%s: %zu shapes, operations %.3g, bytes %.3g\n", text, found.count,
           workload_operations(c, BENCH_FORWARD),
           workload_bytes(c, BENCH_FORWARD));
    if (demanded->count == 0)
        found.count = thin_out(&found, wanted);
    for (size_t i = 0; i < found.count; i++) {
        const candidate *s = &found.all[i];
        wa_plan made, *plan = &made;
        timed t = {&w, &problem, plan, NULL};
        memset(plan, 0, sizeof *plan);
        if (!(s->tier == WINATTN_TIER_LOCAL
                  ? wa_plan_local_shape(&problem, capabilities, &s->local,
                                        plan)
                  : wa_plan_matrix_shape(&problem, capabilities, &s->matrix,
                                         plan)) ||
            wa_plan_finish(&problem, capabilities, plan) != WINATTN_SUCCESS) {
            if (demanded->count != 0)
                printf("  refused: %s\n", plan->refusals[s->tier]);
            continue;
        }
        const double start = now_seconds();
        if (wa_session_kernel(session, plan->kernel, plan->defines, "",
                              &t.kernel) != WINATTN_SUCCESS) {
            printf("  does not build: %s\n", plan->defines);
            continue;
        }
        const double built = now_seconds() - start;
        const double time = measure_calls(device, enqueue, &t, 0.05);
        if (s->tier == WINATTN_TIER_LOCAL)
            shape_print(&s->local, text, sizeof text);
        else
            matrix_shape_print(&s->matrix, text, sizeof text);
        printf("  %7.1f us copy %.3f fma %.3f err %.1e cost %6.3f %s local %u "
               "build %.1f s\n",
               time * 1e6,
               workload_bytes(c, BENCH_FORWARD) / time /
                   device->copy_bandwidth,
               workload_operations(c, BENCH_FORWARD) / time / device->fma_rate,
               accuracy_error(&w, accuracy_all(c), 3), s->cost, text,
               plan->local_bytes, built);
        fflush(stdout);
        clReleaseKernel(t.kernel);
    }
    free(found.all);
    workload_release(&w);
}

int main(int count, char **texts)
{
    cl_device_id ids[64];
    char names[64][256];
    if (count < 4) {
        fprintf(stderr, "usage: %s DEVICE COUNT 'CASE' ...\n", texts[0]);
        return 2;
    }
    const int devices = device_list(ids, names, 64);
    int chosen = 0;
    while (chosen < devices && !strstr(names[chosen], texts[1]))
        chosen++;
    bench_device device;
    if (chosen == devices || !bench_device_open(ids[chosen], &device)) {
        fprintf(stderr, "no device %s\n", texts[1]);
        return 2;
    }
    measure_ceilings(&device);
    printf("%s: copy %.1f GB/s, fma %.1f GFLOP/s\n", names[chosen],
           device.copy_bandwidth * 1e-9, device.fma_rate * 1e-9);
    wa_session *session;
    if (wa_session_acquire(device.context, device.id, &session) !=
        WINATTN_SUCCESS) {
        fprintf(stderr, "%s\n", winattn_last_reason());
        return 2;
    }
    candidates demanded = {NULL, 0, 0};
    bool after_case = false;
    for (int i = 3; i < count; i++) {
        candidate shape;
        if (candidate_parse(texts[i], &shape)) {
            if (after_case)
                demanded.count = 0;
            after_case = false;
            add(&demanded, &shape);
            continue;
        }
        if (strcmp(texts[i], "search") == 0) {
            demanded.count = 0;
            continue;
        }
        after_case = true;
        test_case c = case_default();
        char bad[64];
        c.tier = WINATTN_TIER_LOCAL;
        c.lse = 0;
        if (case_parse(texts[i], &c, bad))
            tune(&device, session, &c, (size_t)atoi(texts[2]), &demanded);
        else
            fprintf(stderr, "unknown: %s\n", bad);
    }
    free(demanded.all);
    wa_session_release(session);
    bench_device_close(&device);
    return 0;
}
