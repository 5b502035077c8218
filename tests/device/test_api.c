/* SPDX-License-Identifier: Apache-2.0
 * The public calls on a device: lifetimes, refusals that write nothing,
 * events, threads, launches cut into pieces. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "kit/planned.h"
#include "launch/launch.h"
#include "session/session.h"

static test_device device;

static test_case parsed(const char *text)
{
    test_case c = case_default();
    assert_true(case_parse(text, &c, NULL));
    return c;
}

/* A case with plan and buffers, ready to enqueue. */
typedef struct fixture {
    case_buffers *data;
    device_buffers buffers;
    winattn_desc desc;
    winattn_plan *plan;
    winattn_forward forward;
} fixture;

static fixture set_up(const char *text)
{
    fixture f;
    const test_case c = parsed(text);
    f.data = data_make(&c);
    assert_non_null(f.data);
    assert_true(buffers_create(&device, f.data, &f.buffers));
    f.desc = data_desc(f.data);
    if (winattn_plan_create(device.context, device.id, &f.desc, &f.plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    f.forward = buffers_forward(f.data, &f.buffers);
    return f;
}

static void tear_down(fixture *f)
{
    winattn_plan_destroy(f->plan);
    buffers_release(&f->buffers);
    data_free(f->data);
}

static void assert_correct(const fixture *f)
{
    case_result result;
    memset(&result, 0, sizeof result);
    if (!buffers_check(device.queue, f->data, &f->buffers, 0, &result))
        fail_msg("%s", result.failure);
}

/* Not a byte of any buffer differs from what it held before. */
static void assert_nothing_written(const fixture *f)
{
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    for (int i = 0; i < f->data->buffers; i++) {
        const buffer_image *image = &f->data->buffer[i];
        unsigned char *bytes = malloc(image->size);
        assert_non_null(bytes);
        assert_int_equal(clEnqueueReadBuffer(device.queue, f->buffers.mem[i],
                                             CL_TRUE, 0, image->size, bytes, 0,
                                             NULL, NULL),
                         CL_SUCCESS);
        assert_memory_equal(bytes, image->bytes, image->size);
        free(bytes);
    }
}

static void assert_status(winattn_status got, winattn_status wanted,
                          const char *culprit)
{
    if (got != wanted || !strstr(winattn_last_reason(), culprit))
        fail_msg("%s \"%s\" instead of %s and \"%s\"",
                 winattn_status_name(got), winattn_last_reason(),
                 winattn_status_name(wanted), culprit);
}

/* PoCL 5.0 ends kernels with barriers in loops, which emulated units are, in
 * an assertion of its own. */
static bool can_emulate(void)
{
    char version[128] = "";
    clGetPlatformInfo(device.platform, CL_PLATFORM_VERSION, sizeof version - 1,
                      version, NULL);
    if (!strstr(version, "PoCL 5."))
        return true;
    printf("PoCL 5.0 cannot run emulated units\n");
    return false;
}

/* While the session is held, plans for the device under test have the matrix
 * unit mma, emulated, and prefer tiers as on a GPU. */
static wa_session *pretend_unit(void)
{
    wa_session *session;
    if (!can_emulate())
        skip();
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    wa_device *told = (wa_device *)(size_t)wa_session_device(session);
    told->unit = wa_unit_named("mma");
    told->emulates_unit = true;
    told->is_cpu = false;
    told->loop_limit = 0;
    if (told->max_work_group > 256) /* PoCL's stack holds no more */
        told->max_work_group = 256;
    return session;
}

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

/* ---- Plans ---- */

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
    tear_down(&f);
    f = set_up(cpu_first ? "tier=local" : "tier=cpu");
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
    assert_non_null(strstr(text, cpu_first ? "tier: local" : "tier: cpu"));
    assert_non_null(strstr(text, cpu_first ? "tier cpu not taken: the caller"
                                           : "tier local not taken: the "
                                             "caller"));
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
        winattn_plan *plan;
        if (rows[i].is_forgotten)
            desc.windows = desc.grid.batch = 0;
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plan),
            WINATTN_SUCCESS);
        assert_int_equal(winattn_plan_describe(plan, sizeof text, text, NULL),
                         WINATTN_SUCCESS);
        if (rows[i].line
                ? strncmp(text, rows[i].line, strlen(rows[i].line)) != 0
                : strstr(text, "computes:") != NULL)
            fail_msg("%s", text);
        winattn_plan_destroy(plan);
    }
}

static void check_local_bytes(wa_session *session, const char *name,
                              const char *defines, uint32_t planned)
{
    cl_kernel kernel;
    cl_ulong bytes = 0;
    assert_int_equal(wa_session_kernel(session, name, defines, "", &kernel),
                     WINATTN_SUCCESS);
    clGetKernelWorkGroupInfo(kernel, device.id, CL_KERNEL_LOCAL_MEM_SIZE,
                             sizeof bytes, &bytes, NULL);
    /* arrays are aligned, which plans count or not; rusticl counts them twice
     */
    if (wa_session_device(session)->reports_kernel_sizes && bytes != 0)
        assert_in_range(bytes + 512u, planned, planned + 1024u);
    clReleaseKernel(kernel);
}

static void local_bytes_are_right(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "tier=local",
        "tier=local variant=cosine queries=100 dim=80",
        "tier=local variant=sliding block=20 dim=64",
        "tier=matrix dtype=fp16 queries=20 bias=fp32",
        "tier=matrix dtype=bf16 variant=cosine queries=40 dim=24",
        "tier=matrix tf32=1 variant=cosine queries=40 dim=24 bias=same "
        "mask=regions mask_windows=2",
        "pass=backward tier=local bias=same",
        "pass=backward tier=matrix dtype=fp16 queries=20 bias=fp32",
        "pass=backward tier=matrix dtype=bf16 variant=cosine queries=40 "
        "dim=24 heads=4 kv_heads=2"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const test_case c = parsed(cases[i]);
        const winattn_desc desc = case_desc(&c);
        static const wa_exclusions none;
        wa_problem problem;
        wa_session *session;
        wa_plan plan;
        wa_backward_plan backward;
        assert_int_equal(wa_problem_read(&desc, &problem), WINATTN_SUCCESS);
        assert_int_equal(
            wa_session_acquire(device.context, device.id, &session),
            WINATTN_SUCCESS);
        wa_device capabilities = *wa_session_device(session);
        capabilities.unit = wa_unit_named("mma");
        capabilities.emulates_unit = true;
        capabilities.loop_limit = 0;
        if (c.pass == PASS_FORWARD) {
            assert_int_equal(
                wa_plan_make(&problem, &capabilities, &none, &plan),
                WINATTN_SUCCESS);
            check_local_bytes(session, plan.kernel, plan.defines,
                              plan.local_bytes);
        } else {
            assert_int_equal(wa_backward_plan_make(&problem, &capabilities,
                                                   &none, &backward),
                             WINATTN_SUCCESS);
            const wa_backward_kernel *last =
                &backward.kernels[WA_BACKWARD_KEYS];
            check_local_bytes(session, last->name, last->defines,
                              last->local_bytes);
        }
        wa_session_release(session);
    }
}

/* Where a unit has TF32, results are as accurate as promised of that; else
 * the permission changes nothing. */
static void tf32_may_be_allowed(void **state)
{
    (void)state;
    char text[2][4096];
    const wa_unit *unit;
    wa_session *session;
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    unit = wa_session_device(session)->unit;
    wa_session_release(session);
    for (int allowed = 0; allowed < 2; allowed++) {
        fixture f = set_up(allowed ? "tf32=1 bias=same" : "bias=same");
        assert_int_equal(winattn_plan_describe(f.plan, sizeof text[allowed],
                                               text[allowed], NULL),
                         WINATTN_SUCCESS);
        assert_int_equal(winattn_enqueue_forward(f.plan, device.queue,
                                                 &f.forward, 0, NULL, NULL),
                         WINATTN_SUCCESS);
        assert_correct(&f);
        tear_down(&f);
    }
    if (unit && unit->has_tf32)
        assert_non_null(strstr(text[1], "TF32"));
    else
        assert_string_equal(text[1], text[0]);
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
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plans[i]),
            WINATTN_SUCCESS);
    }
    assert_int_equal(wa_programs_built(), before + 1);
    for (int i = 0; i < 3; i++)
        winattn_plan_destroy(plans[i]);
    /* gone with the last plan */
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &desc, &plans[0]),
        WINATTN_SUCCESS);
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
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &desc, &plan),
        WINATTN_SUCCESS);
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
    f.desc.build_options = cpu_first ? "-Drow_tile=int" : "-Dteam_memory=int";
    if (winattn_plan_create(device.context, device.id, &f.desc, &plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    winattn_plan_describe(plan, sizeof text, text, NULL);
    assert_non_null(strstr(text, cpu_first ? "tier: local" : "tier: cpu"));
    assert_non_null(strstr(text, "CL_BUILD_PROGRAM_FAILURE"));
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f.forward, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_correct(&f);
    winattn_plan_destroy(plan);
    tear_down(&f);
}

static void plan_text(const winattn_plan *plan, char text[4096])
{
    assert_int_equal(winattn_plan_describe(plan, 4096, text, NULL),
                     WINATTN_SUCCESS);
}

/* Rows for the device under test lead to their shapes, and to right results;
 * where a shape is not allowed, the plan has another and says why. */
static void measured_shapes(void **state)
{
    (void)state;
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
        {"pass=backward tier=local queries=20 dim=16", "local-backward",
         "dot fp32 none 20 20 16 20:20:64:16:4:4:2:1:0:3",
         "backward kernel: backward_keys_local, tile 20 queries x 20 keys, "
         "work-group size 64",
         true},
        {"tier=matrix dtype=fp16 queries=20 dim=16", "matrix-forward",
         "dot half none 20 20 16 20:20:2:2:1:32:0", "work-group size: 128\n",
         true},
    };
    wa_session *session = pretend_unit();
    const char *name = wa_session_device(session)->name;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[4096];
        case_result result;
        const test_case c = parsed(rows[i].text);
        snprintf(text, sizeof text, "# a remark\n%s \"%s\" %s\n",
                 rows[i].kernel, name, rows[i].row);
        if (winattn_load_tuning(text) != WINATTN_SUCCESS)
            fail_msg("%s: %s", text, winattn_last_reason());
        if (!case_run(&device, device.queue, &c, 0, &result))
            fail_msg("%s: %s", rows[i].row, result.failure);
        fixture f = set_up(rows[i].text);
        plan_text(f.plan, text);
        if (!strstr(text, rows[i].described) ||
            !strstr(text, "says a row that was loaded") == rows[i].taken)
            fail_msg("%s\n%s", rows[i].row, text);
        tear_down(&f);
        assert_int_equal(winattn_load_tuning(NULL), WINATTN_SUCCESS);
    }
    wa_session_release(session);
    assert_status(winattn_load_tuning("\nlocal-forward NVIDIA"),
                  WINATTN_INVALID_ARGUMENT, "line 2: no vendor");
}

/* A measured shape that does not build is tried once. */
static void measured_shape_fails(void **state)
{
    (void)state;
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
    wa_session *session = pretend_unit();
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
        assert_non_null(strstr(text, "kernel: forward_matrix_mma\n"));
        assert_non_null(strstr(text, "(emulated)"));
        assert_int_equal(wa_programs_built(), before + built[i]);
        assert_int_equal(winattn_enqueue_forward(f.plan, device.queue,
                                                 &f.forward, 0, NULL, NULL),
                         WINATTN_SUCCESS);
        assert_correct(&f);
        tear_down(&f);
    }
    wa_session_release(session);
}

/* A unit that computes something else is not used; whoever demands it learns
 * what was wrong. */
static void wrong_unit_is_refused(void **state)
{
    (void)state;
    static const char *const reason = "self-test of unit mma failed: o of "
                                      "query ";
    wa_session *session = pretend_unit();
    fixture f = set_up("dtype=fp16 queries=18 windows=3 heads=1 bias=same");
    char text[4096];
    f.desc.build_options = "-DSLOT_KEY(k)=((k)^1)";
    for (int round = 0; round < 2; round++) {
        winattn_plan *plan;
        f.desc.tier = WINATTN_TIER_AUTO;
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &f.desc, &plan),
            WINATTN_SUCCESS);
        assert_string_equal(winattn_last_reason(), "");
        plan_text(plan, text);
        assert_non_null(strstr(text, "tier: local\n"));
        const char *line = strstr(text, "tier matrix not taken: ");
        assert_non_null(line);
        assert_non_null(strstr(line, reason));
        assert_int_equal(winattn_enqueue_forward(plan, device.queue,
                                                 &f.forward, 0, NULL, NULL),
                         WINATTN_SUCCESS);
        winattn_plan_destroy(plan);
        f.desc.tier = WINATTN_TIER_MATRIX;
        assert_status(
            winattn_plan_create(device.context, device.id, &f.desc, &plan),
            WINATTN_UNSUPPORTED_DEVICE, reason);
        assert_null(plan);
    }
    assert_correct(&f);
    tear_down(&f);
    wa_session_release(session);
}

/* Demanded for both passes, both take it; a backward pass is right, and tests
 * the unit like a forward pass. */
static void matrix_has_both_passes(void **state)
{
    (void)state;
    wa_session *session = pretend_unit();
    fixture f = set_up("dtype=fp16 queries=7 windows=3 heads=1");
    char text[4096];
    winattn_plan *plan;
    case_result result;
    f.desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    f.desc.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &f.desc, &plan),
        WINATTN_SUCCESS);
    plan_text(plan, text);
    assert_non_null(strstr(text, "tier: matrix\n"));
    assert_non_null(strstr(text, "backward tier: matrix\n"));
    assert_non_null(strstr(text, "backward kernel: backward_matrix_mma, "));
    winattn_plan_destroy(plan);
    const test_case c = parsed("pass=backward tier=matrix dtype=fp16 "
                               "queries=18 windows=5 heads=2 bias=same");
    if (!case_run(&device, device.queue, &c, 0, &result))
        fail_msg("%s", result.failure);
    f.desc.passes = WINATTN_PASS_BACKWARD;
    f.desc.tier = WINATTN_TIER_AUTO;
    f.desc.build_options = "-DSLOT_KEY(k)=((k)^1)";
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &f.desc, &plan),
        WINATTN_SUCCESS);
    plan_text(plan, text);
    assert_non_null(strstr(text, "backward tier: local\n"));
    assert_non_null(strstr(text, "backward tier matrix not taken: self-test"));
    winattn_plan_destroy(plan);
    tear_down(&f);
    wa_session_release(session);
}

/* ---- Enqueueing ---- */

static void enqueue_refuses(void **state)
{
    (void)state;
    fixture f = set_up("bias=same mask=regions mask_windows=2 dtype=fp16");
    winattn_forward good = f.forward, bad;
#define REFUSE(change, status, culprit)                                       \
    bad = good;                                                               \
    change;                                                                   \
    assert_status(                                                            \
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),   \
        status, culprit)
    assert_status(
        winattn_enqueue_forward(NULL, device.queue, &good, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "plan");
    assert_status(winattn_enqueue_forward(f.plan, NULL, &good, 0, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "queue");
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, NULL, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "forward");
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &good, 1, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "wait_list");
    REFUSE(bad.struct_size = 8, WINATTN_INVALID_ARGUMENT, "struct_size");
    REFUSE(bad.q.buffer = NULL, WINATTN_INVALID_ARGUMENT, "q is NULL");
    REFUSE(bad.k.buffer = NULL, WINATTN_INVALID_ARGUMENT, "k is NULL");
    REFUSE(bad.v.buffer = NULL, WINATTN_INVALID_ARGUMENT, "v is NULL");
    REFUSE(bad.o.buffer = NULL, WINATTN_INVALID_ARGUMENT, "o is NULL");
    REFUSE(bad.bias.buffer = NULL, WINATTN_INVALID_ARGUMENT, "bias is NULL");
    REFUSE(bad.query_regions.buffer = NULL, WINATTN_INVALID_ARGUMENT,
           "query_regions is NULL");
    REFUSE(bad.key_regions.buffer = NULL, WINATTN_INVALID_ARGUMENT,
           "key_regions is NULL");
    REFUSE(bad.mask = good.bias, WINATTN_INVALID_ARGUMENT,
           "mask is given, but");
    REFUSE(bad.logit_scale = good.bias, WINATTN_INVALID_ARGUMENT,
           "logit_scale is given, but");
    REFUSE(bad.q.offset += 1, WINATTN_INVALID_LAYOUT, "the offset of q");
    REFUSE(bad.lse.offset += 2, WINATTN_INVALID_LAYOUT, "the offset of lse");
    REFUSE(bad.v.offset = (cl_ulong)1 << 40, WINATTN_BUFFER_TOO_SMALL, "v");
    REFUSE(bad.k.offset = UINT64_MAX - 1, WINATTN_BUFFER_TOO_SMALL, "k");
    REFUSE(bad.o.offset += 258, WINATTN_BUFFER_TOO_SMALL, "o needs");
    REFUSE(bad.key_regions.offset += 257, WINATTN_BUFFER_TOO_SMALL,
           "key_regions");
#undef REFUSE
    assert_nothing_written(&f);
    /* and the same call, unspoilt, works; 256 bytes follow each tensor */
    good.o.offset += 0;
    assert_int_equal(
        winattn_enqueue_forward(f.plan, device.queue, &good, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_correct(&f);
    tear_down(&f);
}

/* Exactly as large as the tensor is large enough; one element less is not. By
 * calls with shorter structs. */
static void exact_buffers(void **state)
{
    (void)state;
    const test_case c = parsed("windows=2 heads=1 queries=5 keys=7 dim=3");
    const winattn_desc desc = case_desc(&c);
    const size_t q_bytes = 2 * 5 * 3 * 4, k_bytes = 2 * 7 * 3 * 4;
    const size_t bytes[4] = {q_bytes, k_bytes, k_bytes, q_bytes};
    winattn_plan *plan;
    cl_int error;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &desc, &plan),
        WINATTN_SUCCESS);
    for (int small = -1; small < 4; small++) {
        winattn_forward f;
        cl_mem mem[4];
        winattn_tensor *tensors[4] = {&f.q, &f.k, &f.v, &f.o};
        memset(&f, 0, sizeof f);
        /* an older program's struct, and what lies behind it */
        f.struct_size = offsetof(winattn_forward, lse);
        memset(&f.lse, 0xff, sizeof f - f.struct_size);
        for (int i = 0; i < 4; i++) {
            mem[i] =
                clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                               bytes[i] - (i == small ? 4 : 0), NULL, &error);
            assert_int_equal(error, CL_SUCCESS);
            tensors[i]->buffer = mem[i];
        }
        assert_int_equal(
            winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
            small < 0 ? WINATTN_SUCCESS : WINATTN_BUFFER_TOO_SMALL);
        clFinish(device.queue);
        for (int i = 0; i < 4; i++)
            clReleaseMemObject(mem[i]);
    }
    winattn_plan_destroy(plan);
}

static void buffer_kinds(void **state)
{
    (void)state;
    fixture f = set_up("");
    winattn_forward bad;
    cl_int error;
    const size_t size = f.data->buffer[0].size;
    cl_mem read_only =
        clCreateBuffer(device.context, CL_MEM_READ_ONLY, size, NULL, &error);
    cl_mem write_only =
        clCreateBuffer(device.context, CL_MEM_WRITE_ONLY, size, NULL, &error);
    bad = f.forward;
    bad.o.buffer = read_only;
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
        WINATTN_INVALID_BUFFER, "o is written");
    bad = f.forward;
    bad.k.buffer = write_only;
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
        WINATTN_INVALID_BUFFER, "k is read");
    clReleaseMemObject(read_only);
    clReleaseMemObject(write_only);

    cl_bool images = CL_FALSE;
    clGetDeviceInfo(device.id, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images,
                    NULL);
    if (images) {
        const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
        cl_image_desc shape;
        memset(&shape, 0, sizeof shape);
        shape.image_type = CL_MEM_OBJECT_IMAGE2D;
        shape.image_width = shape.image_height = 64;
        cl_mem image = clCreateImage(device.context, CL_MEM_READ_WRITE,
                                     &format, &shape, NULL, &error);
        assert_int_equal(error, CL_SUCCESS);
        bad = f.forward;
        bad.v.buffer = image;
        assert_status(
            winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
            WINATTN_INVALID_BUFFER, "v is no buffer");
        clReleaseMemObject(image);
    }

    /* another context on the same device */
    cl_context context =
        clCreateContext(NULL, 1, &device.id, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    cl_mem foreign =
        clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &error);
    cl_command_queue queue =
        clCreateCommandQueue(context, device.id, 0, &error);
    bad = f.forward;
    bad.q.buffer = foreign;
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
        WINATTN_INVALID_BUFFER, "q belongs to another context");
    assert_status(
        winattn_enqueue_forward(f.plan, queue, &f.forward, 0, NULL, NULL),
        WINATTN_INVALID_QUEUE, "context");
    clReleaseCommandQueue(queue);
    clReleaseMemObject(foreign);
    clReleaseContext(context);
    assert_nothing_written(&f);
    tear_down(&f);
}

/* A queue of the right context and the wrong device. */
static void queue_of_other_device(void **state)
{
    (void)state;
    cl_device_id parts[2], both[2];
    cl_uint count = 0;
    cl_int error;
    const cl_device_partition_property one_each[] = {
        CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_uint most_parts = 0;
    clGetDeviceInfo(device.id, CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
                    sizeof most_parts, &most_parts, NULL);
    /* rusticl 22.3 lacks the function itself */
    if (most_parts < 2 ||
        clCreateSubDevices(device.id, one_each, 2, parts, &count) !=
            CL_SUCCESS ||
        count < 2)
        skip();
    both[0] = parts[0];
    both[1] = parts[1];
    cl_context context = clCreateContext(NULL, 2, both, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, both[1], 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    const test_case c = parsed("");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    assert_int_equal(winattn_plan_create(context, both[0], &desc, &plan),
                     WINATTN_SUCCESS);
    assert_status(winattn_enqueue_forward(plan, queue, &f, 0, NULL, NULL),
                  WINATTN_INVALID_QUEUE, "device");
    winattn_plan_destroy(plan);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    clReleaseDevice(parts[0]);
    clReleaseDevice(parts[1]);
}

/* The check of plans that need workspace, which few forward kernels do. */
static void workspace_check(void **state)
{
    (void)state;
    fixture f = set_up("");
    const test_case c = f.data->c;
    winattn_desc desc = case_desc(&c);
    wa_problem problem;
    wa_buffers buffers, backward;
    cl_int error;
    memset(&buffers, 0, sizeof buffers);
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    assert_int_equal(wa_problem_read(&desc, &problem), WINATTN_SUCCESS);
    buffers.tensor[WA_Q] = f.forward.q;
    buffers.tensor[WA_K] = f.forward.k;
    buffers.tensor[WA_V] = f.forward.v;
    buffers.tensor[WA_O] = f.forward.o;
    backward = buffers;
    backward.tensor[WA_D_O] = f.forward.o;
    assert_status(
        wa_check_buffers(&problem, WA_FORWARD, 1024, device.context, &buffers),
        WINATTN_INVALID_ARGUMENT,
        "workspace is NULL, but the forward pass needs 1024 bytes");
    assert_status(
        wa_check_buffers(&problem, WA_BACKWARD, 16, device.context, &backward),
        WINATTN_INVALID_ARGUMENT,
        "workspace is NULL, but the backward pass needs 16 bytes");
    buffers.workspace.buffer =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE, 1024, NULL, &error);
    assert_int_equal(
        wa_check_buffers(&problem, WA_FORWARD, 1024, device.context, &buffers),
        WINATTN_SUCCESS);
    buffers.workspace.offset = 16;
    assert_status(
        wa_check_buffers(&problem, WA_FORWARD, 1024, device.context, &buffers),
        WINATTN_WORKSPACE_TOO_SMALL,
        "workspace needs 1024 bytes from offset 16 on, but its buffer has "
        "1024");
    clReleaseMemObject(buffers.workspace.buffer);
    tear_down(&f);
}

/* Plans of both passes for tokens on a grid, with every tensor that such a
 * problem can have. */
static const char grid_text[] =
    "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_fp32 "
    "pads=3 heads=2 dim=8 tier=cpu";

static void grid_refuses(void **state)
{
    (void)state;
    fixture f = set_up(grid_text);
    winattn_forward good = f.forward, bad;
    size_t bytes = 0;
    cl_int error;
    assert_int_equal(winattn_plan_workspace_size(f.plan, &bytes),
                     WINATTN_SUCCESS);
    assert_int_equal(bytes, 2 * 16 * 16 * 4); /* the table, expanded */
    good.workspace.buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                           bytes + 16, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
#define REFUSE(change, status, culprit)                                       \
    bad = good;                                                               \
    change;                                                                   \
    assert_status(                                                            \
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),   \
        status, culprit)
    REFUSE(bad.workspace.buffer = NULL, WINATTN_INVALID_ARGUMENT,
           "workspace is NULL, but the forward pass needs 2048 bytes");
    REFUSE(bad.workspace.offset = 32, WINATTN_WORKSPACE_TOO_SMALL,
           "workspace needs 2048 bytes from offset 32 on, but its buffer has "
           "2064");
    REFUSE(bad.bias.buffer = NULL, WINATTN_INVALID_ARGUMENT, "bias is NULL");
    REFUSE(bad.bias.offset += 2, WINATTN_INVALID_LAYOUT, "the offset of bias");
    REFUSE(bad.q.offset = (cl_ulong)1 << 40, WINATTN_BUFFER_TOO_SMALL, "q");
    REFUSE(bad.pad_k.offset += 2, WINATTN_INVALID_LAYOUT, "pad_k");
    REFUSE(bad.pad_v.offset = (cl_ulong)1 << 40, WINATTN_BUFFER_TOO_SMALL,
           "pad_v");
    REFUSE(bad.mask = good.bias, WINATTN_INVALID_ARGUMENT,
           "mask is given, but");
#undef REFUSE
    assert_nothing_written(&f);
    good.workspace.offset = 16;
    assert_int_equal(
        winattn_enqueue_forward(f.plan, device.queue, &good, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_correct(&f);
    clReleaseMemObject(good.workspace.buffer);
    tear_down(&f);

    /* hidden padding has no channels */
    f = set_up("grid=2 size=9x10 window=4x4 padding=hidden heads=2 dim=8");
    bad = f.forward;
    bad.pad_v = bad.q;
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "pad_v is given, but");
    assert_nothing_written(&f);
    tear_down(&f);
}

/* The last token of a grid is the last that its buffer must hold: padding
 * needs no memory. */
static void exact_grid(void **state)
{
    (void)state;
    const test_case c = parsed("grid=2 size=5x6 window=4x4 shift=2x1 "
                               "mask=shift heads=2 dim=3 batch=2 tier=cpu");
    winattn_desc desc = case_desc(&c);
    const size_t bytes = 2 * 5 * 6 * 2 * 3 * 4, pad = 2 * 3 * 4;
    winattn_plan *plan;
    cl_int error;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &desc, &plan),
        WINATTN_SUCCESS);
    for (int small = -1; small < 6; small++) {
        winattn_forward f;
        cl_mem mem[6];
        winattn_tensor *tensors[6] = {&f.q, &f.k,     &f.v,
                                      &f.o, &f.pad_k, &f.pad_v};
        memset(&f, 0, sizeof f);
        f.struct_size = sizeof f;
        for (int i = 0; i < 6; i++) {
            mem[i] = clCreateBuffer(
                device.context, CL_MEM_READ_WRITE,
                (i < 4 ? bytes : pad) - (i == small ? 4 : 0), NULL, &error);
            assert_int_equal(error, CL_SUCCESS);
            tensors[i]->buffer = mem[i];
        }
        assert_int_equal(
            winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
            small < 0 ? WINATTN_SUCCESS : WINATTN_BUFFER_TOO_SMALL);
        clFinish(device.queue);
        for (int i = 0; i < 6; i++)
            clReleaseMemObject(mem[i]);
    }
    winattn_plan_destroy(plan);
}

/* A table whose index the caller frees, and d_pad_k without a padding to sum:
 * what is not there adds up to 0. */
static void sums_of_nothing(void **state)
{
    (void)state;
    enum { TOKENS = 4, HEADS = 2, DIM = 4, ENTRIES = 5 };
    for (int windows = 0; windows < 2; windows++) {
        winattn_desc d;
        winattn_backward b;
        winattn_plan *plan;
        float ones[TOKENS * HEADS * DIM], sums[3][HEADS * DIM + 2];
        const size_t sizes[3] = {ENTRIES * HEADS * 4, HEADS * DIM * 4,
                                 HEADS * DIM * 4};
        cl_mem sum[3];
        cl_int error;
        size_t bytes;
        cl_int *index = calloc(TOKENS * TOKENS, sizeof *index);
        memset(&d, 0, sizeof d);
        d.struct_size = sizeof d;
        d.tier = WINATTN_TIER_CPU;
        d.heads = HEADS;
        d.head_dim = DIM;
        d.passes = WINATTN_PASS_BACKWARD;
        d.grid.axes = 1;
        d.grid.size[0] = d.grid.window[0] = TOKENS;
        d.grid.batch = (cl_ulong)windows;
        d.bias = WINATTN_BIAS_TABLE;
        d.bias_dtype = WINATTN_TERM_FP32;
        d.table.index = index;
        d.table.entries = ENTRIES;
        for (int i = 0; i < TOKENS * TOKENS; i++)
            index[i] = i % 3;
        const winattn_status made =
            winattn_plan_create(device.context, device.id, &d, &plan);
        memset(index, -1, TOKENS * TOKENS * sizeof *index);
        free(index);
        if (made == WINATTN_UNSUPPORTED_DEVICE) /* no backward pass there */
            skip();
        assert_int_equal(made, WINATTN_SUCCESS);
        for (int i = 0; i < TOKENS * HEADS * DIM; i++)
            ones[i] = 1.0f + 0.1f * (float)(i % 7);
        const cl_mem input = clCreateBuffer(
            device.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
            sizeof ones, ones, &error);
        assert_int_equal(error, CL_SUCCESS);
        winattn_plan_workspace_size(plan, &bytes);
        const cl_mem workspace = clCreateBuffer(
            device.context, CL_MEM_READ_WRITE, bytes, NULL, &error);
        for (int i = 0; i < 3; i++) {
            sum[i] = clCreateBuffer(device.context,
                                    CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                    sizes[i], ones, &error);
            assert_int_equal(error, CL_SUCCESS);
        }
        memset(&b, 0, sizeof b);
        b.struct_size = sizeof b;
        b.q.buffer = b.k.buffer = b.v.buffer = b.d_o.buffer = input;
        b.bias.buffer = input;
        b.dbias.buffer = sum[0];
        b.d_pad_k.buffer = sum[1];
        b.d_pad_v.buffer = sum[2];
        b.workspace.buffer = workspace;
        assert_int_equal(
            winattn_enqueue_backward(plan, device.queue, &b, 0, NULL, NULL),
            WINATTN_SUCCESS);
        for (int i = 0; i < 3; i++)
            assert_int_equal(clEnqueueReadBuffer(device.queue, sum[i], CL_TRUE,
                                                 0, sizes[i], sums[i], 0, NULL,
                                                 NULL),
                             CL_SUCCESS);
        bool some = false;
        for (int i = 0; i < ENTRIES * HEADS; i++) {
            some = some || sums[0][i] != 0.0f;
            /* entries 3 and 4 are nobody's */
            if (i >= 3 * HEADS)
                assert_true(sums[0][i] == 0.0f);
        }
        assert_int_equal(some, windows != 0);
        for (int i = 0; i < HEADS * DIM; i++)
            assert_true(sums[1][i] == 0.0f && sums[2][i] == 0.0f);
        b.accumulate = WINATTN_D_PAD_V << 1;
        assert_status(
            winattn_enqueue_backward(plan, device.queue, &b, 0, NULL, NULL),
            WINATTN_INVALID_ARGUMENT, "accumulate");
        for (int i = 0; i < 3; i++)
            clReleaseMemObject(sum[i]);
        clReleaseMemObject(workspace);
        clReleaseMemObject(input);
        winattn_plan_destroy(plan);
    }
}

/* The padding's channels lie as those of k and v do; where none are given, it
 * does not matter how they would. */
static void pad_columns(void **state)
{
    (void)state;
    winattn_desc d;
    winattn_forward f;
    winattn_plan *plan;
    cl_int error;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.heads = 2;
    d.head_dim = 3;
    d.grid.axes = 1;
    d.grid.size[0] = 5;
    d.grid.window[0] = 4;
    d.grid.batch = 1;
    d.k.axis[0] = 6;
    d.k.head = 1;
    d.k.column = 2;
    assert_int_equal(winattn_plan_create(device.context, device.id, &d, &plan),
                     WINATTN_SUCCESS);
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q.buffer = f.k.buffer = f.v.buffer = f.o.buffer = clCreateBuffer(
        device.context, CL_MEM_READ_WRITE, 5 * 6 * 4, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    const cl_mem out = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                      5 * 6 * 4, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    f.o.buffer = out;
    f.pad_v.buffer = f.v.buffer;
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_SUCCESS);
    f.pad_k.buffer = f.k.buffer;
    assert_status(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_INVALID_LAYOUT, "column of pad_k");
    clFinish(device.queue);
    clReleaseMemObject(out);
    clReleaseMemObject(f.q.buffer);
    winattn_plan_destroy(plan);
}

static void no_windows(void **state)
{
    (void)state;
    const test_case c = parsed("windows=0");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    winattn_forward f;
    cl_event event = NULL, gate;
    cl_int error, done = CL_QUEUED;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f; /* no buffers at all */
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &desc, &plan),
        WINATTN_SUCCESS);
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_SUCCESS);
    /* its event still waits for what it was told to wait for */
    gate = clCreateUserEvent(device.context, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 1, &gate, &event),
        WINATTN_SUCCESS);
    clFlush(device.queue);
    clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof done,
                   &done, NULL);
    assert_int_not_equal(done, CL_COMPLETE);
    clSetUserEventStatus(gate, CL_COMPLETE);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
    clReleaseEvent(gate);
    winattn_plan_destroy(plan);
}

static cl_uint references(void)
{
    cl_uint count = 0;
    assert_int_equal(clGetContextInfo(device.context,
                                      CL_CONTEXT_REFERENCE_COUNT, sizeof count,
                                      &count, NULL),
                     CL_SUCCESS);
    return count;
}

/* On PoCL whatever belongs to a context counts as a reference to it; rusticl
 * was seen to keep some of its own. */
static void nothing_is_kept(void **state)
{
    (void)state;
    if (!strstr(device.name, "Portable Computing Language"))
        skip();
    const cl_uint before = references();
    for (int round = 0; round < 3; round++) {
        fixture f = set_up(round == 1 ? "tier=local" : "variant=cosine");
        assert_int_equal(winattn_enqueue_forward(f.plan, device.queue,
                                                 &f.forward, 0, NULL, NULL),
                         WINATTN_SUCCESS);
        assert_int_equal(clFinish(device.queue), CL_SUCCESS);
        tear_down(&f);
    }
    assert_int_equal(references(), before);
}

/* A plan may go while its call is on the way. */
static void destroy_early(void **state)
{
    (void)state;
    fixture f = set_up("windows=20 heads=3");
    assert_int_equal(winattn_enqueue_forward(f.plan, device.queue, &f.forward,
                                             0, NULL, NULL),
                     WINATTN_SUCCESS);
    winattn_plan_destroy(f.plan);
    f.plan = NULL;
    assert_correct(&f);
    tear_down(&f);
}

/* PoCL runs every tier; other devices may refuse one. */
static bool may_refuse(void)
{
    return !strstr(device.name, "Portable Computing Language");
}

/* A forward pass in launches of so many units, or windows where work-groups
 * walk them. */
static void run_in_pieces(const char *text, uint32_t units,
                          cl_command_queue queue)
{
    const test_case c = parsed(text);
    const demanded_plan demand = {
        .unit = c.tier == WINATTN_TIER_MATRIX ? wa_unit_named("mma") : NULL,
        .units_per_launch = units};
    case_result result;
    if (!planned_run(&device, queue, &c, &demand, &result) &&
        !(result.refused && may_refuse()))
        fail_msg("%s in launches of %u: %s", text, units, result.failure);
}

static void pieces(void **state)
{
    (void)state;
    static const char *const tiers[] = {"cpu", "local"};
    for (int t = 0; t < 2; t++)
        for (uint32_t units = 1; units < 40; units = units * 2 + 1) {
            char text[128];
            /* the mask follows the caller's window index */
            snprintf(text, sizeof text,
                     "tier=%s windows=5 heads=3 queries=20 bias=same "
                     "mask=same mask_windows=3",
                     tiers[t]);
            run_in_pieces(text, units, device.queue);
            if (device.unordered)
                run_in_pieces(text, units, device.unordered);
            snprintf(text, sizeof text,
                     "tier=%s variant=sliding windows=2 queries=300 block=50 "
                     "window_blocks=2",
                     tiers[t]);
            run_in_pieces(text, units, device.queue);
        }
    for (uint32_t windows = 1; windows < 8 && can_emulate();
         windows = windows * 2 + 1) {
        static const char *const text =
            "tier=matrix dtype=fp16 windows=7 heads=2 queries=20 bias=same "
            "mask=same mask_windows=3";
        run_in_pieces(text, windows, device.queue);
        if (device.unordered)
            run_in_pieces(text, windows, device.unordered);
    }
}

static void unordered_queue(void **state)
{
    (void)state;
    if (!device.unordered)
        skip();
    fixture f = set_up("windows=9 mask=same mask_windows=2");
    cl_int error;
    cl_event event = NULL;
    cl_event gate = clCreateUserEvent(device.context, &error);
    assert_int_equal(winattn_enqueue_forward(f.plan, device.unordered,
                                             &f.forward, 1, &gate, &event),
                     WINATTN_SUCCESS);
    clFlush(device.unordered);
    assert_nothing_written(&f); /* it waits */
    clSetUserEventStatus(gate, CL_COMPLETE);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    assert_correct(&f);
    clReleaseEvent(event);
    clReleaseEvent(gate);
    tear_down(&f);
}

/* ---- Threads ---- */

typedef struct worker {
    pthread_t thread;
    const winattn_plan *plan;
    int seed;
    const char *failure; /* NULL: none */
    char text[512];
} worker;

/* Its own buffers and queue, the plan shared; no cmocka in here. */
static void *use_plan(void *argument)
{
    worker *w = argument;
    test_case c = case_default();
    cl_int error;
    case_parse("windows=6 heads=2 queries=30 keys=30 bias=same", &c, NULL);
    cl_command_queue queue =
        clCreateCommandQueue(device.context, device.id, 0, &error);
    for (int round = 0; round < 25 && !w->failure; round++) {
        device_buffers b;
        case_result result;
        c.seed = w->seed + round;
        case_buffers *data = data_make(&c);
        if (!data || !buffers_create(&device, data, &b)) {
            w->failure = "out of memory";
            break;
        }
        const winattn_forward f = buffers_forward(data, &b);
        memset(&result, 0, sizeof result);
        if (winattn_enqueue_forward(w->plan, queue, &f, 0, NULL, NULL) !=
            WINATTN_SUCCESS)
            w->failure = "enqueue failed";
        else if (!buffers_check(queue, data, &b, 0, &result)) {
            memcpy(w->text, result.failure, sizeof w->text);
            w->failure = w->text;
        }
        buffers_release(&b);
        data_free(data);
    }
    clReleaseCommandQueue(queue);
    return NULL;
}

static void *make_plans(void *argument)
{
    worker *w = argument;
    for (int round = 0; round < 6 && !w->failure; round++) {
        test_case c = case_default();
        winattn_plan *plan;
        c.queries = c.keys = 3 + round % 3;
        c.dim = 4;
        const winattn_desc desc = case_desc(&c);
        if (winattn_plan_create(device.context, device.id, &desc, &plan) !=
            WINATTN_SUCCESS)
            w->failure = "creation failed";
        else
            winattn_plan_destroy(plan);
        /* reasons belong to threads */
        c.dim = 300 + w->seed;
        const winattn_desc wrong = case_desc(&c);
        char number[16];
        snprintf(number, sizeof number, "%d", 300 + w->seed);
        if (winattn_plan_create(device.context, device.id, &wrong, &plan) ==
                WINATTN_SUCCESS ||
            !strstr(winattn_last_reason(), number))
            w->failure = "another thread's reason";
    }
    return NULL;
}

static void *load_rows(void *argument)
{
    worker *w = argument;
    for (int round = 0; round < 6 && !w->failure; round++) {
        if (winattn_load_tuning("local-forward AMD 0 any any any 4 4 4 "
                                "4:4:64:1:4:4:1:1:1:1") != WINATTN_SUCCESS ||
            winattn_load_tuning(NULL) != WINATTN_SUCCESS)
            w->failure = "loading failed";
        else
            make_plans(argument);
    }
    return NULL;
}

static void *make_matrix_plan(void *argument)
{
    worker *w = argument;
    test_case c = case_default();
    winattn_plan *plan;
    case_parse("tier=matrix dtype=fp16 queries=5 dim=8", &c, NULL);
    const winattn_desc desc = case_desc(&c);
    if (winattn_plan_create(device.context, device.id, &desc, &plan) !=
        WINATTN_SUCCESS) {
        snprintf(w->text, sizeof w->text, "%s", winattn_last_reason());
        w->failure = w->text;
    }
    winattn_plan_destroy(plan);
    return NULL;
}

static void run_threads(void *(*work)(void *), const winattn_plan *plan)
{
    worker workers[4];
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < 4; i++) {
        workers[i].plan = plan;
        workers[i].seed = 100 * i;
        assert_int_equal(
            pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        if (workers[i].failure)
            fail_msg("thread %d: %s", i, workers[i].failure);
}

static void threads_share_a_plan(void **state)
{
    (void)state;
    static const char *const tiers[] = {"cpu", "local"};
    for (int t = 0; t < 2; t++) {
        char text[128];
        snprintf(text, sizeof text,
                 "tier=%s windows=6 heads=2 queries=30 keys=30 bias=same",
                 tiers[t]);
        fixture f = set_up(text);
        run_threads(use_plan, f.plan);
        tear_down(&f);
    }
}

static void threads_make_plans(void **state)
{
    (void)state;
    run_threads(make_plans, NULL);
    run_threads(load_rows, NULL);
}

static void threads_test_one_unit(void **state)
{
    (void)state;
    wa_session *session = pretend_unit();
    const unsigned before = wa_programs_built();
    run_threads(make_matrix_plan, NULL);
    assert_int_equal(wa_programs_built(), before + 2);
    wa_session_release(session);
}

/* The same call twice gives the same bits. */
static void repeatable(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "tier=cpu windows=30 bias=same", "tier=local windows=30 bias=same",
        "tier=local variant=sliding queries=400 block=50",
        "tier=matrix dtype=fp16 queries=30 windows=5 bias=same"};
    wa_session *session = pretend_unit();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f = set_up(cases[i]);
        const int o = f.data->tensor[T_O].buffer;
        const size_t size = f.data->buffer[o].size;
        unsigned char *first = malloc(size), *again = malloc(size);
        for (int round = 0; round < 5; round++) {
            assert_int_equal(winattn_enqueue_forward(f.plan, device.queue,
                                                     &f.forward, 0, NULL,
                                                     NULL),
                             WINATTN_SUCCESS);
            clEnqueueReadBuffer(device.queue, f.buffers.mem[o], CL_TRUE, 0,
                                size, round ? again : first, 0, NULL, NULL);
            if (round)
                assert_memory_equal(again, first, size);
        }
        free(first);
        free(again);
        tear_down(&f);
    }
    wa_session_release(session);
}

int main(void)
{
    char reason[256];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_refuses),
        cmocka_unit_test(create_refuses_foreign_device),
        cmocka_unit_test(describes),
        cmocka_unit_test(describes_nothing),
        cmocka_unit_test(local_bytes_are_right),
        cmocka_unit_test(tf32_may_be_allowed),
        cmocka_unit_test(programs_are_shared),
        cmocka_unit_test(build_failure),
        cmocka_unit_test(falls_back),
        cmocka_unit_test(measured_shapes),
        cmocka_unit_test(measured_shape_fails),
        cmocka_unit_test(unit_is_tested_once),
        cmocka_unit_test(wrong_unit_is_refused),
        cmocka_unit_test(matrix_has_both_passes),
        cmocka_unit_test(enqueue_refuses),
        cmocka_unit_test(exact_buffers),
        cmocka_unit_test(buffer_kinds),
        cmocka_unit_test(queue_of_other_device),
        cmocka_unit_test(workspace_check),
        cmocka_unit_test(grid_refuses),
        cmocka_unit_test(exact_grid),
        cmocka_unit_test(sums_of_nothing),
        cmocka_unit_test(pad_columns),
        cmocka_unit_test(no_windows),
        cmocka_unit_test(nothing_is_kept),
        cmocka_unit_test(destroy_early),
        cmocka_unit_test(pieces),
        cmocka_unit_test(unordered_queue),
        cmocka_unit_test(threads_share_a_plan),
        cmocka_unit_test(threads_make_plans),
        cmocka_unit_test(threads_test_one_unit),
        cmocka_unit_test(repeatable),
    };
    if (!device_open(&device, reason)) {
        fprintf(stderr, "%s\n", reason);
        return 1;
    }
    printf("device: %s\n", device.name);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&device);
    return failures;
}
