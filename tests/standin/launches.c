/* SPDX-License-Identifier: Apache-2.0
 * Kernels, their arguments and launches; each launch is compared with what the
 * kernel declares and the device can do. */
#include "internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../cl/common/args.h"

/* ---- Kernels ---- */

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error)
{
    MAY_FAIL_WITH(CL_OUT_OF_HOST_MEMORY, error);
    if (!object_is(program, OBJECT_PROGRAM, __func__))
        return fail_with(CL_INVALID_PROGRAM, error);
    if (!program->is_built)
        return fail_with(CL_INVALID_PROGRAM_EXECUTABLE, error);
    const kernel_facts *facts = kernels_find(&program->kernels, name);
    if (!facts)
        return fail_with(CL_INVALID_KERNEL_NAME, error);
    cl_kernel made =
        object_new(OBJECT_KERNEL, sizeof *made, program->head.context);
    object_retain(program);
    made->program = program;
    made->facts = facts;
    return succeed_with(made, error);
}

cl_int clGetKernelInfo(cl_kernel kernel, cl_kernel_info what, size_t size,
                       void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(kernel, OBJECT_KERNEL, __func__))
        return CL_INVALID_KERNEL;
    if (what == CL_KERNEL_PROGRAM)
        return ANSWER(kernel->program);
    if (what == CL_KERNEL_FUNCTION_NAME)
        return answer_text(kernel->facts->name, size, value, needed);
    return CL_INVALID_VALUE;
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                cl_kernel_work_group_info what, size_t size,
                                void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(kernel, OBJECT_KERNEL, __func__))
        return CL_INVALID_KERNEL;
    if (!device || !context_has(kernel->head.context, device))
        return CL_INVALID_DEVICE;
    const size_t most = device->device.max_work_group;
    const size_t told = standin_drivers.kernel_work_group;
    const size_t work_group = told != 0 && told < most ? told : most;
    const cl_ulong local = kernel->facts->local_bytes;
    switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
        return ANSWER(work_group);
    case CL_KERNEL_PRIVATE_MEM_SIZE:
        return ANSWER(standin_drivers.private_bytes);
    case CL_KERNEL_LOCAL_MEM_SIZE:
        return ANSWER(local);
    default:
        return CL_INVALID_VALUE;
    }
}

/* ---- Arguments ---- */

/* Of a buffer: what a kernel is given is a handle, or NULL. */
static cl_int set_buffer(argument *to, const void *value)
{
    to->buffer = NULL;
    if (!value)
        return CL_SUCCESS;
    memcpy(&to->buffer, value, sizeof to->buffer);
    if (!to->buffer || object_is(to->buffer, OBJECT_BUFFER, "clSetKernelArg"))
        return CL_SUCCESS;
    return CL_INVALID_MEM_OBJECT;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                      const void *value)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(kernel, OBJECT_KERNEL, __func__))
        return CL_INVALID_KERNEL;
    const kernel_facts *facts = kernel->facts;
    if (index >= facts->parameter_count) {
        wrong("%s has %u parameters: there is no argument %u (%s)",
              facts->name, facts->parameter_count, index,
              kernel->program->options);
        return CL_INVALID_ARG_INDEX;
    }
    const kernel_parameter *parameter = &facts->parameters[index];
    if (size != parameter->size) {
        wrong("%s: argument %u has %zu bytes, not %zu (%s)", facts->name,
              index, size, parameter->size, kernel->program->options);
        return CL_INVALID_ARG_SIZE;
    }
    argument *to = &kernel->arguments[index];
    if (standin_drivers.yields)
        sched_yield();
    to->is_set = true;
    to->size = size;
    if (parameter->is_buffer)
        return set_buffer(to, value);
    if (!value) {
        wrong("%s: argument %u is NULL", facts->name, index);
        return CL_INVALID_ARG_VALUE;
    }
    free(to->bytes);
    to->bytes = own_copy(value, size);
    return CL_SUCCESS;
}

static cl_int check_arguments(cl_kernel kernel, const wa_device *device)
{
    const kernel_facts *facts = kernel->facts;
    size_t bytes = 0;
    for (cl_uint i = 0; i < facts->parameter_count; i++) {
        const argument *is = &kernel->arguments[i];
        if (!is->is_set) {
            wrong("%s: argument %u was not set (%s)", facts->name, i,
                  kernel->program->options);
            return CL_INVALID_KERNEL_ARGS;
        }
        if (is->buffer && !object_is(is->buffer, OBJECT_BUFFER, facts->name))
            return CL_INVALID_MEM_OBJECT;
        if (is->buffer && is->buffer->head.context != kernel->head.context) {
            wrong("%s: argument %u is of another context", facts->name, i);
            return CL_INVALID_MEM_OBJECT;
        }
        bytes += is->size;
    }
    if (bytes > device->max_parameter_bytes) {
        wrong("%s: %zu bytes of arguments, the device takes %u", facts->name,
              bytes, device->max_parameter_bytes);
        return CL_INVALID_ARG_SIZE;
    }
    return CL_SUCCESS;
}

/* Kernels of sliding gradients write numbers of rows and bounds of their
 * blocks to the workspace, whatever the caller wants: both must be inside. */
static cl_int check_workspace(cl_kernel kernel)
{
    const kernel_facts *facts = kernel->facts;
    backward_args args;
    if (strncmp(facts->name, "sliding_rows_", 13) != 0 &&
        strncmp(facts->name, "sliding_keys_", 13) != 0)
        return CL_SUCCESS;
    memcpy(&args, kernel->arguments[0].bytes, sizeof args);
    const forward_args *forward = &args.forward;
    const cl_mem workspace =
        kernel->arguments[facts->parameter_count - 1].buffer;
    const uint64_t heads = forward->windows * forward->heads;
    const uint64_t rows = heads * forward->queries * ROW_NUMBERS;
    const uint64_t blocks = heads * args.bound_blocks * ROW_NUMBERS;
    if (workspace && args.workspace + rows <= args.bounds &&
        (args.bounds + blocks) * 4 <= workspace->size)
        return CL_SUCCESS;
    wrong("%s: its numbers are not in the workspace", facts->name);
    return CL_INVALID_KERNEL_ARGS;
}

/* ---- Launches ---- */

static cl_int check_sizes(cl_kernel kernel, const wa_device *device,
                          size_t global, size_t local)
{
    const kernel_facts *facts = kernel->facts;
    const char *what = NULL;
    if (global == 0 || local == 0)
        what = "nothing is launched";
    else if (global % local != 0)
        what = "the work-items are no multiple of the work-group";
    else if (local > device->max_work_group)
        what = "the device has no such work-groups";
    else if (facts->work_group != 0 && local != facts->work_group)
        what = "the kernel demands another work-group";
    else if (facts->local_bytes > device->local_bytes)
        what = "the device has less local memory";
    else if (device->address_bits == 32 && global > UINT32_MAX)
        what = "the device counts to 2^32";
    if (!what)
        return CL_SUCCESS;
    wrong("%s on %s: %zu work-items in groups of %zu (kernel: %zu), %zu local "
          "bytes: %s (%s)",
          facts->name, device->name, global, local, facts->work_group,
          facts->local_bytes, what, kernel->program->options);
    return CL_INVALID_WORK_GROUP_SIZE;
}

static void record(cl_command_queue queue, cl_kernel kernel, size_t offset,
                   size_t global, size_t local, cl_uint wait_count,
                   const cl_event *waits, cl_event event)
{
    standin_launch launch = {.kernel = kernel->facts->name,
                             .options = kernel->program->options,
                             .queue = queue,
                             .offset = offset,
                             .global = global,
                             .local = local,
                             .local_bytes = kernel->facts->local_bytes,
                             .wait_count = wait_count,
                             .event = event,
                             .argument_count = kernel->facts->parameter_count};
    for (cl_uint i = 0; i < wait_count && i < STANDIN_MOST_WAITS; i++)
        launch.waits[i] = waits[i];
    for (cl_uint i = 0; i < launch.argument_count; i++) {
        launch.arguments[i].size = kernel->arguments[i].size;
        launch.arguments[i].buffer = kernel->arguments[i].buffer;
        launch.arguments[i].bytes = kernel->arguments[i].bytes;
    }
    record_launch(&launch);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                              cl_uint dimensions, const size_t *offset,
                              const size_t *global, const size_t *local,
                              cl_uint wait_count, const cl_event *wait_list,
                              cl_event *event)
{
    MAY_FAIL(CL_OUT_OF_RESOURCES);
    if (!object_is(queue, OBJECT_QUEUE, __func__))
        return CL_INVALID_COMMAND_QUEUE;
    if (!object_is(kernel, OBJECT_KERNEL, __func__))
        return CL_INVALID_KERNEL;
    if (queue->head.context != kernel->head.context) {
        wrong("%s: queue and kernel are of different contexts", __func__);
        return CL_INVALID_CONTEXT;
    }
    if (dimensions != 1 || !global || !local) {
        wrong("%s: %u dimensions, or no sizes", __func__, dimensions);
        return CL_INVALID_WORK_DIMENSION;
    }
    const wa_device *device = &queue->device->device;
    cl_int error = check_sizes(kernel, device, *global, *local);
    if (error == CL_SUCCESS)
        error = check_arguments(kernel, device);
    if (error == CL_SUCCESS)
        error = check_workspace(kernel);
    if (error == CL_SUCCESS &&
        !waits_are_good(wait_count, wait_list, __func__))
        error = CL_INVALID_EVENT_WAIT_LIST;
    if (error == CL_SUCCESS && standin_drivers.most_launches != 0 &&
        standin_launches(NULL) >= standin_drivers.most_launches)
        error = CL_OUT_OF_RESOURCES;
    if (error != CL_SUCCESS)
        return error;
    const cl_event done = event ? standin_event(queue->head.context) : NULL;
    if (event)
        *event = done;
    record(queue, kernel, offset ? *offset : 0, *global, *local, wait_count,
           wait_list, done);
    compute(kernel, device);
    return CL_SUCCESS;
}
