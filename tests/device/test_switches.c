/* SPDX-License-Identifier: Apache-2.0
 * Kernels refuse to be built without a switch that they are given, and with a
 * value that is not legal (cl/common/switches.h). A build that is refused
 * takes nearly as long as one that is not, so that it is tried once of each
 * switch, and of all the others that the kernel REQUIREs it. Kernels are those
 * of an H200, whose instructions other devices lack: there it is skipped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/devices.h"
#include "kit/fragment_session.h"
#include "kit/runner.h"
#include "plan/planner.h"
#include "program/source.h"
#ifdef TESTS_HAVE_MODELS
#include "models/linear_plan.h"
#include "models/options.h"
#include "models/rows.h"
#endif

/* One for each kernel, as an H200 has it. */
static const struct {
    const char *text;
    wa_pass pass;
} table[] = {
    {"tier=cpu queries=20 dim=8 bias=fp32", WA_FORWARD},
    {"tier=cpu queries=2000 dim=8", WA_BACKWARD},
    {"tier=cpu heads=1 grid=2 size=6x6 window=3x3 dim=8 bias=table_fp32",
     WA_BACKWARD},
    {"tier=local heads=1 grid=2 size=6x6 window=3x3 dim=8 bias=table_fp32",
     WA_FORWARD},
    {"tier=local queries=20 dim=8 bias=fp32", WA_BACKWARD},
    {"tier=local queries=2000 dim=8", WA_BACKWARD},
    {"tier=matrix dtype=fp16 queries=64 dim=32 bias=fp32", WA_FORWARD},
    {"tier=matrix dtype=fp16 queries=64 dim=32 bias=fp32", WA_BACKWARD},
    {"tier=matrix dtype=fp16 queries=576 dim=32 bias=fp32", WA_BACKWARD},
    {"tier=matrix dtype=fp16 variant=sliding block=8", WA_FORWARD},
    {"tier=matrix dtype=fp16 variant=sliding block=8", WA_BACKWARD},
};

/* Those that are 0 where they are not given (cl/common/language.cl). */
static bool is_optional(const char *name)
{
    static const char *const names[] = {
        "GRID",         "PADDING",           "TABLE",     "KEEPS_TABLE",
        "KEEPS_TOKENS", "HALVES_FROM_BITS",  "SUB_GROUP", "LIMITS_REGISTERS",
        "ROW_PLANES",   "COMPUTE_CAPABILITY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The tables' device, where the one under test has its instructions. */
static const wa_device *h200(void)
{
    if (!has_fragments(WINATTN_FP32))
        skip();
    return made_up_device("H200");
}

/* The kernel's source, and behind it `more`. */
static bool builds(const char *kernel, const char *defines, const char *more)
{
    char *source, options[1200];
    assert_int_equal(wa_source_of_kernel(kernel, &source), WINATTN_SUCCESS);
    assert_non_null(source);
    cl_int error;
    const char *text[] = {source, more};
    cl_program program =
        clCreateProgramWithSource(device.context, 2, text, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    snprintf(options, sizeof options, "-cl-std=CL1.2 %s", defines);
    error = clBuildProgram(program, 1, &device.id, options, NULL, NULL);
    clReleaseProgram(program);
    free(source);
    return error == CL_SUCCESS;
}

/* Those of `defines` but for -Dname=; then " -Dname=value" if that is wanted.
 * False if there was none. */
static bool replace(const char *defines, const char *name, const char *value,
                    char changed[1024])
{
    char start[80];
    snprintf(start, sizeof start, "-D%s=", name);
    const char *at = strstr(defines, start);
    if (!at)
        return false;
    const char *end = at + strcspn(at, " ");
    snprintf(changed, 1024, "%.*s%s%s%s", (int)(at - defines), defines, end,
             value ? start : "", value ? value : "");
    return true;
}

#define BOUNDS(name, least, most) {#name, least, most},
static const wa_switch_bounds all[] = {SWITCHES(BOUNDS)
#ifdef TESTS_HAVE_MODELS
                                           MODEL_SWITCHES(BOUNDS)
#endif
};
#define ALL (sizeof all / sizeof *all)

/* Which switches were left out, and given a value that is too large: in one
 * kernel each, as REQUIRE does the same in all. */
static struct {
    bool missing[ALL], too_large[ALL];
} tried;

static void check_switch(const wa_step *step, const char *defines, size_t i)
{
    const wa_switch_bounds *s = &all[i];
    char changed[1024], value[24];
    if (!is_optional(s->name) && !tried.missing[i]) {
        tried.missing[i] = true;
        replace(defines, s->name, NULL, changed);
        if (builds(step->kernel, changed, ""))
            fail_msg("%s builds without %s", step->kernel, s->name);
    }
    if (!tried.too_large[i]) {
        tried.too_large[i] = true;
        snprintf(value, sizeof value, "%llu", s->most + 1ull);
        replace(defines, s->name, value, changed);
        if (builds(step->kernel, changed, ""))
            fail_msg("%s builds with %s=%s", step->kernel, s->name, value);
    }
}

/* The kernel builds, and requires each switch that it is given. */
static void check_step(const wa_step *step)
{
    char defines[1024], unused[1024], required[80 * ALL] = "";
    /* of an option for NVIDIA's compiler nothing else knows */
    snprintf(defines, sizeof defines, "%s", step->defines);
    char *foreign = strstr(defines, "-cl-nv-");
    if (foreign)
        *foreign = 0;
    announce("%s %s\n", step->kernel, defines);
    for (size_t i = 0; i < ALL; i++) {
        const char *name = all[i].name;
        if (!replace(defines, name, NULL, unused))
            continue;
        check_switch(step, defines, i);
        if (!is_optional(name)) {
            const size_t used = strlen(required);
            snprintf(required + used, sizeof required - used,
                     "typedef %s_is_legal %s_is_required;\n", name, name);
        }
    }
    if (!builds(step->kernel, defines, required))
        fail_msg("%s does not build, or does not require what it is given: %s",
                 step->kernel, defines);
}

#ifdef TESTS_HAVE_MODELS
/* Linear layers of each tier, with everything, and at last by wgmma. */
static void illegal_switches_of_layers_are_refused(void **state)
{
    (void)state;
    static wa_linear_planner *const planners[] = {
        wa_linear_plan_cpu, wa_linear_plan_local, wa_linear_plan_matrix,
        wa_linear_plan_matrix};
    const wa_device *told = h200();
    wa_linear_problem problem = {.dtype = WINATTN_FP16,
                                 .in = 40,
                                 .out = 40,
                                 .layer_norm = true,
                                 .has_bias = true,
                                 .has_residual = true,
                                 .activation = WINATTN_ACTIVATION_GELU,
                                 .build_options = ""};
    for (size_t i = 0; i < sizeof planners / sizeof *planners; i++) {
        wa_linear_layout layout;
        memset(&layout, 0, sizeof layout);
        problem.in = i < 3 ? 40 : 48;
        assert_null(planners[i](&problem, told, NULL, &layout));
        wa_linear_write_norm(&problem, told, &layout);
        for (int k = i == 0 ? WA_LINEAR_NORM : WA_LINEAR_MANY;
             k <= WA_LINEAR_MANY; k++) {
            wa_step step = {.kernel = layout.kernel[k].name};
            snprintf(step.defines, sizeof step.defines, "%s",
                     layout.kernel[k].defines);
            check_step(&step);
        }
    }
}

/* Kernels of rows, of each job. */
static void illegal_switches_of_rows_are_refused(void **state)
{
    (void)state;
    const wa_device *told = h200();
    for (int job = WA_ROW_NORM; job <= WA_ROW_EMBED; job++) {
        const wa_row_desc desc = {.job = (wa_row_job)job,
                                  .dtype = WINATTN_FP16,
                                  .row_size = 96,
                                  .picture_channels = 3,
                                  .patch = {4, 4}};
        wa_row_plan plan;
        wa_step step;
        step.kernel = wa_row_lay_out(&desc, told, &plan, step.defines,
                                     sizeof step.defines);
        check_step(&step);
    }
}
#endif

static void illegal_switches_are_refused(void **state)
{
    (void)state;
    static const wa_exclusions none;
    const wa_device *told = h200();
    for (size_t row = 0; row < sizeof table / sizeof *table; row++) {
        test_case c = case_default();
        wa_problem problem;
        wa_plan plan;
        if (!row_is_chosen(row))
            continue;
        assert_true(case_parse(table[row].text, &c, NULL));
        winattn_desc desc = case_desc(&c);
        desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
        assert_int_equal(wa_problem_read(&desc, &problem), WINATTN_SUCCESS);
        assert_int_equal(
            wa_plan_make(&problem, told, table[row].pass, &none, &plan),
            WINATTN_SUCCESS);
        for (int i = WA_STEP_FIRST; i <= WA_STEP_LAST; i++)
            if (plan.step[i].kernel)
                check_step(&plan.step[i]);
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(illegal_switches_are_refused),
#ifdef TESTS_HAVE_MODELS
        cmocka_unit_test(illegal_switches_of_layers_are_refused),
        cmocka_unit_test(illegal_switches_of_rows_are_refused),
#endif
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {.words = {WORD_FIRST, WORD_COUNT},
                                  TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
