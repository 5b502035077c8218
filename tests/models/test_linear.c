/* SPDX-License-Identifier: Apache-2.0
 * Linear layers against fp64, on a tier or on a matrix unit, which is
 * emulated where the device does not have it.
 *
 *   test_linear cpu|local|UNIT          every row of a table, in each type
 *   test_linear cpu|local|UNIT each     in one type, the next row in another
 *   test_linear cpu|local|UNIT few      every third row, in one type
 *   test_linear cpu|local|UNIT small    small ones in one type, for slow
 *                                       simulators */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/emulated.h"
#include "linear_case.h"
#include "session/session.h"

static winattn_tier tier;
static const wa_matrix_unit *unit; /* of tier matrix */
static const char *part = "all";

static const linear_case table[] = {
    /* one of everything, then odd numbers of all */
    {.rows = 1, .in = 1, .out = 1},
    {.rows = 1, .in = 40, .out = 70, .has_bias = true},
    {.rows = 37, .in = 96, .out = 1, .has_bias = true, .gelu = true},
    {.rows = 70, .in = 33, .out = 51, .has_bias = true, .spread = 3},
    {.rows = 33,
     .in = 127,
     .out = 65,
     .gelu = true,
     .has_residual = true,
     .spread = 1},
    {.rows = 40,
     .in = 96,
     .out = 96,
     .has_bias = true,
     .has_residual = true,
     .spread = 8},
    /* whole vectors: what models have */
    {.rows = 49, .in = 96, .out = 288, .layer_norm = true, .has_bias = true},
    {.rows = 64, .in = 64, .out = 64},
    {.rows = 64,
     .in = 128,
     .out = 96,
     .layer_norm = true,
     .has_bias = true,
     .gelu = true,
     .has_residual = true},
    {.rows = 50,
     .in = 192,
     .out = 48,
     .has_bias = true,
     .has_residual = true,
     .in_place = true},
    {.rows = 21,
     .in = 50,
     .out = 30,
     .has_residual = true,
     .in_place = true,
     .spread = 5},
    /* norms */
    {.rows = 19, .in = 45, .out = 33, .layer_norm = true, .spread = 1},
    {.rows = 9, .in = 1, .out = 20, .layer_norm = true},
    {.rows = 20,
     .in = 64,
     .out = 40,
     .layer_norm = true,
     .data = DATA_CONSTANT_ROWS},
    {.rows = 20,
     .in = 100,
     .out = 40,
     .layer_norm = true,
     .has_bias = true,
     .data = DATA_OFFSET},
    {.rows = 12, .in = 24, .out = 40, .layer_norm = true, .eps = 0.5f},
    /* a stage more, and many */
    {.rows = 35, .in = 520, .out = 40, .data = DATA_POSITIVE},
    {.rows = 20, .in = 700, .out = 36, .layer_norm = true, .has_bias = true},
    /* sums whose own rounding shows in the mean */
    {.rows = 3, .in = 65536, .out = 4, .layer_norm = true, .data = DATA_MEAN},
    /* GELU's tails */
    {.rows = 30,
     .in = 16,
     .out = 200,
     .has_bias = true,
     .gelu = true,
     .data = DATA_TAILS},
    {.rows = 150, .in = 32, .out = 140, .has_bias = true, .gelu = true},
};
#define ROWS (sizeof table / sizeof *table)

/* In tiles of the unit: a wave's, waves; then numbers of a stage, stages. */
static const struct {
    unsigned rows, columns, row_waves, column_waves, dim_waves, dims, stages;
} shapes[] = {{1, 1, 1, 1, 1, 1, 2}, {2, 2, 1, 2, 1, 2, 2},
              {1, 2, 2, 1, 1, 4, 3}, {1, 1, 1, 1, 2, 2, 3},
              {1, 3, 2, 2, 1, 2, 2}, {2, 1, 1, 1, 4, 4, 4}};
#define SHAPES (sizeof shapes / sizeof *shapes)

static wa_linear_shape shape_of(size_t i)
{
    const wa_linear_shape s = {
        .block_rows = shapes[i].rows * shapes[i].row_waves * unit->queries,
        .block_columns =
            shapes[i].columns * shapes[i].column_waves * unit->tile,
        .stage_dims = shapes[i].dims * unit->tile,
        .stages = shapes[i].stages,
        .row_waves = shapes[i].row_waves,
        .column_waves = shapes[i].column_waves,
        .dim_waves = shapes[i].dim_waves};
    return s;
}

static bool is_part(const char *name) { return strcmp(part, name) == 0; }

/* Of the types those that the tier has. */
static int first_dtype(void)
{
    return unit && !unit->has_tf32 ? WINATTN_FP16 : WINATTN_FP32;
}

static void each_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        linear_case c = table[i];
        c.tier = tier;
        c.seed = (unsigned)i + 1;
        if (is_part("few") && (i + (size_t)(unit - wa_matrix_units)) % 3 != 0)
            continue;
        if (is_part("small") && c.rows * c.in * c.out > 40000)
            continue;
        for (int dtype = first_dtype(); dtype <= WINATTN_BF16; dtype++) {
            const int own =
                first_dtype() + (int)i % (WINATTN_BF16 + 1 - first_dtype());
            if (!is_part("all") && dtype != own)
                continue;
            c.dtype = (winattn_dtype)dtype;
            c.allow_tf32 = unit && dtype == WINATTN_FP32;
            const wa_linear_shape shape =
                unit ? shape_of(i % SHAPES) : (wa_linear_shape){0};
            run_linear(&c, unit ? &shape : NULL);
        }
    }
}

/* While the session is held, the device has the unit. */
static wa_session *pretend(void)
{
    wa_session *session;
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    wa_device *told = (wa_device *)(size_t)wa_session_device(session);
    if (told->matrix_unit == unit)
        return session;
    told->matrix_unit = unit;
    told->emulates_matrix_unit = true;
    told->loop_limit = 0;
    if (told->max_work_group > 256) /* PoCL's stack holds no more */
        told->max_work_group = 256;
    return session;
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_row)};
    const char *name = count > 1 ? arguments[1] : "cpu";
    if (count > 2)
        part = arguments[2];
    tier = WINATTN_TIER_MATRIX;
    unit = wa_matrix_unit_named(name);
    if (strcmp(name, "cpu") == 0)
        tier = WINATTN_TIER_CPU;
    else if (strcmp(name, "local") == 0)
        tier = WINATTN_TIER_LOCAL;
    else if (!unit || (count > 2 && !is_part("each") && !is_part("few") &&
                       !is_part("small"))) {
        fprintf(stderr, "test_linear cpu|local|UNIT [each|few|small]\n");
        return 2;
    }
    if (!runner_open())
        return 77;
    if (unit && !can_emulate())
        return 77;
    wa_session *session = unit ? pretend() : NULL;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (session)
        wa_session_release(session);
    runner_close();
    return failed;
}
