/* SPDX-License-Identifier: Apache-2.0
 * Plans that threads make and use beside each other; and what a child of fork
 * may do with its parent's objects: nothing, which it is told, instead of
 * waiting for threads that it does not have. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "kit/child.h"
#include "kit/fixture.h"
#include "kit/fragment_session.h"

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
        else if (!buffers_check(queue, data, &b, &result)) {
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
    for (int t = 0; t < (keeps_barriers() ? 2 : 1); t++) {
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
    wa_session *session = fragment_session();
    const unsigned before = wa_programs_built();
    run_threads(make_matrix_plan, NULL);
    assert_int_equal(wa_programs_built(), before + 2);
    wa_session_release(session);
}

/* ---- Processes ---- */

/* What the parent had. */
typedef struct inheritance {
    const fixture *f;
    winattn_plan *both; /* passes */
    winattn_programs *programs;
} inheritance;

static int is_told(winattn_status status)
{
    return status == WINATTN_INVALID_PROCESS &&
           strstr(winattn_last_reason(), "forked") != NULL;
}

/* 0, or which call went wrong. */
static int use_all(const void *data)
{
    const inheritance *is = data;
    const fixture *f = is->f;
    winattn_plan *plan = f->plan;
    winattn_programs *programs = is->programs;
    const winattn_forward forward = {.struct_size = sizeof forward};
    const char blob[1] = "";
    char text[64];
    size_t size = 0;
    if (!is_told(
            winattn_plan_create(device.context, device.id, &f->desc, &plan)) ||
        plan)
        return 1;
    if (!is_told(
            winattn_programs_create(device.context, device.id, &programs)) ||
        programs)
        return 2;
    if (!is_told(winattn_programs_import(is->programs, 1, blob)))
        return 3;
    if (!is_told(winattn_programs_export(is->programs, 0, NULL, &size)))
        return 4;
    if (!is_told(winattn_enqueue_forward(is->both, device.queue, &forward, 0,
                                         NULL, NULL)))
        return 5;
    if (!is_told(winattn_enqueue_backward(f->plan, device.queue, &f->backward,
                                          0, NULL, NULL)))
        return 6;
    /* what asks nothing of OpenCL goes on */
    if (winattn_plan_workspace_size(f->plan, &size) != WINATTN_SUCCESS)
        return 7;
    if (winattn_plan_describe(f->plan, sizeof text, text, NULL) !=
        WINATTN_SUCCESS)
        return 8;
    winattn_plan_destroy(f->plan);
    winattn_plan_destroy(is->both);
    winattn_programs_destroy(is->programs);
    return 0;
}

static void children_are_told(void **state)
{
    (void)state;
    const test_case c = parsed("pass=backward bias=fp32");
    fixture f = set_up_case(&c);
    inheritance is = {.f = &f};
    assert_int_equal(
        winattn_programs_create(device.context, device.id, &is.programs),
        WINATTN_SUCCESS);
    winattn_desc desc = f.desc;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &desc, &is.both),
        WINATTN_SUCCESS);
    const int result = child_run(use_all, &is);
    if (result != CHILD_HAS_NO_FORK)
        assert_int_equal(result, 0);
    /* the parent goes on, and so what it has is still whole */
    assert_int_equal(winattn_enqueue_backward(f.plan, device.queue,
                                              &f.backward, 0, NULL, NULL),
                     WINATTN_SUCCESS);
    assert_correct(&f);
    winattn_plan_destroy(is.both);
    winattn_programs_destroy(is.programs);
    tear_down(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_share_a_plan),
    cmocka_unit_test(threads_make_plans),
    cmocka_unit_test(threads_test_one_unit),
    cmocka_unit_test(children_are_told),
};
const test_group api_threads = TEST_GROUP(NULL, tests);
