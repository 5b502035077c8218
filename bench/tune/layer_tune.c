/* SPDX-License-Identifier: Apache-2.0
 * Tries one shape of a linear layer's kernel after the other. */
#include "tune/layer_tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layer.h"
#include "tune/layer_shapes.h"
#include "tune/verdict.h"

#define MOST_LAYERS 32
#define SWIN "layers-swin-t-b" /* and how many pictures */
#define MOST_BATCH 4096u
/* Of the time: for those that the model likes and some others, and until what
 * is left is the comparison's. */
#define PLANNED_PART 0.5
#define SEARCH_PART 0.85
#define TRIAL_SECONDS 0.05 /* of a shape, at most */
/* As in tune.c. */
#define WORSE_ERROR 1.5
#define ABSURD_ERROR 0.05

/* ---- What is meant ---- */

/* Pictures of a text that names Swin's layers; 0: it does not. */
static unsigned batch_of(const char *text)
{
    char *end;
    if (strncmp(text, SWIN, strlen(SWIN)) != 0)
        return 0;
    const unsigned long batch = strtoul(text + strlen(SWIN), &end, 10);
    return *end == 0 && batch <= MOST_BATCH ? (unsigned)batch : 0;
}

static int read_layers(const char *text, bench_layer *layers)
{
    const unsigned batch = batch_of(text);
    if (batch)
        return layer_swin(batch, layers, MOST_LAYERS);
    return text[0] >= '1' && text[0] <= '9' && layer_read(text, layers);
}

int layer_count(const char *text)
{
    bench_layer layers[MOST_LAYERS];
    return read_layers(text, layers);
}

/* ---- One shape ---- */

typedef struct layer_search {
    const layer_job *j;
    const bench_layer *l;
    layer_run run; /* with the plan's own choice */
    layer_shapes found;
    double allowed_error;
} layer_search;

static wa_tuned_shape text_shape(const wa_linear_shape *shape)
{
    const wa_tuned_shape whole = {.linear = *shape};
    return whole;
}

static void print_shape(const layer_search *s, const wa_linear_shape *shape,
                        char *text, size_t size)
{
    const wa_tuned_shape whole = text_shape(shape);
    wa_tuned_shape_print(wa_linear_tuned_kernel(s->found.tier), &whole, text,
                         size);
}

static void print_row(const layer_search *s, const wa_linear_shape *shape,
                      char *text, size_t size)
{
    const wa_linear_key key = wa_linear_key_of(s->found.problem, s->found.id);
    const wa_tuned_row row =
        wa_linear_row_of(wa_linear_tuned_kernel(s->found.tier), &key,
                         s->j->capabilities, shape);
    wa_tuned_row_print(&row, text, size);
}

/* The error of a call that must write all of y; NaN: it failed. */
static double error_of(layer_run *r)
{
    const unsigned char nothing = 0xff; /* no number in any type */
    double error = -1;
    if (clEnqueueFillBuffer(r->device->queue, r->y.mem, &nothing, 1, 0,
                            r->y.count * kind_size(r->kind), 0, NULL,
                            NULL) == CL_SUCCESS &&
        layer_enqueue(r, 0) == WINATTN_SUCCESS &&
        clFinish(r->device->queue) == CL_SUCCESS)
        error = layer_error(r);
    return error < 0 ? (double)NAN : error;
}

/* Measures it and prints a line. */
static void try_one(layer_search *s, layer_shape *one, double seconds)
{
    char shape[128], why[256] = "";
    winattn_linear_desc desc = layer_desc(s->l, s->j->dtype);
    layer_run r = s->run;
    r.plan = NULL;
    desc.tier = s->found.tier;
    one->tried = true;
    one->seconds = INFINITY;
    print_shape(s, &one->shape, shape, sizeof shape);
    if (wa_linear_plan_with_shape(r.device->context, r.device->id, &desc,
                                  &one->shape, &r.plan) != WINATTN_SUCCESS) {
        snprintf(why, sizeof why, "%.200s", winattn_last_reason());
    } else {
        one->error = error_of(&r);
        const double time =
            one->error <= s->allowed_error
                ? measure_calls(r.device, layer_enqueue, &r, seconds)
                : 0;
        if (time > 0)
            one->seconds = time;
        else if (one->error <= s->allowed_error)
            snprintf(why, sizeof why, "a call failed: %.200s",
                     winattn_last_reason());
        else
            snprintf(why, sizeof why, "wrong: error %.1e", one->error);
    }
    winattn_linear_plan_destroy(r.plan);
    if (isinf(one->seconds))
        printf("%10s     %-32s %s\n", "-", shape, why);
    else
        printf("%10.1f us  %-32s %7.2f TFLOP/s copy %.3f error %.1e\n",
               one->seconds * 1e6, shape,
               2e-12 * (double)s->l->rows * s->l->in * s->l->out /
                   one->seconds,
               layer_bytes(&r) / one->seconds / r.device->copy_bandwidth,
               one->error);
    fflush(stdout);
}

/* ---- All of them ---- */

static layer_shape *best_of(const layer_search *s)
{
    layer_shape *best = NULL;
    for (size_t i = 0; i < s->found.count; i++) {
        layer_shape *one = &s->found.all[i];
        if (one->tried && isfinite(one->seconds) &&
            (!best || one->seconds < best->seconds))
            best = one;
    }
    return best;
}

/* The first that was not tried and differs from `of`, unless it is NULL, in
 * one number; NULL: none. */
static layer_shape *next_untried(const layer_search *s, const layer_shape *of,
                                 size_t from)
{
    for (size_t i = from; i < s->found.count; i++) {
        layer_shape *one = &s->found.all[i];
        if (!one->tried &&
            (!of || layer_shape_distance(&one->shape, &of->shape) == 1))
            return one;
    }
    return NULL;
}

/* In turns the next best of the model and one from anywhere; then neighbours
 * of the fastest, else the next again. */
static void search(layer_search *s, double seconds)
{
    const double start = now_seconds();
    const double trial = fmin(TRIAL_SECONDS, seconds / 40);
    for (unsigned turn = 0;; turn++) {
        const double spent = now_seconds() - start;
        const bool planned = spent < PLANNED_PART * seconds;
        layer_shape *one = NULL;
        if (turn >= 2 && spent > SEARCH_PART * seconds)
            return;
        if (planned && turn % 4 == 3) /* by steps of the golden section */
            one = next_untried(
                s, NULL,
                (size_t)(fmod(turn * 0.618034, 1.0) * (double)s->found.count));
        else if (!planned)
            one = next_untried(s, best_of(s), 0);
        if (!one)
            one = next_untried(s, NULL, 0);
        if (!one)
            return;
        try_one(s, one, trial);
    }
}

static void try_given(layer_search *s)
{
    const layer_job *j = s->j;
    for (size_t i = 0; i < j->shape_count; i++) {
        wa_tuned_shape shape;
        if (wa_tuned_shape_parse(wa_linear_tuned_kernel(s->found.tier),
                                 j->shapes[i], &shape))
            layer_shapes_add(&s->found, &shape.linear, NAN);
        else
            printf("  no shape of the tier: %s\n", j->shapes[i]);
    }
    for (size_t i = 0; i < s->found.count; i++)
        try_one(s, &s->found.all[i], TRIAL_SECONDS);
}

/* ---- The winner ---- */

/* Times a plan that has the row, and the plan without, in turns. False, said
 * on stderr, if the row is not taken after all. */
static bool compare(layer_search *s, const char *row, double seconds,
                    verdict_times *times)
{
    winattn_linear_desc desc = layer_desc(s->l, s->j->dtype);
    layer_run r[2] = {s->run, s->run};
    double *to[2] = {times->with_row, times->without};
    desc.tier = s->found.tier;
    r[0].plan = NULL;
    winattn_load_tuning(NULL);
    bool good =
        winattn_load_tuning(row) == WINATTN_SUCCESS &&
        winattn_linear_plan_create(r[0].device->context, r[0].device->id,
                                   &desc, &r[0].plan) == WINATTN_SUCCESS;
    winattn_load_tuning(NULL);
    if (good)
        good = wa_linear_kernel_for(&r[0].plan->layout, &r[0].plan->problem,
                                    s->l->rows) == s->found.id &&
               strstr(r[0].plan->layout.source[s->found.id], "loaded");
    for (int turn = 0; good && turn < VERDICT_TURNS; turn++)
        for (int i = 0; i < 2; i++) {
            to[i][turn] = measure_calls(r[i].device, layer_enqueue, &r[i],
                                        seconds / (2 * VERDICT_TURNS));
            good = good && to[i][turn] > 0;
        }
    if (!good)
        fprintf(stderr, "a plan does not take the row %s: %s\n", row,
                r[0].plan ? r[0].plan->layout.not_taken
                          : winattn_last_reason());
    winattn_linear_plan_destroy(r[0].plan);
    return good;
}

static bool report(layer_search *s, double seconds)
{
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    const layer_shape *best = best_of(s);
    char what[256], row[WA_ROW_TEXT_SIZE];
    verdict_times times;
    if (!best) {
        printf("  no other shape works\n");
        return true;
    }
    print_row(s, &best->shape, row, sizeof row);
    if (!compare(s, row, seconds, &times))
        return true;
    snprintf(what, sizeof what, "%.200s, %llu rows, %s", s->l->name,
             s->l->rows, types[s->j->dtype]);
    const verdict_job verdict = {.device = s->j->device,
                                 .output = s->j->output,
                                 .gain = s->j->gain,
                                 .what = what};
    return verdict_report(stdout, &verdict, &times, row);
}

/* ---- One layer ---- */

/* With tensors and the plan's own choice. */
static bool tune_with(layer_search *s, double seconds)
{
    const double start = now_seconds();
    const double own_error = error_of(&s->run);
    const double promised = s->j->dtype == WINATTN_FP32   ? 5e-6
                            : s->j->dtype == WINATTN_FP16 ? 5e-4
                                                          : 4e-3;
    if (!(own_error < ABSURD_ERROR)) {
        printf("  the plan's own choice is wrong (error %.1e): please report "
               "it\n",
               own_error);
        return false;
    }
    s->allowed_error = fmax(2 * promised, WORSE_ERROR * own_error);
    if (s->j->shape_count > 0) {
        try_given(s);
    } else {
        layer_shapes_collect(&s->found);
        printf("  %zu shapes\n", s->found.count);
        search(s, seconds);
    }
    return report(s, fmax(seconds - (now_seconds() - start), 0.1 * seconds));
}

static bool tune_layer(const layer_job *j, const bench_layer *l,
                       double seconds)
{
    winattn_linear_desc desc = layer_desc(l, j->dtype);
    winattn_linear_plan *own = NULL;
    bool good = false;
    desc.tier = j->tier;
    printf("%s, %llu x %u x %u\n", l->name, l->rows, l->in, l->out);
    if (winattn_linear_plan_create(j->device->context, j->device->id, &desc,
                                   &own) != WINATTN_SUCCESS) {
        printf("  %s\n", winattn_last_reason());
        return false;
    }
    layer_search s = {.j = j,
                      .l = l,
                      .found = {.problem = &own->problem,
                                .device = j->capabilities,
                                .tier = own->layout.tier,
                                .rows = l->rows}};
    s.found.id = wa_linear_kernel_for(&own->layout, &own->problem, l->rows);
    printf("  tier %s, kernel for %s rows, shape %s\n",
           wa_tier_name(own->layout.tier),
           s.found.id == WA_LINEAR_FEW ? "few" : "many",
           own->layout.source[s.found.id]);
    if (layer_open(&s.run, l, j->dtype, j->device, own))
        good = tune_with(&s, seconds);
    else
        printf("  the device's memory does not suffice\n");
    layer_close(&s.run);
    layer_shapes_free(&s.found);
    winattn_linear_plan_destroy(own);
    return good;
}

bool layer_tune(const layer_job *j, const char *text)
{
    bench_layer layers[MOST_LAYERS];
    winattn_programs *programs = NULL; /* layers have kernels in common */
    const int count = read_layers(text, layers);
    const double end = now_seconds() + j->seconds;
    bool good = winattn_programs_create(j->device->context, j->device->id,
                                        &programs) == WINATTN_SUCCESS;
    for (int i = 0; i < count; i++)
        good = tune_layer(j, &layers[i],
                          fmax(end - now_seconds(), 0) / (count - i)) &&
               good;
    winattn_programs_destroy(programs);
    return good;
}
