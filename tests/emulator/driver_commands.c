/* SPDX-License-Identifier: Apache-2.0
 * Commands and events: what waits for what, and what runs when. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Guards the list of commands that are not done, in the order in which they
 * were enqueued, and the status of events. No command runs while it is
 * held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static command *first;

/* ---- Events ---- */

static cl_event event_new(cl_context context, cl_command_queue queue,
                          cl_int status)
{
    cl_event made = object_new(OBJECT_EVENT, sizeof *made, context);
    if (!made)
        return NULL;
    made->queue = queue;
    made->status = status;
    if (queue)
        object_retain(queue);
    return made;
}

cl_event clCreateUserEvent(cl_context context, cl_int *error)
{
    if (!object_is(context, OBJECT_CONTEXT))
        return fail_with(CL_INVALID_CONTEXT, error);
    cl_event made = event_new(context, NULL, CL_SUBMITTED);
    return made ? succeed_with(made, error)
                : fail_with(CL_OUT_OF_HOST_MEMORY, error);
}

cl_int clGetEventInfo(cl_event event, cl_event_info what, size_t size,
                      void *value, size_t *needed)
{
    if (!object_is(event, OBJECT_EVENT))
        return CL_INVALID_EVENT;
    pthread_mutex_lock(&lock);
    const cl_int status = event->status;
    pthread_mutex_unlock(&lock);
    return what == CL_EVENT_COMMAND_EXECUTION_STATUS ? ANSWER(status)
                                                     : CL_INVALID_VALUE;
}

/* What the emulation takes. */
cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info what,
                               size_t size, void *value, size_t *needed)
{
    if (!object_is(event, OBJECT_EVENT))
        return CL_INVALID_EVENT;
    if (what != CL_PROFILING_COMMAND_START && what != CL_PROFILING_COMMAND_END)
        return CL_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const bool is_known =
        event->status == CL_COMPLETE && event->queue &&
        (event->queue->properties & CL_QUEUE_PROFILING_ENABLE);
    const cl_ulong at = event->ran[what == CL_PROFILING_COMMAND_END];
    pthread_mutex_unlock(&lock);
    return is_known ? ANSWER(at) : CL_PROFILING_INFO_NOT_AVAILABLE;
}

static cl_ulong nanoseconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return 1000000000ull * (cl_ulong)now.tv_sec + (cl_ulong)now.tv_nsec;
}

/* ---- Commands ---- */

static bool events_are_good(cl_uint count, const cl_event *list)
{
    for (cl_uint i = 0; i < count; i++)
        if (!object_is(list[i], OBJECT_EVENT))
            return false;
    return true;
}

cl_int command_check(cl_command_queue queue, cl_uint wait_count,
                     const cl_event *waits)
{
    if (!object_is(queue, OBJECT_QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    if ((wait_count == 0) != (waits == NULL) ||
        !events_are_good(wait_count, waits))
        return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint i = 0; i < wait_count; i++)
        if (waits[i]->head.context != queue->head.context)
            return CL_INVALID_CONTEXT;
    return CL_SUCCESS;
}

void command_drop(command *gone)
{
    if (gone->forget)
        gone->forget(gone);
    for (cl_uint i = 0; i < gone->wait_count; i++)
        object_release(gone->waits[i]);
    free(gone->waits);
    object_release(gone->event);
    free(gone);
}

void *command_new(size_t size, cl_command_queue queue, cl_uint wait_count,
                  const cl_event *waits)
{
    command *made = calloc(1, size);
    if (!made)
        return NULL;
    made->event = event_new(queue->head.context, queue, CL_QUEUED);
    made->waits = malloc((wait_count + 1) * sizeof *made->waits);
    if (!made->event || !made->waits) {
        command_drop(made);
        return NULL;
    }
    for (cl_uint i = 0; i < wait_count; i++) {
        object_retain(waits[i]);
        made->waits[made->wait_count++] = waits[i];
    }
    return made;
}

/* ---- The following hold the lock ---- */

static bool is_ready(const command *one)
{
    const cl_command_queue queue = one->event->queue;
    const bool in_order =
        !(queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    if (one->event->status != CL_QUEUED)
        return false;
    for (const command *before = first; before != one; before = before->next)
        if (before->event->queue == queue && (in_order || one->waits_for_all))
            return false;
    for (cl_uint i = 0; i < one->wait_count; i++)
        if (one->waits[i]->status > CL_COMPLETE)
            return false;
    return true;
}

static command *next_ready(void)
{
    command *one = first;
    while (one && !is_ready(one))
        one = one->next;
    return one;
}

static void take_out(const command *done)
{
    command **at = &first;
    while (*at != done)
        at = &(*at)->next;
    *at = done->next;
}

/* Runs whatever can run, and what can when that has. */
static void run_ready(void)
{
    command *one;
    while ((one = next_ready()) != NULL) {
        cl_int status = CL_COMPLETE;
        one->event->status = CL_RUNNING;
        for (cl_uint i = 0; i < one->wait_count; i++)
            if (one->waits[i]->status < 0)
                status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        pthread_mutex_unlock(&lock);
        const bool ran = status == CL_COMPLETE;
        const cl_ulong start = nanoseconds();
        if (ran && one->run)
            status = one->run(one);
        pthread_mutex_lock(&lock);
        one->event->ran[0] = start;
        one->event->ran[1] = nanoseconds();
        one->event->status = status;
        if (status < 0 && ran)
            atomic_store(&one->event->queue->failed, true);
        take_out(one);
        pthread_cond_broadcast(&changed);
        command_drop(one);
    }
}

static void wait_for(cl_event event)
{
    while (event->status > CL_COMPLETE)
        pthread_cond_wait(&changed, &lock);
}

/* ---- */

cl_int command_enqueue(command *one, bool blocking, cl_event *event)
{
    const cl_event own = one->event;
    command **last = &first;
    object_retain(own);
    pthread_mutex_lock(&lock);
    while (*last)
        last = &(*last)->next;
    *last = one;
    run_ready();
    if (blocking)
        wait_for(own);
    const cl_int status = own->status;
    pthread_mutex_unlock(&lock);
    if (event && status >= 0)
        *event = own;
    else
        object_release(own);
    return status < 0 ? status : CL_SUCCESS;
}

cl_int clSetUserEventStatus(cl_event event, cl_int status)
{
    if (!object_is(event, OBJECT_EVENT) || event->queue)
        return CL_INVALID_EVENT;
    if (status > CL_COMPLETE)
        return CL_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const bool is_set = event->status <= CL_COMPLETE;
    if (!is_set) {
        event->status = status;
        pthread_cond_broadcast(&changed);
        run_ready();
    }
    pthread_mutex_unlock(&lock);
    return is_set ? CL_INVALID_OPERATION : CL_SUCCESS;
}

cl_int clWaitForEvents(cl_uint count, const cl_event *list)
{
    cl_int error = CL_SUCCESS;
    if (count == 0 || !list)
        return CL_INVALID_VALUE;
    if (!events_are_good(count, list))
        return CL_INVALID_EVENT;
    for (cl_uint i = 1; i < count; i++)
        if (list[i]->head.context != list[0]->head.context)
            return CL_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < count; i++) {
        wait_for(list[i]);
        if (list[i]->status < 0)
            error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

cl_int clFlush(cl_command_queue queue)
{
    return object_is(queue, OBJECT_QUEUE) ? CL_SUCCESS
                                          : CL_INVALID_COMMAND_QUEUE;
}

static bool has_commands(cl_command_queue queue)
{
    const command *one = first;
    while (one && one->event->queue != queue)
        one = one->next;
    return one != NULL;
}

cl_int clFinish(cl_command_queue queue)
{
    if (!object_is(queue, OBJECT_QUEUE))
        return CL_INVALID_COMMAND_QUEUE;
    pthread_mutex_lock(&lock);
    while (has_commands(queue))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return atomic_load(&queue->failed) ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint wait_count,
                                   const cl_event *waits, cl_event *event)
{
    const cl_int error = command_check(queue, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    command *one = command_new(sizeof *one, queue, wait_count, waits);
    if (!one)
        return CL_OUT_OF_HOST_MEMORY;
    one->waits_for_all = wait_count == 0;
    return command_enqueue(one, false, event);
}
