/* SPDX-License-Identifier: Apache-2.0
 * What a plan of the library of models says of a kernel, its source says too:
 * the size of work-groups, and what arrays take in local memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/matrix_unit.h"
#include "kernels.h"
#include "kit/devices.h"
#include "kit/scratch.h"
#include "models/linear_plan.h"
#include "models/rows.h"
#include "place.h"
#include "program/program.h"
#include "standin.h"
#include "winattn_models.h"

/* Bytes between arrays that plans for matrix units count in. */
#define MOST_GAPS 512u

static unsigned long program_count;

/* What a plan says of a kernel. */
typedef struct planned {
    const char *kernel, *defines;
    size_t work_group, local_bytes;
    bool demands; /* the source says the size of work-groups, too */
} planned;

static void check_kernel(const wa_device *device, const planned *p)
{
    wa_program_source source;
    assert_int_equal(wa_program_source_of_kernel(standin_device(device),
                                                 p->kernel, p->defines,
                                                 &source),
                     WINATTN_SUCCESS);
    kernel_list list = kernels_read(source.text, source.options);
    const kernel_facts *kernel = kernels_find(&list, p->kernel);
    const size_t gaps = strstr(p->kernel, "_matrix_") ? MOST_GAPS : 0;
    assert_non_null(kernel);
    if (kernel->work_group != (p->demands ? p->work_group : 0) ||
        kernel->local_bytes > p->local_bytes ||
        p->local_bytes - kernel->local_bytes > gaps ||
        p->local_bytes > device->local_bytes ||
        p->work_group > device->max_work_group)
        fail_msg("%s, %s: work-group %zu, planned %zu; local bytes %zu, "
                 "planned %zu; %s",
                 device->name, p->kernel, kernel->work_group, p->work_group,
                 kernel->local_bytes, p->local_bytes, source.options);
    kernels_free(&list);
    wa_program_source_free(&source);
    program_count++;
}

/* ---- Linear layers ---- */

static void check_linear(const wa_device *device,
                         const wa_linear_problem *problem)
{
    char excluded[WA_TIERS][WA_REASON_SIZE];
    wa_linear_layout layout;
    memset(excluded, 0, sizeof excluded);
    if (wa_linear_plan_make(problem, device, excluded, &layout) !=
        WINATTN_SUCCESS)
        return;
    for (int i = 0; i < WA_LINEAR_KERNELS; i++) {
        const wa_linear_kernel *kernel = &layout.kernel[i];
        const planned p = {
            .kernel = kernel->name,
            .defines = kernel->defines,
            .work_group = kernel->work_group,
            .local_bytes = (size_t)kernel->local_bytes,
            /* a size that is demanded would lift the limit of registers */
            .demands =
                strstr(kernel->defines, "-DLIMITS_REGISTERS=1") == NULL};
        if (kernel->name[0])
            check_kernel(device, &p);
    }
}

static void test_linear_layers(void **state)
{
    static const struct {
        uint32_t in, out;
    } sizes[] = {{1, 1},     {33, 51},    {96, 288},  {100, 1000},
                 {384, 384}, {768, 3072}, {3072, 768}};
    (void)state;
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes * 3 * 4; i++) {
            wa_device device = made_up_devices[d];
            const wa_linear_problem problem = {.in = sizes[i / 12].in,
                                               .out = sizes[i / 12].out,
                                               .dtype =
                                                   (winattn_dtype)(i / 4 % 3),
                                               .tier = (winattn_tier)(i % 4),
                                               .allow_tf32 = true,
                                               .layer_norm = i / 12 % 2 == 0,
                                               .has_bias = true,
                                               .has_residual = i / 12 % 3 == 0,
                                               .eps = 1e-5f,
                                               .build_options = ""};
            device.matrix_unit = wa_matrix_unit_of(&device);
            check_linear(&device, &problem);
        }
}

/* ---- By wgmma, or not ---- */

static size_t launches_by_wgmma(void)
{
    const standin_launch *launches;
    const size_t count = standin_launches(&launches);
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += strcmp(launches[i].kernel, "linear_wgmma") == 0;
    return found;
}

static const winattn_linear_desc layer = {.struct_size = sizeof layer,
                                          .dtype = WINATTN_FP16,
                                          .in_features = 96,
                                          .out_features = 96};

/* The layer on H200 as the driver is. Its numbers are compared once, after so
 * many launches. */
static void check_plans(const char *kernel, const char *why, size_t launches)
{
    const place p = place_of(made_up_device("H200"));
    winattn_linear_plan *plan[2];
    for (int i = 0; i < 2; i++) {
        standin_forget();
        assert_int_equal(
            winattn_linear_plan_create(p.context, p.id, &layer, &plan[i]),
            WINATTN_SUCCESS);
        assert_int_equal(launches_by_wgmma(), i == 0 ? launches : 0);
        assert_int_equal(winattn_linear_plan_describe(
                             plan[i], sizeof place_said, place_said, NULL),
                         WINATTN_SUCCESS);
        if (!strstr(place_said, kernel) || !strstr(place_said, why))
            fail_msg("%s", place_said);
    }
    winattn_linear_plan_destroy(plan[0]);
    winattn_linear_plan_destroy(plan[1]);
    close_place(&p);
}

#define SERIALIZED                                                            \
    "ptxas info : (C7514) wgmma.mma_async instructions are serialized"
#define WRONG "shape not taken: self-test failed: y by wgmma, element "

/* What a log says against wgmma, or its numbers, leaves a layer to fragments.
 */
static void test_wgmma_may_be_refused(void **state)
{
    static const struct {
        standin_driver driver;
        const char *kernel, *why;
        size_t launches;
    } cases[] = {
        {{.log = NULL}, "linear_wgmma", "from a model", 2},
        {{.log = SERIALIZED}, "linear_matrix_mma", "the compiler says", 0},
        {{.wgmma_wrong = WA_O}, "linear_matrix_mma", WRONG, 1},
        {{.wgmma_wrong = WA_O, .wgmma_wrong_if_shifted = true},
         "linear_matrix_mma",
         WRONG,
         2}};
    (void)state;
    if (!wa_engine_name(WA_ENGINE_SPECIAL)[0]) /* WINATTN_HOPPER */
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        standin_reset();
        standin_drivers = cases[i].driver;
        standin_drivers.gives_ptx = true;
        check_plans(cases[i].kernel, cases[i].why, cases[i].launches);
    }
}

/* Where the cache has it, it was compared. */
static void test_cached_programs_are_trusted(void **state)
{
    (void)state;
    if (!wa_engine_name(WA_ENGINE_SPECIAL)[0])
        return;
    standin_reset();
    standin_drivers.gives_ptx = true;
    assert_true(scratch_make());
    unsetenv("WINATTN_CACHE");
    winattn_set_cache_dir(folder_named("cache"));
    /* and once before its binary is taken */
    check_plans("linear_wgmma", "compiled from source", 3);
    check_plans("linear_wgmma", "from the cache", 0);
    setenv("WINATTN_CACHE", "0", 1);
    scratch_remove();
}

/* Does a plan's n-th call fail, or allocation? Then nothing is left of it, and
 * a failure that may pass says nothing of wgmma. */
static bool plan_while_failing(unsigned long n, bool allocates)
{
    winattn_linear_plan *plan = NULL;
    standin_reset();
    standin_drivers.gives_ptx = true;
    const place p = place_of(made_up_device("H200"));
    if (allocates)
        standin_fail_allocation(n);
    else
        standin_fail_call(NULL, n, CL_OUT_OF_HOST_MEMORY);
    if (winattn_linear_plan_create(p.context, p.id, &layer, &plan) ==
        WINATTN_SUCCESS) {
        winattn_linear_plan_describe(plan, sizeof place_said, place_said,
                                     NULL);
        if (!strstr(place_said, "\nkernel: linear_wgmma\n"))
            fail_msg("%s: %s", standin_failed(), place_said);
    }
    const bool failed = standin_failed() != NULL;
    standin_fail_nothing();
    winattn_linear_plan_destroy(plan);
    close_place(&p);
    return failed;
}

static void test_any_call_may_fail(void **state)
{
    (void)state;
    if (!wa_engine_name(WA_ENGINE_SPECIAL)[0])
        return;
    for (int allocates = 0; allocates < 2; allocates++) {
        unsigned long n = 1;
        while (plan_while_failing(n, allocates))
            n++;
        assert_in_range(n, 30, 1000);
    }
}

/* ---- Rows ---- */

static void check_row(const wa_device *device, const wa_row_desc *desc)
{
    wa_row_plan plan;
    char defines[WA_DEFINES_SIZE];
    const char *kernel =
        wa_row_lay_out(desc, device, &plan, defines, sizeof defines);
    const bool has_teams =
        desc->job != WA_ROW_MERGE && desc->job != WA_ROW_EMBED;
    const size_t items = (size_t)plan.team * plan.teams;
    planned p = {.kernel = kernel,
                 .defines = defines,
                 .work_group = has_teams ? items : 0,
                 .demands = true};
    /* statistics of work-items; sums of all teams but one */
    if (has_teams && plan.team > 1)
        p.local_bytes = items * 8;
    if (desc->job == WA_ROW_POOL)
        p.local_bytes += (plan.teams - 1) * (size_t)desc->row_size * 4;
    check_kernel(device, &p);
}

static void test_rows(void **state)
{
    static const uint32_t sizes[] = {4, 12, 36, 96, 768, 3072, 6144};
    (void)state;
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int job = WA_ROW_NORM; job <= WA_ROW_EMBED; job++)
                for (int on_cpu = 0; on_cpu < 2; on_cpu++) {
                    const wa_row_desc desc = {.job = (wa_row_job)job,
                                              .dtype =
                                                  (winattn_dtype)((d + i) % 3),
                                              .on_cpu = on_cpu,
                                              .row_size = sizes[i],
                                              .picture = (uint32_t)(i % 3),
                                              .picture_channels = 1,
                                              .patch = {1, sizes[i]}};
                    check_row(&made_up_devices[d], &desc);
                }
}

static void test_all_were_there(void **state)
{
    (void)state;
    print_message("%lu programs\n", program_count);
    assert_true(program_count > 4000);
}

int main(void)
{
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_layers),
        cmocka_unit_test(test_wgmma_may_be_refused),
        cmocka_unit_test(test_cached_programs_are_trusted),
        cmocka_unit_test(test_any_call_may_fail),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_all_were_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
