/* SPDX-License-Identifier: Apache-2.0
 * Contexts, queues and what all objects have in common. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

/* ---- Life and death ---- */

void *object_new(object_type type, size_t size, cl_context context)
{
    object *made = calloc(1, size);
    if (!made)
        return NULL;
    made->dispatch = &driver_dispatch;
    made->type = type;
    made->context = context;
    atomic_init(&made->references, 1);
    if (context)
        object_retain(context);
    return made;
}

bool object_is(const void *any, object_type type)
{
    const object *is = any;
    return is && is->dispatch == &driver_dispatch && is->type == type;
}

void object_retain(void *any)
{
    atomic_fetch_add(&((object *)any)->references, 1);
}

void object_release(void *any)
{
    object *one = any;
    if (!one || atomic_fetch_sub(&one->references, 1) != 1)
        return;
    switch (one->type) {
    case OBJECT_BUFFER:
        buffer_free((cl_mem)any);
        break;
    case OBJECT_PROGRAM:
        program_free((cl_program)any);
        break;
    case OBJECT_KERNEL:
        kernel_free((cl_kernel)any);
        break;
    case OBJECT_EVENT:
        object_release(((cl_event)any)->queue);
        break;
    default:
        break;
    }
    const cl_context context = one->context;
    one->dispatch = NULL;
    free(one);
    object_release(context);
}

#define RETAIN_AND_RELEASE(name, handle, type, invalid)                       \
    cl_int clRetain##name(handle one)                                         \
    {                                                                         \
        if (!object_is(one, type))                                            \
            return invalid;                                                   \
        object_retain(one);                                                   \
        return CL_SUCCESS;                                                    \
    }                                                                         \
    cl_int clRelease##name(handle one)                                        \
    {                                                                         \
        if (!object_is(one, type))                                            \
            return invalid;                                                   \
        object_release(one);                                                  \
        return CL_SUCCESS;                                                    \
    }
RETAIN_AND_RELEASE(Context, cl_context, OBJECT_CONTEXT, CL_INVALID_CONTEXT)
RETAIN_AND_RELEASE(CommandQueue, cl_command_queue, OBJECT_QUEUE,
                   CL_INVALID_COMMAND_QUEUE)
RETAIN_AND_RELEASE(MemObject, cl_mem, OBJECT_BUFFER, CL_INVALID_MEM_OBJECT)
RETAIN_AND_RELEASE(Program, cl_program, OBJECT_PROGRAM, CL_INVALID_PROGRAM)
RETAIN_AND_RELEASE(Kernel, cl_kernel, OBJECT_KERNEL, CL_INVALID_KERNEL)
RETAIN_AND_RELEASE(Event, cl_event, OBJECT_EVENT, CL_INVALID_EVENT)

/* ---- Contexts ---- */

cl_context clCreateContext(const cl_context_properties *properties,
                           cl_uint count, const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *,
                                                     const void *, size_t,
                                                     void *),
                           void *data, cl_int *error)
{
    if (count == 0 || !devices || (!notify && data))
        return fail_with(CL_INVALID_VALUE, error);
    const bool is_platform_alone =
        properties && properties[0] == CL_CONTEXT_PLATFORM &&
        properties[1] == (cl_context_properties)&driver_platform &&
        properties[2] == 0;
    if (properties && !is_platform_alone)
        return fail_with(CL_INVALID_PROPERTY, error);
    for (cl_uint i = 0; i < count; i++)
        if (!device_is(devices[i]))
            return fail_with(CL_INVALID_DEVICE, error);
    /* no program and no buffer is of several */
    for (cl_uint i = 1; i < count; i++)
        if (devices[i] != devices[0])
            return fail_with(CL_DEVICE_NOT_AVAILABLE, error);
    cl_context made = object_new(OBJECT_CONTEXT, sizeof *made, NULL);
    if (!made)
        return fail_with(CL_OUT_OF_HOST_MEMORY, error);
    made->device = devices[0];
    return succeed_with(made, error);
}

cl_int clGetContextInfo(cl_context context, cl_context_info what, size_t size,
                        void *value, size_t *needed)
{
    if (!object_is(context, OBJECT_CONTEXT))
        return CL_INVALID_CONTEXT;
    switch (what) {
    case CL_CONTEXT_DEVICES:
        return ANSWER(context->device);
    default:
        return CL_INVALID_VALUE;
    }
}

/* ---- Queues ---- */

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties,
                                      cl_int *error)
{
    const cl_command_queue_properties known =
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    if (!object_is(context, OBJECT_CONTEXT))
        return fail_with(CL_INVALID_CONTEXT, error);
    if (device != context->device)
        return fail_with(CL_INVALID_DEVICE, error);
    if (properties & ~known)
        return fail_with(CL_INVALID_VALUE, error);
    cl_command_queue made = object_new(OBJECT_QUEUE, sizeof *made, context);
    if (!made)
        return fail_with(CL_OUT_OF_HOST_MEMORY, error);
    made->properties = properties;
    return succeed_with(made, error);
}

cl_int clGetCommandQueueInfo(cl_command_queue queue,
                             cl_command_queue_info what, size_t size,
                             void *value, size_t *needed)
{
    if (!object_is(queue, OBJECT_QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    switch (what) {
    case CL_QUEUE_CONTEXT:
        return ANSWER(queue->head.context);
    case CL_QUEUE_DEVICE:
        return ANSWER(queue->head.context->device);
    case CL_QUEUE_PROPERTIES:
        return ANSWER(queue->properties);
    default:
        return CL_INVALID_VALUE;
    }
}
