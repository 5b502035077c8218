/* SPDX-License-Identifier: Apache-2.0
 * Launches on the stand-in for OpenCL. Each launch has work, together they
 * have all of it, and there is an end, also on a device that claims to have no
 * compute unit. A launch list has what a call would enqueue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/cases.h"
#include "kit/devices.h"
#include "launch/check.h"
#include "place.h"
#include "plan/family.h"
#include "session/build.h"

#include "../cl/common/args.h"

#define MOST_LAUNCHES 100000u
#define MOST_ITEMS 0x7fffffffu

#define BOTH_PASSES (WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)

/* ---- Plans ---- */

/* A plan of a pass, its kernels, and what they are launched with. */
typedef struct world {
    place at;
    cl_mem memory; /* of all tensors: nobody looks into it */
    wa_session *session;
    wa_problem problem;
    wa_plan plan;
    wa_kernels kernels;
} world;

static world open_world(const wa_device *device, const winattn_desc *desc)
{
    world w;
    memset(&w, 0, sizeof w);
    standin_reset();
    standin_drivers.most_launches = MOST_LAUNCHES;
    standin_drivers.gives_ptx = true;
    w.at = place_of(device);
    w.memory = standin_buffer(w.at.context, CL_MEM_READ_WRITE, SIZE_MAX / 4);
    if (wa_problem_read(desc, &w.problem) != WINATTN_SUCCESS ||
        wa_session_acquire(w.at.context, w.at.id, &w.session) !=
            WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    return w;
}

static void close_world(world *w)
{
    wa_kernels_release(&w->kernels);
    wa_session_release(w->session);
    clReleaseMemObject(w->memory);
    close_place(&w->at);
}

/* Plans the pass and builds its kernels, if there can be a plan. */
static bool make(world *w, wa_pass pass)
{
    static const wa_exclusions none;
    uint32_t most;
    wa_kernels_release(&w->kernels);
    if (wa_plan_make(&w->problem, wa_session_device(w->session), pass, &none,
                     &w->plan) != WINATTN_SUCCESS)
        return false;
    if (wa_build_steps(w->session, &w->problem, &w->plan, &w->kernels,
                       &most) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    return true;
}

/* Every tensor is there. */
static wa_buffers all_buffers(const world *w)
{
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (w->problem.tensor[id].used)
            buffers.tensor[id].buffer = w->memory;
    buffers.workspace.buffer = w->memory;
    buffers.table.index = buffers.table.starts = buffers.table.order =
        w->memory;
    return buffers;
}

/* ---- Launches ---- */

static bool is_of(const standin_launch *launch, const wa_step *step)
{
    return step->kernel && strcmp(launch->kernel, step->kernel) == 0 &&
           strstr(launch->options, step->defines);
}

/* Of all launches of the step. */
static uint64_t groups_of(const world *w, int step)
{
    const standin_launch *launches;
    const size_t count = standin_launches(&launches);
    uint64_t groups = 0;
    for (size_t i = 0; i < count; i++)
        if (is_of(&launches[i], &w->plan.step[step]))
            groups += launches[i].global / launches[i].local;
    return groups;
}

/* Each launch that sums a table goes on where the one before ended. */
static void check_table_launches(void)
{
    const standin_launch *launches;
    const size_t count = standin_launches(&launches);
    uint64_t next = 0;
    for (size_t i = 0; i < count; i++) {
        table_args args;
        if (strcmp(launches[i].kernel, "sum_table") != 0)
            continue;
        memcpy(&args, launches[i].arguments[0].bytes, sizeof args);
        assert_true(args.first == next);
        assert_in_range(launches[i].global, 1, MOST_ITEMS);
        next += launches[i].global / launches[i].local;
    }
}

static void launch(const world *w, const wa_buffers *buffers)
{
    standin_forget();
    assert_int_equal(wa_launch(&w->problem, &w->plan, &w->kernels, w->at.queue,
                               buffers, 0, 0, NULL, NULL),
                     WINATTN_SUCCESS);
    check_table_launches();
}

/* Each kernel of gradients that leaves numbers of rows or makes gradients is
 * launched, but for that of statistics where the forward pass has them, and
 * for those that are another's substitute: of the two only one. */
static void assert_gradients_launched(const world *w, bool is_given,
                                      bool copies)
{
    const wa_plan *plan = &w->plan;
    for (int i = WA_STEP_STATISTICS; i < WA_STEPS; i++) {
        const bool copying =
            i == WA_STEP_UNALIGNED_ROWS || i == WA_STEP_UNALIGNED_KEYS;
        const bool boxes = i == WA_STEP_ROWS || i == WA_STEP_KEYS;
        bool idle = false;
        if (!plan->step[i].kernel || i == WA_STEP_SUM)
            continue;
        if (i == WA_STEP_STATISTICS)
            idle = is_given;
        else if (plan->family->engine == WA_ENGINE_MORE_SPECIAL &&
                 (copying || boxes))
            idle = copying != copies;
        assert_int_equal(groups_of(w, i) == 0, idle);
    }
}

static size_t given_launched; /* calls that were given both */

/* Gradients take what is known of rows from o and lse where both are given and
 * there is a step for that, and else find it. Rows that do not start at 16
 * bytes are no boxes of tensor maps. */
static void launch_gradients(const world *w)
{
    static const wa_tensor_id absent[] = {WA_Q, WA_O, WA_LSE}; /* Q: neither */
    for (size_t i = 0; i < 2 * sizeof absent / sizeof *absent; i++) {
        wa_buffers buffers = all_buffers(w);
        const bool is_given = i / 2 == 0 && w->kernels.step[WA_STEP_GIVEN];
        const bool starts_odd = i % 2;
        if (i / 2 > 0)
            buffers.tensor[absent[i / 2]].buffer = NULL;
        if (starts_odd)
            buffers.tensor[WA_Q].offset = w->problem.tensor[WA_Q].element_size;
        launch(w, &buffers);
        assert_int_equal(is_given, groups_of(w, WA_STEP_GIVEN) > 0);
        given_launched += is_given;
        assert_gradients_launched(w, is_given, starts_odd);
    }
}

/* ---- A device of one compute unit ---- */

static void check_forward(const world *w)
{
    const wa_problem *p = &w->problem;
    const wa_schedule *s = &w->plan.schedule;
    const wa_buffers all = all_buffers(w);
    launch(w, &all);
    const uint64_t groups = groups_of(w, WA_STEP_FORWARD);
    assert_true(groups > 0);
    assert_true(s->groups != 0 || groups == s->sharing_groups ||
                groups * s->work_tiles_per_group >=
                    p->windows * p->heads * s->row_blocks);
}

/* So is one that says it has none: all plans launch something, and come to an
 * end. */
static void one_compute_unit(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "dtype=fp16 windows=100 bias=same",
        "windows=3 heads=1 queries=70000 keys=2000 dim=256",
        "dtype=bf16 windows=2000 heads=12 queries=64",
        "dtype=fp16 variant=sliding windows=2 queries=5000 block=64",
        "dtype=fp16 grid=2 size=56x56 window=7x7 shift=3x3 mask=shift "
        "bias=table_same batch=8",
    };
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
            const winattn_desc desc = case_desc_of(problems[i], BOTH_PASSES);
            wa_device device = made_up_devices[d];
            device.compute_units = 1;
            world w = open_world(&device, &desc);
            if (make(&w, WA_FORWARD))
                check_forward(&w);
            if (make(&w, WA_BACKWARD))
                launch_gradients(&w);
            close_world(&w);
        }
    assert_true(given_launched > 0);
}

/* ---- Where memory starts ---- */

/* Vectors are accessed where tensors start on multiples of them: that is asked
 * of the caller's own memory, and of parts of buffers. */
static void memory_may_start_anywhere(void **state)
{
    (void)state;
    static const struct {
        cl_mem_flags flags;
        size_t origin, host;
        bool is_wide;
        winattn_status status;
    } rows[] = {
        {CL_MEM_READ_WRITE, 0, 0, true, WINATTN_SUCCESS},
        /* some drivers say where their own memory is: on a line of it */
        {CL_MEM_READ_WRITE, 0, 4, true, WINATTN_SUCCESS},
        {CL_MEM_READ_WRITE, 256, 0, true, WINATTN_SUCCESS},
        {CL_MEM_READ_WRITE, 8, 0, false, WINATTN_SUCCESS},
        {CL_MEM_USE_HOST_PTR, 0, 4096, true, WINATTN_SUCCESS},
        {CL_MEM_USE_HOST_PTR, 0, 4104, false, WINATTN_SUCCESS},
        {CL_MEM_USE_HOST_PTR, 128, 4228, false, WINATTN_SUCCESS},
        {CL_MEM_USE_HOST_PTR, 0, 4098, false, WINATTN_INVALID_LAYOUT},
    };
    const winattn_desc desc = case_desc_of("dim=32", BOTH_PASSES);
    world w = open_world(made_up_device("A100"), &desc);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (wa_pass pass = WA_FORWARD; pass < WA_PASSES; pass++) {
            const standin_launch *launches;
            forward_args args; /* backward_args start with them */
            wa_buffers buffers = all_buffers(&w);
            const cl_mem k =
                standin_part(w.at.context, rows[i].flags, SIZE_MAX / 4,
                             rows[i].origin, rows[i].host);
            buffers.tensor[WA_K].buffer = k;
            assert_true(make(&w, pass));
            assert_int_equal(wa_check_buffers(&w.problem, pass,
                                              w.plan.workspace.all,
                                              w.at.context, &buffers, 0),
                             rows[i].status);
            if (rows[i].status != WINATTN_SUCCESS) {
                assert_non_null(strstr(winattn_last_reason(), "of k starts"));
            } else {
                launch(&w, &buffers);
                assert_int_equal(standin_launches(&launches), 1);
                memcpy(&args, launches[0].arguments[0].bytes, sizeof args);
                assert_int_equal((args.flags & ARG_WIDE_ACCESS) != 0,
                                 rows[i].is_wide);
            }
            clReleaseMemObject(k);
        }
    close_world(&w);
}

/* ---- A table of many entries ---- */

/* Entries of all heads are more than 2^32: every one has a work-group, in
 * launches of fewer than 2^31 work-items. */
static void many_entries(void **state)
{
    (void)state;
    const cl_int index[1] = {0};
    const cl_ulong entries = 65537;
    /* head after head, as contiguous tables span fewer than 2^31 elements */
    const winattn_strides strides = {.row = 1, .head = entries};
    const winattn_desc desc = {
        .struct_size = sizeof desc,
        .windows = 1,
        .queries = 1,
        .keys = 1,
        .head_dim = 1,
        .heads = 65536,
        .bias = WINATTN_BIAS_TABLE,
        .table = {.entries = (cl_uint)entries, .index = index},
        .bias_strides = strides,
        .dbias_strides = strides,
        .passes = WINATTN_PASS_BACKWARD};
    world w = open_world(made_up_device("H200"), &desc);
    assert_true(make(&w, WA_BACKWARD));
    const wa_buffers all = all_buffers(&w);
    launch(&w, &all);
    assert_true(groups_of(&w, WA_STEP_SUM_TABLE) == 65536ull * 65537);
    close_world(&w);
}

/* ---- Launch lists ---- */

/* Tensors of a call: of each that the problem has a buffer, and where another
 * runtime would have it. */
typedef struct tensors {
    cl_mem buffer[WINATTN_TENSORS];
    winattn_memory memory[WINATTN_TENSORS];
    winattn_tensor of_call[WINATTN_TENSORS];
} tensors;

static void add_tensor(const world *w, tensors *t, int name)
{
    t->buffer[name] =
        standin_buffer(w->at.context, CL_MEM_READ_WRITE, SIZE_MAX / 4);
    t->of_call[name].buffer = t->buffer[name];
    t->memory[name] = (winattn_memory){(cl_ulong)(name + 1) << 40, 1ull << 40};
}

static void enqueue(const world *w, const winattn_plan *plan, wa_pass pass,
                    const tensors *t)
{
    winattn_forward forward = {.struct_size = sizeof forward};
    winattn_backward backward = {.struct_size = sizeof backward};
    const size_t outputs = (WINATTN_TENSOR_LSE + 1) * sizeof *t->of_call,
                 all = WINATTN_TENSOR_WORKSPACE * sizeof *t->of_call;
    memcpy((char *)&forward + offsetof(winattn_forward, q), t->of_call,
           outputs);
    memcpy((char *)&backward + offsetof(winattn_backward, q), t->of_call, all);
    forward.workspace = backward.workspace =
        t->of_call[WINATTN_TENSOR_WORKSPACE];
    standin_forget();
    const winattn_status status =
        pass == WA_FORWARD ? winattn_enqueue_forward(plan, w->at.queue,
                                                     &forward, 0, NULL, NULL)
                           : winattn_enqueue_backward(
                                 plan, w->at.queue, &backward, 0, NULL, NULL);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
}

static void assert_same(const winattn_argument *listed,
                        const standin_argument *set, const tensors *t)
{
    static const cl_mem no_buffer;
    const void *set_to = set->bytes ? (const void *)set->bytes : &no_buffer;
    assert_int_equal(listed->size, set->size);
    if (listed->kind == WINATTN_ARGUMENT_TENSOR)
        assert_ptr_equal(t->buffer[listed->index], set->buffer);
    else if (listed->kind == WINATTN_ARGUMENT_TABLE)
        assert_non_null(set->buffer);
    else
        assert_memory_equal(listed->bytes, set_to, set->size);
}

/* One that the plan does not need may be given, or not. */
static void check_workspace(const winattn_launch_list *list,
                            const winattn_plan *plan, tensors t)
{
    size_t size;
    winattn_plan_workspace_size(plan, &size);
    assert_int_equal(winattn_launch_list_check(list, t.memory),
                     WINATTN_SUCCESS);
    t.memory[WINATTN_TENSOR_WORKSPACE].address = 0;
    if (size == 0)
        assert_int_equal(winattn_launch_list_check(list, t.memory),
                         WINATTN_SUCCESS);
}

static size_t lists_checked;

/* A list has the launches of a call, their programs and arguments. */
static void check_list(const world *w, const winattn_plan *plan, wa_pass pass,
                       const tensors *t)
{
    const standin_launch *launches;
    winattn_launch_list *list;
    if (winattn_launch_list_create(plan, (cl_bitfield)1 << pass, t->memory, 0,
                                   &list) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    enqueue(w, plan, pass, t);
    const size_t count = standin_launches(&launches);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        const winattn_launch *listed = winattn_launch_list_launch(list, i);
        assert_non_null(listed);
        const winattn_launch_program *program =
            winattn_launch_list_program(list, listed->program);
        assert_string_equal(listed->kernel, launches[i].kernel);
        assert_string_equal(program->options, launches[i].options);
        assert_int_equal(listed->groups * listed->work_group,
                         launches[i].global);
        assert_int_equal(listed->work_group, launches[i].local);
        assert_int_equal(listed->argument_count, launches[i].argument_count);
        for (cl_uint n = 0; n < listed->argument_count; n++)
            assert_same(&listed->arguments[n], &launches[i].arguments[n], t);
    }
    assert_null(winattn_launch_list_launch(list, count));
    check_workspace(list, plan, *t);
    winattn_launch_list_destroy(list);
    lists_checked++;
}

static void lists_have_what_calls_enqueue(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "dtype=fp16 windows=100 bias=same",
        "dtype=bf16 variant=cosine windows=5 queries=64 logit_scale=1.5",
        "dtype=fp16 variant=sliding windows=2 queries=1000 block=64",
        "grid=2 size=14x14 window=7x7 shift=3x3 mask=shift bias=table_same",
    };
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
            const winattn_desc desc = case_desc_of(problems[i], BOTH_PASSES);
            tensors t;
            winattn_plan *plan;
            world w = open_world(&made_up_devices[d], &desc);
            memset(&t, 0, sizeof t);
            for (int name = 0; name < WINATTN_TENSORS; name++)
                if (name == WINATTN_TENSOR_WORKSPACE ||
                    w.problem.tensor[name].used)
                    add_tensor(&w, &t, name);
            if (winattn_plan_create(w.at.context, w.at.id, &desc, &plan) ==
                WINATTN_SUCCESS) {
                check_list(&w, plan, WA_FORWARD, &t);
                check_list(&w, plan, WA_BACKWARD, &t);
                winattn_plan_destroy(plan);
            }
            for (int name = 0; name < WINATTN_TENSORS; name++)
                if (t.buffer[name])
                    clReleaseMemObject(t.buffer[name]);
            close_world(&w);
        }
    assert_true(lists_checked > made_up_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_have_what_calls_enqueue),
        cmocka_unit_test(one_compute_unit),
        cmocka_unit_test(memory_may_start_anywhere),
        cmocka_unit_test(many_entries),
    };
    setenv("WINATTN_CACHE", "0", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
