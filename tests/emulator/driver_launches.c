/* SPDX-License-Identifier: Apache-2.0
 * Kernels, their arguments and launches. */
#include "driver.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of a work-group whose size nobody says. */
#define USUAL_ITEMS 256u
#define MOST_GROUPS ((size_t)INT32_MAX)

/* ---- Kernels ---- */

void kernel_free(cl_kernel gone)
{
    free(gone->parameters);
    free(gone->buffers);
    free(gone->is_set);
    if (gone->program)
        atomic_fetch_sub(&gone->program->kernels, 1);
    object_release(gone->program);
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error)
{
    if (!object_is(program, OBJECT_PROGRAM))
        return fail_with(CL_INVALID_PROGRAM, error);
    if (!name)
        return fail_with(CL_INVALID_VALUE, error);
    if (program->status != CL_BUILD_SUCCESS)
        return fail_with(CL_INVALID_PROGRAM_EXECUTABLE, error);
    const ptx_kernel *code = emulated_kernel(program->module, name);
    if (!code)
        return fail_with(CL_INVALID_KERNEL_NAME, error);
    cl_kernel made =
        object_new(OBJECT_KERNEL, sizeof *made, program->head.context);
    if (!made)
        return fail_with(CL_OUT_OF_HOST_MEMORY, error);
    const size_t count = code->parameter_count;
    made->code = code;
    made->program = program;
    object_retain(program);
    atomic_fetch_add(&program->kernels, 1);
    made->parameters = calloc(code->parameter_bytes + 1, 1);
    made->buffers = calloc(count + 1, sizeof *made->buffers);
    made->is_set = calloc(count + 1, sizeof *made->is_set);
    if (made->parameters && made->buffers && made->is_set)
        return succeed_with(made, error);
    object_release(made);
    return fail_with(CL_OUT_OF_HOST_MEMORY, error);
}

cl_int clGetKernelInfo(cl_kernel kernel, cl_kernel_info what, size_t size,
                       void *value, size_t *needed)
{
    if (!object_is(kernel, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    const cl_uint references = (cl_uint)atomic_load(&kernel->head.references);
    switch (what) {
    case CL_KERNEL_FUNCTION_NAME:
        return answer_text(kernel->code->name, size, value, needed);
    case CL_KERNEL_REFERENCE_COUNT:
        return ANSWER(references);
    case CL_KERNEL_PROGRAM:
        return ANSWER(kernel->program);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                cl_kernel_work_group_info what, size_t size,
                                void *value, size_t *needed)
{
    if (!object_is(kernel, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    const cl_device_id its = kernel->head.context->device;
    if (device && device != its)
        return CL_INVALID_DEVICE;
    const ptx_kernel *code = kernel->code;
    const size_t demanded = code->required_items;
    const size_t most = demanded ? demanded : its->is->max_work_group;
    const cl_ulong local_bytes = code->shared_bytes;
    const cl_ulong private_bytes = code->private_bytes;
    switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
        return ANSWER(most);
    case CL_KERNEL_LOCAL_MEM_SIZE:
        return ANSWER(local_bytes);
    case CL_KERNEL_PRIVATE_MEM_SIZE:
        return ANSWER(private_bytes);
    default:
        return CL_INVALID_VALUE;
    }
}

/* ---- Arguments ---- */

static cl_int set_buffer(cl_kernel kernel, cl_uint index, size_t size,
                         const void *value)
{
    cl_mem buffer = NULL;
    if (size != sizeof buffer)
        return CL_INVALID_ARG_SIZE;
    if (value)
        memcpy(&buffer, value, sizeof buffer);
    if (buffer && (!object_is(buffer, OBJECT_BUFFER) ||
                   buffer->head.context != kernel->head.context))
        return CL_INVALID_MEM_OBJECT;
    kernel->buffers[index] = buffer;
    return CL_SUCCESS;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                      const void *value)
{
    cl_int error = CL_SUCCESS;
    if (!object_is(kernel, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    if (index >= kernel->code->parameter_count)
        return CL_INVALID_ARG_INDEX;
    const ptx_parameter *parameter = &kernel->code->parameters[index];
    if (parameter->is_pointer)
        error = set_buffer(kernel, index, size, value);
    else if (size != parameter->size)
        error = CL_INVALID_ARG_SIZE;
    else if (!value)
        error = CL_INVALID_ARG_VALUE;
    else
        memcpy(kernel->parameters + parameter->offset, value, size);
    kernel->is_set[index] |= error == CL_SUCCESS;
    return error;
}

/* ---- Launches ---- */

/* With arguments as they are when it is enqueued. */
typedef struct kernel_launch {
    command head;
    cl_kernel kernel; /* retained, as its buffers are */
    unsigned char *parameters;
    ptx_range *ranges;
    cl_mem *buffers;
    size_t range_count, groups, items;
} kernel_launch;

static cl_int run_launch(command *self)
{
    const kernel_launch *one = (const kernel_launch *)self;
    const cl_device_id device = one->kernel->head.context->device;
    char reason[EMULATED_REASON];
    const ptx_launch launch = {.parameters = one->parameters,
                               .groups = one->groups,
                               .items = one->items,
                               .wave_lanes = device->is->wave,
                               .ranges = one->ranges,
                               .range_count = one->range_count};
    return emulated_launch(device->name, one->kernel->code, launch, reason)
               ? CL_COMPLETE
               : CL_OUT_OF_RESOURCES;
}

static void forget_launch(command *self)
{
    kernel_launch *one = (kernel_launch *)self;
    for (size_t i = 0; i < one->range_count; i++)
        object_release(one->buffers[i]);
    object_release(one->kernel);
    free(one->parameters);
    free(one->ranges);
    free(one->buffers);
}

/* Copies arguments, with addresses in place of buffers. */
static bool take_arguments(kernel_launch *one, cl_kernel kernel)
{
    const ptx_kernel *code = kernel->code;
    const size_t count = code->parameter_count;
    one->kernel = kernel;
    object_retain(kernel);
    one->parameters = malloc(code->parameter_bytes + 1);
    one->ranges = calloc(count + 1, sizeof *one->ranges);
    one->buffers = calloc(count + 1, sizeof *one->buffers);
    if (!one->parameters || !one->ranges || !one->buffers)
        return false;
    memcpy(one->parameters, kernel->parameters, code->parameter_bytes);
    for (size_t i = 0; i < count; i++) {
        const cl_mem buffer = kernel->buffers[i];
        const uint64_t address = buffer ? (uintptr_t)buffer->bytes : 0;
        if (!code->parameters[i].is_pointer)
            continue;
        memcpy(one->parameters + code->parameters[i].offset, &address,
               sizeof address);
        if (!buffer)
            continue;
        object_retain(buffer);
        one->buffers[one->range_count] = buffer;
        one->ranges[one->range_count++] =
            (ptx_range){buffer->bytes, buffer->size};
    }
    return true;
}

/* The largest that divides all of them, and is not more than the usual. */
static size_t chosen_items(size_t global)
{
    size_t items = USUAL_ITEMS;
    while (global % items != 0)
        items--;
    return items;
}

static cl_int check_sizes(cl_kernel kernel, size_t offset, size_t global,
                          const size_t *local)
{
    const ptx_kernel *code = kernel->code;
    if (global == 0)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    if (offset != 0)
        return CL_INVALID_GLOBAL_OFFSET;
    const size_t items = local ? *local : chosen_items(global);
    if (items == 0 ||
        items > kernel->head.context->device->is->max_work_group ||
        global % items != 0 ||
        (code->required_items != 0 &&
         (!local || items != code->required_items)))
        return CL_INVALID_WORK_GROUP_SIZE;
    if (global / items > MOST_GROUPS)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    return CL_SUCCESS;
}

static cl_int check_launch(cl_command_queue queue, cl_kernel kernel,
                           cl_uint dimensions, const size_t *offset,
                           const size_t *global, const size_t *local)
{
    if (!object_is(kernel, OBJECT_KERNEL))
        return CL_INVALID_KERNEL;
    if (kernel->head.context != queue->head.context)
        return CL_INVALID_CONTEXT;
    for (size_t i = 0; i < kernel->code->parameter_count; i++)
        if (!kernel->is_set[i])
            return CL_INVALID_KERNEL_ARGS;
    if (dimensions != 1)
        return CL_INVALID_WORK_DIMENSION;
    if (!global)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    return check_sizes(kernel, offset ? *offset : 0, *global, local);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                              cl_uint dimensions, const size_t *offset,
                              const size_t *global, const size_t *local,
                              cl_uint wait_count, const cl_event *waits,
                              cl_event *event)
{
    cl_int error = command_check(queue, wait_count, waits);
    if (error == CL_SUCCESS)
        error = check_launch(queue, kernel, dimensions, offset, global, local);
    if (error != CL_SUCCESS)
        return error;
    kernel_launch *one = command_new(sizeof *one, queue, wait_count, waits);
    if (!one)
        return CL_OUT_OF_HOST_MEMORY;
    one->head.run = run_launch;
    one->head.forget = forget_launch;
    one->items = local ? *local : chosen_items(*global);
    one->groups = *global / one->items;
    if (!take_arguments(one, kernel)) {
        command_drop(&one->head);
        return CL_OUT_OF_HOST_MEMORY;
    }
    return command_enqueue(&one->head, false, event);
}
