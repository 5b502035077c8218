/* SPDX-License-Identifier: Apache-2.0
 * Windows with wgmma on drivers that are made up: the self-test, what it finds
 * wrong and what may fail on its way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failing_plan.h"
#include "kit/devices.h"
#include "standin.h"

#define KERNEL "window_forward_wgmma"
#define FRAGMENTS "forward_matrix_mma"
#define ROWS_KERNEL "window_rows_wgmma"
#define KEYS_KERNEL "window_keys_wgmma"
#define WHOLE_KERNEL "window_gradients_wgmma"
#define FRAGMENT_GRADIENTS "backward_keys_matrix_mma"
#define WHOLE_FRAGMENTS "backward_matrix_mma"

static int start(void **state)
{
    (void)state;
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    standin_quiet = false;
    standin_drivers.gives_ptx = true;
    return 0;
}

static winattn_desc desc_of(winattn_variant variant, winattn_dtype dtype,
                            uint32_t queries, uint32_t keys)
{
    winattn_desc desc = {.struct_size = sizeof desc,
                         .windows = 1000,
                         .heads = 3,
                         .head_dim = 32};
    desc.variant = variant;
    desc.dtype = dtype;
    desc.queries = queries;
    desc.keys = keys;
    desc.bias = WINATTN_BIAS_FULL;
    return desc;
}

/* Of gradients alone, with fewer numbers to compute. */
static winattn_desc gradients_of(winattn_variant variant, winattn_dtype dtype)
{
    winattn_desc desc = desc_of(variant, dtype, 241, 256);
    desc.passes = WINATTN_PASS_BACKWARD;
    return desc;
}

/* Of windows of which one kernel makes all. */
static winattn_desc whole_gradients_of(winattn_dtype dtype)
{
    winattn_desc desc = desc_of(WINATTN_DOT, dtype, 144, 144);
    desc.passes = WINATTN_PASS_BACKWARD;
    return desc;
}

/* What is asked for, on a new session. */
typedef struct world {
    cl_context context;
    cl_device_id id;
    winattn_plan *plan;
    char text[4096]; /* what the plan says */
} world;

static world begin(const winattn_desc *desc)
{
    world w = {.id = standin_device(made_up_device("H200"))};
    w.context = standin_context(1, &w.id);
    if (winattn_plan_create(w.context, w.id, desc, &w.plan) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    assert_int_equal(
        winattn_plan_describe(w.plan, sizeof w.text, w.text, NULL),
        WINATTN_SUCCESS);
    return w;
}

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

static void it_is_tested_once(void **state)
{
    static const struct {
        winattn_variant variant;
        winattn_dtype dtype;
        uint32_t queries, keys;
    } cases[] = {{WINATTN_COSINE, WINATTN_FP16, 256, 256},
                 {WINATTN_DOT, WINATTN_BF16, 256, 259},
                 {WINATTN_COSINE, WINATTN_BF16, 260, 300}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        winattn_desc desc = desc_of(cases[i].variant, cases[i].dtype,
                                    cases[i].queries, cases[i].keys);
        winattn_plan *second;
        world w = begin(&desc);
        assert_says(&w, "kernel: " KERNEL "\n");
        assert_null(strstr(w.text, "wgmma not used"));
        standin_forget();
        desc.windows = 70; /* the same program */
        assert_int_equal(winattn_plan_create(w.context, w.id, &desc, &second),
                         WINATTN_SUCCESS);
        assert_int_equal(launches_of(KERNEL), 0);
        winattn_plan_destroy(second);
        end(&w);
    }
}

static void it_needs_no_bias(void **state)
{
    winattn_desc desc = desc_of(WINATTN_DOT, WINATTN_FP16, 256, 256);
    (void)state;
    desc.bias = WINATTN_BIAS_NONE;
    world w = begin(&desc);
    assert_says(&w, "kernel: " KERNEL "\n");
    end(&w);
}

static void regions_and_maps_are_tested(void **state)
{
    winattn_desc desc = desc_of(WINATTN_DOT, WINATTN_FP16, 256, 256);
    (void)state;
    desc.mask = WINATTN_MASK_REGIONS;
    desc.mask_windows = 3;
    world w = begin(&desc);
    assert_says(&w, "kernel: " KERNEL "\n");
    end(&w);
    desc = desc_of(WINATTN_COSINE, WINATTN_BF16, 0, 0);
    desc.windows = 0;
    desc.bias = WINATTN_BIAS_TABLE;
    desc.mask = WINATTN_MASK_SHIFT;
    desc.grid = (winattn_grid){.axes = 2,
                               .size = {16, 48},
                               .window = {16, 16},
                               .shift = {0, 4},
                               .batch = 5};
    w = begin(&desc);
    assert_says(&w, "kernel: " KERNEL "\n");
    end(&w);
}

static void assert_gradients_tested_once(winattn_desc desc)
{
    const bool is_whole = desc.queries == 144 || desc.grid.window[0] == 12;
    winattn_plan *second;
    world w = begin(&desc);
    if (is_whole) {
        assert_says(&w, "backward kernel: " WHOLE_KERNEL ", ");
    } else {
        assert_says(&w, "backward kernel: " ROWS_KERNEL ", ");
        assert_says(&w, "backward kernel: " KEYS_KERNEL ", ");
    }
    assert_null(strstr(w.text, "wgmma not used"));
    standin_forget();
    if (desc.grid.axes) /* the same programs */
        desc.grid.batch = 70;
    else
        desc.windows = 70;
    assert_int_equal(winattn_plan_create(w.context, w.id, &desc, &second),
                     WINATTN_SUCCESS);
    assert_int_equal(launches_of(is_whole ? WHOLE_KERNEL : ROWS_KERNEL), 0);
    winattn_plan_destroy(second);
    end(&w);
}

static void gradients_are_tested_once(void **state)
{
    (void)state;
    assert_gradients_tested_once(gradients_of(WINATTN_DOT, WINATTN_BF16));
    winattn_desc desc = gradients_of(WINATTN_COSINE, WINATTN_FP16);
    desc.mask = WINATTN_MASK_REGIONS;
    desc.mask_windows = 7;
    assert_gradients_tested_once(desc);
    desc = whole_gradients_of(WINATTN_FP16);
    desc.mask = WINATTN_MASK_REGIONS;
    desc.mask_windows = 3;
    assert_gradients_tested_once(desc);
}

/* Tokens on a grid, and tables of biases. */
static void maps_are_tested_too(void **state)
{
    static cl_int index[241 * 256];
    winattn_desc desc = gradients_of(WINATTN_DOT, WINATTN_FP16);
    (void)state;
    for (size_t i = 0; i < sizeof index / sizeof *index; i++)
        index[i] = (cl_int)(i % 511);
    desc.bias = WINATTN_BIAS_TABLE;
    desc.table.index = index;
    desc.table.entries = 511;
    assert_gradients_tested_once(desc);
    desc = gradients_of(WINATTN_COSINE, WINATTN_BF16);
    desc.windows = desc.queries = desc.keys = 0;
    desc.bias = WINATTN_BIAS_TABLE;
    desc.mask = WINATTN_MASK_SHIFT;
    desc.grid = (winattn_grid){.axes = 2,
                               .size = {48, 80},
                               .window = {16, 16},
                               .shift = {8, 3},
                               .batch = 5};
    assert_gradients_tested_once(desc);
    desc.variant = WINATTN_DOT;
    desc.grid.window[0] = desc.grid.window[1] = 12;
    desc.grid.size[1] = 36;
    assert_gradients_tested_once(desc);
}

/* Work-groups stay, as many as share the heads evenly. */
static void launches_have_whole_shares(void **state)
{
    const winattn_desc desc = desc_of(WINATTN_COSINE, WINATTN_FP16, 256, 256);
    const size_t units = made_up_device("H200")->compute_units;
    (void)state;
    world w = begin(&desc);
    const cl_command_queue queue = standin_queue(w.context, w.id, false);
    const cl_mem memory =
        standin_buffer(w.context, CL_MEM_READ_WRITE, (size_t)1 << 32);
    const winattn_tensor all = {memory, 0};
    const winattn_forward f = {.struct_size = sizeof f,
                               .q = all,
                               .k = all,
                               .v = all,
                               .bias = all,
                               .o = all};
    standin_forget();
    assert_int_equal(winattn_enqueue_forward(w.plan, queue, &f, 0, NULL, NULL),
                     WINATTN_SUCCESS);
    const standin_launch *launches;
    assert_int_equal(standin_launches(&launches), 1);
    assert_int_equal(launches[0].local, 640);
    assert_int_equal(launches[0].global, 640 * (units / 3 * 3));
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    end(&w);
}

/* ---- Where it does not ---- */

static void assert_left_to_fragments(const char *why)
{
    const winattn_desc desc = desc_of(WINATTN_COSINE, WINATTN_FP16, 256, 256);
    world w = begin(&desc);
    assert_says(&w, "tier: matrix\n");
    assert_says(&w, "kernel: " FRAGMENTS "\n");
    assert_says(&w, "wgmma not used: ");
    assert_says(&w, why);
    end(&w);
}

static void numbers_may_be_wrong(void **state)
{
    (void)state;
    standin_drivers.wgmma_wrong = WA_O;
    assert_left_to_fragments("self-test failed: o of head 0, ");
    standin_drivers.wgmma_wrong = WA_LSE;
    assert_left_to_fragments("self-test failed: lse of head 0, ");
}

static void assert_left(const winattn_desc *desc, const char *kernel,
                        const char *why)
{
    world w = begin(desc);
    assert_says(&w, "backward tier: matrix\n");
    assert_says(&w, kernel);
    assert_says(&w, "backward wgmma not used: ");
    assert_says(&w, why);
    end(&w);
}

static void assert_gradients_left_to_fragments(const char *why)
{
    const winattn_desc desc = gradients_of(WINATTN_COSINE, WINATTN_FP16);
    assert_left(&desc, "backward kernel: " FRAGMENT_GRADIENTS ", ", why);
}

static void assert_whole_left_to_fragments(const char *why)
{
    const winattn_desc desc = whole_gradients_of(WINATTN_BF16);
    assert_left(&desc, "backward kernel: " WHOLE_FRAGMENTS ", ", why);
}

static void gradients_may_be_wrong(void **state)
{
    static const struct {
        wa_tensor_id id;
        const char *says;
    } wrong[] = {
        {WA_DQ, "self-test failed: dq of head 0, "},
        {WA_DK, "self-test failed: dk of head 0, "},
        {WA_DV, "self-test failed: dv of head 0, "},
        {WA_DBIAS, "self-test failed: dbias of head 0, "},
        {WA_D_LOGIT_SCALE, "self-test failed: d_logit_scale of head 0, "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        standin_drivers.wgmma_wrong = wrong[i].id;
        assert_gradients_left_to_fragments(wrong[i].says);
        if (wrong[i].id != WA_D_LOGIT_SCALE)
            assert_whole_left_to_fragments(wrong[i].says);
    }
}

static void tensors_that_are_not_aligned_may_be_wrong(void **state)
{
    (void)state;
    standin_drivers.wgmma_wrong_if_shifted = true;
    standin_drivers.wgmma_wrong = WA_LSE;
    assert_left_to_fragments("self-test failed: lse of head 0, ");
    standin_drivers.wgmma_wrong = WA_DK;
    assert_gradients_left_to_fragments("self-test failed: dk of head 0, ");
}

static void logs_may_complain(void **state)
{
    static const char *const of[] = {ROWS_KERNEL, KEYS_KERNEL};
    (void)state;
    standin_drivers.log = "ptxas info    : (C7508) 'setmaxnreg' ignored\n";
    assert_left_to_fragments("'setmaxnreg' ignored");
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        standin_drivers.log_of = of[i];
        assert_gradients_left_to_fragments("'setmaxnreg' ignored");
    }
    standin_drivers.log_of = WHOLE_KERNEL;
    assert_whole_left_to_fragments("'setmaxnreg' ignored");
}

static void any_call_may_fail(void **state)
{
    const winattn_desc desc = desc_of(WINATTN_DOT, WINATTN_FP16, 256, 256);
    (void)state;
    any_call_of_plan_may_fail(&desc, start, 30);
}

static void any_call_for_gradients_may_fail(void **state)
{
    const winattn_desc desc = gradients_of(WINATTN_DOT, WINATTN_BF16);
    (void)state;
    any_call_of_plan_may_fail(&desc, start, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_is_tested_once, start),
        cmocka_unit_test_setup(it_needs_no_bias, start),
        cmocka_unit_test_setup(regions_and_maps_are_tested, start),
        cmocka_unit_test_setup(gradients_are_tested_once, start),
        cmocka_unit_test_setup(maps_are_tested_too, start),
        cmocka_unit_test_setup(launches_have_whole_shares, start),
        cmocka_unit_test_setup(numbers_may_be_wrong, start),
        cmocka_unit_test_setup(gradients_may_be_wrong, start),
        cmocka_unit_test_setup(tensors_that_are_not_aligned_may_be_wrong,
                               start),
        cmocka_unit_test_setup(logs_may_complain, start),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(any_call_for_gradients_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
