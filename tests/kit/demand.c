/* SPDX-License-Identifier: Apache-2.0
 * Cases with plans of a test's own. */
#include "demand.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    wa_matrix_shape *k = &s->keys;
    s->block_rows *= s->waves_per_window * unit->queries;
    s->block_keys *= unit->tile;
    s->subtile_keys *= unit->tile;
    k->block_rows *= unit->tile;
    k->block_keys *= k->waves_per_window * unit->queries;
    k->subtile_keys *= unit->tile;
}

static void fit_backward(const test_case *c, const wa_matrix_unit *unit,
                         wa_matrix_gradient_shape *s)
{
    const uint32_t waves = s->waves_per_window;
    s->block_rows = matrix_tiles(s->block_rows, unit->queries, c->queries);
    const uint32_t row_tiles = wa_ceil_div(s->block_rows, unit->queries);
    if (s->waves_per_window < row_tiles)
        s->waves_per_window = row_tiles;
    if (s->subtile_keys == 0)
        s->subtile_keys = wa_ceil_div((uint32_t)c->keys, unit->tile);
    s->subtile_keys *= unit->tile;
    if (s->block_keys == 0)
        return;
    wa_matrix_shape *k = &s->keys;
    s->block_keys = matrix_tiles(s->block_keys, unit->tile, c->keys);
    if (s->block_keys == (uint32_t)c->keys && s->keeps_dbias != 1)
        s->waves_per_window = waves;
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
    wa_matrix_shape forward;
    wa_matrix_gradient_shape backward;
    if (c->tier != WINATTN_TIER_MATRIX || !d->shape[0])
        return true;
    if (c->pass == PASS_FORWARD) {
        if (!matrix_shape_parse(d->shape, &forward))
            return false;
        fit_forward(c, d->unit, &forward);
        matrix_shape_print(&forward, d->shape, sizeof d->shape);
        return true;
    }
    if (!matrix_gradient_shape_parse(d->shape, &backward))
        return false;
    if (c->variant == WINATTN_SLIDING)
        fit_sliding(d->unit, &backward);
    else
        fit_backward(c, d->unit, &backward);
    matrix_gradient_shape_print(&backward, d->shape, sizeof d->shape);
    return true;
}

/* ---- Shapes as the planner has them ---- */

/* Room for those of either pass and tier. */
typedef struct shapes {
    wa_matrix_shape matrix;
    wa_matrix_gradient_shape gradients;
    wa_local_shape local;
    wa_gradient_shape keys, rows;
} shapes;

static bool read_shapes(const test_case *c, const demand *d, shapes *s)
{
    const bool is_matrix = c->tier == WINATTN_TIER_MATRIX;
    if (!d->shape[0])
        return true;
    if (c->pass == PASS_FORWARD)
        return is_matrix ? matrix_shape_parse(d->shape, &s->matrix)
                         : shape_parse(d->shape, &s->local);
    if (is_matrix)
        return matrix_gradient_shape_parse(d->shape, &s->gradients);
    return gradient_shape_parse(d->shape, &s->keys) &&
           (!d->rows[0] || gradient_shape_parse(d->rows, &s->rows));
}

bool demand_is_legal(const test_case *c, const demand *d,
                     const wa_device *device)
{
    const bool is_matrix = c->tier == WINATTN_TIER_MATRIX;
    const winattn_desc desc = case_desc(c);
    wa_problem problem;
    wa_plan plan;
    shapes s;
    if (!read_shapes(c, d, &s) ||
        wa_problem_read(&desc, &problem) != WINATTN_SUCCESS)
        return false;
    if (!d->shape[0])
        return true;
    wa_plan_begin(c->pass == PASS_FORWARD ? WA_FORWARD : WA_BACKWARD, &plan);
    if (c->pass == PASS_FORWARD)
        return is_matrix ? demand_matrix(&problem, device, &s.matrix, &plan)
                         : demand_local(&problem, device, &s.local, &plan);
    return is_matrix
               ? demand_matrix_gradients(&problem, device, &s.gradients, &plan)
               : demand_gradients(&problem, device,
                                  d->rows[0] ? &s.rows : NULL, &s.keys, &plan);
}

/* ---- Runs ---- */

static bool bad_shape(const demand *d, case_result *result)
{
    memset(result, 0, sizeof *result);
    snprintf(result->failure, sizeof result->failure,
             "no shape of the kernel: %s %s", d->shape, d->rows);
    return false;
}

/* Does the device itself take that unit for the tier? */
static bool is_own(const test_device *device, const wa_matrix_unit *unit)
{
    wa_device own;
    return !unit || (wa_device_query(device->id, &own) == WINATTN_SUCCESS &&
                     own.matrix_unit == unit);
}

/* Several launches of a call may run beside each other, if nothing orders
 * them. */
static cl_command_queue queue_of(const test_device *device, const demand *d)
{
    return d->launch && device->unordered ? device->unordered : device->queue;
}

static bool run_forward(const test_device *device, const test_case *c,
                        const demand *d, case_result *result)
{
    const bool is_matrix = c->tier == WINATTN_TIER_MATRIX;
    shapes s;
    if (!read_shapes(c, d, &s))
        return bad_shape(d, result);
    const demanded_plan plan = {
        .matrix_unit = d->unit,
        .matrix = d->shape[0] && is_matrix ? &s.matrix : NULL,
        .shape = d->shape[0] && !is_matrix ? &s.local : NULL,
        /* of a unit that the device does not take itself it holds few, and
         * whether they go on to other rows must not depend on the case */
        .held_groups = d->groups                 ? (uint32_t)d->groups
                       : is_own(device, d->unit) ? 0
                                                 : 1,
        .work_tiles_per_launch = (uint32_t)d->launch};
    return planned_run(device, queue_of(device, d), c, &plan, result);
}

static bool run_backward(const test_device *device, const test_case *c,
                         const demand *d, case_result *result)
{
    const bool is_matrix = c->tier == WINATTN_TIER_MATRIX;
    shapes s;
    if (!read_shapes(c, d, &s))
        return bad_shape(d, result);
    const demanded_backward plan = {
        .matrix_unit = d->unit,
        .matrix = d->shape[0] && is_matrix ? &s.gradients : NULL,
        .keys = d->shape[0] && !is_matrix ? &s.keys : NULL,
        .rows = d->rows[0] ? &s.rows : NULL,
        .held_groups = (uint32_t)d->groups,
        .windows = (unsigned)d->launch,
        .registers = (uint32_t)d->registers,
        .finds_pairs = d->pairs != 0};
    return planned_backward(device, queue_of(device, d), c, &plan, result);
}

/* Has the plan of the public interface the kernel? */
static bool has_kernel(const test_device *device, const test_case *c,
                       const char *name, case_result *result)
{
    char text[4096] = "", line[128];
    case_buffers *data = data_make(c);
    winattn_plan *plan = NULL;
    memset(result, 0, sizeof *result);
    if (data) {
        const winattn_desc desc = data_desc(data);
        if (winattn_plan_create(device->context, device->id, &desc, &plan) ==
            WINATTN_SUCCESS)
            winattn_plan_describe(plan, sizeof text, text, NULL);
    }
    winattn_plan_destroy(plan);
    data_free(data);
    snprintf(line, sizeof line, "kernel: %s", name);
    if (strstr(text, line))
        return true;
    snprintf(result->failure, sizeof result->failure, "not by %s: %.300s",
             name, text[0] ? text : winattn_last_reason());
    return false;
}

bool demand_run(const test_device *device, const test_case *c, const demand *d,
                case_result *result)
{
    if (d->kernel[0] && !has_kernel(device, c, d->kernel, result))
        return false;
    if (!d->shape[0] && !d->registers && !d->launch && !d->groups &&
        !d->pairs && is_own(device, d->unit))
        return case_run(device, device->queue, c, 0, result);
    return c->pass == PASS_FORWARD ? run_forward(device, c, d, result)
                                   : run_backward(device, c, d, result);
}
