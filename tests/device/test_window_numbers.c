/* SPDX-License-Identifier: Apache-2.0
 * Whether the self-test of windows with wgmma asks for the right numbers, on
 * any device, as test_wgmma_numbers.c does of sliding attention. */
#include <string.h>

#include "kit/fragment_session.h"
#include "kit/runner.h"
#include "launch/bias_table.h"
#include "session/build.h"
#include "session/window_test.h"

typedef struct kernel_case {
    winattn_variant variant;
    winattn_dtype dtype;
    winattn_bias bias;
    uint32_t queries, keys;
    winattn_grid grid; /* instead of queries and keys */
    winattn_mask mask;
    uint32_t entries; /* of a table with an index */
} kernel_case;

/* Of any entry. */
static const cl_int *make_index(const kernel_case *c)
{
    static cl_int index[64 * 64];
    for (uint32_t i = 0; c->entries && i < c->queries * c->keys; i++)
        index[i] = (cl_int)((i + i / 7) % c->entries);
    return c->entries ? index : NULL;
}

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
    wa_table_buffers table;
    memset(&kernels, 0, sizeof kernels);
    memset(&table, 0, sizeof table);
    desc.variant = c->variant;
    desc.dtype = c->dtype;
    desc.bias = c->bias;
    if (c->grid.axes)
        desc.windows = 0;
    desc.grid = c->grid;
    desc.mask = c->mask;
    desc.table.index = make_index(c);
    desc.table.entries = c->entries;
    desc.queries = c->queries;
    desc.keys = c->keys;
    desc.build_options = build_options;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    winattn_status status = wa_problem_read(&desc, &problem);
    if (status == WINATTN_SUCCESS)
        status = wa_plan_make(&problem, wa_session_device(session), pass,
                              &none, &plan);
    if (status == WINATTN_SUCCESS)
        status = wa_table_buffers_make(
            device.context, wa_session_device(session), &problem, &table);
    if (status == WINATTN_SUCCESS)
        status = wa_build_steps(session, &problem, &plan, &kernels, NULL);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    status = wa_check_window_wgmma(device.context, device.id, &problem, &plan,
                                   &kernels, &table);
    wa_kernels_release(&kernels);
    wa_table_buffers_release(&table);
    return status;
}

static void right_kernels_pass(void **state)
{
    static const kernel_case cases[] = {
        {.variant = WINATTN_COSINE,
         .dtype = WINATTN_BF16,
         .bias = WINATTN_BIAS_FULL,
         .queries = 80,
         .keys = 33},
        {.variant = WINATTN_COSINE,
         .dtype = WINATTN_FP16,
         .queries = 20,
         .keys = 20},
        {.dtype = WINATTN_BF16,
         .bias = WINATTN_BIAS_TABLE,
         .queries = 30,
         .keys = 50,
         .entries = 77},
        {.variant = WINATTN_COSINE,
         .dtype = WINATTN_FP16,
         .bias = WINATTN_BIAS_TABLE,
         .mask = WINATTN_MASK_SHIFT,
         .grid = {.axes = 2,
                  .size = {10, 21},
                  .window = {5, 7},
                  .shift = {1, 2},
                  .batch = 1}},
        {.dtype = WINATTN_BF16,
         .bias = WINATTN_BIAS_FULL,
         .grid =
             {.axes = 3, .size = {4, 3, 8}, .window = {2, 3, 8}, .batch = 2}},
    };
    (void)state;
    if (!has_fragments(WINATTN_FP32)) /* others round P and dS otherwise */
        skip();
    wa_session *session = fragment_session();
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
    static const kernel_case of = {.dtype = WINATTN_BF16,
                                   .bias = WINATTN_BIAS_FULL,
                                   .queries = 40,
                                   .keys = 40};
    (void)state;
    if (has_fragments(WINATTN_FP32)) /* mma takes no order of others */
        skip();
    static const char *const reasons[WA_PASSES] = {
        "failed its self-test: o of window 0",
        "failed its self-test: dq of window 0"};
    wa_session *session = fragment_session();
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
