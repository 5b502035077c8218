/* SPDX-License-Identifier: Apache-2.0
 * Rows of the tuning table and plans of linear layers, also on devices that
 * are made up: which kernels and which shape a plan takes, what it says of
 * them, and that no shape that somebody writes into a row leads to a kernel
 * that is not legal, or to no plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "linear_case.h"
#include "models/linear_plan.h"

static void load(const char *text)
{
    if (winattn_load_tuning(text) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
}

static wa_linear_layout layout_of(const wa_linear_problem *p,
                                  const wa_device *told)
{
    char excluded[WA_TIERS][WA_REASON_SIZE];
    wa_linear_layout layout;
    memset(excluded, 0, sizeof excluded);
    if (wa_linear_plan_make(p, told, excluded, &layout) != WINATTN_SUCCESS)
        fail_msg("%s, %u -> %u: %s", told->name, p->in, p->out,
                 winattn_last_reason());
    return layout;
}

/* ---- Texts ---- */

/* What a row was read from is printed again. */
static void rows_are_printed(void **state)
{
    (void)state;
    static const char *const more[] = {
        "linear-local NVIDIA 90 fp32 few norm+gelu+residual 9 7 1:2:3:4:8",
        "linear-cpu NVIDIA 90 fp32 many norm 8 9 1:2:3:4:5:6",
        "linear-matrix NVIDIA 90 half many plain 8 9 1:2:3:4:5:6:7:0:1", NULL};
    const char *const *lists[] = {wa_linear_built_in_rows, more};
    for (int i = 0; i < 2; i++)
        for (const char *const *row = lists[i]; *row; row++) {
            char kernel[32], type[8], calls[8], terms[32], shape[64];
            char text[WA_ROW_TEXT_SIZE];
            wa_linear_problem p = {.dtype = WINATTN_FP32};
            wa_linear_shape s;
            winattn_tier tier = WINATTN_TIER_CPU;
            assert_int_equal(
                sscanf(*row, "%31s NVIDIA 90 %7s %7s %31s %u %u %63s", kernel,
                       type, calls, terms, &p.in, &p.out, shape),
                7);
            while (strcmp(kernel, wa_linear_row_kernel(tier)) != 0)
                tier++;
            p.dtype = strcmp(type, "half") ? WINATTN_FP32 : WINATTN_BF16;
            p.layer_norm = strstr(terms, "norm") != NULL;
            p.activation = strstr(terms, "gelu") ? WINATTN_ACTIVATION_GELU
                                                 : WINATTN_ACTIVATION_NONE;
            p.has_residual = strstr(terms, "residual") != NULL;
            assert_true(wa_linear_shape_parse(tier, shape, &s));
            wa_linear_row_print(&p, tier,
                                strcmp(calls, "few") ? WA_LINEAR_MANY
                                                     : WA_LINEAR_FEW,
                                &s, text, sizeof text);
            assert_string_equal(strstr(*row, " 90 ") + 4, text);
        }
}

/* ---- What plans take ---- */

static const wa_linear_problem fc1 = {.dtype = WINATTN_FP16,
                                      .has_bias = true,
                                      .activation = WINATTN_ACTIVATION_GELU,
                                      .in = 97,
                                      .out = 384,
                                      .build_options = ""};

static void rows_are_taken(void **state)
{
    (void)state;
    const wa_device *h200 = made_up_device("H200");
    wa_linear_layout layout = layout_of(&fc1, h200);
    assert_string_equal(layout.source[WA_LINEAR_MANY], WA_LINEAR_BY_MODEL);
    load("linear-matrix NVIDIA 90 half many gelu 97 384 64:64:32:3:2:2:1\n"
         "linear-matrix NVIDIA 90 half few gelu 97 any 16:32:64:2:1:1:2\n"
         "linear-matrix NVIDIA 90 half few gelu 97 385 16:16:64:2:1:1:2\n");
    layout = layout_of(&fc1, h200);
    assert_int_equal(layout.kernel[WA_LINEAR_MANY].shape.block_columns, 64);
    assert_int_equal(layout.kernel[WA_LINEAR_FEW].shape.block_columns, 32);
    assert_non_null(strstr(layout.source[WA_LINEAR_MANY], "loaded"));
    assert_non_null(strstr(layout.source[WA_LINEAR_FEW], "loaded"));
    assert_string_equal(layout.not_taken, "");
    /* weights that stay: 4 stages of 32 */
    load("linear-matrix NVIDIA 90 any many any any any 64:96:32:3:2:2:1:1");
    load("linear-matrix NVIDIA 90 half many gelu 97 384 64:96:32:3:2:2:1:1");
    layout = layout_of(&fc1, h200);
    const wa_linear_kernel *kernel = &layout.kernel[WA_LINEAR_MANY];
    assert_string_equal(kernel->name, "linear_resident_matrix_mma");
    assert_non_null(strstr(kernel->defines, "-DWEIGHT_STAGES=4 "));
    assert_int_equal(kernel->most_groups % 4, 0); /* blocks of columns */
    assert_in_range(kernel->most_groups, h200->compute_units,
                    8 * h200->compute_units);
    load(NULL);
}

/* The next row is taken, at last the model's shape; and the plan says why. */
static void rows_that_are_not_legal(void **state)
{
    (void)state;
    static const struct {
        const char *words, *why; /* words: or a shape alone */
    } rows[] = {
        {"dot many any any any 64:64:32:2:2:2:1", "no type"},
        {"half any any any any 64:64:32:2:2:2:1", "no calls"},
        {"half few gelu+norm 9 9 64:64:32:2:2:2:1", "no terms"},
        {"half few gelu 0 9 64:64:32:2:2:2:1", "no numbers of features"},
        {"half few gelu 9 9 9 64:64:32:2:2:2:1", "no shape"},
        {"64:64:32:2:2:2", "no shape"},
        {"64:64:32:2:2:2:1:1:1:1", "no shape"},
        {"64:64:32:2:2:2:1:0", "no shape"},
        {"64:64:32:2:2:2:1 7:7", "more than a row"},
        {"64:64:32:1:2:2:1", "bounds"},  /* a single stage */
        {"64:64:32:9:2:2:1", "bounds"},  /* nine */
        {"64:64:512:2:2:2:1", "bounds"}, /* of more numbers than may be */
        {"64:64:32:2:0:2:1", "bounds"},  /* no waves */
        {"0:64:32:2:2:2:1", "bounds"},   /* no rows */
        {"72:64:32:2:2:2:1", "divide"},  /* rows of half a tile */
        {"64:72:32:2:2:2:1", "divide"},  /* columns */
        {"64:64:40:2:2:2:1", "divide"},  /* numbers */
        {"64:64:32:2:2:2:4", "divide"},  /* of four waves */
        {"512:512:32:2:8:8:1", "work-groups"},
        {"512:512:32:2:2:2:1", "registers"},
        {"128:256:256:8:2:4:1", "local memory"},
        {"64:64:64:2:2:2:2:1", "stay"}, /* sums in parts */
    };
    const wa_device *h200 = made_up_device("H200");
    const wa_linear_layout own = layout_of(&fc1, h200);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[WA_ROW_TEXT_SIZE];
        snprintf(text, sizeof text, "linear-matrix NVIDIA 90 %s%s",
                 rows[i].words[0] > '9' ? "" : "half many gelu 97 384 ",
                 rows[i].words);
        load(text);
        const wa_linear_layout layout = layout_of(&fc1, h200);
        assert_string_equal(layout.kernel[WA_LINEAR_MANY].defines,
                            own.kernel[WA_LINEAR_MANY].defines);
        if (!strstr(layout.not_taken, rows[i].why))
            fail_msg("%s: %s", rows[i].words, layout.not_taken);
        load(NULL);
    }
    /* a better one that is not legal hides no other */
    load("linear-matrix NVIDIA 90 half many any 97 384 64:64:32:3:2:2:1\n"
         "linear-matrix NVIDIA 90 half many gelu 97 384 64:64:32:1:2:2:1\n");
    const wa_linear_layout layout = layout_of(&fc1, h200);
    assert_int_equal(layout.kernel[WA_LINEAR_MANY].shape.stages, 3);
    assert_non_null(strstr(layout.not_taken, "bounds"));
    load(NULL);
}

/* The unit of an H200 has no such kernel, and why; NULL: it has. */
static void assert_cannot(const wa_linear_problem *p, const wa_linear_shape *s,
                          const char *culprit)
{
    const char *why = wa_linear_check_shape(p, made_up_device("H200"),
                                            WINATTN_TIER_MATRIX, s);
    if (culprit ? !why || !strstr(why, culprit) : why != NULL)
        fail_msg("%s, not %s", why ? why : "nothing", culprit);
}

/* What the kernel of weights that stay does not compute. */
static void weights_do_not_stay_everywhere(void **state)
{
    (void)state;
    wa_linear_problem p = fc1;
    wa_linear_shape s = {.block_rows = 64,
                         .block_columns = 96,
                         .stage_dims = 96,
                         .stages = 2,
                         .row_waves = 2,
                         .column_waves = 2,
                         .dim_waves = 1,
                         .keeps_weight = 1};
    p.in = 96;
    assert_cannot(&p, &s, NULL);
    p.has_residual = true;
    assert_cannot(&p, &s, NULL);
    s.stages = 3;
    assert_cannot(&p, &s, "too early");
    p.has_residual = false;
    assert_cannot(&p, &s, NULL);
    p.layer_norm = true;
    assert_cannot(&p, &s, "norm");
    p.layer_norm = false;
    p.in = 64 * 96 + 1;
    assert_cannot(&p, &s, "stages");
    p.in = 96;
    p.dtype = WINATTN_FP32;
    assert_cannot(&p, &s, "fp16");
}

/* Hopper takes wgmma where a row that was loaded says nothing else. */
static void wgmma_is_taken(void **state)
{
    (void)state;
    static const struct {
        wa_linear_shape s;
        const char *culprit;
    } shapes[] = {
        {{64, 96, .stages = 2, .row_waves = 8, .keeps_weight = 1}, NULL},
        {{192, 192, .stages = 4, .row_waves = 12}, NULL},
        {{192, 208, .stages = 4, .row_waves = 12}, "registers"},
        {{192, 192, .stages = 5, .row_waves = 12}, "local memory"},
        {{64, 96, .stages = 9, .row_waves = 8}, "bounds"},
        {{128, 96, .stages = 2, .row_waves = 12}, "divide"},
        {{64, 96, .stages = 2, .row_waves = 16}, "two or three"},
    };
    if (!wa_engine_name(WA_ENGINE_SPECIAL)[0]) /* WINATTN_HOPPER */
        skip();
    wa_linear_problem p = fc1;
    wa_device h200 = *made_up_device("H200");
    wa_linear_layout layout = layout_of(&p, &h200);
    assert_non_null(strstr(layout.not_taken, "16s"));
    p.in = 96;
    layout = layout_of(&p, &h200);
    assert_string_equal(layout.kernel[WA_LINEAR_MANY].name, "linear_wgmma");
    assert_string_equal(layout.not_taken, "");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        wa_linear_shape s = shapes[i].s;
        s.stage_dims = 64;
        s.column_waves = s.dim_waves = s.wgmma = 1;
        assert_cannot(&p, &s, shapes[i].culprit);
    }
    p.in = p.out = 768;
    layout = layout_of(&p, &h200);
    assert_non_null(strstr(layout.not_taken, "768 features"));
    assert_non_null(strstr(layout.kernel[WA_LINEAR_MANY].name, "matrix_mma"));
    p.in = 96;
    p.out = fc1.out;
    h200.ignores_special = true;
    layout = layout_of(&p, &h200);
    assert_true(layout.kernel[WA_LINEAR_MANY].shape.keeps_weight);
    assert_non_null(strstr(layout.kernel[WA_LINEAR_MANY].name, "matrix_mma"));
}

/* ---- All devices, and anything that somebody may write ---- */

static void check_kernels(const wa_linear_problem *p, const wa_device *told,
                          const wa_linear_layout *layout, const char *row)
{
    assert_string_equal(layout->kernel[WA_LINEAR_NORM].name,
                        p->layer_norm ? "norm_rows" : "");
    for (int i = 0; i < WA_LINEAR_KERNELS; i++) {
        const wa_linear_kernel *k = &layout->kernel[i];
        if (!k->name[0])
            continue;
        const char *why =
            i == WA_LINEAR_NORM
                ? NULL
                : wa_linear_check_shape(p, told, layout->tier, &k->shape);
        if (why)
            fail_msg("%s: %s", row, why);
        assert_true(k->work_group >= 1 && k->rows >= 1);
        assert_true(k->work_group <= told->max_work_group || told->is_cpu);
        assert_true(k->local_bytes <= told->local_bytes || told->is_cpu);
        /* options that no text had to be cut for */
        assert_true(strlen(k->defines) < sizeof k->defines - 2);
        assert_int_equal(k->defines[strlen(k->defines) - 1], ' ');
        assert_true(!k->shape.keeps_weight ||
                    (k->most_groups > 0 &&
                     k->most_groups % wa_linear_blocks(
                                          p->out, k->shape.block_columns) ==
                         0));
    }
}

static void check_planned(const wa_linear_problem *p, const wa_device *told)
{
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    const wa_linear_layout layout = layout_of(p, told);
    const unsigned capability = told->compute_capability;
    const bool has_unit =
        told->matrix_unit && told->matrix_unit->proven &&
        (p->dtype != WINATTN_FP32 || capability == 80 || capability == 90);
    const winattn_tier wanted = told->is_cpu ? WINATTN_TIER_CPU
                                : has_unit   ? WINATTN_TIER_MATRIX
                                             : WINATTN_TIER_LOCAL;
    if (layout.tier != wanted)
        fail_msg("%s, %s: tier %s", told->name, types[p->dtype],
                 wa_tier_name(layout.tier));
    check_kernels(p, told, &layout, told->name);
}

static void every_device_has_a_plan(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 7, 32, 96, 100, 288, 1536, 65536};
    const size_t count = sizeof sizes / sizeof *sizes;
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < count * count * 3; i++) {
            const wa_linear_problem p = {.dtype = (winattn_dtype)(i % 3),
                                         .in = sizes[i / 3 % count],
                                         .out = sizes[i / 3 / count],
                                         .layer_norm = i % 2,
                                         .build_options = ""};
            if (made_up_devices[d].loop_limit == 0)
                check_planned(&p, &made_up_devices[d]);
        }
}

/* A unit that nobody has run is taken on demand only; TF32 by permission, or
 * in two parts. */
static void units_need_leave(void **state)
{
    (void)state;
    const wa_device *amd = made_up_device("gfx1100 (RX 7900 XTX)");
    const wa_device *nvidia = made_up_device("H200");
    wa_linear_problem p = {
        .dtype = WINATTN_FP16, .in = 96, .out = 96, .build_options = ""};
    wa_linear_layout layout;
    memset(&layout, 0, sizeof layout);
    assert_non_null(wa_linear_plan_matrix(&p, amd, NULL, &layout));
    p.tier = WINATTN_TIER_MATRIX;
    assert_null(wa_linear_plan_matrix(&p, amd, NULL, &layout));
    assert_string_equal(layout.kernel[WA_LINEAR_MANY].name,
                        "linear_matrix_wmma11");
    p.dtype = WINATTN_FP32;
    for (int allows = 0; allows < 2; allows++) {
        p.allow_tf32 = allows;
        assert_null(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
        assert_int_equal(strstr(layout.kernel[WA_LINEAR_MANY].defines,
                                "SPLITS_FP32=1") != NULL,
                         !allows);
        assert_int_equal(layout.kernel[WA_LINEAR_MANY].shape.wgmma, allows);
        assert_non_null(wa_linear_plan_matrix(&p, amd, NULL, &layout));
    }
    p.allow_tf32 = true;
    static const unsigned norms[] = {WA_FINDS_STATISTICS, WA_TAKES_STATISTICS,
                                     WA_NORMALISES};
    for (size_t i = 0; i < 3; i++) { /* are of 16 bits alone */
        p.norms = norms[i];
        assert_non_null(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
    }
    p.norms = 0;
    p.merges = true; /* of whole chunks, by fragments alone */
    p.in = 96;
    assert_null(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
    assert_false(layout.kernel[WA_LINEAR_MANY].shape.wgmma);
    assert_false(
        wa_linear_plan_tier(&p, nvidia, WINATTN_TIER_LOCAL, NULL, &layout));
    p.in = 40;
    assert_string_equal(wa_linear_plan_matrix(&p, nvidia, NULL, &layout),
                        "neighbours are no whole chunks");
    p.merges = false;
    p.hidden = 384; /* so are they */
    p.has_residual = true;
    assert_non_null(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
    p.hidden = 0;
    /* three products pay where TF32 is that much faster, or on demand */
    p.allow_tf32 = false;
    const wa_device *desktop = made_up_device("RTX 3060");
    assert_null(wa_linear_plan_matrix(&p, desktop, NULL, &layout));
    p.tier = WINATTN_TIER_AUTO;
    assert_non_null(wa_linear_plan_matrix(&p, desktop, NULL, &layout));
    assert_null(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
}

/* What was measured in TF32 is not for numbers in two parts. */
static void rows_of_tf32(void **state)
{
    (void)state;
    wa_linear_problem p = {
        .dtype = WINATTN_FP32, .in = 96, .out = 96, .build_options = ""};
    load("linear-matrix NVIDIA 90 tf32 many plain 96 96 "
         "64:80:32:5:12:1:1:0:1");
    for (int allows = 0; allows < 2; allows++) {
        p.allow_tf32 = allows;
        const wa_linear_layout layout = layout_of(&p, made_up_device("H200"));
        const wa_linear_shape *s = &layout.kernel[WA_LINEAR_MANY].shape;
        assert_int_equal(s->wgmma && s->block_columns == 80, allows);
        assert_string_equal(layout.not_taken, "");
    }
    load(NULL);
}

static void wild_rows(void **state)
{
    (void)state;
    static const int numbers[] = {0,  1,  2,  3,  4,   8,   16,
                                  32, 48, 64, 96, 128, 256, 65535};
    static const int counts[] = {6, 5, 8};
    static const char *const ends[] = {"", ":1", ":0:1", ":1:1"};
    static const char *const kernels[] = {"linear-cpu", "linear-local",
                                          "linear-matrix"};
    static const char *const devices[] = {"H200", "gfx1100 (RX 7900 XTX)"};
    random_state r = random_seeded(9);
    int taken = 0;
    for (int i = 0; i < 20000; i++) {
        const int kernel = random_int(&r, 0, 2);
        const bool is_nvidia = random_int(&r, 0, 3) > 0;
        char shape[128] = "", text[WA_ROW_TEXT_SIZE];
        for (int n = 0; n < counts[kernel] - (kernel == 2); n++)
            wa_append(shape, sizeof shape, "%s%d", n ? ":" : "",
                      numbers[random_int(&r, 0, 13)]);
        if (kernel == 2)
            wa_append(shape, sizeof shape, "%s", ends[random_int(&r, 0, 3)]);
        snprintf(text, sizeof text, "%s %s any %s any any any %s",
                 kernels[kernel], is_nvidia ? "NVIDIA 90" : "AMD 0",
                 random_int(&r, 0, 1) ? "many" : "few", shape);
        const wa_linear_problem p = {
            .dtype = (winattn_dtype)random_int(&r, 0, 2),
            .tier = (winattn_tier)(kernel + WINATTN_TIER_CPU),
            .allow_tf32 = true,
            .layer_norm = random_int(&r, 0, 1),
            .has_residual = random_int(&r, 0, 1),
            .in = (uint32_t)random_int(&r, 1, 400),
            .out = (uint32_t)random_int(&r, 1, 400),
            .build_options = ""};
        const wa_device *told = made_up_device(devices[!is_nvidia]);
        if (!is_nvidia && kernel == 2 && p.dtype == WINATTN_FP32)
            continue; /* that unit has no TF32 */
        load(NULL);
        load(text);
        const wa_linear_layout layout = layout_of(&p, told);
        assert_int_equal(layout.tier, p.tier);
        check_kernels(&p, told, &layout, text);
        taken += layout.source[WA_LINEAR_MANY] != NULL &&
                 strstr(layout.source[WA_LINEAR_MANY], "loaded") != NULL;
    }
    load(NULL);
    assert_in_range(taken, 20, 19000);
}

/* ---- On the device ---- */

static void describe(const winattn_linear_desc *desc, char text[8192])
{
    winattn_linear_plan *plan;
    assert_status(
        winattn_linear_plan_create(device.context, device.id, desc, &plan), 0,
        "");
    assert_status(winattn_linear_plan_describe(plan, 8192, text, NULL), 0, "");
    winattn_linear_plan_destroy(plan);
}

/* A plan says where its shape is from, and computes with it; what does not
 * build is passed over. */
static void plans_say_where_shapes_are_from(void **state)
{
    (void)state;
    linear_case c = {.rows = 45,
                     .in = 40,
                     .out = 70,
                     .has = BIAS | RESIDUAL,
                     .tier = WINATTN_TIER_LOCAL,
                     .seed = 3};
    const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                      .tier = WINATTN_TIER_LOCAL,
                                      .in_features = c.in,
                                      .out_features = c.out,
                                      .has_bias = true,
                                      .has_residual = true};
    char row[WA_ROW_TEXT_SIZE], name[WA_ROW_DEVICE_SIZE] = "?", text[8192];
    if (!keeps_barriers())
        skip();
    clGetDeviceInfo(device.id, CL_DEVICE_NAME, sizeof name, name, NULL);
    snprintf(row, sizeof row,
             "linear-local \"%s\" fp32 many residual 40 70 16:32:8:4:8\n"
             "linear-local \"%s\" fp32 few residual 40 any 16:16:12:4:4\n",
             name, name);
    load(row);
    describe(&desc, text);
    if (strstr(text, "loaded")) { /* by its capability on some devices */
        assert_non_null(strstr(text, "\nshape: measured best, says a row"));
        assert_non_null(strstr(text, "few rows shape: measured best"));
        assert_non_null(strstr(text, "-DITEM_COLUMNS=8"));
    }
    run_linear(&c, NULL);
    c.rows = 5;
    run_linear(&c, NULL);
    load(NULL);
    describe(&desc, text);
    assert_non_null(strstr(text, "\nshape: from a model of the device\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_printed),
        cmocka_unit_test(rows_are_taken),
        cmocka_unit_test(rows_that_are_not_legal),
        cmocka_unit_test(weights_do_not_stay_everywhere),
        cmocka_unit_test(wgmma_is_taken),
        cmocka_unit_test(every_device_has_a_plan),
        cmocka_unit_test(units_need_leave),
        cmocka_unit_test(rows_of_tf32),
        cmocka_unit_test(wild_rows),
        cmocka_unit_test(plans_say_where_shapes_are_from),
    };
    if (!runner_open())
        return 77;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close();
    return failed;
}
