/* SPDX-License-Identifier: Apache-2.0
 * Attention as a subject of the tuner. */
#include "tune/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/run.h"
#include "kit/shapes.h"
#include "measure/accuracy.h"
#include "measure/workload.h"
#include "plan/tuning.h"

/* Window-heads that are compared with the oracle. */
#define SAMPLES 4

static const attention *of(const subject *s) { return (const attention *)s; }

/* ---- Plans and calls ---- */

static void *open_call(const subject *s)
{
    const workload *w = &of(s)->w;
    bench_call *call = malloc(sizeof *call);
    if (!call)
        return NULL;
    if (call_open(w->device, &w->d->c,
                  w->pass == BENCH_FORWARD ? WINATTN_PASS_FORWARD
                                           : WINATTN_PASS_BACKWARD,
                  call) == WINATTN_SUCCESS) {
        call->w = w;
        return call;
    }
    call_close(call);
    free(call);
    return NULL;
}

static void close_call(void *call)
{
    if (call)
        call_close(call);
    free(call);
}

/* What the plan says behind `name`, of the pass. */
static void describe(const subject *s, const bench_call *call,
                     const char *name, char *text, size_t size)
{
    char line[64];
    snprintf(line, sizeof line,
             "%s%s: ", of(s)->w.pass == BENCH_FORWARD ? "" : "backward ",
             name);
    call_described(call->plan, line, text, size);
}

static bool takes_row(const subject *s, const void *call, char *why,
                      size_t size)
{
    char reason[WA_REASON_SIZE];
    describe(s, call, "reason", reason, sizeof reason);
    describe(s, call, "measured shape not taken", why, size);
    return strstr(reason, "row that was loaded") != NULL;
}

static double error_of(const subject *s, void *call)
{
    const workload *w = &of(s)->w;
    if (!workload_poison(w) || s->enqueue(call, 0) != WINATTN_SUCCESS ||
        clFinish(s->device->queue) != CL_SUCCESS)
        return NAN;
    return accuracy_error(w, accuracy_all(&w->d->c), SAMPLES);
}

/* ---- Shapes ---- */

static wa_tuned_kernel kernel_of(const subject *s)
{
    return (wa_tuned_kernel)s->kind;
}

static bool is_shape(const subject *s, const char *text)
{
    wa_tuned_shape shape;
    return wa_tuned_shape_parse(kernel_of(s), text, &shape);
}

static void print_row(const subject *s, const char *shape, char *text,
                      size_t size)
{
    char words[WA_ROW_WORDS_SIZE];
    wa_tuned_shape parsed;
    wa_tuned_shape_parse(kernel_of(s), shape, &parsed);
    wa_tuned_words(kernel_of(s), &of(s)->problem, &parsed, words,
                   sizeof words);
    const wa_tuned_row row = wa_tuned_row_of(
        wa_tuned_kernel_name(kernel_of(s)), s->capabilities, words);
    wa_tuned_row_print(&row, text, size);
}

/* No larger than the problem, and of whole waves. */
static bool is_sensible(const subject *s, uint32_t block_rows,
                        uint32_t block_keys, uint32_t team)
{
    const wa_problem *problem = &of(s)->problem;
    const uint32_t wave =
        s->capabilities->wave > 0 ? s->capabilities->wave : 1;
    return block_rows <= problem->queries && block_keys <= problem->keys &&
           team % wave == 0;
}

static bool is_legal(const subject *s, const char *text)
{
    wa_tuned_shape shape;
    const wa_problem *problem = &of(s)->problem;
    const wa_local_shape *l = &shape.local_forward;
    const wa_matrix_shape *m = &shape.matrix_forward;
    const wa_gradient_shape *g = &shape.local_backward.fused;
    const wa_matrix_gradient_shape *b = &shape.matrix_backward;
    const bool has_score_bias = wa_problem_has_score_bias(problem);
    bool sensible;
    wa_plan plan;
    if (!wa_tuned_shape_parse(kernel_of(s), text, &shape))
        return false;
    switch (kernel_of(s)) {
    case WA_LOCAL_FORWARD:
        sensible = is_sensible(s, l->block_rows, l->block_keys, l->team);
        break;
    case WA_MATRIX_FORWARD:
        sensible = is_sensible(s, m->block_rows, m->block_keys, 0) &&
                   (has_score_bias || m->bias_cache == 0);
        break;
    case WA_LOCAL_BACKWARD:
        sensible = is_sensible(s, g->block_rows, g->block_keys, g->team);
        break;
    default:
        sensible = is_sensible(s, b->rows.block_rows, b->rows.block_keys, 0) &&
                   is_sensible(s, b->keys.block_rows, b->keys.block_keys, 0) &&
                   (has_score_bias ||
                    (b->rows.bias_cache == 0 && b->keys.bias_cache == 0));
    }
    wa_plan_begin(WA_FORWARD, &plan);
    return sensible &&
           plan_shape(kernel_of(s), problem, s->capabilities, &shape, &plan);
}

/* Where shapes are collected, and which kernel's they are. */
typedef struct collection {
    wa_tuned_kernel kernel;
    candidates *to;
} collection;

static void add_shape(void *data, const wa_tuned_shape *shape, double cost)
{
    const collection *c = data;
    char text[SHAPE_SIZE];
    wa_tuned_shape_print(c->kernel, shape, text, sizeof text);
    candidates_append(c->to, text, cost);
}

/* All that the planner chooses from, and the built-in row's. */
static void collect(const subject *s, candidates *c)
{
    const wa_problem *problem = &of(s)->problem;
    collection all = {kernel_of(s), c};
    wa_tuned built_in;
    visit_shapes(all.kernel, problem, s->capabilities, add_shape, &all);
    if (wa_find_tuned(all.kernel, problem, s->capabilities, 0, &built_in))
        add_shape(&all, &built_in.shape, 0);
    candidates_sort(c);
}

/* ---- Start and end ---- */

/* The kernel that has so many numbers in its shapes. */
static wa_tuned_kernel kernel_of_shape(const char *text, bench_pass pass)
{
    size_t colons = 0;
    for (; *text; text++)
        colons += *text == ':';
    const bool matrix = colons == 6 || colons == 14;
    return pass == BENCH_FORWARD
               ? (matrix ? WA_MATRIX_FORWARD : WA_LOCAL_FORWARD)
               : (matrix ? WA_MATRIX_BACKWARD : WA_LOCAL_BACKWARD);
}

/* The kernel that a plan takes; false if there is none, or it has no rows. */
static bool choose_kernel(subject *s)
{
    const bool forward = of(s)->w.pass == BENCH_FORWARD;
    char tier[16];
    bench_call *call = s->open(s);
    if (!call) {
        printf("  %s\n", winattn_last_reason());
        return false;
    }
    describe(s, call, "tier", tier, sizeof tier);
    s->close(call);
    if (strcmp(tier, "matrix") == 0)
        s->kind = forward ? WA_MATRIX_FORWARD : WA_MATRIX_BACKWARD;
    else if (strcmp(tier, "local") == 0)
        s->kind = forward ? WA_LOCAL_FORWARD : WA_LOCAL_BACKWARD;
    else
        printf("  the plan takes tier %s, which has nothing to tune\n", tier);
    return strcmp(tier, "cpu") != 0;
}

bool attention_open(attention *a, const bench_device *device,
                    const wa_device *capabilities, const test_case *c,
                    bench_pass pass, const char *shape)
{
    test_case own = *c;
    memset(a, 0, sizeof *a);
    subject *s = &a->s;
    *s = (subject){.device = device,
                   .capabilities = capabilities,
                   .bytes = workload_bytes(c, pass),
                   .operations = workload_operations(c, pass),
                   .promised = promised_error(c->dtype),
                   .open = open_call,
                   .close = close_call,
                   .enqueue = call_pass[pass],
                   .takes_row = takes_row,
                   .error = error_of,
                   .is_shape = is_shape,
                   .is_legal = is_legal,
                   .print_row = print_row,
                   .collect = collect};
    if (shape) {
        s->kind = kernel_of_shape(shape, pass);
        own.tier = kernel_of(s) == WA_MATRIX_FORWARD ||
                           kernel_of(s) == WA_MATRIX_BACKWARD
                       ? WINATTN_TIER_MATRIX
                       : WINATTN_TIER_LOCAL;
    }
    if (!workload_create(device, &own, pass, MOST_SETS, false, &a->w)) {
        printf("  the device's memory does not suffice\n");
        return false;
    }
    if (wa_problem_read(&a->w.desc, &a->problem) != WINATTN_SUCCESS ||
        (pass == BENCH_BACKWARD &&
         call_provide_outputs(&a->w, a->w.sets) != WINATTN_SUCCESS)) {
        printf("  %s\n", winattn_last_reason());
        return false;
    }
    return shape || choose_kernel(s);
}

void attention_close(attention *a) { workload_release(&a->w); }
