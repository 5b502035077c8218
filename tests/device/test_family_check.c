/* SPDX-License-Identifier: Apache-2.0
 * Whether kernels that are compared with plain ones pass if they are right,
 * and not if they are spoilt; those of tier local. */
#include <string.h>

#include "base/text.h"
#include "kit/runner.h"
#include "launch/bias_table.h"
#include "session/build.h"
#include "session/family_check.h"

static wa_session *session;

/* Plans, builds and compares a pass. option: of these kernels alone. Plain
 * kernels are one program, which the forward pass, that comes first, builds.
 */
static winattn_status check(const char *text, wa_pass pass, const char *option)
{
    static const wa_exclusions none;
    static cl_int index[30 * 50];
    winattn_desc desc =
        case_desc_of(text, WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD);
    wa_problem problem;
    wa_plan plan;
    wa_kernels kernels;
    wa_table_buffers table;
    memset(&kernels, 0, sizeof kernels);
    memset(&table, 0, sizeof table);
    for (int i = 0; i < 30 * 50 && desc.table.entries; i++)
        index[i] = (i + i / 7) % (cl_int)desc.table.entries;
    desc.table.index = desc.table.entries ? index : NULL;
    winattn_status status = wa_problem_read(&desc, &problem);
    if (status == WINATTN_SUCCESS)
        status = wa_plan_make(&problem, wa_session_device(session), pass,
                              &none, &plan);
    for (int i = 0; i < WA_STEPS; i++)
        wa_append(plan.step[i].defines, sizeof plan.step[i].defines, "%s",
                  option);
    if (status == WINATTN_SUCCESS)
        status = wa_table_buffers_make(
            device.context, wa_session_device(session), &problem, &table);
    if (status == WINATTN_SUCCESS)
        status = wa_build_steps(session, &problem, &plan, &kernels, NULL);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    const unsigned built = wa_programs_built();
    status = wa_check_family(session, &problem, &plan, &kernels, &table, NULL,
                             NULL);
    if (!option[0])
        assert_true(wa_programs_built() - built <= (pass == WA_FORWARD));
    wa_kernels_release(&kernels);
    wa_table_buffers_release(&table);
    return status;
}

#define LOCAL "tier=local heads=1 "
/* Positions in a table of biases, 13 entries apart. */
#define ON_GRID                                                               \
    LOCAL "variant=cosine dtype=fp16 grid=2 size=10x21 window=5x7 shift=1x2 " \
          "bias=table_same mask=shift"

static void right_kernels_pass(void **state)
{
    static const char *const cases[] = {
        ON_GRID,
        LOCAL "variant=sliding dtype=fp16 windows=1 queries=100 block=10",
        LOCAL "dtype=bf16 windows=5 queries=30 keys=50 bias=table_same "
              "entries=77"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int pass = 0; pass < WA_PASSES; pass++)
            if (check(cases[i], (wa_pass)pass, "") != WINATTN_SUCCESS)
                fail_msg("case %d, pass %d: %s", (int)i, pass,
                         winattn_last_reason());
}

static void wrong_kernels_do_not(void **state)
{
    static const char *const reasons[WA_PASSES] = {
        "self-test failed: o, element ", "self-test failed: dq, element "};
    (void)state;
    for (int pass = 0; pass < WA_PASSES; pass++) {
        assert_int_equal(check(ON_GRID, (wa_pass)pass, "-DTABLE_STEP_1=12 "),
                         WINATTN_UNSUPPORTED_DEVICE);
        if (!strstr(winattn_last_reason(), reasons[pass]))
            fail_msg("%s", winattn_last_reason());
    }
}

static int begin(void **state)
{
    (void)state;
    return wa_session_acquire(device.context, device.id, &session);
}

static int end(void **state)
{
    (void)state;
    wa_session_release(session);
    return 0;
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(right_kernels_pass, begin, end),
        cmocka_unit_test_setup_teardown(wrong_kernels_do_not, begin, end),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
