/* SPDX-License-Identifier: Apache-2.0
 * Launches, without a device: the few functions of OpenCL that they call stand
 * here and write down what is enqueued. Each launch has work, and together
 * they have all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/devices.h"
#include "launch_backward.h"
#include "status.h"

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

/* Of a queue in order. */
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

/* ---- Plans ---- */

/* Every tensor is there: nobody looks into what stands for its buffer. */
static wa_buffers all_buffers(const wa_problem *p)
{
    static char memory;
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

/* Launches the backward pass: what was enqueued of each part. */
static void launch_backward(const wa_problem *p, const wa_backward_plan *plan,
                            fake_kernel parts[WA_BACKWARD_PARTS])
{
    static char queue;
    const wa_buffers buffers = all_buffers(p);
    wa_backward_kernels kernels;
    memset(parts, 0, WA_BACKWARD_PARTS * sizeof *parts);
    parts[WA_BACKWARD_SUM_TABLE].sums_table = true;
    for (int i = 0; i < WA_BACKWARD_PARTS; i++)
        kernels.part[i] = plan->kernels[i].name ? (cl_kernel)&parts[i] : NULL;
    assert_int_equal(wa_launch_backward(p, plan, &kernels,
                                        (cl_command_queue)&queue, &buffers, 0,
                                        0, NULL, NULL),
                     WINATTN_SUCCESS);
}

/* ---- A table of many entries ---- */

/* Entries of all heads are more than 2^32: every one has a work-group, in
 * launches of fewer than 2^31 work-items. */
static void many_entries(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static fake_kernel parts[WA_BACKWARD_PARTS];
    const cl_int index[1] = {0};
    wa_device device = *made_up_device("H200");
    wa_backward_plan plan;
    wa_problem p;
    winattn_desc d;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.windows = d.queries = d.keys = d.head_dim = 1;
    d.heads = 65536;
    d.bias = WINATTN_BIAS_TABLE;
    d.table.entries = 65537;
    d.table.index = index;
    /* head after head, as contiguous tables span fewer than 2^31 elements */
    d.bias_strides.row = d.dbias_strides.row = 1;
    d.bias_strides.head = d.dbias_strides.head = d.table.entries;
    d.passes = WINATTN_PASS_BACKWARD;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(wa_backward_plan_make(&p, &device, &none, &plan),
                     WINATTN_SUCCESS);
    launch_backward(&p, &plan, parts);
    assert_true(parts[WA_BACKWARD_SUM_TABLE].next == 65536ull * 65537);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
