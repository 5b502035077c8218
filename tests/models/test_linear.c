/* SPDX-License-Identifier: Apache-2.0
 * Linear layers against fp64, on a tier or on a matrix unit; skipped where the
 * device has no unit.
 *
 *   test_linear cpu|local|UNIT          every row of a table, in each type
 *   test_linear cpu|local|UNIT each     in one type, the next row in another
 *   test_linear cpu|local|UNIT few      every third row, in one type
 *   test_linear cpu|local|UNIT small    small ones in one type, for slow
 *                                       simulators */
#include <string.h>

#include "kit/cases.h"
#include "linear_case.h"
#include "models/linear_plan.h"
#include "session/session.h"

static wa_session *session;
static const wa_device *told;
static const wa_matrix_unit *unit; /* NULL: of another tier than matrix */

static const linear_case table[] = {
    /* one of everything, then odd numbers of all */
    {1, 1, 1, 0, .spread = 0},
    {1, 40, 70, BIAS, .spread = 0},
    {37, 96, 1, BIAS | GELU, .spread = 0},
    {70, 33, 51, BIAS, .spread = 3},
    {33, 127, 65, GELU | RESIDUAL, .spread = 1},
    {40, 96, 96, BIAS | RESIDUAL, .spread = 8},
    /* whole vectors: what models have */
    {49, 96, 288, NORM | BIAS, .spread = 0},
    {64, 64, 64, 0, .spread = 0},
    {64, 128, 96, NORM | BIAS | GELU | RESIDUAL, .spread = 0},
    {50, 192, 48, BIAS | IN_PLACE, .spread = 0},
    {21, 50, 30, IN_PLACE, .spread = 5},
    /* norms */
    {19, 45, 33, NORM, .spread = 1},
    {9, 1, 20, NORM, .spread = 0},
    {20, 64, 40, NORM, .data = DATA_CONSTANT_ROWS},
    {20, 100, 40, NORM | BIAS, .data = DATA_OFFSET},
    {12, 24, 40, NORM, .eps = 0.5f},
    /* a stage more, and many */
    {35, 520, 40, 0, .data = DATA_POSITIVE},
    {20, 700, 36, NORM | BIAS, .spread = 0},
    /* sums whose own rounding shows in the mean */
    {3, 65536, 4, NORM, .data = DATA_MEAN},
    /* GELU's tails */
    {30, 16, 200, BIAS | GELU, .data = DATA_TAILS},
    {150, 32, 140, BIAS | GELU, .spread = 0},
    {40, 96, 64, NORM | BIAS | RESIDUAL | IN_ODD_MEMORY, .spread = 0},
    /* by wgmma several blocks of a work-group, the last of which lacks rows
     * and columns */
    {331, 32, 1032, BIAS | RESIDUAL, .spread = 0},
    {195, 208, 72, BIAS | GELU, .spread = 5},
};
#define ROWS (sizeof table / sizeof *table)

/* Layers by wgmma with norms beside them: several blocks of rows, blocks that
 * divide columns and do not; means far from 0. Those of sums are of whole
 * rows. */
static const linear_case with_norms[] =
    {
        {200, 96, 288, NORM_ON_THE_WAY | BIAS, .eps = 1e-5f},
        {131, 192, 72, NORM_ON_THE_WAY | BIAS | GELU, .spread = 8},
        {70, 64, 96, NORM_ON_THE_WAY | BIAS, .data = DATA_OFFSET},
        {33, 64, 40, NORM_ON_THE_WAY | BIAS, .eps = 0.5f, .spread = 3},
        {150, 96, 96, NORM_OF_SUMS | BIAS | IN_PLACE | ODD_NORM, .eps = 1e-5f},
        {64, 64, 64, NORM_OF_SUMS | BIAS | RESIDUAL, .eps = 1e-5f},
        {75, 48, 192, NORM_OF_SUMS | BIAS | RESIDUAL, .eps = 1e-5f,
         .spread = 3},
        {66, 64, 32, NORM_OF_SUMS | RESIDUAL, .eps = 0.1f},
        {200, 48, 96, NORM_OF_SUMS | BIAS, .eps = 1e-5f},
        {131, 256, 128, NORM_OF_SUMS | ODD_NORM, .eps = 1e-5f},
        {33, 80, 80, NORM_OF_SUMS | BIAS, .spread = 5, .eps = 0.5f},
},
                         /* and by fragments, also of neighbours on maps */
    found_on_the_way[] = {
        {49, 96, 96, NORM_FOUND | BIAS | ODD_NORM, .eps = 1e-5f},
        {33, 40, 70, NORM_FOUND | BIAS | GELU, .eps = 1e-5f},
        {20, 33, 51, NORM_FOUND | BIAS, .spread = 3, .eps = 0.5f},
        {40, 192, 64, NORM_FOUND | BIAS, .data = DATA_OFFSET},
        {9, 700, 24, NORM_FOUND, .spread = 8},
        {9, 768, 24, NORM_FOUND, .data = DATA_OUTLIERS},
        {21, 5, 8, NORM_FOUND | BIAS, .eps = 1e-3f},
        {147, 128, 70, NORM_FOUND | MAP, .eps = 1e-5f},
        {3, 384, 48, NORM_FOUND | MAP, .data = DATA_OFFSET},
        {93, 160, 33, NORM_FOUND | MAP, .spread = 3, .eps = 1e-5f},
        {126, 96, 40, MAP | GELU | RESIDUAL, .spread = 8},
        {201, 32, 64, MAP | BIAS, .spread = 1},
};
#define WITH_NORMS (sizeof with_norms / sizeof *with_norms)

/* Hidden layers: rows for one warpgroup and for several rounds of three;
 * one panel of a row, and more; in place, in memory that starts anywhere. */
static const linear_case with_hidden[] = {
    {70, 96, 96, NORM_FOUND | BIAS | RESIDUAL | STATISTICS, .hidden = 384,
     .eps = 1e-5f},
    {33, 96, 96, NORM_FOUND | BIAS | IN_PLACE | STATISTICS, .hidden = 384,
     .spread = 8, .data = DATA_OFFSET},
    {9, 64, 64, NORM_FOUND | BIAS | RESIDUAL | STATISTICS, .hidden = 256,
     .spread = 3, .eps = 0.5f},
    {21, 80, 80, NORM_FOUND | IN_PLACE, .hidden = 64, .eps = 1e-5f},
    {200, 32, 32, NORM_FOUND | BIAS | IN_PLACE | STATISTICS, .hidden = 128,
     .eps = 1e-5f},
    {75, 96, 96, NORM_OF_SUMS | BIAS | IN_PLACE | ODD_NORM, .hidden = 384,
     .eps = 1e-5f},
    {64, 48, 48, NORM_OF_SUMS | BIAS | RESIDUAL, .hidden = 192, .spread = 3,
     .eps = 1e-5f},
    {130, 64, 64, RESIDUAL | BIAS, .hidden = 128, .spread = 0},
    /* weights that do not stay */
    {200, 192, 192, NORM_FOUND | BIAS | IN_PLACE | STATISTICS, .hidden = 768,
     .eps = 1e-5f},
    {75, 128, 128, NORM_OF_SUMS | BIAS | RESIDUAL, .hidden = 512, .spread = 3,
     .eps = 1e-5f},
    {40, 256, 256, NORM_FOUND | BIAS | RESIDUAL, .hidden = 320, .spread = 8,
     .data = DATA_OFFSET},
};

/* In tiles of the unit: a wave's, waves; then numbers of a stage, stages. */
static const struct {
    unsigned rows, columns, row_waves, column_waves, dim_waves, dims, stages;
} shapes[] = {{1, 1, 1, 1, 1, 1, 2}, {2, 2, 1, 2, 1, 2, 2},
              {1, 2, 2, 1, 1, 4, 3}, {1, 1, 1, 1, 2, 2, 3},
              {1, 3, 2, 2, 1, 2, 2}, {2, 1, 1, 1, 4, 4, 4}},
  /* of weights that stay, in rows of up to 64 stages */
    kept[] = {{1, 1, 1, 1, 1, 1, 2},
              {2, 2, 1, 2, 1, 2, 2},
              {1, 2, 2, 1, 1, 4, 2},
              {1, 3, 1, 2, 1, 3, 3},
              {1, 1, 2, 2, 1, 1, 4}};
/* Shapes for wgmma, where the device has it: rows and columns of a block,
 * stages, waves, and do weights stay? */
static const unsigned of_wgmma[][5] = {
    {64, 96, 8, 8, 1},  {128, 48, 3, 8, 0},  {192, 160, 2, 12, 0},
    {64, 64, 2, 12, 0}, {192, 16, 3, 12, 1}, {64, 256, 3, 8, 0},
    {64, 16, 4, 12, 1}};
#define SHAPES (sizeof shapes / sizeof *shapes)
#define KEPT (sizeof kept / sizeof *kept)
#define OF_WGMMA (sizeof of_wgmma / sizeof *of_wgmma)

static wa_linear_shape shape_of(size_t i, bool keeps)
{
    const unsigned *n = keeps ? &kept[i].rows : &shapes[i].rows;
    const wa_linear_shape s = {.block_rows = n[0] * n[2] * unit->queries,
                               .block_columns = n[1] * n[3] * unit->tile,
                               .stage_dims = n[5] * unit->tile,
                               .stages = n[6],
                               .row_waves = n[2],
                               .column_waves = n[3],
                               .dim_waves = n[4],
                               .keeps_weight = keeps};
    return s;
}

/* While the session is held, layers take the unit, which is to be one that the
 * device has. */
static int hold_session(void **state)
{
    (void)state;
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    told = wa_session_device(session);
    unit = chosen.tier == WINATTN_TIER_MATRIX ? chosen.matrix_unit : NULL;
    if (unit && !wa_matrix_unit_suits(unit, told))
        return -1;
    if (unit)
        ((wa_device *)(size_t)told)->matrix_unit = unit;
    return 0;
}

static int release_session(void **state)
{
    (void)state;
    wa_session_release(session);
    return 0;
}

/* Of the types those that the unit has. */
static int first_dtype(void)
{
    return unit && !unit->has_tf32 ? WINATTN_FP16 : WINATTN_FP32;
}

/* Where one type stands for all, the next row has another. */
static int own_dtype(size_t i)
{
    return first_dtype() + (int)i % (WINATTN_BF16 + 1 - first_dtype());
}

static linear_case case_of(size_t i, int dtype)
{
    linear_case c = table[i];
    c.tier = (winattn_tier)chosen.tier;
    c.seed = (unsigned)i + 1;
    c.dtype = (winattn_dtype)dtype;
    c.allow_tf32 = unit && dtype == WINATTN_FP32 && i / 12 % 2;
    return c;
}

static bool is_left_out(size_t i)
{
    const linear_case *c = &table[i];
    return (part_is("few") && (i + (size_t)(unit - wa_matrix_units)) % 3) ||
           (part_is("small") && c->rows * c->in * c->out > 40000);
}

/* Has the device the local memory for it? Tiles of 32 take more. */
static bool fits(const linear_case *c, const wa_linear_shape *shape)
{
    const wa_linear_problem p = linear_problem_of(c);
    const char *why = wa_linear_check_shape(&p, told, c->tier, shape);
    return !why || !strstr(why, "local memory");
}

static void each_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        for (int dtype = first_dtype(); dtype <= WINATTN_BF16; dtype++) {
            const linear_case c = case_of(i, dtype);
            const wa_linear_shape shape =
                unit ? shape_of(i % SHAPES, false) : (wa_linear_shape){0};
            if (is_left_out(i) || (!part_is("all") && dtype != own_dtype(i)))
                continue;
            run_linear(&c, unit && fits(&c, &shape) ? &shape : NULL);
        }
}

/* Of a matrix unit, layers without a norm: each shape for some. */
static void each_row_with_kept_weights(void **state)
{
    (void)state;
    for (size_t i = 0; unit && i < ROWS; i++)
        for (size_t k = 0; k < KEPT && !is_left_out(i); k++) {
            const linear_case c =
                case_of(i, (i + k) % 2 ? WINATTN_FP16 : WINATTN_BF16);
            const wa_linear_shape shape = shape_of(k, true);
            const unsigned stages =
                (c.in + shape.stage_dims - 1) / shape.stage_dims;
            if (linear_has(&c, NORM) ||
                (!part_is("all") && (i + k) % 3 != 0) || stages > 64 ||
                (linear_has(&c, RESIDUAL) && shape.stages - 1 >= 2 * stages) ||
                !fits(&c, &shape))
                continue;
            run_linear(&c, &shape);
        }
}

static wa_linear_shape wgmma_shape(size_t k, int dtype)
{
    return (wa_linear_shape){.block_rows = of_wgmma[k][0],
                             .block_columns = of_wgmma[k][1],
                             .stage_dims = dtype == WINATTN_FP32 ? 32 : 64,
                             .stages = of_wgmma[k][2],
                             .row_waves = of_wgmma[k][3],
                             .column_waves = 1,
                             .dim_waves = 1,
                             .keeps_weight = of_wgmma[k][4],
                             .wgmma = 1};
}

/* Layers that wgmma computes. */
static void each_row_by_wgmma(void **state)
{
    (void)state;
    for (size_t i = 0; unit && i < ROWS; i++)
        for (size_t k = 0; k < OF_WGMMA; k++) {
            linear_case c = case_of(i, (int)(i + k) / 3 % 3);
            c.allow_tf32 = c.dtype == WINATTN_FP32;
            const wa_linear_problem p = linear_problem_of(&c);
            const wa_linear_shape shape = wgmma_shape(k, c.dtype);
            if (wa_linear_check_shape(&p, told, c.tier, &shape) ||
                is_left_out(i) || (!part_is("all") && (i + k) % 3 != 0))
                continue;
            run_linear(&c, &shape);
        }
}

static void norms_by_wgmma(void **state)
{
    (void)state;
    for (size_t i = 0; unit && i < WITH_NORMS; i++)
        for (size_t k = 0; k < OF_WGMMA; k++) {
            linear_case c = with_norms[i];
            wa_linear_shape shape = wgmma_shape(k, WINATTN_FP16);
            c.tier = WINATTN_TIER_MATRIX;
            c.dtype = (i + k) % 2 ? WINATTN_FP16 : WINATTN_BF16;
            c.seed = (unsigned)i + 1;
            if (linear_has(&c, NORM_OF_SUMS))
                shape.block_columns = c.out;
            const wa_linear_problem p = linear_problem_of(&c);
            if (wa_linear_check_shape(&p, told, c.tier, &shape) ||
                (!part_is("all") && (i + k) % 3 != 0))
                continue;
            run_linear(&c, &shape);
        }
}

static void hidden_layers(void **state)
{
    (void)state;
    for (size_t i = 0; unit && i < sizeof with_hidden / sizeof *with_hidden;
         i++)
        for (int dtype = WINATTN_FP16; dtype <= WINATTN_BF16; dtype++) {
            linear_case c = with_hidden[i];
            c.tier = WINATTN_TIER_MATRIX;
            c.dtype = (winattn_dtype)dtype;
            c.seed = (unsigned)i + 1;
            const wa_linear_problem p = linear_problem_of(&c);
            const wa_linear_shape shape = wa_linear_mlp_shape(&p, told);
            if (!wa_linear_check_shape(&p, told, c.tier, &shape) &&
                (part_is("all") || ((int)i + dtype) % 2 == 0))
                run_linear(&c, &shape);
        }
}

static void norms_and_neighbours(void **state)
{
    (void)state;
    for (size_t i = 0;
         unit && i < sizeof found_on_the_way / sizeof *found_on_the_way; i++)
        for (size_t k = 0; k < SHAPES; k++) {
            linear_case c = found_on_the_way[i];
            const wa_linear_shape shape = shape_of(k, false);
            c.tier = WINATTN_TIER_MATRIX;
            const bool has_fp32 =
                unit->has_tf32 && !linear_has(&c, NORM_FOUND);
            c.dtype = k % 2 && has_fp32 ? WINATTN_FP32
                      : (i + k) % 2     ? WINATTN_FP16
                                        : WINATTN_BF16;
            c.seed = (unsigned)i + 1;
            const wa_linear_problem p = linear_problem_of(&c);
            if (!wa_linear_check_shape(&p, told, c.tier, &shape) &&
                (part_is("all") || (i + k) % 3 == 0))
                run_linear(&c, &shape);
        }
}

/* One that computes other numbers, here of shorter rows, is not taken. */
static void wrong_wgmma_is_seen(void **state)
{
    winattn_linear_desc desc = {.struct_size = sizeof desc,
                                .allow_tf32 = true,
                                .tier = (winattn_tier)chosen.tier,
                                .in_features = 96,
                                .out_features = 72,
                                .has_bias = true,
                                .has_residual = true,
                                .build_options = "-DROW_SIZE=80"};
    char text[8192];
    wa_linear_problem p;
    winattn_linear_plan *plan;
    (void)state;
    assert_status(wa_linear_read(&desc, &p), 0, "");
    if (!unit || wa_linear_wgmma_refusal(&p, told))
        skip();
    for (int dtype = WINATTN_FP32; dtype <= WINATTN_FP16; dtype++) {
        desc.dtype = (winattn_dtype)dtype;
        assert_status(winattn_linear_plan_create(device.context, device.id,
                                                 &desc, &plan),
                      0, "");
        assert_status(
            winattn_linear_plan_describe(plan, sizeof text, text, NULL), 0,
            "");
        if (!strstr(text, "matrix_mma\n") ||
            !strstr(text, "shape not taken: self-test failed: y by wgmma, "))
            fail_msg("%s", text);
        winattn_linear_plan_destroy(plan);
    }
    /* nor is one with a hidden layer, which nothing else computes */
    winattn_linear_desc mlp = desc;
    mlp.out_features = 96;
    mlp.build_options = "-DHIDDEN=320";
    assert_status(wa_linear_read(&mlp, &p), 0, "");
    p.hidden = 384;
    assert_status(
        wa_linear_plan_with_shape(device.context, device.id, &p, NULL, &plan),
        WINATTN_UNSUPPORTED_PROBLEM, "self-test failed: y by wgmma, ");
}

/* Others' blocks have parts of rows. */
static void statistics_are_of_mlps(void **state)
{
    const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                      .dtype = WINATTN_FP16,
                                      .tier = (winattn_tier)chosen.tier,
                                      .in_features = 96,
                                      .out_features = 96};
    wa_linear_problem p;
    winattn_linear_plan *plan;
    (void)state;
    if (!unit)
        skip();
    assert_status(wa_linear_read(&desc, &p), 0, "");
    p.norms = WA_GIVES_STATISTICS;
    assert_status(
        wa_linear_plan_with_shape(device.context, device.id, &p, NULL, &plan),
        WINATTN_UNSUPPORTED_PROBLEM,
        "only an mlp in one launch finds statistics of its results");
}

/* ---- Shapes that a row of the tuning table may name ---- */

static uint32_t pick(random_state *r, const uint32_t *numbers, int count)
{
    return numbers[random_int(r, 0, count - 1)];
}

/* Any numbers, most of which are no shape. */
static wa_linear_shape random_shape(random_state *r)
{
    static const uint32_t few[] = {1, 2, 3, 4}, items[] = {4, 8, 12, 16};
    static const uint32_t sizes[] = {8, 12, 16, 24, 32, 40, 48, 64, 96, 112};
    wa_linear_shape s = {.block_rows = pick(r, sizes, 10),
                         .block_columns = pick(r, sizes, 10),
                         .stage_dims = pick(r, sizes, 10)};
    if (chosen.tier == WINATTN_TIER_LOCAL) {
        s.item_rows = pick(r, items, 4);
        s.item_columns = pick(r, items, 4);
    } else if (chosen.tier == WINATTN_TIER_CPU) {
        s.lanes = pick(r, items, 4);
        s.tile_rows = pick(r, sizes, 2) / pick(r, few, 4);
        s.tile_vecs = pick(r, few, 4);
    } else {
        s.row_waves = pick(r, few, 4);
        s.column_waves = pick(r, few, 4);
        s.dim_waves = pick(r, few, 4);
        s.stages = 1 + pick(r, few, 4);
        s.keeps_weight = (uint32_t)random_int(r, 0, 1);
    }
    return s;
}

/* A legal shape for each row, of those that the table has. */
static void random_shapes(void **state)
{
    (void)state;
    random_state r = random_seeded(21);
    const size_t step = part_is("all") ? 1 : 4;
    for (size_t i = 0; i < ROWS && !part_is("small"); i += step) {
        const linear_case c = case_of(i, own_dtype(i));
        const wa_linear_problem p = linear_problem_of(&c);
        wa_linear_shape shape;
        int tries = 0;
        do
            shape = random_shape(&r);
        while (wa_linear_check_shape(&p, told, c.tier, &shape) &&
               ++tries < 1000000);
        assert_true(tries < 1000000);
        run_linear(&c, &shape);
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hidden_layers, hold_session,
                                        release_session),
        cmocka_unit_test_setup_teardown(each_row, hold_session,
                                        release_session),
        cmocka_unit_test_setup_teardown(each_row_with_kept_weights,
                                        hold_session, release_session),
        cmocka_unit_test_setup_teardown(each_row_by_wgmma, hold_session,
                                        release_session),
        cmocka_unit_test_setup_teardown(norms_by_wgmma, hold_session,
                                        release_session),
        cmocka_unit_test_setup_teardown(norms_and_neighbours, hold_session,
                                        release_session),
        cmocka_unit_test(statistics_are_of_mlps),
        cmocka_unit_test_setup_teardown(wrong_wgmma_is_seen, hold_session,
                                        release_session),
        cmocka_unit_test_setup_teardown(random_shapes, hold_session,
                                        release_session)};
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {
        .words = {WORD_TARGET, WORD_PART}, .part = "all", TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
