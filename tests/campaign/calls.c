/* SPDX-License-Identifier: Apache-2.0
 * Makes argument sets, spoils them, calls, checks. */
#include "calls.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define MOST_WAITS 2

/* All that a call is made of. */
typedef struct argument_set {
    const call_site *site;
    const call_kind *kind;
    level_call call;        /* without tensors */
    slot_list slots;        /* the last one is the workspace */
    size_t workspace_bytes; /* that the plan says */
    winattn_tensor at[MOST_SLOTS];
    cl_mem own[MOST_SLOTS + 1]; /* the buffers, and a wrong one */
    cl_command_queue queue, used_queue, other_queue;
    bool out_of_order;
    cl_event events[MOST_WAITS];
    cl_uint event_count;
    cl_uint wait_count;
    const cl_event *wait_list;
    bool wants_event;
    /* the struct as it is passed */
    size_t struct_size;
    bool has_tail; /* something is set behind it */
    bool is_null, lacks_plan;
    bool is_spoilt;
    bool has_spoilt_fields; /* what is no tensor */
    bool too_large; /* a tensor has more bytes than a buffer can have */
} argument_set;

/* ---- Right arguments ---- */

static void give_buffer(random_state *r, argument_set *a, size_t i, wide size)
{
    const slot *s = &a->slots.all[i];
    const cl_uint step = s->aligned > 1 ? s->aligned : 1;
    const wide most = a->site->address_bits == 32 ? UINT32_MAX : SIZE_MAX;
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    a->at[i].offset = (cl_ulong)step * ONE_OF(r, 0, 0, 1, 2, 3, 16, 64);
    wide bytes = a->at[i].offset + size;
    a->too_large = a->too_large || bytes > most;
    if (bytes > most)
        bytes = most;
    if (chance(r, 50) && s->is_read != s->is_written)
        flags = s->is_written ? CL_MEM_WRITE_ONLY : CL_MEM_READ_ONLY;
    a->own[i] =
        standin_buffer(a->site->context, flags, bytes ? (size_t)bytes : 1);
    a->at[i].buffer = a->own[i];
}

/* Of the call as it is. */
static void list_workspace(argument_set *a, slot *made)
{
    bool is_sure = true;
    a->workspace_bytes = 0;
    a->kind->workspace_size(a->site->desc, a->site->plan, &a->call,
                            &a->workspace_bytes, &is_sure);
    const size_t size = a->workspace_bytes;
    *made = (slot){.name = "workspace",
                   .place = a->kind->workspace,
                   .bytes = is_sure ? size : 0,
                   .element_bytes = 16,
                   .aligned = a->kind->workspace_aligned,
                   .is_used = true,
                   .is_optional = size == 0 || !is_sure,
                   .is_read = true,
                   .is_written = true};
}

static void give_workspace(random_state *r, argument_set *a)
{
    const size_t i = a->slots.count++;
    list_workspace(a, &a->slots.all[i]);
    if (a->workspace_bytes != 0 || chance(r, 10))
        give_buffer(r, a, i, a->workspace_bytes);
}

/* One that the plan cannot use: of another context, or another device. */
static cl_command_queue wrong_queue(random_state *r, const call_site *site)
{
    cl_device_id devices[2] = {site->device, site->device};
    clGetContextInfo(site->context, CL_CONTEXT_DEVICES, sizeof devices,
                     devices, NULL);
    return devices[1] != site->device && chance(r, 50)
               ? standin_queue(site->context, devices[1], false)
               : standin_queue(site->other_context, site->device, false);
}

static void give_queue(random_state *r, argument_set *a)
{
    const call_site *site = a->site;
    a->out_of_order = chance(r, 40);
    a->queue = standin_queue(site->context, site->device, a->out_of_order);
    a->other_queue = wrong_queue(r, site);
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

static void make_arguments(random_state *r, argument_set *a)
{
    if (a->kind->draw)
        a->kind->draw(r, a->site->desc, &a->call);
    a->kind->list(r, a->site->desc, &a->call, &a->slots);
    for (size_t i = 0; i < a->slots.count; i++)
        if (a->slots.all[i].is_wanted)
            give_buffer(r, a, i, a->slots.all[i].bytes);
    give_workspace(r, a);
    a->struct_size = a->kind->size;
    give_queue(r, a);
}

/* ---- Wrong ones ---- */

static void give_wrong_buffer(random_state *r, argument_set *a, size_t i)
{
    const slot *s = &a->slots.all[i];
    const size_t huge = SIZE_MAX / 4;
    const cl_context context = a->site->context;
    const wide bytes = a->at[i].offset + s->bytes;
    const bool is_unreadable = !s->is_written || (s->is_read && chance(r, 50));
    cl_mem wrong = NULL;
    if (a->own[MOST_SLOTS])
        return;
    switch (below(r, 4)) {
    case 0: /* a byte short, or not wanted at all */
        if (!s->is_used)
            wrong = standin_buffer(context, CL_MEM_READ_WRITE, huge);
        else if (s->bytes > 0 && bytes > 1 && bytes <= SIZE_MAX)
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
            context, is_unreadable ? CL_MEM_WRITE_ONLY : CL_MEM_READ_ONLY,
            huge);
    }
    if (!wrong)
        return;
    a->own[MOST_SLOTS] = wrong;
    a->at[i].buffer = wrong;
}

static void spoil_struct(random_state *r, argument_set *a)
{
    switch (below(r, 4)) {
    case 0:
        a->struct_size = (size_t)ONE_OF(r, 0, 1, 8, 100, 255);
        break;
    case 1:
        a->struct_size = a->kind->size - sizeof(void *) * (1 + below(r, 12));
        break;
    case 2:
        a->struct_size += 8 * (1 + below(r, 4));
        a->has_tail = chance(r, 50);
        break;
    default:
        a->is_null = chance(r, 20);
    }
}

/* Rather the workspace, or a tensor that the plan lacks. */
static size_t draw_slot(random_state *r, const argument_set *a)
{
    const size_t count = a->slots.count, first = below(r, (cl_uint)count);
    if (a->workspace_bytes && chance(r, 20))
        return count - 1;
    for (size_t i = 0; i < count; i++)
        if (!a->slots.all[(first + i) % count].is_used && chance(r, 20))
            return (first + i) % count;
    return first;
}

static void spoil_arguments(random_state *r, argument_set *a)
{
    const size_t i = draw_slot(r, a);
    a->is_spoilt = true;
    switch (below(r, 9)) {
    case 0:
        a->at[i].buffer = NULL;
        break;
    case 1:
        a->at[i].offset += ONE_OF(r, 1, 1, 4, 64, 0xffffffff);
        break;
    case 2:
        a->at[i].offset = special_number(r);
        break;
    case 3:
    case 4:
        give_wrong_buffer(r, a, i);
        break;
    case 5:
        spoil_struct(r, a);
        break;
    case 6:
        a->lacks_plan = chance(r, 20);
        a->used_queue = chance(r, 40) ? NULL : a->other_queue;
        break;
    case 7:
        if (chance(r, 50))
            a->wait_count = 0;
        else
            a->wait_list = NULL;
        break;
    default:
        a->has_spoilt_fields = a->kind->spoil != NULL;
        if (a->kind->spoil)
            a->kind->spoil(r, &a->call);
    }
}

/* What ends behind a shorter struct is 0 to the library. */
static void cut_struct(argument_set *a)
{
    const size_t size = a->struct_size;
    if (size < sizeof a->call)
        memset(a->call.bytes + size, 0, sizeof a->call - size);
    for (size_t i = 0; i < a->slots.count; i++) {
        winattn_tensor *t = &a->at[i];
        const size_t place = a->slots.all[i].place;
        if (place + offsetof(winattn_tensor, buffer) + sizeof t->buffer > size)
            t->buffer = NULL;
        if (place + offsetof(winattn_tensor, offset) + sizeof t->offset > size)
            t->offset = 0;
    }
}

/* What is spoilt may change what tensors need, and which of them are read. */
static void list_again(random_state *r, argument_set *a)
{
    slot_list slots = {.count = 0};
    a->kind->list(r, a->site->desc, &a->call, &slots);
    for (size_t i = 0; i < slots.count; i++) {
        a->slots.all[i].bytes = slots.all[i].bytes;
        a->slots.all[i].is_read = slots.all[i].is_read;
    }
    list_workspace(a, &a->slots.all[slots.count]);
}

/* ---- The call ---- */

/* The struct with all its tensors, of struct_size bytes and no more, so that a
 * sanitizer sees who reads behind it. */
static void *write_struct(const argument_set *a)
{
    const size_t size = a->kind->size;
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
    if (a->has_tail && given > size)
        raw[given - 1] = 1;
    return raw;
}

/* ---- What must hold ---- */

static bool is_launched_with(cl_mem buffer)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    for (size_t i = 0; i < count; i++)
        for (cl_uint k = 0; k < all[i].argument_count; k++)
            if (all[i].arguments[k].buffer == buffer)
                return true;
    return false;
}

/* What is wrong with an argument, and how a call is refused for it. */
typedef struct fault {
    bool is;
    winattn_status status;
    const char *says; /* a part of the reason */
    const char *what; /* of a call that is not refused */
} fault;
enum { MOST_FAULTS = 8 };

/* All that is wrong with a tensor; only the first where that is not looked
 * into further. Ends with one that is not. */
static void list_faults(const argument_set *a, size_t i,
                        fault faults[MOST_FAULTS])
{
    const slot *s = &a->slots.all[i];
    const winattn_tensor *at = &a->at[i];
    const bool is_workspace = i == a->slots.count - 1;
    cl_context owner = NULL;
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    size_t size = 0;
    memset(faults, 0, MOST_FAULTS * sizeof *faults);
    if (!at->buffer || !s->is_used) {
        faults[0] = (fault){
            at->buffer || (s->is_used && !s->is_optional),
            WINATTN_INVALID_ARGUMENT, at->buffer ? "is given" : "is NULL",
            at->buffer ? "took what the plan lacks:" : "took a call without"};
        return;
    }
    if (is_workspace && s->bytes == 0 && !is_launched_with(at->buffer))
        return; /* it is not looked at */
    clGetMemObjectInfo(at->buffer, CL_MEM_CONTEXT, sizeof owner, &owner, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_TYPE, sizeof type, &type, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    const fault all[] = {
        {owner != a->site->context, WINATTN_INVALID_BUFFER, "another context",
         "took a buffer of another context:"},
        {type != CL_MEM_OBJECT_BUFFER, WINATTN_INVALID_BUFFER, "is no buffer",
         "took an image:"},
        {(s->is_written && (flags & CL_MEM_READ_ONLY) != 0) ||
             (s->is_read && (flags & CL_MEM_WRITE_ONLY) != 0),
         WINATTN_INVALID_BUFFER, "-only",
         "took a buffer that cannot be read or written:"},
        {at->offset % s->element_bytes != 0, WINATTN_INVALID_LAYOUT,
         "the offset of", "took an offset that splits an element:"},
        {at->offset + s->bytes > size,
         is_workspace ? WINATTN_WORKSPACE_TOO_SMALL : WINATTN_BUFFER_TOO_SMALL,
         "needs", "took too small a buffer:"},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n].is)
            *faults++ = all[n];
}

/* All that is wrong with the rest of a call, likewise. */
static void list_call_faults(const argument_set *a, fault faults[MOST_FAULTS])
{
    const call_kind *kind = a->kind;
    const bool has_tail = a->has_tail && a->struct_size > kind->size;
    const fault all[] = {
        {a->lacks_plan, WINATTN_INVALID_ARGUMENT, " is NULL", "took no plan"},
        {a->is_null, WINATTN_INVALID_ARGUMENT, " is NULL", "took no struct"},
        {has_tail, WINATTN_UNSUPPORTED_PROBLEM, "version",
         "took a later struct"},
        {a->struct_size < kind->least || a->struct_size % sizeof(void *) != 0,
         WINATTN_INVALID_ARGUMENT, "struct_size",
         "took a struct that is too short"},
        {!a->used_queue, WINATTN_INVALID_ARGUMENT, "queue is NULL",
         "took no queue"},
        {a->used_queue && a->used_queue != a->queue, WINATTN_INVALID_QUEUE,
         "the queue belongs to another", "took a wrong queue"},
        {(a->wait_count == 0) != (a->wait_list == NULL),
         WINATTN_INVALID_ARGUMENT, "wait_list", "took a wrong wait list"},
    };
    memset(faults, 0, MOST_FAULTS * sizeof *faults);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n].is)
            *faults++ = all[n];
}

/* Does the text have the word? */
static bool has_word(const char *text, const char *word)
{
    static const char others[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_[]";
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || !strchr(others, at[-1])) &&
            (!at[length] || !strchr(others, at[length])))
            return true;
    return false;
}

/* Is there something wrong for which the call is refused with this status and
 * reason, which names a tensor? */
static bool is_refused_rightly(const argument_set *given,
                               winattn_status status, const char *reason)
{
    static const char *const of_several[] = {
        "d_logit_scale is given, but logit_scale is NULL",
        "no output is given"};
    fault faults[MOST_FAULTS];
    argument_set whole = *given, *a = &whole;
    slot *workspace = &a->slots.all[a->slots.count - 1];
    workspace->bytes = a->workspace_bytes; /* if this pass needs it */
    workspace->is_optional = a->workspace_bytes == 0;
    for (int i = 0; i < 2 && status == WINATTN_INVALID_ARGUMENT; i++)
        if (strcmp(reason, of_several[i]) == 0)
            return true;
    list_call_faults(a, faults);
    for (size_t n = 0; faults[n].is; n++)
        if (faults[n].status == status && strstr(reason, faults[n].says))
            return true;
    for (size_t i = 0; i < a->slots.count; i++) {
        list_faults(a, i, faults);
        for (size_t n = 0; faults[n].is; n++)
            if (faults[n].status == status && strstr(reason, faults[n].says) &&
                has_word(reason, a->slots.all[i].name))
                return true;
    }
    return false;
}

/* Each launch waits for the one before, or the queue does that; the first
 * waits for the caller's events; the event covers the last. */
static const char *chain_fault(const argument_set *a, cl_event event)
{
    const standin_launch *all;
    const size_t count = standin_launches(&all);
    const bool is_last = a->out_of_order || !a->kind->has_marker;
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
    if (count > 0 && event && is_last && all[count - 1].event != event)
        return "the event is not the last launch's";
    return NULL;
}

static void check_success(const argument_set *a, cl_event event,
                          call_counts *counts)
{
    const call_kind *kind = a->kind;
    const size_t launches = standin_launches(NULL);
    fault faults[MOST_FAULTS];
    if (winattn_last_reason()[0])
        report("success with a reason:", winattn_last_reason());
    if (a->wants_event && !event)
        report("success without the event", "");
    list_call_faults(a, faults);
    if (faults[0].is)
        report(faults[0].what, "");
    if (kind->is_empty && kind->is_empty(a->site->desc, &a->call)) {
        if (launches != 0)
            report("launches though there is nothing to compute", "");
        return; /* no tensor is looked at */
    }
    for (size_t i = 0; i < a->slots.count; i++) {
        list_faults(a, i, faults);
        counts->tensors++;
        if (faults[0].is)
            report(faults[0].what, a->slots.all[i].name);
    }
    const char *wrong = chain_fault(a, event);
    if (!wrong)
        wrong = kind->fault(a->site->desc, &a->call,
                            launches == kind->most_launches);
    if (wrong)
        report(wrong, "");
}

static void check_failure(const argument_set *a, winattn_status status,
                          cl_event event)
{
    const char *reason = winattn_last_reason();
    const bool is_own = status <= WINATTN_INVALID_ARGUMENT;
    const bool ran_out = status == CL_OUT_OF_RESOURCES &&
                         standin_launches(NULL) == a->kind->most_launches;
    if (!reason[0])
        report("a failure without a reason:", winattn_status_name(status));
    if (is_own && standin_launches(NULL) != 0)
        report("launched, then refused:", reason);
    if (event)
        report("a failure with an event", "");
    if (!a->is_spoilt && !a->too_large && !ran_out)
        report("a right call was refused:", reason);
    else if (!ran_out && !a->has_spoilt_fields &&
             !is_refused_rightly(a, status, reason))
        report("a call was refused for nothing that is wrong:", reason);
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

void call_and_check(random_state *r, const call_site *site,
                    const call_kind *kind, call_counts *counts)
{
    argument_set a;
    cl_event event = NULL;
    memset(&a, 0, sizeof a);
    a.site = site;
    a.kind = kind;
    make_arguments(r, &a);
    for (cl_ulong n = ONE_OF(r, 0, 0, 1, 1, 2); n > 0; n--)
        spoil_arguments(r, &a);
    cut_struct(&a);
    if (a.is_spoilt)
        list_again(r, &a);
    void *raw = write_struct(&a);
    standin_forget();
    standin_drivers.most_launches = kind->most_launches;
    const winattn_status status = kind->enqueue(
        a.lacks_plan ? NULL : site->plan, a.used_queue, a.is_null ? NULL : raw,
        a.wait_count, a.wait_list, a.wants_event ? &event : NULL);
    standin_drivers.most_launches = 0;
    free(raw);
    counts->calls++;
    counts->launches += standin_launches(NULL);
    if (status == WINATTN_SUCCESS) {
        check_success(&a, event, counts);
    } else {
        counts->refused++;
        check_failure(&a, status, event);
    }
    if (event)
        clReleaseEvent(event);
    release(&a);
}
