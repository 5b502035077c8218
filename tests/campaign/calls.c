/* SPDX-License-Identifier: Apache-2.0
 * Makes argument sets, spoils them, calls, checks. */
#include "calls.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "coverage.h"
#include "standin.h"

/* So many launches of a call are followed; then the device is out of
 * resources. */
#define MOST_LAUNCHES 40
#define MOST_WAITS 2

/* All that a call is made of. */
typedef struct argument_set {
    const call_site *site;
    int pass;
    tensor_meaning meaning[TENSORS];
    winattn_tensor at[TENSORS];
    cl_mem
        own[TENSORS + 2]; /* the buffers, one for the workspace, a wrong one */
    winattn_tensor workspace;
    size_t workspace_bytes;
    cl_bitfield accumulate;
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
    bool is_null;
    bool is_spoilt;
    bool too_large; /* a tensor has more bytes than a buffer can have */
} argument_set;

static tensor_role role_of(const argument_set *a, int id)
{
    return tensor_traits[id].role[a->pass];
}

static bool is_output(tensor_role role) { return role >= ROLE_OUTPUT; }

/* Outputs that are added to are read, too; their bits are in this order. */
static bool is_added_to(const argument_set *a, int id)
{
    return a->pass && id >= T_DQ && (a->accumulate >> (id - T_DQ) & 1) != 0;
}

/* What its buffer must not be. */
static cl_mem_flags wrong_flags(const argument_set *a, int id)
{
    return !is_output(role_of(a, id)) ? CL_MEM_WRITE_ONLY
           : is_added_to(a, id)       ? CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY
                                      : CL_MEM_READ_ONLY;
}

/* ---- Right arguments ---- */

/* Channels of the padding must be as far apart as those of k and v. */
static bool fits_tokens(const argument_set *a, tensor_id pad, tensor_id tokens)
{
    const tensor_meaning *t = &a->meaning[pad];
    return t->extent[AXIS_COLUMN] <= 1 ||
           t->stride[AXIS_COLUMN] ==
               meaning_of(a->site->desc, tokens).stride[AXIS_COLUMN];
}

static void give_tensor(random_state *r, argument_set *a, int id)
{
    const tensor_meaning *t = &a->meaning[id];
    const tensor_role role = role_of(a, id);
    const bool is_optional =
        role == ROLE_INPUT_OR_NULL || role == ROLE_OUTPUT_OR_NULL;
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (!t->is_used || role == ROLE_NONE || (is_optional && chance(r, 30)) ||
        (id == T_PAD_K && !fits_tokens(a, T_PAD_K, T_K)) ||
        (id == T_PAD_V && !fits_tokens(a, T_PAD_V, T_V)))
        return;
    a->at[id].offset = 16ull * below(r, 3) + below(r, 4) * t->element_bytes;
    wide bytes = a->at[id].offset;
    if (!t->is_empty)
        bytes += (t->last + 1) * t->element_bytes;
    const wide most = a->site->address_bits == 32 ? UINT32_MAX : SIZE_MAX;
    a->too_large = a->too_large || bytes > most;
    if (bytes > most)
        bytes = most;
    if (chance(r, 50) && !is_added_to(a, id))
        flags = is_output(role) ? CL_MEM_WRITE_ONLY : CL_MEM_READ_ONLY;
    a->own[id] =
        standin_buffer(a->site->context, flags, bytes ? (size_t)bytes : 1);
    a->at[id].buffer = a->own[id];
}

static void give_queue(random_state *r, argument_set *a)
{
    const call_site *site = a->site;
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

static void make_arguments(random_state *r, argument_set *a)
{
    if (a->pass == 1 && chance(r, 50))
        a->accumulate = below(r, 128);
    for (int id = 0; id < TENSORS; id++) {
        a->meaning[id] = meaning_of(a->site->desc, (tensor_id)id);
        give_tensor(r, a, id);
    }
    if (a->at[T_D_LOGIT_SCALE].buffer && !a->at[T_LOGIT_SCALE].buffer)
        a->at[T_D_LOGIT_SCALE].buffer = NULL;
    winattn_plan_workspace_size(a->site->plan, &a->workspace_bytes);
    if (a->workspace_bytes != 0 || chance(r, 10)) {
        const size_t spare = 64;
        a->workspace.offset = 16ull * below(r, 4);
        a->own[TENSORS] = standin_buffer(a->site->context, CL_MEM_READ_WRITE,
                                         a->workspace_bytes < SIZE_MAX - spare
                                             ? a->workspace_bytes + spare
                                             : SIZE_MAX);
        a->workspace.buffer = a->own[TENSORS];
    }
    a->struct_size =
        a->pass ? sizeof(winattn_backward) : sizeof(winattn_forward);
    give_queue(r, a);
}

/* ---- Wrong ones ---- */

static void give_wrong_buffer(random_state *r, argument_set *a, int id)
{
    const tensor_meaning *t = &a->meaning[id];
    const size_t huge = SIZE_MAX / 4;
    const cl_context context = a->site->context;
    if (a->own[TENSORS + 1])
        return;
    wide bytes = a->at[id].offset + (t->last + 1) * t->element_bytes;
    cl_mem wrong = NULL;
    switch (below(r, 4)) {
    case 0: /* a byte short */
        if (t->is_used && !t->is_empty && bytes <= SIZE_MAX && bytes > 1)
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
        wrong = standin_buffer(context,
                               is_output(role_of(a, id)) &&
                                       !(is_added_to(a, id) && chance(r, 50))
                                   ? CL_MEM_READ_ONLY
                                   : CL_MEM_WRITE_ONLY,
                               huge);
    }
    if (!wrong)
        return;
    a->own[TENSORS + 1] = wrong;
    a->at[id].buffer = wrong;
}

static void spoil_struct(random_state *r, argument_set *a)
{
    switch (below(r, 4)) {
    case 0:
        a->struct_size = (size_t)ONE_OF(r, 0, 1, 8, 100, 255);
        break;
    case 1:
        a->struct_size -= sizeof(void *) * (1 + below(r, 12));
        break;
    case 2:
        a->struct_size += 8 * (1 + below(r, 4));
        a->has_tail = chance(r, 50);
        break;
    default:
        a->is_null = chance(r, 20);
    }
}

/* Is what ends there behind a shorter struct? It is 0 to the library. */
static bool is_cut(const argument_set *a, size_t end)
{
    return end > a->struct_size;
}

static void cut_tensor(const argument_set *a, winattn_tensor *t, size_t place)
{
    if (is_cut(a, place + offsetof(winattn_tensor, buffer) + sizeof t->buffer))
        t->buffer = NULL;
    if (is_cut(a, place + offsetof(winattn_tensor, offset) + sizeof t->offset))
        t->offset = 0;
}

static void cut_struct(argument_set *a)
{
    for (int id = 0; id < TENSORS; id++)
        if (tensor_traits[id].in_call[a->pass] != NOWHERE)
            cut_tensor(a, &a->at[id], tensor_traits[id].in_call[a->pass]);
    cut_tensor(a, &a->workspace,
               a->pass ? offsetof(winattn_backward, workspace)
                       : offsetof(winattn_forward, workspace));
    if (is_cut(a,
               offsetof(winattn_backward, accumulate) + sizeof a->accumulate))
        a->accumulate = a->pass ? 0 : a->accumulate;
}

static void spoil_arguments(random_state *r, argument_set *a)
{
    const int id = (int)below(r, TENSORS);
    a->is_spoilt = true;
    switch (below(r, 10)) {
    case 0:
        a->at[id].buffer = NULL;
        break;
    case 1:
        a->at[id].offset += 1;
        break;
    case 2:
        a->at[id].offset = special_number(r);
        break;
    case 3:
    case 4:
        give_wrong_buffer(r, a, id);
        break;
    case 5:
        spoil_struct(r, a);
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
    case 8:
        a->accumulate = special_number(r);
        break;
    default:
        if (chance(r, 50))
            a->workspace.buffer = NULL;
        else
            a->workspace.offset += ONE_OF(r, 1, 4, 64, 0xffffffff);
    }
}

/* ---- The call ---- */

/* The struct with all its tensors, of struct_size bytes and no more, so that a
 * sanitizer sees who reads behind it. */
static void *write_struct(const argument_set *a)
{
    union {
        winattn_forward forward;
        winattn_backward backward;
        unsigned char bytes[sizeof(winattn_backward)];
    } whole;
    const size_t size = a->pass ? sizeof whole.backward : sizeof whole.forward;
    const size_t given =
        a->struct_size > sizeof(size_t) ? a->struct_size : sizeof(size_t);
    unsigned char *raw = calloc(1, given);
    if (!raw)
        return NULL;
    memset(&whole, 0, sizeof whole);
    for (int id = 0; id < TENSORS; id++) {
        const size_t place = tensor_traits[id].in_call[a->pass];
        if (place != NOWHERE)
            memcpy(whole.bytes + place, &a->at[id], sizeof a->at[id]);
    }
    if (a->pass) {
        whole.backward.workspace = a->workspace;
        whole.backward.accumulate = a->accumulate;
    } else {
        whole.forward.workspace = a->workspace;
    }
    memcpy(raw, whole.bytes, given < size ? given : size);
    memcpy(raw, &a->struct_size, sizeof a->struct_size);
    if (a->has_tail && given > size)
        raw[given - 1] = 1;
    return raw;
}

static winattn_status call(const argument_set *a, cl_event *event)
{
    cl_event *place = a->wants_event ? event : NULL;
    void *raw = write_struct(a);
    const void *given = a->is_null ? NULL : raw;
    const winattn_status status =
        a->pass ? winattn_enqueue_backward(a->site->plan, a->used_queue, given,
                                           a->wait_count, a->wait_list, place)
                : winattn_enqueue_forward(a->site->plan, a->used_queue, given,
                                          a->wait_count, a->wait_list, place);
    free(raw);
    return status;
}

/* ---- What must hold ---- */

static const char *tensor_fault(const argument_set *a, int id)
{
    const tensor_meaning *t = &a->meaning[id];
    const winattn_tensor *at = &a->at[id];
    const tensor_role role = role_of(a, id);
    cl_context owner = NULL;
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    size_t size = 0;
    if (!at->buffer)
        return t->is_used && (role == ROLE_INPUT || role == ROLE_OUTPUT)
                   ? "took a call without"
                   : NULL;
    if (!t->is_used)
        return "took what the plan lacks:";
    clGetMemObjectInfo(at->buffer, CL_MEM_CONTEXT, sizeof owner, &owner, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_TYPE, sizeof type, &type, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    clGetMemObjectInfo(at->buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (owner != a->site->context)
        return "took a buffer of another context:";
    if (type != CL_MEM_OBJECT_BUFFER)
        return "took an image:";
    if ((flags & wrong_flags(a, id)) != 0)
        return "took a buffer that cannot be read or written:";
    if (at->offset % t->element_bytes != 0)
        return "took an offset that splits an element:";
    if (!t->is_empty && at->offset + (t->last + 1) * t->element_bytes > size)
        return "took too small a buffer:";
    return NULL;
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
    if (count > 0 && event && all[count - 1].event != event)
        return "the event is not the last launch's";
    return NULL;
}

static void check_success(const argument_set *a, cl_event event,
                          call_counts *counts, finding_reporter *report)
{
    const size_t full =
        a->pass ? sizeof(winattn_backward) : sizeof(winattn_forward);
    const size_t least = a->pass ? offsetof(winattn_backward, d_lse)
                                 : offsetof(winattn_forward, lse);
    const winattn_desc *desc = a->site->desc;
    const problem_size size = size_of(desc);
    if (winattn_last_reason()[0])
        report("success with a reason:", winattn_last_reason());
    if (a->wants_event && !event)
        report("success without the event", "");
    const bool has_tail = a->has_tail && a->struct_size > full;
    if (a->is_null || has_tail || a->struct_size < least ||
        a->struct_size % sizeof(void *) != 0)
        report("took a struct that is too short or too long", "");
    if (a->used_queue != a->queue)
        report("took a wrong queue", "");
    if ((a->wait_count == 0) != (a->wait_list == NULL))
        report("took a wrong wait list", "");
    if (a->pass && a->accumulate > 127)
        report("took a wrong bit of accumulate", "");
    /* of a plan with both passes, only one may need it */
    const bool has_one_pass = desc->passes != 3;
    if (has_one_pass && a->workspace_bytes != 0 && !a->workspace.buffer &&
        size.windows != 0)
        report("took a call without its workspace", "");
    if (size.windows == 0 && a->pass == 0) {
        if (standin_launches(NULL) != 0)
            report("launches without windows", "");
        return; /* nothing is looked at */
    }
    for (int id = 0; id < TENSORS; id++) {
        if (role_of(a, id) == ROLE_NONE)
            continue;
        const char *fault = tensor_fault(a, id);
        counts->tensors++;
        if (fault)
            report(fault, tensor_traits[id].name);
    }
    const char *fault = chain_fault(a, event);
    if (!fault)
        fault = coverage_fault(desc, standin_launches(NULL) == MOST_LAUNCHES);
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

void call_and_check(random_state *r, const call_site *site, int pass,
                    bool may_spoil, call_counts *counts,
                    finding_reporter *report)
{
    argument_set a;
    cl_event event = NULL;
    memset(&a, 0, sizeof a);
    a.site = site;
    a.pass = pass;
    make_arguments(r, &a);
    for (cl_ulong n = may_spoil ? ONE_OF(r, 0, 0, 1, 1, 2) : 0; n > 0; n--)
        spoil_arguments(r, &a);
    cut_struct(&a);
    standin_forget();
    standin_drivers.most_launches = MOST_LAUNCHES;
    const winattn_status status = call(&a, &event);
    standin_drivers.most_launches = 0;
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
