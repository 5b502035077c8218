/* SPDX-License-Identifier: Apache-2.0
 * Whether the self-test of kernels with wgmma asks for the right numbers, on
 * any device with fragments: those of the unit mma round as kernels with wgmma
 * do, so they must pass it, and others must not where they are spoilt. */
#include <string.h>

#include "kit/fragment_session.h"
#include "kit/runner.h"
#include "session/build.h"
#include "session/wgmma_test.h"

static winattn_status check(wa_session *session, wa_pass pass,
                            winattn_dtype dtype, uint32_t dim,
                            const char *build_options)
{
    static const wa_exclusions none;
    winattn_desc desc = {.struct_size = sizeof desc,
                         .variant = WINATTN_SLIDING,
                         .tier = WINATTN_TIER_MATRIX,
                         .windows = 1,
                         .heads = 1};
    wa_problem problem;
    wa_plan plan;
    wa_kernels kernels;
    memset(&kernels, 0, sizeof kernels);
    desc.dtype = dtype;
    desc.head_dim = dim;
    desc.queries = desc.keys = 100;
    desc.block = 10;
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
    status =
        wa_check_wgmma(device.context, device.id, &problem, &plan, &kernels);
    wa_kernels_release(&kernels);
    return status;
}

static void right_kernels_pass(void **state)
{
    (void)state;
    static const struct {
        winattn_dtype dtype;
        uint32_t dim;
    } kernels[] = {{WINATTN_FP16, 64}, {WINATTN_BF16, 16}};
    wa_session *session = fragment_session();
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        for (int pass = 0; pass < WA_PASSES; pass++)
            if (check(session, (wa_pass)pass, kernels[i].dtype, kernels[i].dim,
                      "") != WINATTN_SUCCESS)
                fail_msg("%s", winattn_last_reason());
    wa_session_release(session);
}

/* Left operands come in another order than right ones. */
static void wrong_kernels_do_not(void **state)
{
    (void)state;
    if (has_fragments(WINATTN_FP32)) /* mma takes no order of others */
        skip();
    static const char *const reasons[WA_PASSES] = {"self-test: o of head 0",
                                                   "self-test: dq of head 0"};
    wa_session *session = fragment_session();
    for (int pass = 0; pass < WA_PASSES; pass++) {
        assert_int_equal(check(session, (wa_pass)pass, WINATTN_BF16, 16,
                               "-DSLOT_KEY(k)=((k)^1)"),
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
