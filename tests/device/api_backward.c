/* SPDX-License-Identifier: Apache-2.0
 * Calls of a backward pass: what they need, what they refuse, one plan for
 * both passes. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "kit/fixture.h"

/* Of each tier that runs here in turn. */
static fixture set_up_backward(const char *tier, const char *text)
{
    char words[256];
    snprintf(words, sizeof words, "pass=backward tier=%s %s", tier, text);
    return set_up(words);
}

static winattn_status plan_again(fixture *f, cl_bitfield passes)
{
    winattn_plan_destroy(f->plan);
    f->plan = NULL;
    f->desc.passes = passes;
    return winattn_plan_create(device.context, device.id, &f->desc, &f->plan);
}

/* The workspace's formula, as the header has it, and no growth. */
static void check_workspace(const char *tier)
{
    static const cl_ulong windows[] = {10000, 90000};
    size_t sizes[2];
    fixture f = set_up_backward(tier, "heads=3 bias=same variant=cosine");
    for (int i = 0; i < 2; i++) {
        f.desc.windows = windows[i];
        assert_int_equal(plan_again(&f, WINATTN_PASS_BACKWARD),
                         WINATTN_SUCCESS);
        assert_int_equal(winattn_plan_workspace_size(f.plan, &sizes[i]),
                         WINATTN_SUCCESS);
    }
    tear_down(&f);
    const size_t slot = 3 * (49 * 49 + 1) * 4;
    assert_in_range(sizes[0], slot, (16u << 20) + 4096);
    assert_true(sizes[0] % slot <= 32); /* two roundings */
    /* splits are made evenly, so their number is not quite the same */
    assert_true(sizes[1] <= sizes[0] + sizes[0] / 8 + slot);
}

/* Where none is needed, nothing is done with what is given. */
static void check_needless_workspace(const char *tier)
{
    fixture f = set_up_backward(tier, "");
    size_t size;
    assert_int_equal(winattn_plan_workspace_size(f.plan, &size),
                     WINATTN_SUCCESS);
    assert_int_equal(size, 0);
    f.backward.workspace.buffer = (cl_mem)(void *)&f; /* no buffer */
    assert_int_equal(winattn_enqueue_backward(f.plan, device.queue,
                                              &f.backward, 0, NULL, NULL),
                     WINATTN_SUCCESS);
    assert_correct(&f);
    tear_down(&f);
}

/* A pass that the plan lacks cannot be called; descriptors are looked at. */
static void check_refusals(const char *tier)
{
    fixture f =
        set_up_backward(tier, "bias=same variant=cosine logit_scale=1");
    const winattn_forward forward = {.struct_size = sizeof forward};
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &forward, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "without the forward");
    assert_int_equal(plan_again(&f, 0), WINATTN_SUCCESS);
    assert_status(winattn_enqueue_backward(f.plan, device.queue, &f.backward,
                                           0, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "without the backward");
    assert_int_equal(plan_again(&f, 4), WINATTN_INVALID_ARGUMENT);
    f.desc.dbias_strides.column = f.desc.dbias_strides.row = 1; /* overlap */
    assert_int_equal(plan_again(&f, WINATTN_PASS_BACKWARD),
                     WINATTN_INVALID_LAYOUT);
    tear_down(&f);
}

/* On an out-of-order queue; the event covers all. */
static void check_both_passes(const char *tier)
{
    const cl_command_queue queue =
        device.unordered ? device.unordered : device.queue;
    fixture f = set_up_backward(tier, "windows=5 bias=same");
    cl_int error;
    cl_event first = NULL, second = NULL;
    char text[4096];
    const cl_mem o = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                    f.data->buffer[0].size, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(
        plan_again(&f, WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD),
        WINATTN_SUCCESS);
    const winattn_forward forward = {.struct_size = sizeof forward,
                                     .q = f.backward.q,
                                     .k = f.backward.k,
                                     .v = f.backward.v,
                                     .bias = f.backward.bias,
                                     .o = {o, 0}};
    assert_int_equal(
        winattn_enqueue_forward(f.plan, queue, &forward, 0, NULL, &first),
        WINATTN_SUCCESS);
    f.backward.o = forward.o; /* may be given */
    assert_int_equal(winattn_enqueue_backward(f.plan, queue, &f.backward, 1,
                                              &first, &second),
                     WINATTN_SUCCESS);
    assert_int_equal(clWaitForEvents(1, &second), CL_SUCCESS);
    clReleaseEvent(first);
    clReleaseEvent(second);
    assert_correct(&f);
    plan_text(f.plan, text);
    assert_non_null(strstr(text, "tier: "));
    assert_non_null(strstr(text, "backward kernel: "));
    clReleaseMemObject(o);
    tear_down(&f);
}

static void calls_of_each_tier(void **state)
{
    (void)state;
    static const char *const tiers[] = {"cpu", "local"};
    if (!has_backward())
        skip();
    for (int i = 0; i < (keeps_barriers() ? 2 : 1); i++) {
        check_workspace(tiers[i]);
        check_needless_workspace(tiers[i]);
        check_refusals(tiers[i]);
        check_both_passes(tiers[i]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_of_each_tier),
};
const test_group api_backward = TEST_GROUP(NULL, tests);
