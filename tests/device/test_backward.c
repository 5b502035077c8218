/* SPDX-License-Identifier: Apache-2.0
 * The backward pass: what calls promise, and what o and lse of the forward
 * pass may cost. A failure prints the case; `check 'CASE'` replays it.
 *
 *   test_backward given TIER                   with o and lse, and without
 *   test_backward calls TIER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/fixture.h"
#include "kit/planned.h"

static test_case backward_case(const char *text)
{
    test_case c = parsed(text);
    c.pass = PASS_BACKWARD;
    c.tier = chosen.tier;
    return c;
}

/* Deltas from a stored o are far off, as v has a mean; and few keys have a
 * row's weights, so that all of it shows in dQ; or k has a mean, so that what
 * rounding leaves of a row of dS shows. */
static const struct {
    const char *text;
    int dtype, seed;
} given_table[] = {
    {"data=steep windows=8 heads=2 queries=144 bias=fp32", WINATTN_FP16, 1},
    {"data=steep windows=8 heads=2 queries=144 bias=fp32", WINATTN_BF16, 3},
    {"data=steep windows=1 heads=1 queries=576", WINATTN_BF16, 1},
    {"data=common windows=8 heads=2 queries=49 bias=same", WINATTN_BF16, 4},
    {"data=common windows=8 heads=1 queries=144 d_lse=1", WINATTN_BF16, 5},
    {"data=common windows=2 heads=1 queries=200", WINATTN_BF16, 6},
    {"data=steep variant=sliding windows=1 heads=1 queries=256 dim=64 "
     "block=64 window_blocks=2",
     WINATTN_BF16, 2},
};

/* Of dQ, dK and dV; see case_run. */
static double error_given(const char *text, int dtype, int seed, int given)
{
    char line[512];
    case_result result;
    test_case c = backward_case(text);
    c.dtype = dtype;
    c.seed = seed;
    c.given = given;
    c.outputs = 7;
    if (!case_run(&device, device.queue, &c, 0, &result)) {
        case_print(&c, line, sizeof line);
        fail_msg("%s\n%s", line, result.failure);
    }
    return result.o_error;
}

/* Errors with o and lse given are at most twice those without. */
static void run_given(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof given_table / sizeof *given_table; i++) {
        const char *text = given_table[i].text;
        const int dtype = given_table[i].dtype, seed = given_table[i].seed;
        const double own = error_given(text, dtype, seed, 0);
        for (int given = 1; given <= 2; given++) {
            const double error = error_given(text, dtype, seed, given);
            char line[512];
            snprintf(line, sizeof line,
                     "%s dtype=%d seed=%d given=%d: %.3f of the allowed, "
                     "%.3f without",
                     text, dtype, seed, given, error, own);
            announce("%s\n", line);
            if (error > 2 * own)
                fail_msg("%s", line);
        }
    }
}

/* ---- Calls ---- */

static fixture set_up_backward(const char *text)
{
    const test_case c = backward_case(text);
    return set_up_case(&c);
}

static void assert_refused(const fixture *f, winattn_status wanted,
                           const char *culprit)
{
    assert_status(winattn_enqueue_backward(f->plan, device.queue, &f->backward,
                                           0, NULL, NULL),
                  wanted, culprit);
}

/* Enough keys for two kernels of tier cpu. A CPU is slow at the other tier,
 * which has two kernels for a sliding window anyway. */
static const char *many_keys(void)
{
    return chosen.tier == WINATTN_TIER_LOCAL
               ? "windows=5 heads=1 queries=9 keys=90 dim=20 bias=fp32"
               : "windows=5 heads=1 queries=9 keys=820 dim=250 bias=fp32";
}

/* The same bits twenty times, while the device is busy with other work. */
static void repeatable(void **state)
{
    (void)state;
    const bool slow = chosen.tier == WINATTN_TIER_LOCAL;
    const char *const cases[] = {
        slow ? "windows=9 heads=2 bias=same variant=cosine logit_scale=1"
             : "windows=50 heads=3 bias=same variant=cosine logit_scale=1 "
               "d_lse=1",
        slow ? "windows=1 heads=2 variant=sliding queries=100 block=20"
             : "windows=2 heads=3 variant=sliding queries=300 block=40",
        many_keys()};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f = set_up_backward(cases[i]),
                other = set_up_backward(cases[i]);
        cl_int error;
        cl_command_queue busy =
            clCreateCommandQueue(device.context, device.id, 0, &error);
        unsigned char *first[TENSORS] = {NULL};
        assert_int_equal(error, CL_SUCCESS);
        for (int round = 0; round < 20; round++) {
            assert_int_equal(winattn_enqueue_backward(other.plan, busy,
                                                      &other.backward, 0, NULL,
                                                      NULL),
                             WINATTN_SUCCESS);
            clFlush(busy);
            assert_int_equal(winattn_enqueue_backward(f.plan, device.queue,
                                                      &f.backward, 0, NULL,
                                                      NULL),
                             WINATTN_SUCCESS);
            for (int b = 0; b < f.data->buffers; b++) {
                const size_t size = f.data->buffer[b].size;
                unsigned char *bytes = malloc(size);
                assert_int_equal(clEnqueueReadBuffer(
                                     device.queue, f.buffers.mem[b], CL_TRUE,
                                     0, size, bytes, 0, NULL, NULL),
                                 CL_SUCCESS);
                if (!first[b])
                    first[b] = bytes;
                else
                    assert_memory_equal(bytes, first[b], size);
                if (first[b] != bytes)
                    free(bytes);
            }
        }
        clFinish(busy);
        clReleaseCommandQueue(busy);
        for (int b = 0; b < f.data->buffers; b++)
            free(first[b]);
        assert_correct(&f);
        tear_down(&f);
        tear_down(&other);
    }
}

/* A backward pass in launches of few windows each. */
static void pieces(void **state)
{
    (void)state;
    const char *const cases[] = {
        "windows=9 heads=2 queries=10 bias=same mask=same mask_windows=4",
        "windows=9 heads=2 queries=10 variant=cosine logit_scale=1 bias=fp32",
        "windows=4 heads=2 queries=30 variant=sliding block=8", many_keys()};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned windows = 1; windows < 6; windows += 2)
            for (int unordered = 0; unordered < 2; unordered++) {
                const test_case c = backward_case(cases[i]);
                const demanded_backward demand = {.windows = windows};
                case_result result;
                if (unordered && !device.unordered)
                    continue;
                if (!planned_backward(
                        &device, unordered ? device.unordered : device.queue,
                        &c, &demand, &result))
                    fail_msg("%s, %u windows to a launch: %s", cases[i],
                             windows, result.failure);
            }
}

/* No windows: sums over them are 0, or stay. */
static void no_windows(void **state)
{
    (void)state;
    fixture f = set_up_backward(
        "windows=0 bias=same variant=cosine logit_scale=1 queries=5");
    cl_event event = NULL;
    assert_int_equal(winattn_enqueue_backward(f.plan, device.queue,
                                              &f.backward, 0, NULL, &event),
                     WINATTN_SUCCESS);
    assert_non_null(event);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
    assert_correct(&f);
    tear_down(&f);
    f = set_up_backward(
        "windows=0 bias=same variant=cosine logit_scale=1 queries=5 "
        "accumulate=31");
    assert_int_equal(winattn_enqueue_backward(f.plan, device.queue,
                                              &f.backward, 0, NULL, NULL),
                     WINATTN_SUCCESS);
    assert_correct(&f);
    tear_down(&f);
}

static void assert_zeros(const winattn_tensor *t, size_t elements,
                         size_t element_size)
{
    unsigned char *bytes = malloc(elements * element_size);
    assert_non_null(bytes);
    assert_int_equal(clEnqueueReadBuffer(
                         device.queue, t->buffer, CL_TRUE, (size_t)t->offset,
                         elements * element_size, bytes, 0, NULL, NULL),
                     CL_SUCCESS);
    for (size_t i = 0; i < elements * element_size; i++) {
        const bool has_sign = i % element_size == element_size - 1;
        assert_int_equal(bytes[i] & (has_sign ? 0x7f : 0xff), 0);
    }
    free(bytes);
}

/* Who sees a single key has P = 1, whatever q and k are. */
static void only_key(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "variant=sliding block=16 windows=2 heads=3 queries=1",
        "variant=sliding block=16 windows=2 heads=3 queries=1 dtype=fp16",
        "windows=2 heads=3 queries=1 dtype=bf16 bias=same",
        "windows=2 heads=3 queries=1 given=2",
        "variant=cosine logit_scale=3 windows=2 heads=3 queries=1",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f = set_up_backward(cases[i]);
        const test_case *c = &f.data->c;
        const size_t elements = (size_t)c->windows * c->heads * c->dim;
        const size_t element_size = c->dtype == WINATTN_FP32 ? 4 : 2;
        assert_int_equal(winattn_enqueue_backward(f.plan, device.queue,
                                                  &f.backward, 0, NULL, NULL),
                         WINATTN_SUCCESS);
        assert_zeros(&f.backward.dq, elements, element_size);
        assert_zeros(&f.backward.dk, elements, element_size);
        assert_correct(&f);
        tear_down(&f);
    }
}

/* The workspace's formula, as the header has it, and no growth. */
static void workspace(void **state)
{
    (void)state;
    size_t sizes[2];
    static const char *const cases[] = {
        "windows=10000 heads=3 queries=49 bias=same variant=cosine",
        "windows=90000 heads=3 queries=49 bias=same variant=cosine"};
    for (int i = 0; i < 2; i++) {
        test_case c = backward_case(cases[i]);
        const winattn_desc desc = case_desc(&c);
        winattn_plan *plan;
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plan),
            WINATTN_SUCCESS);
        assert_int_equal(winattn_plan_workspace_size(plan, &sizes[i]),
                         WINATTN_SUCCESS);
        winattn_plan_destroy(plan);
    }
    const size_t slot = 3 * (49 * 49 + 1) * 4;
    assert_in_range(sizes[0], slot, (16u << 20) + 4096);
    assert_true(sizes[0] % slot <= 32); /* two roundings */
    /* splits are made evenly, so their number is not quite the same */
    assert_true(sizes[1] <= sizes[0] + sizes[0] / 8 + slot);

    fixture f = set_up_backward("bias=same");
    f.backward.workspace.buffer = NULL;
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "workspace is NULL");
    f.backward.workspace.buffer = f.workspace;
    f.backward.workspace.offset = 16;
    assert_refused(&f, WINATTN_WORKSPACE_TOO_SMALL, "workspace needs");
    f.backward.workspace.offset = 4;
    assert_refused(&f, WINATTN_INVALID_LAYOUT, "workspace");
    tear_down(&f);
}

static void refusals(void **state)
{
    (void)state;
    fixture f = set_up_backward("bias=same variant=cosine logit_scale=1");
    const winattn_backward good = f.backward;
    f.backward.d_o.buffer = NULL;
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "d_o is NULL");
    f.backward = good;
    f.backward.accumulate = 128;
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "accumulate");
    f.backward = good;
    f.backward.d_pad_k = good.dbias;
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "d_pad_k is given, but");
    f.backward = good;
    f.backward.logit_scale.buffer = NULL;
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "d_logit_scale");
    f.backward = good;
    f.backward.dq.offset += 2;
    assert_refused(&f, WINATTN_INVALID_LAYOUT, "dq");
    f.backward = good;
    f.backward.dk.offset = 1 << 30;
    assert_refused(&f, WINATTN_BUFFER_TOO_SMALL, "dk");
    f.backward = good;
    f.backward.struct_size = 8;
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "struct_size");
    f.backward = good;
    winattn_forward forward;
    memset(&forward, 0, sizeof forward);
    forward.struct_size = sizeof forward;
    assert_int_equal(
        winattn_enqueue_forward(f.plan, device.queue, &forward, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(winattn_last_reason(), "without the forward"));
    winattn_plan_destroy(f.plan);
    f.desc.passes = 0;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &f.desc, &f.plan),
        WINATTN_SUCCESS);
    assert_refused(&f, WINATTN_INVALID_ARGUMENT, "without the backward");
    winattn_plan_destroy(f.plan);
    f.plan = NULL;
    f.desc.passes = 4;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &f.desc, &f.plan),
        WINATTN_INVALID_ARGUMENT);
    f.desc.passes = WINATTN_PASS_BACKWARD;
    f.desc.dbias_strides.column = 1; /* rows overlap */
    f.desc.dbias_strides.row = 1;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &f.desc, &f.plan),
        WINATTN_INVALID_LAYOUT);
    tear_down(&f);
}

/* One plan for both passes; an out-of-order queue; the event covers all. */
static void both_passes(void **state)
{
    (void)state;
    cl_command_queue queue =
        device.unordered ? device.unordered : device.queue;
    fixture f = set_up_backward("windows=5 bias=same");
    winattn_plan_destroy(f.plan);
    f.desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    assert_int_equal(
        winattn_plan_create(device.context, device.id, &f.desc, &f.plan),
        WINATTN_SUCCESS);
    cl_int error;
    const size_t bytes = f.data->buffer[0].size;
    const cl_mem o =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    winattn_forward forward;
    memset(&forward, 0, sizeof forward);
    forward.struct_size = sizeof forward;
    forward.q = f.backward.q;
    forward.k = f.backward.k;
    forward.v = f.backward.v;
    forward.bias = f.backward.bias;
    forward.o.buffer = o;
    cl_event first = NULL, second = NULL;
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
    char text[8192];
    assert_int_equal(winattn_plan_describe(f.plan, sizeof text, text, NULL),
                     WINATTN_SUCCESS);
    assert_non_null(strstr(text, "tier: "));
    assert_non_null(strstr(text, "backward kernel: "));
    clReleaseMemObject(o);
    tear_down(&f);
}

static const struct CMUnitTest given_tests[] = {cmocka_unit_test(run_given)};
static const struct CMUnitTest call_tests[] = {
    cmocka_unit_test(repeatable), cmocka_unit_test(pieces),
    cmocka_unit_test(no_windows), cmocka_unit_test(only_key),
    cmocka_unit_test(workspace),  cmocka_unit_test(refusals),
    cmocka_unit_test(both_passes)};

static const test_group groups[] = {TEST_GROUP("given", given_tests),
                                    TEST_GROUP("calls", call_tests)};

int main(int count, char **arguments)
{
    const test_program program = {
        .words = {WORD_PART, WORD_TIER}, .part = "calls", TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
