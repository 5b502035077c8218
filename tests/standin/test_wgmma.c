/* SPDX-License-Identifier: Apache-2.0
 * Kernels with wgmma on drivers that are made up: the way by PTX, what a log
 * or the comparison with plain kernels says against them, and that all else is
 * fragments' then, with the reason told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/cases.h"
#include "kit/devices.h"
#include "place.h"
#include "program/ptx.h"

#define SLIDING_FORWARD "sliding_forward_wgmma"
#define SLIDING_ROWS "sliding_rows_wgmma"
#define SLIDING_KEYS "sliding_keys_wgmma"
#define WINDOW_FORWARD "window_forward_wgmma"
#define WINDOW_ROWS "window_rows_wgmma"
#define WINDOW_KEYS "window_keys_wgmma"
#define WINDOW_WHOLE "window_gradients_wgmma"
#define BOTH_PASSES (WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)

/* ---- Problems ---- */

/* New drivers, which know nothing yet. */
static int start(void **state)
{
    (void)state;
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    standin_quiet = false;
    standin_drivers.gives_ptx = true;
    return 0;
}

static winattn_desc sliding(cl_bitfield passes)
{
    return case_desc_of("variant=sliding dtype=fp16 windows=1 heads=3 "
                        "queries=1000 block=100 window_blocks=3 dim=64",
                        passes);
}

static winattn_desc windows(winattn_variant variant, winattn_dtype dtype,
                            uint32_t queries, uint32_t keys)
{
    winattn_desc desc =
        case_desc_of("windows=1000 heads=3 bias=same", WINATTN_PASS_FORWARD);
    desc.variant = variant;
    desc.dtype = dtype;
    desc.queries = queries;
    desc.keys = keys;
    return desc;
}

static winattn_desc gradients(winattn_variant variant, winattn_dtype dtype)
{
    winattn_desc desc = windows(variant, dtype, 241, 256);
    desc.passes = WINATTN_PASS_BACKWARD;
    return desc;
}

/* Of windows of which one kernel makes all. */
static winattn_desc whole_gradients(winattn_dtype dtype)
{
    winattn_desc desc = windows(WINATTN_DOT, dtype, 144, 144);
    desc.passes = WINATTN_PASS_BACKWARD;
    return desc;
}

static winattn_desc with_regions(winattn_desc desc)
{
    desc.mask = WINATTN_MASK_REGIONS;
    desc.mask_windows = 3;
    return desc;
}

/* Windows of size x size tokens on a shifted grid, with a table of biases. */
static winattn_desc on_grid(winattn_desc desc, uint32_t size)
{
    desc.windows = desc.queries = desc.keys = 0;
    desc.bias = WINATTN_BIAS_TABLE;
    desc.mask = WINATTN_MASK_SHIFT;
    desc.grid = (winattn_grid){.axes = 2,
                               .size = {3 * size, 5 * size},
                               .window = {size, size},
                               .shift = {size / 2, 3},
                               .batch = 5};
    return desc;
}

/* Another one for which nothing new is compiled. */
static winattn_desc another(winattn_desc desc)
{
    if (desc.grid.axes)
        desc.grid.batch = 70;
    else if (desc.variant == WINATTN_SLIDING)
        desc.queries = desc.keys = 500;
    else
        desc.windows = 70;
    return desc;
}

/* ---- A session ---- */

typedef struct world {
    place at;
    winattn_plan *plan;
    char text[4096]; /* what the plan says */
} world;

static void plan_for(world *w, const winattn_desc *desc)
{
    if (winattn_plan_create(w->at.context, w->at.id, desc, &w->plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    assert_int_equal(
        winattn_plan_describe(w->plan, sizeof w->text, w->text, NULL),
        WINATTN_SUCCESS);
}

static world begin(const winattn_desc *desc)
{
    world w = {.at = place_of(made_up_device("H200"))};
    plan_for(&w, desc);
    return w;
}

static void end(world *w)
{
    winattn_plan_destroy(w->plan);
    close_place(&w->at);
}

static void assert_says(const world *w, const char *part)
{
    if (!strstr(w->text, part))
        fail_msg("no \"%s\" in\n%s", part, w->text);
}

static void assert_has_kernel(const world *w, const char *kernel)
{
    char text[80];
    snprintf(text, sizeof text, "kernel: %s", kernel);
    assert_says(w, text);
}

static size_t builds_of(const char *kernel, bool from_source)
{
    const standin_build *builds;
    const size_t count = standin_builds(&builds);
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += builds[i].kernel && strcmp(builds[i].kernel, kernel) == 0 &&
                 (builds[i].source != NULL) == from_source;
    return found;
}

static size_t launches_of(const char *kernel)
{
    const standin_launch *launches;
    const size_t count = standin_launches(&launches);
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += strcmp(launches[i].kernel, kernel) == 0;
    return found;
}

/* ---- Where it works ---- */

static void assert_compared_once(winattn_desc desc, const char *kernel)
{
    start(NULL);
    world w = begin(&desc);
    winattn_plan *first = w.plan; /* keeps the session */
    assert_has_kernel(&w, kernel);
    assert_null(strstr(w.text, "not used"));
    /* with tensors that are aligned, and with others */
    assert_int_equal(launches_of(kernel), 2);
    assert_true(
        launches_of("forward_plain") + launches_of("backward_rows_plain") > 0);
    standin_forget();
    desc = another(desc);
    plan_for(&w, &desc);
    assert_has_kernel(&w, kernel);
    assert_int_equal(launches_of(kernel), 0);
    assert_int_equal(builds_of(kernel, true), 0);
    winattn_plan_destroy(first);
    end(&w);
}

static void programs_are_compared_once(void **state)
{
    static cl_int index[241 * 256];
    winattn_desc plain = windows(WINATTN_DOT, WINATTN_FP16, 256, 256);
    winattn_desc table = gradients(WINATTN_DOT, WINATTN_FP16);
    (void)state;
    for (size_t i = 0; i < sizeof index / sizeof *index; i++)
        index[i] = (cl_int)(i % 511);
    plain.bias = WINATTN_BIAS_NONE;
    table.bias = WINATTN_BIAS_TABLE;
    table.table.index = index;
    table.table.entries = 511;
    const struct {
        winattn_desc desc;
        const char *kernel;
    } cases[] = {
        {sliding(WINATTN_PASS_FORWARD), SLIDING_FORWARD},
        {sliding(BOTH_PASSES), SLIDING_ROWS},
        {sliding(WINATTN_PASS_BACKWARD), SLIDING_KEYS},
        {windows(WINATTN_COSINE, WINATTN_FP16, 256, 256), WINDOW_FORWARD},
        {windows(WINATTN_DOT, WINATTN_BF16, 256, 259), WINDOW_FORWARD},
        {windows(WINATTN_COSINE, WINATTN_BF16, 260, 300), WINDOW_FORWARD},
        {plain, WINDOW_FORWARD},
        {with_regions(windows(WINATTN_DOT, WINATTN_FP16, 256, 256)),
         WINDOW_FORWARD},
        {on_grid(windows(WINATTN_COSINE, WINATTN_BF16, 0, 0), 16),
         WINDOW_FORWARD},
        {gradients(WINATTN_DOT, WINATTN_BF16), WINDOW_ROWS},
        {with_regions(gradients(WINATTN_COSINE, WINATTN_FP16)), WINDOW_KEYS},
        {with_regions(whole_gradients(WINATTN_FP16)), WINDOW_WHOLE},
        {table, WINDOW_ROWS},
        {on_grid(gradients(WINATTN_COSINE, WINATTN_BF16), 16), WINDOW_ROWS},
        {on_grid(gradients(WINATTN_DOT, WINATTN_BF16), 12), WINDOW_WHOLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_compared_once(cases[i].desc, cases[i].kernel);
}

/* A type that is new is built and compared, too. */
static void each_type_is_compared(void **state)
{
    static const char *const kernels[] = {SLIDING_FORWARD, SLIDING_ROWS,
                                          SLIDING_KEYS};
    winattn_desc desc = sliding(BOTH_PASSES);
    (void)state;
    world w = begin(&desc);
    winattn_plan *first = w.plan;
    standin_forget();
    desc.dtype = WINATTN_BF16;
    plan_for(&w, &desc);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        /* of gradients one fetches by tensor maps, another copies */
        const size_t wanted = i == 0 ? 1 : 2;
        assert_has_kernel(&w, kernels[i]);
        assert_int_equal(builds_of(kernels[i], true), wanted);
        assert_int_equal(builds_of(kernels[i], false), wanted);
        assert_int_equal(launches_of(kernels[i]), 2);
    }
    winattn_plan_destroy(first);
    end(&w);
}

/* Work-groups stay: as many as compute units, or as share heads evenly. */
static void launches_have_as_many_groups_as_units(void **state)
{
    const size_t units = made_up_device("H200")->compute_units;
    winattn_desc descs[] = {sliding(WINATTN_PASS_FORWARD),
                            windows(WINATTN_COSINE, WINATTN_FP16, 256, 256)};
    const size_t groups[] = {units, units / 3 * 3};
    (void)state;
    descs[0].queries = descs[0].keys = 100000;
    for (int i = 0; i < 2; i++) {
        world w = begin(&descs[i]);
        const cl_mem memory =
            standin_buffer(w.at.context, CL_MEM_READ_WRITE, (size_t)1 << 32);
        const winattn_tensor all = {memory, 0}, none = {NULL, 0};
        const winattn_forward f = {.struct_size = sizeof f,
                                   .q = all,
                                   .k = all,
                                   .v = all,
                                   .bias = i == 0 ? none : all,
                                   .o = all};
        standin_forget();
        assert_int_equal(
            winattn_enqueue_forward(w.plan, w.at.queue, &f, 0, NULL, NULL),
            WINATTN_SUCCESS);
        const standin_launch *launches;
        assert_int_equal(standin_launches(&launches), 1);
        assert_int_equal(launches[0].local, 640);
        assert_int_equal(launches[0].global, 640 * groups[i]);
        clReleaseMemObject(memory);
        end(&w);
        start(NULL);
    }
}

static bool holds(const char *bytes, size_t size, const char *part)
{
    const size_t length = strlen(part);
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(bytes + i, part, length) == 0)
            return true;
    return false;
}

/* What is exported is the rewritten text, under a key that says so; and it is
 * taken in again without a compiler of OpenCL C. */
static void it_is_exported(void **state)
{
    const winattn_desc desc = sliding(WINATTN_PASS_FORWARD);
    size_t size = 0;
    winattn_programs *programs;
    (void)state;
    world w = begin(&desc);
    assert_int_equal(winattn_programs_create(w.at.context, w.at.id, &programs),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_programs_export(programs, 0, NULL, &size),
                     WINATTN_SUCCESS);
    char *blob = malloc(size);
    assert_non_null(blob);
    assert_int_equal(winattn_programs_export(programs, size, blob, NULL),
                     WINATTN_SUCCESS);
    winattn_programs_destroy(programs);
    assert_true(holds(blob, size,
                      "\nprogram: " SLIDING_FORWARD "\nptx: " WA_PTX_TARGET
                      "\n"));
    assert_true(holds(blob, size, ".target sm_90a"));
    assert_false(holds(blob, size, "//@"));
    end(&w);
    start(NULL);
    w.at = place_of(made_up_device("H200"));
    assert_int_equal(winattn_programs_create(w.at.context, w.at.id, &programs),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    plan_for(&w, &desc);
    winattn_programs_destroy(programs);
    assert_has_kernel(&w, SLIDING_FORWARD);
    assert_says(&w, "program: imported");
    assert_int_equal(builds_of(SLIDING_FORWARD, true), 0);
    free(blob);
    end(&w);
}

/* ---- Where it does not ---- */

static void assert_left_to_fragments(winattn_desc desc, const char *why)
{
    const bool slides = desc.variant == WINATTN_SLIDING;
    const bool is_forward = desc.passes == WINATTN_PASS_FORWARD;
    world w = begin(&desc);
    assert_says(&w, "tier: matrix\n");
    assert_has_kernel(&w, !is_forward && desc.queries == 144
                              ? "backward_matrix_mma"
                          : !is_forward ? "backward_keys_matrix_mma"
                          : slides      ? "sliding_forward_matrix_mma"
                                        : "forward_matrix_mma");
    assert_says(&w, "wgmma not used: ");
    assert_says(&w, why);
    end(&w);
}

#define PTX .gives_ptx = true
#define IGNORES PTX, .log = "ptxas info    : (C7508) 'setmaxnreg' ignored\n"
#define SERIALIZES                                                            \
    PTX, .log = "ptxas info    : (C7514) Potential Performance Loss: "        \
                "wgmma.mma_async instructions are serialized due to "         \
                "something\n"
#define IGNORED "'setmaxnreg' ignored"
#define WRONG(tensor) PTX, .wgmma_wrong = (tensor)
/* Only tensors that are not aligned give wrong numbers. */
#define SHIFTED(tensor) WRONG(tensor), .wgmma_wrong_if_shifted = true
#define FAILED(tensor) "self-test failed: " tensor ", element "

/* What drivers give, say and compute. Nothing of the library's outlives a
 * session here, but the driver's cache does: it is refused again. */
static void drivers_may_fail(void **state)
{
    const winattn_desc slides = sliding(WINATTN_PASS_FORWARD);
    const winattn_desc window =
        windows(WINATTN_COSINE, WINATTN_FP16, 256, 256);
    const winattn_desc pair = gradients(WINATTN_COSINE, WINATTN_FP16);
    const winattn_desc whole = whole_gradients(WINATTN_BF16);
    const struct {
        standin_driver driver;
        const char *why;
        const winattn_desc *descs[2]; /* or one */
    } cases[] = {
        {{.gives_ptx = false}, "it is no text", {&slides}},
        {{.gives_no_binaries = true}, "gives no binary", {&slides}},
        {{PTX, .refuses_binaries = true}, "CreateProgramWithBin", {&slides}},
        {{SERIALIZES}, "serialized due to something", {&slides}},
        {{IGNORES}, IGNORED, {&slides, &window}},
        {{IGNORES, .log_of = WINDOW_ROWS}, IGNORED, {&pair}},
        {{IGNORES, .log_of = WINDOW_KEYS}, IGNORED, {&pair}},
        {{IGNORES, .log_of = WINDOW_WHOLE}, IGNORED, {&whole}},
        {{WRONG(WA_O)}, FAILED("o"), {&window}},
        {{WRONG(WA_LSE)}, FAILED("lse"), {&window, &slides}},
        {{WRONG(WA_DQ)}, FAILED("dq"), {&pair, &whole}},
        {{WRONG(WA_DK)}, FAILED("dk"), {&pair, &whole}},
        {{WRONG(WA_DV)}, FAILED("dv"), {&pair, &whole}},
        {{WRONG(WA_DBIAS)}, FAILED("dbias"), {&pair, &whole}},
        {{WRONG(WA_D_LOGIT_SCALE)}, FAILED("d_logit_scale"), {&pair}},
        {{SHIFTED(WA_LSE)}, FAILED("lse"), {&window}},
        {{SHIFTED(WA_DK)}, FAILED("dk"), {&pair}},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        start(state);
        standin_drivers = cases[i / 2].driver;
        const winattn_desc *desc = cases[i / 2].descs[i % 2];
        for (int sessions = 0; desc && sessions < 2; sessions++)
            assert_left_to_fragments(*desc, cases[i / 2].why);
    }
}

/* Of both passes, that one keeps wgmma and the other does not. */
static void assert_passes_differ(bool forward_has_it, const char *why)
{
    const winattn_desc desc = sliding(BOTH_PASSES);
    world w = begin(&desc);
    assert_says(&w, "backward tier: matrix\n");
    if (forward_has_it) {
        assert_says(&w, "\nkernel: " SLIDING_FORWARD "\n");
        assert_says(&w, "\nbackward kernel: sliding_keys_matrix_mma, ");
        assert_null(strstr(w.text, "\nwgmma not used"));
        assert_says(&w, "\nbackward wgmma not used: ");
    } else {
        assert_says(&w, "\nkernel: sliding_forward_matrix_mma\n");
        assert_says(&w, "\nbackward kernel: " SLIDING_KEYS ", ");
        assert_says(&w, "\nwgmma not used: ");
        assert_null(strstr(w.text, "\nbackward wgmma not used"));
    }
    assert_says(&w, why);
    end(&w);
}

static void drivers_may_fail_in_a_pass(void **state)
{
    static const struct {
        standin_driver driver;
        bool forward_has_it;
        const char *why;
    } cases[] = {
        {{IGNORES, .log_of = SLIDING_FORWARD}, false, IGNORED},
        {{IGNORES, .log_of = SLIDING_ROWS}, true, IGNORED},
        {{IGNORES, .log_of = SLIDING_KEYS}, true, IGNORED},
        {{WRONG(WA_O)}, false, FAILED("o")},
        {{WRONG(WA_DQ)}, true, FAILED("dq")},
        {{WRONG(WA_DK)}, true, FAILED("dk")},
        {{WRONG(WA_DV)}, true, FAILED("dv")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(state);
        standin_drivers = cases[i].driver;
        assert_passes_differ(cases[i].forward_has_it, cases[i].why);
    }
}

/* After so many launches in comparisons. */
static void assert_maps_were_wrong(const world *w, unsigned launches)
{
    assert_says(w, "\nbackward kernel: " SLIDING_KEYS ", ");
    assert_says(w, "\nbackward tensor maps not used: " FAILED("dq"));
    assert_null(strstr(w->text, "wgmma not used"));
    assert_int_equal(launches_of(SLIDING_KEYS), launches);
}

/* By maps alone: then they are copied otherwise, here and in the next plan. */
static void maps_may_be_wrong(void **state)
{
    winattn_desc desc = sliding(WINATTN_PASS_BACKWARD);
    (void)state;
    standin_drivers.wgmma_wrong_by_maps = true;
    standin_drivers.wgmma_wrong = WA_DQ;
    world w = begin(&desc);
    winattn_plan *first = w.plan;
    assert_maps_were_wrong(&w, 3);
    standin_forget();
    desc = another(desc);
    plan_for(&w, &desc);
    assert_maps_were_wrong(&w, 0);
    winattn_plan_destroy(first);
    end(&w);
}

/* What was found, with tensor maps and without, is known to the next plan,
 * which compares nothing. */
static void what_was_wrong_is_remembered(void **state)
{
    winattn_desc desc = sliding(WINATTN_PASS_BACKWARD);
    (void)state;
    standin_drivers.wgmma_wrong = WA_DK;
    world w = begin(&desc);
    winattn_plan *first = w.plan;
    assert_says(&w, "backward wgmma not used: self-test failed: dk");
    assert_int_equal(launches_of(SLIDING_KEYS), 2);
    standin_forget();
    desc = another(desc);
    plan_for(&w, &desc);
    assert_says(&w, "backward wgmma not used: self-test failed: dk");
    assert_int_equal(launches_of(SLIDING_KEYS), 0);
    winattn_plan_destroy(first);
    end(&w);
}

/* The n-th call or allocation fails; false if none did. Nothing of it is left
 * then, and each failure has a reason. */
static bool plan_while_failing(const winattn_desc *desc, unsigned long n,
                               bool allocation)
{
    world w = {.at = place_of(made_up_device("H200"))};
    if (allocation)
        standin_fail_allocation(n);
    else
        standin_fail_call(NULL, n, 0);
    const winattn_status status =
        winattn_plan_create(w.at.context, w.at.id, desc, &w.plan);
    const bool failed = standin_failed() != NULL;
    standin_fail_nothing();
    if (status != WINATTN_SUCCESS)
        assert_string_not_equal(winattn_last_reason(), "");
    end(&w);
    return failed;
}

/* With sanitizers, where each plan takes three times as long, every third. */
#ifdef __SANITIZE_ADDRESS__
#define STEP 3
#else
#define STEP 1
#endif

static void any_call_may_fail(void **state)
{
    const struct {
        winattn_desc desc;
        unsigned long least; /* calls, and as many allocations */
    } plans[] = {{sliding(BOTH_PASSES), 100},
                 {windows(WINATTN_DOT, WINATTN_FP16, 256, 256), 30},
                 {gradients(WINATTN_DOT, WINATTN_BF16), 60}};
    for (size_t i = 0; i < 2 * sizeof plans / sizeof *plans; i++) {
        winattn_desc desc = plans[i / 2].desc;
        unsigned long n = 1;
        if (desc.variant == WINATTN_SLIDING)
            desc.head_dim = 16;
        for (start(state); plan_while_failing(&desc, n, i % 2 != 0);
             start(state))
            n += STEP;
        assert_in_range(n, plans[i / 2].least, 2000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_compared_once),
        cmocka_unit_test_setup(each_type_is_compared, start),
        cmocka_unit_test_setup(launches_have_as_many_groups_as_units, start),
        cmocka_unit_test_setup(it_is_exported, start),
        cmocka_unit_test(drivers_may_fail),
        cmocka_unit_test(drivers_may_fail_in_a_pass),
        cmocka_unit_test_setup(maps_may_be_wrong, start),
        cmocka_unit_test_setup(what_was_wrong_is_remembered, start),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
