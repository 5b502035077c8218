/* SPDX-License-Identifier: Apache-2.0
 * Collects the planner's shapes and their neighbours. */
#include "tune/candidates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "kit/shapes.h"
#include "plan/tuning.h"

#define SHAPE_SIZE 128
#define MOST_NUMBERS 15

void candidates_free(candidates *c)
{
    free(c->all);
    c->all = NULL;
    c->count = c->room = 0;
}

static void append(candidates *c, const wa_tuned_shape *shape, double cost)
{
    if (c->count == c->room) {
        const size_t room = c->room ? 2 * c->room : 1024;
        candidate *all = realloc(c->all, room * sizeof *all);
        if (!all) {
            c->overflowed = true;
            return;
        }
        c->all = all;
        c->room = room;
    }
    const candidate fresh = {.shape = *shape, .cost = cost};
    c->all[c->count++] = fresh;
}

void candidates_add(candidates *c, const wa_tuned_shape *shape, double cost)
{
    char text[SHAPE_SIZE], other[SHAPE_SIZE];
    wa_tuned_shape_print(c->kernel, shape, text, sizeof text);
    for (size_t i = 0; i < c->count; i++) {
        wa_tuned_shape_print(c->kernel, &c->all[i].shape, other, sizeof other);
        if (strcmp(text, other) == 0)
            return;
    }
    append(c, shape, cost);
}

/* ---- The planner's ---- */

static void collect(void *data, const wa_tuned_shape *shape, double cost)
{
    append(data, shape, cost);
}

static int by_cost(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->cost;
    const double y = ((const candidate *)b)->cost;
    return (x > y) - (x < y);
}

void candidates_collect(candidates *c)
{
    wa_tuned built_in;
    visit_shapes(c->kernel, c->problem, c->device, collect, c);
    if (wa_find_tuned(c->kernel, c->problem, c->device, 0, &built_in))
        append(c, &built_in.shape, 0);
    if (c->count > 0)
        qsort(c->all, c->count, sizeof *c->all, by_cost);
}

/* ---- Neighbours ---- */

/* No larger than the problem, and of whole waves. */
static bool is_sensible(const candidates *c, uint32_t block_rows,
                        uint32_t block_keys, uint32_t team)
{
    const uint32_t wave = c->device->wave > 0 ? c->device->wave : 1;
    return block_rows <= c->problem->queries &&
           block_keys <= c->problem->keys && team % wave == 0;
}

static bool is_legal(const candidates *c, const wa_tuned_shape *s)
{
    const wa_local_shape *l = &s->local_forward;
    const wa_matrix_shape *m = &s->matrix_forward;
    const wa_gradient_shape *g = &s->local_backward.fused;
    const wa_matrix_gradient_shape *b = &s->matrix_backward;
    const bool has_score_bias = wa_problem_has_score_bias(c->problem);
    bool sensible;
    wa_plan plan;
    switch (c->kernel) {
    case WA_LOCAL_FORWARD:
        sensible = is_sensible(c, l->block_rows, l->block_keys, l->team);
        break;
    case WA_MATRIX_FORWARD:
        sensible = is_sensible(c, m->block_rows, m->block_keys, 0) &&
                   (has_score_bias || m->bias_cache == 0);
        break;
    case WA_LOCAL_BACKWARD:
        sensible = is_sensible(c, g->block_rows, g->block_keys, g->team);
        break;
    default:
        sensible = is_sensible(c, b->block_rows, b->block_keys, 0) &&
                   is_sensible(c, b->keys.block_rows, b->keys.block_keys, 0) &&
                   (has_score_bias ||
                    (b->bias_cache == 0 && b->keys.bias_cache == 0));
    }
    wa_plan_begin(WA_FORWARD, &plan);
    return sensible && plan_shape(c->kernel, c->problem, c->device, s, &plan);
}

/* The shape with number `at` changed. */
static bool changed(const candidates *c, const unsigned long *numbers,
                    size_t count, size_t at, unsigned long number,
                    wa_tuned_shape *shape)
{
    char text[SHAPE_SIZE] = "";
    for (size_t i = 0; i < count; i++)
        wa_append(text, sizeof text, "%s%lu", i ? ":" : "",
                  i == at ? number : numbers[i]);
    return wa_tuned_shape_parse(c->kernel, text, shape);
}

void candidates_follow(candidates *c, size_t of)
{
    /* one more or less of what is counted, of tiles and of waves */
    static const unsigned long steps[] = {1, 8, 16, 32};
    unsigned long numbers[MOST_NUMBERS];
    char text[SHAPE_SIZE], *rest = text;
    size_t count = 0;
    c->all[of].has_followed = true;
    wa_tuned_shape_print(c->kernel, &c->all[of].shape, text, sizeof text);
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
            wa_tuned_shape shape;
            if (changed(c, numbers, count, at, others[i], &shape) &&
                is_legal(c, &shape))
                candidates_add(c, &shape, NAN);
        }
    }
}
