/* SPDX-License-Identifier: Apache-2.0
 * Contexts, queues, buffers and events: made, counted, released. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define MAGIC 0x0c1u
/* Bytes of larger buffers are not kept; no kernel computes on them. */
#define MOST_KEPT ((size_t)4 << 20)

static const char *const type_names[OBJECT_TYPES] = {
    "context", "queue", "buffer", "program", "kernel", "event"};

/* Of each type those that are alive, and all that are dead. No order between
 * threads follows from these counts, so that they do not hide a race. */
static atomic_long alive[OBJECT_TYPES];
static _Atomic(object *) dead;

/* ---- Life and death ---- */

void *object_new(object_type type, size_t size, cl_context context)
{
    object *made = own_calloc(1, size);
    made->magic = MAGIC;
    made->type = type;
    made->context = context;
    atomic_init(&made->references, 1);
    if (context)
        atomic_fetch_add_explicit(&context->head.references, 1,
                                  memory_order_relaxed);
    atomic_fetch_add_explicit(&alive[type], 1, memory_order_relaxed);
    return made;
}

bool object_is(const void *any, object_type type, const char *function)
{
    const object *is = any;
    if (!is)
        return false;
    if (is->magic != MAGIC || is->type != type) {
        wrong("%s: no %s", function, type_names[type]);
        return false;
    }
    if (atomic_load_explicit(&is->references, memory_order_relaxed) <= 0) {
        wrong("%s: the %s was released before", function, type_names[type]);
        return false;
    }
    return true;
}

/* What is large, or the caller's, goes at once. */
static void empty(object *gone)
{
    if (gone->type == OBJECT_BUFFER) {
        free(((cl_mem)gone)->bytes);
        ((cl_mem)gone)->bytes = NULL;
    }
    if (gone->type == OBJECT_PROGRAM) {
        text_release(((cl_program)gone)->source);
        ((cl_program)gone)->source = NULL;
    }
    if (gone->type == OBJECT_KERNEL)
        for (int i = 0; i < STANDIN_MOST_ARGUMENTS; i++) {
            free(((cl_kernel)gone)->arguments[i].bytes);
            ((cl_kernel)gone)->arguments[i].bytes = NULL;
        }
}

static void release(object *one);

static void bury(object *gone)
{
    if (gone->type == OBJECT_KERNEL)
        release(&((cl_kernel)gone)->program->head);
    empty(gone);
    atomic_fetch_sub_explicit(&alive[gone->type], 1, memory_order_relaxed);
    gone->next_dead = atomic_load_explicit(&dead, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&dead, &gone->next_dead,
                                                  gone, memory_order_release,
                                                  memory_order_relaxed))
        ;
    if (gone->context)
        release(&gone->context->head);
}

/* Only the last release waits for what the others did: if each did, threads
 * that share a context would be ordered by it, and races would not show. */
static void release(object *one)
{
    if (atomic_fetch_sub_explicit(&one->references, 1, memory_order_release) !=
        1)
        return;
    (void)atomic_load_explicit(&one->references, memory_order_acquire);
    bury(one);
}

void object_release(void *any) { release(any); }

void object_retain(void *any)
{
    atomic_fetch_add_explicit(&((object *)any)->references, 1,
                              memory_order_relaxed);
}

static cl_int release_one(void *any, object_type type, cl_int invalid,
                          const char *function)
{
    if (!any)
        wrong("%s: NULL", function);
    if (!object_is(any, type, function))
        return invalid;
    release(any);
    return CL_SUCCESS;
}

static cl_int retain_one(void *any, object_type type, cl_int invalid,
                         const char *function)
{
    if (!object_is(any, type, function))
        return invalid;
    object_retain(any);
    return CL_SUCCESS;
}

const char *standin_alive(void)
{
    static _Thread_local char text[256];
    size_t used = 0;
    text[0] = 0;
    for (int type = 0; type <= OBJECT_TYPES; type++) {
        const bool is_device = type == OBJECT_TYPES;
        const long count =
            is_device ? devices_retained() : atomic_load(&alive[type]);
        if (count != 0)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%s%ld %s%s", used ? ", " : "", count,
                                     is_device ? "device" : type_names[type],
                                     count > 1 ? "s" : "");
    }
    return used ? text : NULL;
}

void objects_forget(void)
{
    object *one = atomic_exchange(&dead, NULL);
    while (one) {
        object *next = one->next_dead;
        if (one->type == OBJECT_PROGRAM)
            program_empty((cl_program)one);
        one->magic = 0;
        free(one);
        one = next;
    }
    /* what is alive still is not found again: it is leaked, and said to be */
    for (int type = 0; type < OBJECT_TYPES; type++)
        atomic_store(&alive[type], 0);
}

#define RETAIN_AND_RELEASE(name, handle, type, invalid)                       \
    cl_int clRetain##name(handle one)                                         \
    {                                                                         \
        MAY_FAIL(CL_OUT_OF_HOST_MEMORY);                                      \
        return retain_one(one, type, invalid, __func__);                      \
    }                                                                         \
    cl_int clRelease##name(handle one)                                        \
    {                                                                         \
        return release_one(one, type, invalid, __func__);                     \
    }
RETAIN_AND_RELEASE(Context, cl_context, OBJECT_CONTEXT, CL_INVALID_CONTEXT)
RETAIN_AND_RELEASE(CommandQueue, cl_command_queue, OBJECT_QUEUE,
                   CL_INVALID_COMMAND_QUEUE)
RETAIN_AND_RELEASE(MemObject, cl_mem, OBJECT_BUFFER, CL_INVALID_MEM_OBJECT)
RETAIN_AND_RELEASE(Program, cl_program, OBJECT_PROGRAM, CL_INVALID_PROGRAM)
RETAIN_AND_RELEASE(Kernel, cl_kernel, OBJECT_KERNEL, CL_INVALID_KERNEL)
RETAIN_AND_RELEASE(Event, cl_event, OBJECT_EVENT, CL_INVALID_EVENT)

/* ---- Contexts ---- */

cl_context standin_context(size_t count, const cl_device_id *devices)
{
    cl_context made = object_new(OBJECT_CONTEXT, sizeof *made, NULL);
    for (size_t i = 0; i < count && i < MOST_CONTEXT_DEVICES; i++)
        made->devices[made->count++] = devices[i];
    return made;
}

bool context_has(cl_context context, cl_device_id device)
{
    for (size_t i = 0; i < context->count; i++)
        if (context->devices[i] == device)
            return true;
    return false;
}

cl_int clGetContextInfo(cl_context context, cl_context_info what, size_t size,
                        void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(context, OBJECT_CONTEXT, __func__))
        return CL_INVALID_CONTEXT;
    if (what == CL_CONTEXT_DEVICES)
        return answer(context->devices,
                      context->count * sizeof *context->devices, size, value,
                      needed);
    return CL_INVALID_VALUE;
}

/* ---- Queues ---- */

cl_command_queue standin_queue(cl_context context, cl_device_id device,
                               bool out_of_order)
{
    cl_command_queue made = object_new(OBJECT_QUEUE, sizeof *made, context);
    made->device = device;
    made->out_of_order = out_of_order;
    return made;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties,
                                      cl_int *error)
{
    MAY_FAIL_WITH(CL_OUT_OF_HOST_MEMORY, error);
    if (!object_is(context, OBJECT_CONTEXT, __func__))
        return fail_with(CL_INVALID_CONTEXT, error);
    if (!context_has(context, device))
        return fail_with(CL_INVALID_DEVICE, error);
    const bool out_of_order =
        (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
    return succeed_with(standin_queue(context, device, out_of_order), error);
}

cl_int clGetCommandQueueInfo(cl_command_queue queue,
                             cl_command_queue_info what, size_t size,
                             void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(queue, OBJECT_QUEUE, __func__))
        return CL_INVALID_COMMAND_QUEUE;
    const cl_command_queue_properties properties =
        queue->out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
    switch (what) {
    case CL_QUEUE_CONTEXT:
        return ANSWER(queue->head.context);
    case CL_QUEUE_DEVICE:
        return ANSWER(queue->device);
    case CL_QUEUE_PROPERTIES:
        return ANSWER(properties);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clFinish(cl_command_queue queue)
{
    MAY_FAIL(CL_OUT_OF_RESOURCES);
    return object_is(queue, OBJECT_QUEUE, __func__) ? CL_SUCCESS
                                                    : CL_INVALID_COMMAND_QUEUE;
}

/* ---- Memory ---- */

cl_mem standin_buffer(cl_context context, cl_mem_flags flags, size_t bytes)
{
    cl_mem made = object_new(OBJECT_BUFFER, sizeof *made, context);
    made->flags = flags;
    made->size = bytes;
    return made;
}

cl_mem standin_part(cl_context context, cl_mem_flags flags, size_t bytes,
                    size_t origin, size_t host)
{
    cl_mem made = standin_buffer(context, flags, bytes);
    made->origin = origin;
    made->host = host;
    return made;
}

cl_mem standin_image(cl_context context)
{
    cl_mem made = standin_buffer(context, CL_MEM_READ_WRITE, SIZE_MAX / 4);
    made->is_image = true;
    return made;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                      void *host, cl_int *error)
{
    MAY_FAIL_WITH(CL_MEM_OBJECT_ALLOCATION_FAILURE, error);
    if (!object_is(context, OBJECT_CONTEXT, __func__))
        return fail_with(CL_INVALID_CONTEXT, error);
    if (size == 0)
        return fail_with(CL_INVALID_BUFFER_SIZE, error);
    if (((flags & CL_MEM_COPY_HOST_PTR) != 0) != (host != NULL))
        return fail_with(CL_INVALID_HOST_PTR, error);
    cl_mem made = standin_buffer(context, flags, size);
    if (host && size <= MOST_KEPT) {
        made->bytes = own_copy(host, size);
    } else if (host) { /* a sanitizer sees what is read */
        volatile unsigned char last = ((unsigned char *)host)[size - 1];
        (void)last;
    }
    return succeed_with(made, error);
}

cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info what, size_t size,
                          void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(memory, OBJECT_BUFFER, __func__))
        return CL_INVALID_MEM_OBJECT;
    const cl_mem_object_type type =
        memory->is_image ? CL_MEM_OBJECT_IMAGE2D : CL_MEM_OBJECT_BUFFER;
    switch (what) {
    case CL_MEM_TYPE:
        return ANSWER(type);
    case CL_MEM_FLAGS:
        return ANSWER(memory->flags);
    case CL_MEM_CONTEXT:
        return ANSWER(memory->head.context);
    case CL_MEM_SIZE:
        return ANSWER(memory->size);
    case CL_MEM_OFFSET:
        return ANSWER(memory->origin);
    case CL_MEM_HOST_PTR:
        return ANSWER(memory->host);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer,
                           cl_bool blocking, size_t offset, size_t size,
                           void *to, cl_uint wait_count,
                           const cl_event *wait_list, cl_event *event)
{
    MAY_FAIL(CL_OUT_OF_RESOURCES);
    (void)blocking; /* it is there already */
    if (!object_is(queue, OBJECT_QUEUE, __func__))
        return CL_INVALID_COMMAND_QUEUE;
    if (!object_is(buffer, OBJECT_BUFFER, __func__))
        return CL_INVALID_MEM_OBJECT;
    if (offset > buffer->size || size > buffer->size - offset) {
        wrong("%s: past the end of the buffer", __func__);
        return CL_INVALID_VALUE;
    }
    if (!waits_are_good(wait_count, wait_list, __func__))
        return CL_INVALID_EVENT_WAIT_LIST;
    if (buffer->bytes)
        memcpy(to, buffer->bytes + offset, size);
    else
        memset(to, 0, size);
    if (event)
        *event = standin_event(queue->head.context);
    return CL_SUCCESS;
}

/* ---- Events ---- */

cl_event standin_event(cl_context context)
{
    return object_new(OBJECT_EVENT, sizeof(struct _cl_event), context);
}

bool waits_are_good(cl_uint count, const cl_event *list, const char *function)
{
    bool good = (count == 0) == (list == NULL);
    if (!good)
        wrong("%s: a wait list of %u events at %p", function, count,
              (const void *)list);
    for (cl_uint i = 0; good && i < count; i++)
        good = object_is(list[i], OBJECT_EVENT, function);
    return good;
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint wait_count,
                                   const cl_event *wait_list, cl_event *event)
{
    MAY_FAIL(CL_OUT_OF_RESOURCES);
    if (!object_is(queue, OBJECT_QUEUE, __func__))
        return CL_INVALID_COMMAND_QUEUE;
    if (!waits_are_good(wait_count, wait_list, __func__))
        return CL_INVALID_EVENT_WAIT_LIST;
    if (event)
        *event = standin_event(queue->head.context);
    return CL_SUCCESS;
}
