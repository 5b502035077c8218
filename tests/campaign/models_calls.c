/* SPDX-License-Identifier: Apache-2.0
 * Makes argument sets for the library of models, spoils them, calls, checks.
 */
#include "models_calls.h"

#include <stdlib.h>
#include <string.h>

#include "models_coverage.h"
#include "standin.h"

/* So many launches of a call are followed; then the device is out of
 * resources. */
#define MOST_LAUNCHES 300
#define MOST_WAITS 2

/* All that a call is made of. */
typedef struct argument_set {
    const level_site *site;
    level_call call; /* without tensors */
    slot_list slots; /* the last one is the workspace */
    winattn_tensor at[MOST_SLOTS];
    cl_mem own[MOST_SLOTS + 1]; /* the buffers, and a wrong one */
    cl_command_queue queue, used_queue, other_queue;
    bool out_of_order;
    cl_event events[MOST_WAITS];
    cl_uint event_count;
    cl_uint wait_count;
    const cl_event *wait_list;
    bool wants_event;
    size_t struct_size; /* as it is passed */
    bool is_null;
    bool is_spoilt;
    bool too_large; /* a tensor has more bytes than a buffer can have */
} argument_set;

/* ---- Right arguments ---- */

static void give_tensor(random_state *r, argument_set *a, size_t i)
{
    const slot *s = &a->slots.all[i];
    const cl_uint step = s->aligned > 1 ? s->aligned : 1;
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (!s->is_wanted)
        return;
    a->at[i].offset = (cl_ulong)step * ONE_OF(r, 0, 0, 1, 2, 3, 16, 64);
    wide bytes = a->at[i].offset + s->bytes;
    const wide most = a->site->address_bits == 32 ? UINT32_MAX : SIZE_MAX;
    a->too_large = a->too_large || bytes > most;
    if (bytes > most)
        bytes = most;
    if (chance(r, 50) && s->is_read != s->is_written)
        flags = s->is_written ? CL_MEM_WRITE_ONLY : CL_MEM_READ_ONLY;
    a->own[i] =
        standin_buffer(a->site->context, flags, bytes ? (size_t)bytes : 1);
    a->at[i].buffer = a->own[i];
}

static void give_queue(random_state *r, argument_set *a)
{
    const level_site *site = a->site;
    a->out_of_order = chance(r, 40);
    a->queue = standin_queue(site->context, site->device, a->out_of_order);
    a->other_queue = standin_queue(site->other_context, site->device, false);
    a->used_queue = a->queue;
    a->wants_event = chance(r, 50);
    if (!chance(r, 20))
        return;
    a->event_count = 1 + below(r, MOST_WAITS);
    for (cl_uint i = 0; i < a->event_count; i++)
        a->events[i] = standin_event(site->context);
    a->wait_count = a->event_count;
    a->wait_list = a->events;
}

static void add_workspace(argument_set *a)
{
    static const size_t places[LEVELS] = {
        offsetof(winattn_linear, workspace),
        offsetof(winattn_window_attention, workspace),
        offsetof(winattn_block, workspace),
        offsetof(winattn_model_call, workspace)};
    const level_id level = a->site->desc->level;
    slot *s = &a->slots.all[a->slots.count++];
    size_t bytes = 0;
    level_workspace(level, a->site->plan, &a->call, &bytes);
    const slot made = {.name = "workspace",
                       .place = places[level],
                       .bytes = bytes,
                       .element_bytes = 16,
                       .aligned = level == LEVEL_MODEL ? 256 : 16,
                       .is_used = true,
                       .is_wanted = bytes != 0,
                       .is_optional = bytes == 0,
                       .is_read = true,
                       .is_written = true};
    *s = made;
}

static void make_arguments(random_state *r, argument_set *a)
{
    level_draw_call(r, a->site->desc, &a->call);
    a->slots = level_slots(r, a->site->desc, &a->call);
    add_workspace(a);
    for (size_t i = 0; i < a->slots.count; i++)
        give_tensor(r, a, i);
    a->struct_size = level_call_size(a->site->desc->level);
    give_queue(r, a);
}

/* ---- Wrong ones ---- */

static void give_wrong_buffer(random_state *r, argument_set *a, size_t i)
{
    const slot *s = &a->slots.all[i];
    const size_t huge = SIZE_MAX / 4;
    const cl_context context = a->site->context;
    const wide bytes = a->at[i].offset + s->bytes;
    cl_mem wrong = NULL;
    if (a->own[MOST_SLOTS])
        return;
    switch (below(r, 4)) {
    case 0: /* a byte short */
        if (s->is_used && bytes > 1 && bytes <= SIZE_MAX)
            wrong =
                standin_buffer(context, CL_MEM_READ_WRITE, (size_t)bytes - 1);
        break;
    case 1:
        wrong =
            standin_buffer(a->site->other_context, CL_MEM_READ_WRITE, huge);
        break;
    case 2:
        wrong = standin_image(context);
        break;
    default:
        wrong = standin_buffer(
            context, s->is_written ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY,
            huge);
    }
    if (!wrong)
        return;
    a->own[MOST_SLOTS] = wrong;
    a->at[i].buffer = wrong;
}

static void spoil_call(random_state *r, argument_set *a)
{
    if (a->site->desc->level == LEVEL_LINEAR) {
        cl_ulong *const numbers[] = {
            &a->call.linear.rows, &a->call.linear.x_stride,
            &a->call.linear.weight_stride, &a->call.linear.residual_stride,
            &a->call.linear.y_stride};
        *numbers[below(r, 5)] = special_number(r);
    } else if (a->site->desc->level == LEVEL_MODEL) {
        const cl_uint bits = (cl_uint)special_number(r);
        memcpy(chance(r, 50) ? &a->call.model.mean[below(r, 4)]
                             : &a->call.model.deviation[below(r, 4)],
               &bits, sizeof bits);
    }
}

static void spoil_arguments(random_state *r, argument_set *a)
{
    const size_t i = below(r, (cl_uint)a->slots.count);
    a->is_spoilt = true;
    switch (below(r, 9)) {
    case 0:
        a->at[i].buffer = NULL;
        break;
    case 1:
        a->at[i].offset += 1;
        break;
    case 2:
        a->at[i].offset = special_number(r);
        break;
    case 3:
    case 4:
        give_wrong_buffer(r, a, i);
        break;
    case 5:
        a->struct_size = chance(r, 50)
                             ? (size_t)ONE_OF(r, 0, 1, 8, 100)
                             : a->struct_size + 8 * (size_t)(1 + below(r, 4));
        a->is_null = chance(r, 10);
        break;
    case 6:
        a->used_queue = chance(r, 50) ? NULL : a->other_queue;
        break;
    case 7:
        if (chance(r, 50))
            a->wait_count = 0;
        else
            a->wait_list = NULL;
        break;
    default:
        spoil_call(r, a);
    }
}

/* Rows and strides that are spoilt change what tensors need. */
static void count_again(random_state *r, argument_set *a)
{
    size_t bytes = 0;
    if (a->site->desc->level != LEVEL_LINEAR)
        return;
    const slot_list slots = level_slots(r, a->site->desc, &a->call);
    for (size_t i = 0; i < slots.count; i++)
        a->slots.all[i].bytes = slots.all[i].bytes;
    slot *workspace = &a->slots.all[a->slots.count - 1];
    level_workspace(LEVEL_LINEAR, a->site->plan, &a->call, &bytes);
    workspace->bytes = bytes;
    workspace->is_optional = bytes == 0;
}

/* ---- The call ---- */

/* The struct with all its tensors, of struct_size bytes and no more, so that a
 * sanitizer sees who reads behind it. */
static void *write_struct(const argument_set *a)
{
    const size_t size = level_call_size(a->site->desc->level);
    const size_t given =
        a->struct_size > sizeof(size_t) ? a->struct_size : sizeof(size_t);
    level_call whole = a->call;
    unsigned char *raw = calloc(1, given);
    if (!raw)
        abort();
    for (size_t i = 0; i < a->slots.count; i++)
        memcpy(whole.bytes + a->slots.all[i].place, &a->at[i],
               sizeof a->at[i]);
    memcpy(raw, whole.bytes, given < size ? given : size);
    memcpy(raw, &a->struct_size, sizeof a->struct_size);
    return raw;
}

/* ---- What must hold ---- */

static const char *tensor_fault(const argument_set *a, size_t i)
{
    const slot *s = &a->slots.all[i];
    const winattn_tensor *at = &a->at[i];
    cl_context owner = NULL;
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    size_t size = 0;
    if (!at->buffer)
        return s->is_used && !s->is_optional ? "took a call without" : NULL;
    if (!s->is_used)
        return "took what the plan lacks:";
    if (s->is_optional && s->bytes == 0)
        return NULL; /* a workspace that is not looked at */
    clGetMemObjectInfo(at->buffer, CL_MEM_CONTEXT, sizeof owner, &owner, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_TYPE, sizeof type, &type, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (owner != a->site->context)
        return "took a buffer of another context:";
    if (type != CL_MEM_OBJECT_BUFFER)
        return "took an image:";
    if ((s->is_written && (flags & CL_MEM_READ_ONLY) != 0) ||
        (s->is_read && (flags & CL_MEM_WRITE_ONLY) != 0))
        return "took a buffer that cannot be read or written:";
    if (at->offset % s->element_bytes != 0)
        return "took an offset that splits an element:";
    return at->offset + s->bytes > size ? "took too small a buffer:" : NULL;
}

/* Each launch waits for the one before, or the queue does that; the first
 * waits for the caller's events; the event covers the last. */
static const char *chain_fault(const argument_set *a, cl_event event)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    for (size_t i = 0; i < count; i++) {
        if (all[i].queue != a->queue)
            return "a launch on another queue";
        if (all[i].offset != 0)
            return "a launch with an offset";
        if (i == 0 && (all[i].wait_count != a->wait_count ||
                       (a->wait_count != 0 &&
                        memcmp(all[i].waits, a->events,
                               a->wait_count * sizeof *a->events) != 0)))
            return "the first launch does not wait for the caller's events";
        if (i > 0 && a->out_of_order &&
            (all[i].wait_count != 1 || all[i].waits[0] != all[i - 1].event))
            return "a launch that does not wait for the one before";
    }
    /* on a queue that runs in order it may be a marker's */
    if (count > 0 && event && a->out_of_order && all[count - 1].event != event)
        return "the event is not the last launch's";
    return NULL;
}

static void check_success(const argument_set *a, cl_event event,
                          call_counts *counts, finding_reporter *report)
{
    const level_id level = a->site->desc->level;
    if (winattn_last_reason()[0])
        report("success with a reason:", winattn_last_reason());
    if (a->wants_event && !event)
        report("success without the event", "");
    /* what is behind a longer struct is 0 */
    if (a->is_null || a->struct_size < level_call_size(level))
        report("took a struct that is too short", "");
    if (a->used_queue != a->queue)
        report("took a wrong queue", "");
    if ((a->wait_count == 0) != (a->wait_list == NULL))
        report("took a wrong wait list", "");
    if (level == LEVEL_LINEAR && a->call.linear.rows == 0) {
        if (standin_launches(NULL) != 0)
            report("launches without rows", "");
        return; /* no tensor is looked at */
    }
    for (size_t i = 0; i < a->slots.count; i++) {
        const char *fault = tensor_fault(a, i);
        counts->tensors++;
        if (fault)
            report(fault, a->slots.all[i].name);
    }
    const char *fault = chain_fault(a, event);
    if (!fault && standin_launches(NULL) == 0)
        fault = "nothing is launched";
    if (!fault)
        fault = models_coverage_fault(standin_launches(NULL) == MOST_LAUNCHES);
    if (fault)
        report(fault, "");
}

static void check_failure(const argument_set *a, winattn_status status,
                          cl_event event, finding_reporter *report)
{
    const char *reason = winattn_last_reason();
    const bool is_own = status <= WINATTN_INVALID_ARGUMENT;
    const bool ran_out = status == CL_OUT_OF_RESOURCES &&
                         standin_launches(NULL) == MOST_LAUNCHES;
    if (!reason[0])
        report("a failure without a reason:", winattn_status_name(status));
    if (is_own && standin_launches(NULL) != 0)
        report("launched, then refused:", reason);
    if (event)
        report("a failure with an event", "");
    if (!a->is_spoilt && !a->too_large && !ran_out)
        report("a right call was refused:", reason);
}

static void release(argument_set *a)
{
    for (size_t i = 0; i < sizeof a->own / sizeof *a->own; i++)
        if (a->own[i])
            clReleaseMemObject(a->own[i]);
    for (cl_uint i = 0; i < a->event_count; i++)
        clReleaseEvent(a->events[i]);
    clReleaseCommandQueue(a->queue);
    clReleaseCommandQueue(a->other_queue);
}

void level_call_and_check(random_state *r, const level_site *site,
                          call_counts *counts, finding_reporter *report)
{
    argument_set a;
    cl_event event = NULL;
    memset(&a, 0, sizeof a);
    a.site = site;
    make_arguments(r, &a);
    for (cl_ulong n = ONE_OF(r, 0, 0, 1, 1, 2); n > 0; n--)
        spoil_arguments(r, &a);
    if (a.is_spoilt)
        count_again(r, &a);
    void *raw = write_struct(&a);
    standin_forget();
    standin_drivers.most_launches = MOST_LAUNCHES;
    const winattn_status status = level_enqueue(
        site->desc->level, site->plan, a.used_queue, a.is_null ? NULL : raw,
        a.wait_count, a.wait_list, a.wants_event ? &event : NULL);
    standin_drivers.most_launches = 0;
    free(raw);
    counts->calls++;
    counts->launches += standin_launches(NULL);
    if (status == WINATTN_SUCCESS) {
        check_success(&a, event, counts, report);
    } else {
        counts->refused++;
        check_failure(&a, status, event, report);
    }
    if (event)
        clReleaseEvent(event);
    release(&a);
}
