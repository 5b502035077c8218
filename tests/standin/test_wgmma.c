/* SPDX-License-Identifier: Apache-2.0
 * Kernels with wgmma on drivers that are made up: the way by PTX, what a log
 * or the self-test says against it, and that all else is fragments' then, with
 * the reason told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failing_plan.h"
#include "kit/devices.h"
#include "program/ptx.h"
#include "standin.h"

#define KERNEL "sliding_forward_wgmma"
#define FRAGMENTS "sliding_forward_matrix_mma"
#define ROWS_KERNEL "sliding_rows_wgmma"
#define KEYS_KERNEL "sliding_keys_wgmma"

/* What is asked for, on a new session. */
typedef struct world {
    cl_context context;
    cl_device_id id;
    cl_bitfield passes;
    winattn_plan *plan;
    char text[4096]; /* what the plan says */
} world;

static int start(void **state)
{
    (void)state;
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    standin_quiet = false;
    return 0;
}

static winattn_desc desc_of(uint32_t tokens, winattn_dtype dtype)
{
    winattn_desc desc = {.struct_size = sizeof desc,
                         .variant = WINATTN_SLIDING,
                         .windows = 1,
                         .heads = 3};
    desc.dtype = dtype;
    desc.queries = desc.keys = tokens;
    desc.block = 100;
    desc.window_blocks = 3;
    desc.head_dim = 64;
    return desc;
}

static void plan_again(world *w, uint32_t tokens, winattn_dtype dtype)
{
    winattn_desc desc = desc_of(tokens, dtype);
    desc.passes = w->passes;
    if (winattn_plan_create(w->context, w->id, &desc, &w->plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    assert_int_equal(
        winattn_plan_describe(w->plan, sizeof w->text, w->text, NULL),
        WINATTN_SUCCESS);
}

static world begin_passes(cl_bitfield passes)
{
    world w = {.id = standin_device(made_up_device("H200")), .passes = passes};
    w.context = standin_context(1, &w.id);
    plan_again(&w, 1000, WINATTN_FP16);
    return w;
}

static world begin(void) { return begin_passes(WINATTN_PASS_FORWARD); }

static void end(world *w)
{
    winattn_plan_destroy(w->plan);
    clReleaseContext(w->context);
    assert_null(standin_alive());
    assert_null(standin_wrong(NULL));
}

static void assert_says(const world *w, const char *part)
{
    if (!strstr(w->text, part))
        fail_msg("no \"%s\" in\n%s", part, w->text);
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

static void it_is_built_and_tested_once(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    for (int dtype = WINATTN_FP16; dtype <= WINATTN_BF16; dtype++) {
        world w = begin();
        winattn_plan *first = w.plan; /* keeps the session */
        standin_forget();
        plan_again(&w, 500, (winattn_dtype)dtype);
        assert_says(&w, "kernel: " KERNEL "\n");
        assert_null(strstr(w.text, "wgmma not used"));
        /* a type that is new is, other numbers of tokens are not */
        const size_t wanted = dtype == WINATTN_BF16;
        assert_int_equal(builds_of(KERNEL, true), wanted);
        assert_int_equal(builds_of(KERNEL, false), wanted);
        assert_int_equal(launches_of(KERNEL), 2 * wanted);
        assert_int_equal(launches_of("forward_plain"), wanted);
        winattn_plan_destroy(first);
        end(&w);
    }
}

static void gradients_are_built_and_tested_once(void **state)
{
    static const char *const kernels[] = {KERNEL, ROWS_KERNEL, KEYS_KERNEL};
    (void)state;
    standin_drivers.gives_ptx = true;
    for (int dtype = WINATTN_FP16; dtype <= WINATTN_BF16; dtype++) {
        world w = begin_passes(WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD);
        winattn_plan *first = w.plan;
        standin_forget();
        plan_again(&w, 500, (winattn_dtype)dtype);
        assert_says(&w, "\nkernel: " KERNEL "\n");
        assert_says(&w, "\nbackward kernel: " ROWS_KERNEL ", ");
        assert_says(&w, "\nbackward kernel: " KEYS_KERNEL ", ");
        assert_null(strstr(w.text, "wgmma not used"));
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
            /* of gradients one fetches by tensor maps, another copies */
            const size_t all = i == 0 ? 1 : 2;
            const size_t wanted = dtype == WINATTN_BF16 ? all : 0;
            assert_int_equal(builds_of(kernels[i], true), wanted);
            assert_int_equal(builds_of(kernels[i], false), wanted);
            /* of tensors that are aligned, and of others */
            assert_int_equal(launches_of(kernels[i]),
                             dtype == WINATTN_BF16 ? 2 : 0);
        }
        winattn_plan_destroy(first);
        end(&w);
    }
}

/* Work-groups stay: as many as compute units, each with several work tiles. */
static void launches_have_as_many_groups_as_units(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    world w = begin();
    winattn_plan_destroy(w.plan);
    plan_again(&w, 100000, WINATTN_FP16);
    const cl_command_queue queue = standin_queue(w.context, w.id, false);
    const cl_mem memory =
        standin_buffer(w.context, CL_MEM_READ_WRITE, (size_t)1 << 32);
    const winattn_tensor all = {memory, 0};
    const winattn_forward f = {
        .struct_size = sizeof f, .q = all, .k = all, .v = all, .o = all};
    standin_forget();
    assert_int_equal(winattn_enqueue_forward(w.plan, queue, &f, 0, NULL, NULL),
                     WINATTN_SUCCESS);
    const standin_launch *launches;
    assert_int_equal(standin_launches(&launches), 1);
    assert_int_equal(launches[0].local, 640);
    assert_int_equal(launches[0].global,
                     640 * made_up_device("H200")->compute_units);
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    end(&w);
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
    size_t size = 0;
    winattn_programs *programs;
    (void)state;
    standin_drivers.gives_ptx = true;
    world w = begin();
    assert_int_equal(winattn_programs_create(w.context, w.id, &programs),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_programs_export(programs, 0, NULL, &size),
                     WINATTN_SUCCESS);
    char *blob = malloc(size);
    assert_non_null(blob);
    assert_int_equal(winattn_programs_export(programs, size, blob, NULL),
                     WINATTN_SUCCESS);
    winattn_programs_destroy(programs);
    assert_true(
        holds(blob, size, "\nprogram: " KERNEL "\nptx: " WA_PTX_TARGET "\n"));
    assert_true(holds(blob, size, ".target sm_90a"));
    assert_false(holds(blob, size, "//@"));
    end(&w);
    start(NULL);
    standin_drivers.gives_ptx = true;
    w.id = standin_device(made_up_device("H200"));
    w.context = standin_context(1, &w.id);
    assert_int_equal(winattn_programs_create(w.context, w.id, &programs),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    plan_again(&w, 1000, WINATTN_FP16);
    winattn_programs_destroy(programs);
    assert_says(&w, "kernel: " KERNEL "\n");
    assert_says(&w, "program: imported");
    assert_int_equal(builds_of(KERNEL, true), 0);
    free(blob);
    end(&w);
}

/* ---- Where it does not ---- */

static void assert_left_to_fragments(const char *why)
{
    world w = begin();
    assert_says(&w, "tier: matrix\n");
    assert_says(&w, "kernel: " FRAGMENTS "\n");
    assert_says(&w, "wgmma not used: ");
    assert_says(&w, why);
    end(&w);
}

static void drivers_may_give_no_ptx(void **state)
{
    (void)state;
    assert_left_to_fragments("it is no PTX");
    standin_drivers.gives_no_binaries = true;
    assert_left_to_fragments("gives no binary");
}

static void drivers_may_refuse_the_ptx(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.refuses_binaries = true;
    assert_left_to_fragments("clCreateProgramWithBinary");
}

static void logs_may_complain(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.log =
        "ptxas info    : (C7514) Potential Performance Loss: "
        "wgmma.mma_async instructions are serialized due to something\n";
    assert_left_to_fragments("serialized due to something");
    standin_drivers.log = "ptxas info    : (C7508) 'setmaxnreg' ignored\n";
    assert_left_to_fragments("'setmaxnreg' ignored");
}

/* Nothing of the library's outlives a session here, but the driver's cache
 * does. */
static void what_was_refused_is_refused_again(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.log = "ptxas info    : (C7508) 'setmaxnreg' ignored\n";
    for (int sessions = 0; sessions < 3; sessions++)
        assert_left_to_fragments("'setmaxnreg' ignored");
}

static void numbers_may_be_wrong(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.wgmma_wrong = WA_O;
    assert_left_to_fragments("self-test failed: o of head 0, element 3, is ");
    standin_drivers.wgmma_wrong = WA_LSE;
    assert_left_to_fragments(
        "self-test failed: lse of head 0, element 1, is ");
}

/* Of both passes, that one keeps wgmma and the other does not. */
static void assert_passes_differ(bool forward_has_it, const char *why)
{
    world w = begin_passes(WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD);
    assert_says(&w, "backward tier: matrix\n");
    if (forward_has_it) {
        assert_says(&w, "\nkernel: " KERNEL "\n");
        assert_says(&w, "\nbackward kernel: sliding_keys_matrix_mma, ");
        assert_null(strstr(w.text, "\nwgmma not used"));
        assert_says(&w, "\nbackward wgmma not used: ");
    } else {
        assert_says(&w, "\nkernel: " FRAGMENTS "\n");
        assert_says(&w, "\nbackward kernel: " KEYS_KERNEL ", ");
        assert_says(&w, "\nwgmma not used: ");
        assert_null(strstr(w.text, "\nbackward wgmma not used"));
    }
    assert_says(&w, why);
    end(&w);
}

static void logs_may_complain_of_a_pass(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.log = "ptxas info    : (C7508) 'setmaxnreg' ignored\n";
    standin_drivers.log_of = KERNEL;
    assert_passes_differ(false, "'setmaxnreg' ignored");
    standin_drivers.log_of = ROWS_KERNEL;
    assert_passes_differ(true, "'setmaxnreg' ignored");
    standin_drivers.log_of = KEYS_KERNEL;
    assert_passes_differ(true, "'setmaxnreg' ignored");
}

static void gradients_may_be_wrong(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.wgmma_wrong = WA_O;
    assert_passes_differ(false, "self-test failed: o of head 0, ");
    standin_drivers.wgmma_wrong = WA_DQ;
    assert_passes_differ(true, "self-test failed: dq of head 0, ");
    standin_drivers.wgmma_wrong = WA_DK;
    assert_passes_differ(true, "self-test failed: dk of head 0, ");
    standin_drivers.wgmma_wrong = WA_DV;
    assert_passes_differ(true, "self-test failed: dv of head 0, ");
}

/* After so many tests of gradients. */
static void assert_maps_were_wrong(const world *w, unsigned tests)
{
    assert_says(w, "\nbackward kernel: " KEYS_KERNEL ", ");
    assert_says(w, "\nbackward tensor maps not used: "
                   "self-test failed: dq of head 0, ");
    assert_null(strstr(w->text, "wgmma not used"));
    assert_int_equal(launches_of(KEYS_KERNEL), tests);
}

/* By maps alone: then they are copied otherwise, here and in the next plan. */
static void maps_may_be_wrong(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.wgmma_wrong_by_maps = true;
    standin_drivers.wgmma_wrong = WA_DQ;
    world w = begin_passes(WINATTN_PASS_BACKWARD);
    winattn_plan *first = w.plan;
    assert_maps_were_wrong(&w, 3);
    standin_forget();
    plan_again(&w, 500, WINATTN_FP16);
    assert_maps_were_wrong(&w, 0);
    winattn_plan_destroy(first);
    end(&w);
}

/* A plan of gradients alone is tested as well, with tensor maps and without,
 * and what was found is known to the next plan, which tests nothing. */
static void what_was_wrong_is_remembered(void **state)
{
    (void)state;
    standin_drivers.gives_ptx = true;
    standin_drivers.wgmma_wrong = WA_DK;
    world w = begin_passes(WINATTN_PASS_BACKWARD);
    winattn_plan *first = w.plan;
    assert_says(&w, "backward wgmma not used: self-test failed: dk");
    assert_int_equal(launches_of(KEYS_KERNEL), 2);
    standin_forget();
    plan_again(&w, 500, WINATTN_FP16);
    assert_says(&w, "backward wgmma not used: self-test failed: dk");
    assert_int_equal(launches_of(KEYS_KERNEL), 0);
    winattn_plan_destroy(first);
    end(&w);
}

static int start_with_ptx(void **state)
{
    start(state);
    standin_drivers.gives_ptx = true;
    return 0;
}

static void any_call_may_fail(void **state)
{
    winattn_desc desc = desc_of(1000, WINATTN_FP16);
    (void)state;
    desc.head_dim = 16;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    any_call_of_plan_may_fail(&desc, start_with_ptx, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_is_built_and_tested_once, start),
        cmocka_unit_test_setup(gradients_are_built_and_tested_once, start),
        cmocka_unit_test_setup(launches_have_as_many_groups_as_units, start),
        cmocka_unit_test_setup(it_is_exported, start),
        cmocka_unit_test_setup(drivers_may_give_no_ptx, start),
        cmocka_unit_test_setup(drivers_may_refuse_the_ptx, start),
        cmocka_unit_test_setup(logs_may_complain, start),
        cmocka_unit_test_setup(what_was_refused_is_refused_again, start),
        cmocka_unit_test_setup(numbers_may_be_wrong, start),
        cmocka_unit_test_setup(logs_may_complain_of_a_pass, start),
        cmocka_unit_test_setup(gradients_may_be_wrong, start),
        cmocka_unit_test_setup(maps_may_be_wrong, start),
        cmocka_unit_test_setup(what_was_wrong_is_remembered, start),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
