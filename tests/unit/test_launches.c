/* SPDX-License-Identifier: Apache-2.0
 * Launches, without a device: the few functions of OpenCL that they call stand
 * here and write down what is enqueued. Each launch has work, together they
 * have all of it, and there is an end, also on a device that claims to have no
 * compute unit. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "launch/check.h"
#include "plan/family.h"
#include "plan_made.h"

#include "../cl/common/args.h"

/* ---- In place of OpenCL ---- */

#define MOST_LAUNCHES 100000u
#define MOST_ITEMS 0x7fffffffu

/* A kernel that nobody compiles. */
typedef struct fake_kernel {
    unsigned char arguments[1024]; /* argument 0 */
    size_t size;
    uint64_t launches, groups; /* of all launches */
    uint64_t next;             /* sum_table: the entry that comes next */
    bool sums_table;
} fake_kernel;

static void check_table_launch(fake_kernel *kernel, uint64_t groups)
{
    table_args args;
    assert_int_equal(kernel->size, sizeof args);
    memcpy(&args, kernel->arguments, sizeof args);
    assert_true(args.first == kernel->next);
    kernel->next += groups;
}

cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                                  const void *value)
{
    fake_kernel *fake = (fake_kernel *)kernel;
    if (index != 0)
        return CL_SUCCESS;
    assert_in_range(size, 1, sizeof fake->arguments);
    memcpy(fake->arguments, value, size);
    fake->size = size;
    return CL_SUCCESS;
}

cl_int CL_API_CALL clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
    const size_t *offset, const size_t *global, const size_t *local,
    cl_uint wait_count, const cl_event *wait_list, cl_event *event)
{
    fake_kernel *fake = (fake_kernel *)kernel;
    (void)queue;
    (void)wait_count;
    (void)wait_list;
    (void)event;
    assert_int_equal(dimensions, 1);
    assert_null(offset);
    assert_true(local[0] > 0 && global[0] > 0 && global[0] % local[0] == 0);
    assert_true(++fake->launches < MOST_LAUNCHES);
    fake->groups += global[0] / local[0];
    if (fake->sums_table) {
        assert_in_range(global[0], 1, MOST_ITEMS);
        check_table_launch(fake, global[0] / local[0]);
    }
    return CL_SUCCESS;
}

/* The queue is in order. */
cl_int CL_API_CALL clGetCommandQueueInfo(cl_command_queue queue,
                                         cl_command_queue_info what,
                                         size_t size, void *value,
                                         size_t *needed)
{
    (void)queue;
    (void)what;
    (void)needed;
    memset(value, 0, size);
    return CL_SUCCESS;
}

/* A buffer that has no memory. */
typedef struct fake_memory {
    cl_mem_flags flags;
    uintptr_t origin, host;
} fake_memory;

cl_int CL_API_CALL clGetMemObjectInfo(cl_mem memory, cl_mem_info what,
                                      size_t size, void *value, size_t *needed)
{
    const fake_memory *fake = (const fake_memory *)memory;
    const uintptr_t answers[] = {what == CL_MEM_TYPE ? CL_MEM_OBJECT_BUFFER
                                 : what == CL_MEM_FLAGS
                                     ? (uintptr_t)fake->flags
                                 : what == CL_MEM_SIZE     ? SIZE_MAX
                                 : what == CL_MEM_OFFSET   ? fake->origin
                                 : what == CL_MEM_HOST_PTR ? fake->host
                                                           : 0};
    (void)needed;
    assert_in_range(size, 4, sizeof answers); /* on a little-endian host */
    memcpy(value, answers, size);
    return CL_SUCCESS;
}

/* ---- Plans ---- */

static const wa_exclusions none;

/* The problem of a text, in both passes. */
static wa_problem both_of(const char *text)
{
    const test_case c = parsed(text);
    wa_problem p;
    winattn_desc d = case_desc(&c);
    d.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
        fail_msg("%s: %s", text, winattn_last_reason());
    return p;
}

/* Every tensor is there: nobody looks into what stands for its buffer. */
static wa_buffers all_buffers(const wa_problem *p)
{
    static fake_memory memory = {.flags = CL_MEM_READ_WRITE};
    const cl_mem buffer = (cl_mem)&memory;
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (p->tensor[id].used)
            buffers.tensor[id].buffer = buffer;
    buffers.workspace.buffer = buffer;
    buffers.table.index = buffers.table.starts = buffers.table.order = buffer;
    return buffers;
}

/* Launches a pass with these buffers: what was enqueued of each step. */
static void launch_with(const wa_buffers *given, const wa_problem *p,
                        const wa_plan *plan, fake_kernel steps[WA_STEPS])
{
    static char queue;
    const wa_buffers buffers = *given;
    wa_kernels kernels;
    memset(steps, 0, WA_STEPS * sizeof *steps);
    steps[WA_STEP_SUM_TABLE].sums_table = true;
    for (int i = 0; i < WA_STEPS; i++)
        kernels.step[i] = plan->step[i].kernel ? (cl_kernel)&steps[i] : NULL;
    assert_int_equal(wa_launch(p, plan, &kernels, (cl_command_queue)&queue,
                               &buffers, 0, 0, NULL, NULL),
                     WINATTN_SUCCESS);
}

static void launch(const wa_problem *p, const wa_plan *plan,
                   fake_kernel steps[WA_STEPS])
{
    const wa_buffers all = all_buffers(p);
    launch_with(&all, p, plan, steps);
}

/* Each kernel of gradients that leaves numbers of rows or makes gradients is
 * launched, but for that of statistics where the forward pass has them, and
 * for those that are another's substitute: of the two only one. */
static void assert_gradients_launched(const wa_plan *plan,
                                      const fake_kernel steps[WA_STEPS],
                                      bool is_given, bool copies)
{
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
        assert_int_equal(steps[i].groups == 0, idle);
    }
}

static size_t given_launched; /* calls that were given both */

/* Gradients take what is known of rows from o and lse where both are given and
 * there is a step for that, and else find it. Rows that do not start at 16
 * bytes are no boxes of tensor maps. */
static void launch_gradients(const wa_problem *p, const wa_plan *plan)
{
    static const wa_tensor_id absent[] = {WA_Q, WA_O, WA_LSE}; /* Q: neither */
    static fake_kernel steps[WA_STEPS];
    for (size_t i = 0; i < 2 * sizeof absent / sizeof *absent; i++) {
        wa_buffers buffers = all_buffers(p);
        const bool is_given = i / 2 == 0 && plan->step[WA_STEP_GIVEN].kernel;
        const bool starts_odd = i % 2;
        if (i / 2 > 0)
            buffers.tensor[absent[i / 2]].buffer = NULL;
        if (starts_odd)
            buffers.tensor[WA_Q].offset = p->tensor[WA_Q].element_size;
        launch_with(&buffers, p, plan, steps);
        assert_int_equal(is_given, steps[WA_STEP_GIVEN].groups > 0);
        given_launched += is_given;
        assert_gradients_launched(plan, steps, is_given, starts_odd);
    }
}

/* ---- A device of one compute unit ---- */

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
    static fake_kernel steps[WA_STEPS];
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
            const wa_problem p = both_of(problems[i]);
            wa_device device = devices[d];
            wa_plan plan;
            const wa_schedule *s = &plan.schedule;
            device.compute_units = 1;
            if (wa_plan_make(&p, &device, WA_FORWARD, &none, &plan) ==
                WINATTN_SUCCESS) {
                launch(&p, &plan, steps);
                const uint64_t groups = steps[WA_STEP_FORWARD].groups;
                assert_true(groups > 0);
                assert_true(s->groups != 0 || groups == s->sharing_groups ||
                            groups * s->work_tiles_per_group >=
                                p.windows * p.heads * s->row_blocks);
            }
            if (wa_plan_make(&p, &device, WA_BACKWARD, &none, &plan) ==
                WINATTN_SUCCESS)
                launch_gradients(&p, &plan);
        }
    assert_true(given_launched > 0);
}

/* ---- Where memory starts ---- */

/* Vectors are accessed where tensors start on multiples of them: that is asked
 * of the caller's own memory, and of parts of buffers. */
static void memory_may_start_anywhere(void **state)
{
    (void)state;
    static fake_kernel steps[WA_STEPS];
    static const struct {
        fake_memory k;
        bool is_wide;
        winattn_status status;
    } rows[] = {
        {{CL_MEM_READ_WRITE, 0, 0}, true, WINATTN_SUCCESS},
        /* some drivers say where their own memory is: on a line of it */
        {{CL_MEM_READ_WRITE, 0, 4}, true, WINATTN_SUCCESS},
        {{CL_MEM_READ_WRITE, 256, 0}, true, WINATTN_SUCCESS},
        {{CL_MEM_READ_WRITE, 8, 0}, false, WINATTN_SUCCESS},
        {{CL_MEM_USE_HOST_PTR, 0, 4096}, true, WINATTN_SUCCESS},
        {{CL_MEM_USE_HOST_PTR, 0, 4104}, false, WINATTN_SUCCESS},
        {{CL_MEM_USE_HOST_PTR, 128, 4228}, false, WINATTN_SUCCESS},
        {{CL_MEM_USE_HOST_PTR, 0, 4098}, false, WINATTN_INVALID_LAYOUT},
    };
    const wa_problem p = both_of("dim=32");
    const wa_device *device = device_named("A100");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (wa_pass pass = WA_FORWARD; pass < WA_PASSES; pass++) {
            wa_plan plan;
            forward_args args; /* backward_args start with them */
            wa_buffers buffers = all_buffers(&p);
            fake_memory k = rows[i].k;
            buffers.tensor[WA_K].buffer = (cl_mem)&k;
            assert_int_equal(wa_plan_make(&p, device, pass, &none, &plan),
                             WINATTN_SUCCESS);
            assert_status(wa_check_buffers(&p, pass, plan.workspace.all, NULL,
                                           &buffers, 0),
                          rows[i].status, rows[i].status ? "of k starts" : "");
            if (rows[i].status != WINATTN_SUCCESS)
                continue;
            launch_with(&buffers, &p, &plan, steps);
            memcpy(&args, steps[wa_main_step(pass)].arguments, sizeof args);
            assert_int_equal((args.flags & ARG_WIDE_ACCESS) != 0,
                             rows[i].is_wide);
        }
}

/* ---- A table of many entries ---- */

/* Entries of all heads are more than 2^32: every one has a work-group, in
 * launches of fewer than 2^31 work-items. */
static void many_entries(void **state)
{
    (void)state;
    static fake_kernel steps[WA_STEPS];
    const cl_int index[1] = {0};
    const wa_device *device = device_named("H200");
    wa_plan plan;
    wa_problem p;
    const cl_ulong entries = 65537;
    /* head after head, as contiguous tables span fewer than 2^31 elements */
    const winattn_strides strides = {.row = 1, .head = entries};
    const winattn_desc d = {
        .struct_size = sizeof d,
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
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(wa_plan_make(&p, device, WA_BACKWARD, &none, &plan),
                     WINATTN_SUCCESS);
    launch(&p, &plan, steps);
    assert_true(steps[WA_STEP_SUM_TABLE].next == 65536ull * 65537);
}

/* ---- Numbers of 32 bits ---- */

/* What kernels could not number is refused. */
static void too_many_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *device, *problem, *reason; /* NULL: none */
    } rows[] = {
        {"PoCL", "heads=32768 queries=1 keys=33554432 dim=1",
         "blocks of keys"},
        {"A100", "dtype=fp16 heads=65536 queries=16777216 keys=1",
         "blocks of queries"},
        {"PoCL", "heads=65536 queries=1 keys=1048576 dim=1 bias=fp32",
         "of a bias"},
        {"PoCL", "heads=32768 queries=1 keys=1048576 dim=1 bias=fp32", NULL},
        {"PoCL", "heads=65536 kv_heads=1 queries=1 keys=16777216 dim=1", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wa_problem p = both_of(rows[i].problem);
        wa_plan plan;
        const winattn_status status = wa_plan_make(
            &p, device_named(rows[i].device), WA_BACKWARD, &none, &plan);
        if (status != (rows[i].reason ? WINATTN_UNSUPPORTED_PROBLEM
                                      : WINATTN_SUCCESS) ||
            (rows[i].reason && !strstr(winattn_last_reason(), rows[i].reason)))
            fail_msg("%s: %s", rows[i].problem, winattn_last_reason());
        wa_forget_failure();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_blocks),
        cmocka_unit_test(one_compute_unit),
        cmocka_unit_test(memory_may_start_anywhere),
        cmocka_unit_test(many_entries),
    };
    find_units();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
