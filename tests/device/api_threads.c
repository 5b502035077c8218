/* SPDX-License-Identifier: Apache-2.0
 * Threads that test one matrix unit; and what a child of fork
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
    const char *failure; /* NULL: none */
    char text[512];
} worker;

/* No cmocka in here. */
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

/* Campaigns have all else that threads do beside each other. */
static void threads_test_one_unit(void **state)
{
    worker workers[4];
    wa_session *session = fragment_session();
    const unsigned before = wa_programs_built();
    (void)state;
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL,
                                        make_matrix_plan, &workers[i]),
                         0);
    for (int i = 0; i < 4; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        if (workers[i].failure)
            fail_msg("thread %d: %s", i, workers[i].failure);
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
    cmocka_unit_test(threads_test_one_unit),
    cmocka_unit_test(children_are_told),
};
const test_group api_threads = TEST_GROUP(NULL, tests);
