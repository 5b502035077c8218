/* SPDX-License-Identifier: Apache-2.0
 * Measured shapes that are loaded, and a matrix unit that is tested before it
 * is used; of one that is wrong, see faults/test_verdicts.c. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "kit/fixture.h"
#include "kit/fragment_session.h"

/* Rows for the device under test lead to their shapes, and to right results;
 * where a shape is not allowed, the plan has another and says why. */
static void measured_shapes(void **state)
{
    (void)state;
    if (!keeps_barriers())
        skip();
    static const struct {
        const char *text, *kernel, *row;
        const char *described; /* a line's start */
        bool taken;
    } rows[] = {
        {"tier=local queries=20 dim=16", "local-forward",
         "any any any 20 20 16 20:20:64:1:20:16:4:4:2:1",
         "work-group size: 64\n", true},
        {"tier=local queries=20 dim=16", "local-forward",
         "any any any 20 20 16 20:20:64:1:20:16:4:4:1:1",
         "measured shape not taken: tier local: a team does not cover", false},
    };
    wa_device told;
    assert_int_equal(wa_device_query(device.id, &told), WINATTN_SUCCESS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[4096];
        case_result result;
        const test_case c = parsed(rows[i].text);
        snprintf(text, sizeof text, "# a remark\n%s \"%s\" %s\n",
                 rows[i].kernel, told.name, rows[i].row);
        if (winattn_load_tuning(text) != WINATTN_SUCCESS)
            fail_msg("%s: %s", text, winattn_last_reason());
        if (!case_run(&device, &c, &result))
            fail_msg("%s: %s", rows[i].row, result.failure);
        fixture f = set_up(rows[i].text);
        plan_text(f.plan, text);
        if (!strstr(text, rows[i].described) ||
            !strstr(text, "says a row that was loaded") == rows[i].taken)
            fail_msg("%s\n%s", rows[i].row, text);
        tear_down(&f);
        assert_int_equal(winattn_load_tuning(NULL), WINATTN_SUCCESS);
    }
    assert_status(winattn_load_tuning("\nlocal-forward NVIDIA"),
                  WINATTN_INVALID_ARGUMENT, "line 2: no vendor");
}

/* A measured shape that does not build is tried once. */
static void measured_shape_fails(void **state)
{
    (void)state;
    if (!keeps_barriers())
        skip();
    char text[512];
    wa_device told;
    const test_case c = parsed("tier=local queries=20 dim=16");
    winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    assert_int_equal(wa_device_query(device.id, &told), WINATTN_SUCCESS);
    snprintf(text, sizeof text,
             "local-forward \"%s\" any any any 20 20 16 "
             "20:20:64:1:20:16:4:4:2:1",
             told.name);
    assert_int_equal(winattn_load_tuning(text), WINATTN_SUCCESS);
    desc.build_options = "-Dforward_args=int";
    assert_status(winattn_plan_create(device.context, device.id, &desc, &plan),
                  CL_BUILD_PROGRAM_FAILURE, "clBuildProgram");
    assert_null(plan);
    assert_int_equal(winattn_load_tuning(NULL), WINATTN_SUCCESS);
}

/* The unit is tested with the first plan for it, not again with others of the
 * same type. */
static void unit_is_tested_once(void **state)
{
    (void)state;
    wa_session *session = fragment_session();
    const unsigned before = wa_programs_built();
    char text[4096];
    for (int i = 0; i < 3; i++) {
        static const char *const cases[] = {
            "dtype=fp16 queries=18 windows=3 heads=1 bias=same",
            "dtype=fp16 queries=7 windows=3 heads=1",
            "dtype=bf16 queries=7 windows=3 heads=1"};
        static const unsigned built[] = {2, 3, 5};
        fixture f = set_up(cases[i]);
        plan_text(f.plan, text);
        assert_non_null(strstr(text, "tier: matrix\n"));
        assert_non_null(strstr(text, "kernel: forward_matrix_"));
        assert_int_equal(wa_programs_built(), before + built[i]);
        enqueue_forward(&f, f.plan);
        assert_correct(&f);
        tear_down(&f);
    }
    wa_session_release(session);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(measured_shapes),
    cmocka_unit_test(measured_shape_fails),
    cmocka_unit_test(unit_is_tested_once),
};
const test_group api_shapes = TEST_GROUP(NULL, tests);
