/* SPDX-License-Identifier: Apache-2.0
 * Plans: what they refuse, what they say of themselves, which programs they
 * share, what happens where one does not build. */
#include <string.h>

#include "api.h"
#include "base/status.h"
#include "kit/fixture.h"
#include "plan/planner.h"
#include "session/session.h"

/* Another device and context than the one under test; NULL if there is none.
 */
static cl_context other_context(cl_device_id *id)
{
    cl_device_id ids[64];
    char names[64][256];
    cl_int error;
    const int count = device_list(ids, names, 64);
    for (int i = 0; i < count; i++)
        if (ids[i] != device.id) {
            *id = ids[i];
            cl_context context =
                clCreateContext(NULL, 1, id, NULL, NULL, &error);
            if (error == CL_SUCCESS)
                return context;
        }
    return NULL;
}

static void create_refuses(void **state)
{
    (void)state;
    const test_case c = parsed("");
    winattn_desc desc = case_desc(&c);
    winattn_plan *plan = (winattn_plan *)&desc;
    assert_status(winattn_plan_create(NULL, device.id, &desc, &plan),
                  WINATTN_INVALID_ARGUMENT, "context");
    assert_null(plan);
    assert_status(winattn_plan_create(device.context, NULL, &desc, &plan),
                  WINATTN_INVALID_ARGUMENT, "device");
    assert_status(winattn_plan_create(device.context, device.id, NULL, &plan),
                  WINATTN_INVALID_ARGUMENT, "desc");
    assert_status(winattn_plan_create(device.context, device.id, &desc, NULL),
                  WINATTN_INVALID_ARGUMENT, "plan");
    desc.head_dim = 1000;
    assert_status(winattn_plan_create(device.context, device.id, &desc, &plan),
                  WINATTN_UNSUPPORTED_PROBLEM, "head_dim");
    assert_null(plan);
    winattn_plan_destroy(NULL);
}

static void create_refuses_foreign_device(void **state)
{
    (void)state;
    const test_case c = parsed("");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    cl_device_id id;
    cl_context context = other_context(&id);
    if (!context)
        skip();
    assert_status(winattn_plan_create(device.context, id, &desc, &plan),
                  WINATTN_INVALID_ARGUMENT, "device");
    clReleaseContext(context);
}

static void describes(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "device: ",          "tier: ",        "kernel: ",          "tile: ",
        "work-group size: ", "local bytes: ", "workspace bytes: ", "reason: "};
    char text[4096], cut[20];
    /* which tier is the device's best? The other one is demanded. */
    fixture f = set_up("");
    assert_int_equal(winattn_plan_describe(f.plan, sizeof text, text, NULL),
                     WINATTN_SUCCESS);
    const bool cpu_first = strstr(text, "tier: cpu") != NULL;
    const bool has_other = !cpu_first || keeps_barriers();
    tear_down(&f);
    f = set_up(cpu_first && has_other ? "tier=local" : "tier=cpu");
    size_t needed = 0, size = 99;
    assert_int_equal(winattn_plan_describe(f.plan, 0, NULL, &needed),
                     WINATTN_SUCCESS);
    assert_true(needed > 100 && needed <= sizeof text);
    assert_int_equal(winattn_plan_describe(f.plan, needed, text, NULL),
                     WINATTN_SUCCESS);
    assert_int_equal(strlen(text) + 1, needed);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i]))
            fail_msg("no \"%s\" in\n%s", lines[i], text);
    if (has_other) {
        assert_non_null(strstr(text, cpu_first ? "tier: local" : "tier: cpu"));
        assert_non_null(strstr(text, cpu_first
                                         ? "tier cpu not taken: the caller"
                                         : "tier local not taken: the "
                                           "caller"));
    }
    memset(cut, 'x', sizeof cut);
    assert_int_equal(winattn_plan_describe(f.plan, 10, cut, &needed),
                     WINATTN_SUCCESS);
    assert_int_equal(strlen(cut), 9);
    assert_int_equal(cut[10], 'x');
    assert_int_equal(needed, strlen(text) + 1);
    assert_status(winattn_plan_describe(f.plan, 5, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "text");
    assert_status(winattn_plan_describe(NULL, 0, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "plan");
    assert_int_equal(winattn_plan_workspace_size(f.plan, &size),
                     WINATTN_SUCCESS);
    assert_int_equal(size, 0);
    assert_status(winattn_plan_workspace_size(f.plan, NULL),
                  WINATTN_INVALID_ARGUMENT, "size");
    assert_status(winattn_plan_workspace_size(NULL, &size),
                  WINATTN_INVALID_ARGUMENT, "plan");
    tear_down(&f);
}

/* A plan without windows is legal and computes nothing, which whoever forgot
 * to set them should find in its first line. */
static void describes_nothing(void **state)
{
    (void)state;
    static const struct {
        bool on_grid, is_forgotten;
        const char *line;
    } rows[] = {
        {true, true, "computes: nothing, as grid.batch is 0\n"},
        {false, true, "computes: nothing, as windows is 0\n"},
        {true, false, NULL},
        {false, false, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[8192];
        const test_case c =
            parsed(rows[i].on_grid ? "grid=1 size=8 window=4 dim=4 seed=1"
                                   : "queries=4 dim=4");
        winattn_desc desc = case_desc(&c);
        if (rows[i].is_forgotten)
            desc.windows = desc.grid.batch = 0;
        winattn_plan *plan = make_plan(&desc);
        assert_int_equal(winattn_plan_describe(plan, sizeof text, text, NULL),
                         WINATTN_SUCCESS);
        if (rows[i].line
                ? strncmp(text, rows[i].line, strlen(rows[i].line)) != 0
                : strstr(text, "computes:") != NULL)
            fail_msg("%s", text);
        winattn_plan_destroy(plan);
    }
}

static void programs_are_shared(void **state)
{
    (void)state;
    const test_case c = parsed("queries=17 dim=20");
    winattn_desc desc = case_desc(&c);
    winattn_plan *plans[3];
    const unsigned before = wa_programs_built();
    for (int i = 0; i < 3; i++) {
        desc.windows = (cl_ulong)(10 * i + 1);
        desc.scale = 1.0f + (float)i;
        plans[i] = make_plan(&desc);
    }
    assert_int_equal(wa_programs_built(), before + 1);
    for (int i = 0; i < 3; i++)
        winattn_plan_destroy(plans[i]);
    /* gone with the last plan */
    plans[0] = make_plan(&desc);
    assert_int_equal(wa_programs_built(), before + 2);
    winattn_plan_destroy(plans[0]);
}

static void build_failure(void **state)
{
    (void)state;
    const test_case c = parsed("queries=9");
    winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    desc.build_options = "-Dforward_args=int";
    assert_status(winattn_plan_create(device.context, device.id, &desc, &plan),
                  CL_BUILD_PROGRAM_FAILURE, "clBuildProgram");
    assert_null(plan);
    assert_true(strlen(winattn_last_build_log()) > 10);
    /* the next call that works forgets it */
    desc.build_options = NULL;
    plan = make_plan(&desc);
    assert_string_equal(winattn_last_build_log(), "");
    assert_string_equal(winattn_last_reason(), "");
    winattn_plan_destroy(plan);
}

/* The best tier does not build: the next one is taken, and says why. */
static void falls_back(void **state)
{
    (void)state;
    fixture f = set_up("queries=9");
    char text[4096];
    winattn_plan *plan;
    winattn_plan_describe(f.plan, sizeof text, text, NULL);
    const bool cpu_first = strstr(text, "tier: cpu") != NULL;
    if (cpu_first && !keeps_barriers()) {
        tear_down(&f);
        skip(); /* there is no other one */
    }
    f.desc.build_options = cpu_first ? "-Drow_tile=int" : "-Dteam_memory=int";
    if (winattn_plan_create(device.context, device.id, &f.desc, &plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    winattn_plan_describe(plan, sizeof text, text, NULL);
    assert_non_null(strstr(text, cpu_first ? "tier: local" : "tier: cpu"));
    assert_non_null(strstr(text, "CL_BUILD_PROGRAM_FAILURE"));
    enqueue_forward(&f, plan);
    assert_correct(&f);
    winattn_plan_destroy(plan);
    tear_down(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(create_refuses),
    cmocka_unit_test(create_refuses_foreign_device),
    cmocka_unit_test(describes),
    cmocka_unit_test(describes_nothing),
    cmocka_unit_test(programs_are_shared),
    cmocka_unit_test(build_failure),
    cmocka_unit_test(falls_back),
};
const test_group api_plans = TEST_GROUP(NULL, tests);
