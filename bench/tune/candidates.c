/* SPDX-License-Identifier: Apache-2.0
 * Holds shapes, and finds their neighbours. */
#include "tune/subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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

void candidates_follow(candidates *c, size_t of, candidates_filter *is_legal,
                       const void *data)
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
            if (is_legal(data, shape))
                candidates_add(c, shape, NAN);
        }
    }
}
