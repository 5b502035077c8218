/* SPDX-License-Identifier: Apache-2.0
 * What a test demands, from words to a plan. */
#include "demand.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shapes.h"

/* ---- Text ---- */

/* The part of `word` behind "name="; NULL: it is another word. */
static const char *value_of(const char *word, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(word, name, length) == 0 && word[length] == '='
               ? word + length + 1
               : NULL;
}

/* False: the word is none of these. */
static bool take_word(const char *word, demand *d)
{
    const char *value;
    if ((value = value_of(word, "unit")))
        return (d->unit = wa_matrix_unit_named(value)) != NULL;
    if ((value = value_of(word, "shape")))
        snprintf(d->shape, sizeof d->shape, "%s", value);
    else if ((value = value_of(word, "rows")))
        snprintf(d->rows, sizeof d->rows, "%s", value);
    else if ((value = value_of(word, "kernel")))
        snprintf(d->kernel, sizeof d->kernel, "%s", value);
    else if ((value = value_of(word, "registers")))
        d->registers = atoi(value);
    else if ((value = value_of(word, "launch")))
        d->launch = atoi(value);
    else if ((value = value_of(word, "groups")))
        d->groups = atoi(value);
    else if ((value = value_of(word, "pairs")))
        d->pairs = atoi(value);
    return value != NULL;
}

bool demand_parse(const char *text, test_case *c, demand *d, char bad[64])
{
    char word[96], rest[1024] = "";
    int length;
    while (sscanf(text, " %95s%n", word, &length) == 1) {
        const size_t used = strlen(rest);
        text += length;
        if (!take_word(word, d))
            snprintf(rest + used, sizeof rest - used, "%s ", word);
    }
    return case_parse(rest, c, bad);
}

static void append_number(char *text, size_t size, const char *name, int n)
{
    const size_t used = strlen(text);
    if (n)
        snprintf(text + used, size - used, " %s=%d", name, n);
}

static void append_word(char *text, size_t size, const char *name,
                        const char *word)
{
    const size_t used = strlen(text);
    if (word[0])
        snprintf(text + used, size - used, " %s=%s", name, word);
}

void demand_print(const test_case *c, const demand *d, char *text, size_t size)
{
    case_print(c, text, size);
    append_word(text, size, "unit", d->unit ? d->unit->name : "");
    append_word(text, size, "shape", d->shape);
    append_word(text, size, "rows", d->rows);
    append_word(text, size, "kernel", d->kernel);
    append_number(text, size, "registers", d->registers);
    append_number(text, size, "launch", d->launch);
    append_number(text, size, "groups", d->groups);
    append_number(text, size, "pairs", d->pairs);
}

/* ---- Shapes of a unit, from tiles ---- */

static wa_tuned_kernel kernel_of(const test_case *c)
{
    const bool is_matrix = c->tier == WINATTN_TIER_MATRIX;
    if (c->pass == PASS_FORWARD)
        return is_matrix ? WA_MATRIX_FORWARD : WA_LOCAL_FORWARD;
    return is_matrix ? WA_MATRIX_BACKWARD : WA_LOCAL_BACKWARD;
}

/* So many tiles, but at most `all`; all for 0 tiles. */
static uint32_t matrix_tiles(uint32_t tiles, uint32_t tile, int all)
{
    return tiles == 0 || tiles * tile > (uint32_t)all ? (uint32_t)all
                                                      : tiles * tile;
}

static void fit_forward(const test_case *c, const wa_matrix_unit *unit,
                        wa_matrix_shape *s)
{
    /* numbers of tokens say nothing of sliding shapes */
    const bool slides = c->variant == WINATTN_SLIDING;
    s->block_rows = matrix_tiles(s->block_rows, unit->queries,
                                 slides ? INT_MAX : c->queries);
    s->block_keys =
        matrix_tiles(s->block_keys, unit->tile, slides ? INT_MAX : c->keys);
    s->subtile_keys *= unit->tile;
    if (s->bias_cache == 2) /* each wave has its own rows */
        s->waves_per_window =
            (s->block_rows + unit->queries - 1) / unit->queries;
}

/* A sliding one, which has turns instead. */
static void fit_sliding(const wa_matrix_unit *unit,
                        wa_matrix_gradient_shape *s)
{
    wa_matrix_shape *r = &s->rows, *k = &s->keys;
    r->block_rows *= r->waves_per_window * unit->queries;
    r->block_keys *= unit->tile;
    r->subtile_keys *= unit->tile;
    k->block_rows *= unit->tile;
    k->block_keys *= k->waves_per_window * unit->queries;
    k->subtile_keys *= unit->tile;
}

static void fit_backward(const test_case *c, const wa_matrix_unit *unit,
                         wa_matrix_gradient_shape *s)
{
    wa_matrix_shape *r = &s->rows;
    r->block_rows = matrix_tiles(r->block_rows, unit->queries, c->queries);
    const uint32_t row_tiles = wa_ceil_div(r->block_rows, unit->queries);
    if (r->waves_per_window < row_tiles)
        r->waves_per_window = row_tiles;
    if (r->subtile_keys == 0)
        r->subtile_keys = wa_ceil_div((uint32_t)c->keys, unit->tile);
    r->subtile_keys *= unit->tile;
    if (r->block_keys == 0)
        return;
    wa_matrix_shape *k = &s->keys;
    r->block_keys = matrix_tiles(r->block_keys, unit->tile, c->keys);
    k->block_rows = matrix_tiles(k->block_rows, unit->tile, c->queries);
    k->block_keys = matrix_tiles(k->block_keys, unit->queries, c->keys);
    const uint32_t key_tiles = wa_ceil_div(k->block_keys, unit->queries);
    if (k->waves_per_window < key_tiles)
        k->waves_per_window = key_tiles;
    if (k->subtile_keys == 0)
        k->subtile_keys = wa_ceil_div(k->block_rows, unit->tile);
    k->subtile_keys *= unit->tile;
}

bool demand_fit(const test_case *c, demand *d)
{
    const wa_tuned_kernel kernel = kernel_of(c);
    wa_tuned_shape s;
    if (c->tier != WINATTN_TIER_MATRIX || !d->shape[0])
        return true;
    if (!wa_tuned_shape_parse(kernel, d->shape, &s))
        return false;
    if (c->pass == PASS_FORWARD)
        fit_forward(c, d->unit, &s.matrix_forward);
    else if (c->variant == WINATTN_SLIDING)
        fit_sliding(d->unit, &s.matrix_backward);
    else
        fit_backward(c, d->unit, &s.matrix_backward);
    wa_tuned_shape_print(kernel, &s, d->shape, sizeof d->shape);
    return true;
}

/* ---- Plans ---- */

static bool read_shapes(const test_case *c, const demand *d,
                        wa_tuned_shape *shape, wa_tuned_shape *rows)
{
    return wa_tuned_shape_parse(kernel_of(c), d->shape, shape) &&
           (!d->rows[0] || wa_tuned_shape_parse(kernel_of(c), d->rows, rows));
}

bool demand_is_shape(const test_case *c, const demand *d)
{
    wa_tuned_shape shape, rows;
    return !d->shape[0] || read_shapes(c, d, &shape, &rows);
}

bool demand_plan(const test_case *c, const demand *d,
                 const wa_problem *problem, const wa_device *device,
                 wa_plan *plan)
{
    wa_tuned_shape shape, rows;
    wa_plan_begin(c->pass == PASS_FORWARD ? WA_FORWARD : WA_BACKWARD, plan);
    if (!read_shapes(c, d, &shape, &rows))
        return false;
    if (!d->rows[0])
        return plan_shape(kernel_of(c), problem, device, &shape, plan);
    const wa_tuned_shape pair = {
        .local_pair = {rows.local_backward.fused, shape.local_backward.fused}};
    return wa_take_shape(&wa_local_pair, problem, device, &pair, plan);
}

bool demand_is_legal(const test_case *c, const demand *d,
                     const wa_device *device)
{
    const winattn_desc desc = case_desc(c);
    wa_problem problem;
    wa_plan plan;
    return wa_problem_read(&desc, &problem) == WINATTN_SUCCESS &&
           (!d->shape[0] || demand_plan(c, d, &problem, device, &plan));
}
