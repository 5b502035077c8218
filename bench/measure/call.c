/* SPDX-License-Identifier: Apache-2.0
 * Plans and enqueues. */
#include "measure/call.h"

#include <stdio.h>
#include <string.h>

winattn_status call_open(const bench_device *device, const test_case *c,
                         cl_bitfield passes, bench_call *call)
{
    winattn_desc desc = workload_desc(c);
    desc.passes = passes;
    memset(call, 0, sizeof *call);
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &call->plan);
    if (status == WINATTN_SUCCESS)
        status =
            winattn_plan_workspace_size(call->plan, &call->workspace_size);
    if (status == WINATTN_SUCCESS && call->workspace_size > 0)
        call->workspace.buffer =
            clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                           call->workspace_size, NULL, &status);
    return status;
}

void call_close(bench_call *call)
{
    if (call->workspace.buffer)
        clReleaseMemObject(call->workspace.buffer);
    winattn_plan_destroy(call->plan);
    memset(call, 0, sizeof *call);
}

void call_described(const winattn_plan *plan, const char *name, char *value,
                    size_t size)
{
    char text[8192] = "";
    const size_t length = strlen(name);
    winattn_plan_describe(plan, sizeof text, text, NULL);
    value[0] = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0) {
            snprintf(value, size, "%.*s", (int)strcspn(line + length, "\n"),
                     line + length);
            return;
        }
    }
}

static const device_buffers *set_of(const bench_call *c, unsigned round)
{
    return &c->w->set[round % (unsigned)c->w->sets];
}

static winattn_status call_forward(void *data, unsigned round)
{
    const bench_call *c = data;
    winattn_forward f = buffers_forward(c->w->d, set_of(c, round));
    f.workspace = c->workspace;
    return winattn_enqueue_forward(c->plan, c->w->device->queue, &f, 0, NULL,
                                   NULL);
}

static winattn_status call_backward(void *data, unsigned round)
{
    const bench_call *c = data;
    winattn_backward b = buffers_backward(c->w->d, set_of(c, round));
    b.workspace = c->workspace;
    return winattn_enqueue_backward(c->plan, c->w->device->queue, &b, 0, NULL,
                                    NULL);
}

/* The queue is in order: the second finds what the first wrote. */
static winattn_status call_both(void *data, unsigned round)
{
    const winattn_status status = call_forward(data, round);
    return status == WINATTN_SUCCESS ? call_backward(data, round) : status;
}

bench_enqueue *const call_pass[BENCH_PASSES] = {call_forward, call_backward,
                                                call_both};

winattn_status call_provide_outputs(const workload *w, int sets)
{
    bench_call forward;
    winattn_status status =
        call_open(w->device, &w->d->c, WINATTN_PASS_FORWARD, &forward);
    forward.w = w;
    for (int i = 0; i < sets && status == WINATTN_SUCCESS; i++)
        status = call_forward(&forward, (unsigned)i);
    clFinish(w->device->queue);
    call_close(&forward);
    return status;
}
