/* SPDX-License-Identifier: Apache-2.0
 * Buffers, and commands that bring bytes to them and from them. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static atomic_ullong allocated;

/* ---- Buffers ---- */

void buffer_free(cl_mem gone)
{
    if (!gone->host)
        free(gone->bytes);
    atomic_fetch_sub(&allocated, gone->size);
}

static bool allocate(cl_mem buffer)
{
    buffer->bytes =
        buffer->host ? buffer->host : emulated_memory(buffer->size);
    return buffer->bytes != NULL;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                      void *host, cl_int *error)
{
    const cl_mem_flags uses = CL_MEM_USE_HOST_PTR;
    const cl_mem_flags takes = uses | CL_MEM_COPY_HOST_PTR;
    if (!object_is(context, OBJECT_CONTEXT))
        return fail_with(CL_INVALID_CONTEXT, error);
    if ((flags & takes) == takes)
        return fail_with(CL_INVALID_VALUE, error);
    if (size == 0 || size > MEMORY_BYTES / 4)
        return fail_with(CL_INVALID_BUFFER_SIZE, error);
    if (((flags & takes) != 0) != (host != NULL))
        return fail_with(CL_INVALID_HOST_PTR, error);
    cl_mem made = object_new(OBJECT_BUFFER, sizeof *made, context);
    if (!made)
        return fail_with(CL_OUT_OF_HOST_MEMORY, error);
    made->flags = flags;
    made->size = size;
    made->host = flags & uses ? host : NULL;
    if (atomic_fetch_add(&allocated, size) + size > MEMORY_BYTES ||
        !allocate(made)) {
        object_release(made);
        return fail_with(CL_MEM_OBJECT_ALLOCATION_FAILURE, error);
    }
    if (flags & CL_MEM_COPY_HOST_PTR)
        memcpy(made->bytes, host, size);
    return succeed_with(made, error);
}

cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info what, size_t size,
                          void *value, size_t *needed)
{
    const cl_mem_object_type type = CL_MEM_OBJECT_BUFFER;
    const size_t offset = 0; /* there are no buffers of a buffer */
    if (!object_is(memory, OBJECT_BUFFER))
        return CL_INVALID_MEM_OBJECT;
    switch (what) {
    case CL_MEM_TYPE:
        return ANSWER(type);
    case CL_MEM_FLAGS:
        return ANSWER(memory->flags);
    case CL_MEM_SIZE:
        return ANSWER(memory->size);
    case CL_MEM_HOST_PTR:
        return ANSWER(memory->host);
    case CL_MEM_OFFSET:
        return ANSWER(offset);
    case CL_MEM_CONTEXT:
        return ANSWER(memory->head.context);
    default:
        return CL_INVALID_VALUE;
    }
}

/* ---- Commands ---- */

/* `count` bytes to be written, from elsewhere or again and again a pattern. */
typedef struct transfer {
    command head;
    cl_mem buffers[2]; /* retained; NULL: none */
    unsigned char *to;
    const unsigned char *from; /* NULL: the pattern */
    size_t count, pattern_size;
    unsigned char pattern[128];
} transfer;

static cl_int run_transfer(command *self)
{
    const transfer *t = (const transfer *)self;
    if (t->from && t->count > 0)
        memmove(t->to, t->from, t->count);
    for (size_t at = 0; !t->from && at < t->count; at += t->pattern_size)
        memcpy(t->to + at, t->pattern, t->pattern_size);
    return CL_COMPLETE;
}

static void forget_transfer(command *self)
{
    const transfer *t = (const transfer *)self;
    object_release(t->buffers[0]);
    object_release(t->buffers[1]);
}

/* Bytes that go from `buffer` or to it, and perhaps another one. */
static cl_int enqueue(cl_command_queue queue, transfer what, bool blocking,
                      cl_uint wait_count, const cl_event *waits,
                      cl_event *event)
{
    transfer *made = command_new(sizeof *made, queue, wait_count, waits);
    if (!made)
        return CL_OUT_OF_HOST_MEMORY;
    what.head = made->head;
    what.head.forget = forget_transfer;
    what.head.run = run_transfer;
    *made = what;
    for (int i = 0; i < 2; i++)
        if (made->buffers[i])
            object_retain(made->buffers[i]);
    return command_enqueue(&made->head, blocking, event);
}

static cl_int check(cl_command_queue queue, cl_mem buffer, size_t offset,
                    size_t count, cl_uint wait_count, const cl_event *waits)
{
    const cl_int error = command_check(queue, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    if (!object_is(buffer, OBJECT_BUFFER))
        return CL_INVALID_MEM_OBJECT;
    if (buffer->head.context != queue->head.context)
        return CL_INVALID_CONTEXT;
    if (offset > buffer->size || count > buffer->size - offset)
        return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer,
                           cl_bool blocking, size_t offset, size_t count,
                           void *to, cl_uint wait_count, const cl_event *waits,
                           cl_event *event)
{
    const cl_int error =
        check(queue, buffer, offset, count, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    if (!to)
        return CL_INVALID_VALUE;
    return enqueue(queue,
                   (transfer){.buffers = {buffer},
                              .from = buffer->bytes + offset,
                              .to = to,
                              .count = count},
                   blocking != CL_FALSE, wait_count, waits, event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer,
                            cl_bool blocking, size_t offset, size_t count,
                            const void *from, cl_uint wait_count,
                            const cl_event *waits, cl_event *event)
{
    const cl_int error =
        check(queue, buffer, offset, count, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    if (!from)
        return CL_INVALID_VALUE;
    return enqueue(queue,
                   (transfer){.buffers = {buffer},
                              .from = from,
                              .to = buffer->bytes + offset,
                              .count = count},
                   blocking != CL_FALSE, wait_count, waits, event);
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to,
                           size_t from_offset, size_t to_offset, size_t count,
                           cl_uint wait_count, const cl_event *waits,
                           cl_event *event)
{
    cl_int error = check(queue, from, from_offset, count, wait_count, waits);
    if (error == CL_SUCCESS)
        error = check(queue, to, to_offset, count, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    const unsigned char *start = from->bytes + from_offset;
    unsigned char *end = to->bytes + to_offset;
    if (count == 0)
        return CL_INVALID_VALUE;
    if (start < end + count && end < start + count)
        return CL_MEM_COPY_OVERLAP;
    return enqueue(
        queue,
        (transfer){
            .buffers = {from, to}, .from = start, .to = end, .count = count},
        false, wait_count, waits, event);
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer,
                           const void *pattern, size_t pattern_size,
                           size_t offset, size_t count, cl_uint wait_count,
                           const cl_event *waits, cl_event *event)
{
    const cl_int error =
        check(queue, buffer, offset, count, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    if (!pattern || pattern_size == 0 || pattern_size > 128 ||
        (pattern_size & (pattern_size - 1)) != 0 ||
        offset % pattern_size != 0 || count % pattern_size != 0)
        return CL_INVALID_VALUE;
    transfer fill = {.buffers = {buffer},
                     .to = buffer->bytes + offset,
                     .count = count,
                     .pattern_size = pattern_size};
    memcpy(fill.pattern, pattern, pattern_size);
    return enqueue(queue, fill, false, wait_count, waits, event);
}
