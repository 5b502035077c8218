/* SPDX-License-Identifier: Apache-2.0
 * Whether the self-test of windows with wgmma asks for the right numbers, on
 * any device, as test_wgmma_numbers.c does of sliding attention. */
#include <string.h>

#include "kit/emulated.h"
#include "kit/runner.h"
#include "session/build.h"
#include "session/window_test.h"

typedef struct kernel_case {
    winattn_variant variant;
    winattn_dtype dtype;
    winattn_bias bias;
    uint32_t queries, keys;
} kernel_case;

static winattn_status check(wa_session *session, wa_pass pass,
                            const kernel_case *c, const char *build_options)
{
    static const wa_exclusions none;
    winattn_desc desc = {.struct_size = sizeof desc,
                         .tier = WINATTN_TIER_MATRIX,
                         .windows = 5,
                         .heads = 1,
                         .head_dim = 16};
    wa_problem problem;
    wa_plan plan;
    wa_kernels kernels;
    memset(&kernels, 0, sizeof kernels);
    desc.variant = c->variant;
    desc.dtype = c->dtype;
    desc.bias = c->bias;
    desc.queries = c->queries;
    desc.keys = c->keys;
    desc.build_options = build_options;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    winattn_status status = wa_problem_read(&desc, &problem);
    if (status == WINATTN_SUCCESS)
        status = wa_plan_make(&problem, wa_session_device(session), pass,
                              &none, &plan);
    if (status == WINATTN_SUCCESS)
        status = wa_build_steps(session, &problem, &plan, &kernels, NULL);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    status = wa_check_window_wgmma(device.context, device.id, &problem, &plan,
                                   &kernels);
    wa_kernels_release(&kernels);
    return status;
}

static void right_kernels_pass(void **state)
{
    static const kernel_case cases[] = {
        {WINATTN_DOT, WINATTN_FP16, WINATTN_BIAS_FULL, 40, 90},
        {WINATTN_COSINE, WINATTN_BF16, WINATTN_BIAS_FULL, 80, 33},
        {WINATTN_COSINE, WINATTN_FP16, WINATTN_BIAS_NONE, 20, 20},
    };
    (void)state;
    wa_session *session = pretend_unit();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int pass = 0; pass < WA_PASSES; pass++)
            if (check(session, (wa_pass)pass, &cases[i], "") !=
                WINATTN_SUCCESS)
                fail_msg("%s", winattn_last_reason());
    wa_session_release(session);
}

/* Left operands come in another order than right ones. */
static void wrong_kernels_do_not(void **state)
{
    static const kernel_case of = {WINATTN_DOT, WINATTN_BF16,
                                   WINATTN_BIAS_FULL, 40, 40};
    (void)state;
    static const char *const reasons[WA_PASSES] = {
        "failed its self-test: o of window 0",
        "failed its self-test: dq of window 0"};
    wa_session *session = pretend_unit();
    for (int pass = 0; pass < WA_PASSES; pass++) {
        assert_int_equal(
            check(session, (wa_pass)pass, &of, "-DSLOT_KEY(k)=((k)^1)"),
            WINATTN_UNSUPPORTED_DEVICE);
        if (!strstr(winattn_last_reason(), reasons[pass]))
            fail_msg("%s", winattn_last_reason());
    }
    wa_session_release(session);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_pass),
        cmocka_unit_test(wrong_kernels_do_not),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
