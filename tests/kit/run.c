/* SPDX-License-Identifier: Apache-2.0
 * A case from buffers to verdict. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Buffers ---- */

bool buffers_create(const test_device *device, const case_buffers *d,
                    device_buffers *b)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < d->buffers; i++) {
        cl_int error;
        b->mem[i] = clCreateBuffer(
            device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
            d->buffer[i].size, d->buffer[i].bytes, &error);
        if (error != CL_SUCCESS) {
            buffers_release(b);
            return false;
        }
    }
    return true;
}

void buffers_release(device_buffers *b)
{
    for (int i = 0; i < TENSORS; i++)
        if (b->mem[i])
            clReleaseMemObject(b->mem[i]);
    memset(b, 0, sizeof *b);
}

winattn_tensor buffers_tensor(const case_buffers *d, const device_buffers *b,
                              tensor_id id)
{
    const tensor_data *t = &d->tensor[id];
    const winattn_tensor none = {NULL, 0};
    const winattn_tensor place = {b->mem[t->buffer], t->offset};
    return t->used ? place : none;
}

/* Writes the tensors up to `last` into a call. */
static void give_tensors(const case_buffers *d, const device_buffers *b,
                         tensor_id last, void *call)
{
    for (int id = 0; id <= (int)last; id++) {
        const winattn_tensor t = buffers_tensor(d, b, (tensor_id)id);
        memcpy((char *)call + tensor_place((tensor_id)id), &t, sizeof t);
    }
}

winattn_forward buffers_forward(const case_buffers *d, const device_buffers *b)
{
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    give_tensors(d, b, T_LSE, &f);
    return f;
}

winattn_backward buffers_backward(const case_buffers *d,
                                  const device_buffers *b)
{
    winattn_backward back;
    memset(&back, 0, sizeof back);
    back.struct_size = sizeof back;
    give_tensors(d, b, T_D_PAD_V, &back);
    back.accumulate = (cl_bitfield)(d->c.accumulate & d->c.outputs);
    return back;
}

/* ---- Calls ---- */

/* A workspace full of NaN. */
static winattn_status make_workspace(const test_device *device,
                                     const winattn_plan *plan,
                                     cl_mem *workspace)
{
    size_t size = 0;
    cl_int error = winattn_plan_workspace_size(plan, &size);
    if (error != CL_SUCCESS || size == 0)
        return error;
    const cl_uint poison = 0x7fffffff;
    *workspace =
        clCreateBuffer(device->context, CL_MEM_READ_WRITE, size, NULL, &error);
    /* Oclgrind itself sees reads of what nobody wrote, but 21.10 takes what is
     * behind the first of a fill's values for that */
    if (error == CL_SUCCESS && !strstr(device->name, "Oclgrind"))
        error =
            clEnqueueFillBuffer(device->queue, *workspace, &poison,
                                sizeof poison, 0, size / 4 * 4, 0, NULL, NULL);
    return error == CL_SUCCESS ? clFinish(device->queue) : error;
}

/* Reads all buffers; false if the device does not give them, or if bits differ
 * from those of `first`, which holds them after the first time. */
static bool same_bits(cl_command_queue queue, const case_buffers *d,
                      const device_buffers *b, unsigned char *first[TENSORS],
                      case_result *result)
{
    for (int i = 0; i < d->buffers; i++) {
        const size_t size = d->buffer[i].size;
        unsigned char *bytes = malloc(size);
        const bool read =
            bytes && clEnqueueReadBuffer(queue, b->mem[i], CL_TRUE, 0, size,
                                         bytes, 0, NULL, NULL) == CL_SUCCESS;
        const bool same =
            read && (!first[i] || memcmp(bytes, first[i], size) == 0);
        if (first[i])
            free(bytes);
        else
            first[i] = bytes;
        if (!same) {
            snprintf(result->failure, sizeof result->failure,
                     read ? "other bits in buffer %d"
                          : "buffer %d could not be read",
                     i);
            return false;
        }
    }
    return true;
}

/* Lets a forward pass leave o and lse where the backward pass takes them, as
 * those who train do. A tier that the device lacks is left to the plan. */
static winattn_status fill_by_forward(const test_device *device,
                                      case_buffers *d, const device_buffers *b)
{
    winattn_plan *plan = NULL;
    cl_mem workspace = NULL;
    winattn_desc desc = data_desc(d);
    winattn_forward f = buffers_forward(d, b);
    desc.passes = WINATTN_PASS_FORWARD;
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &plan);
    if (status != WINATTN_SUCCESS && desc.tier != WINATTN_TIER_AUTO) {
        desc.tier = WINATTN_TIER_AUTO;
        status =
            winattn_plan_create(device->context, device->id, &desc, &plan);
    }
    if (status == WINATTN_SUCCESS)
        status = make_workspace(device, plan, &workspace);
    f.workspace.buffer = workspace;
    if (status == WINATTN_SUCCESS)
        status =
            winattn_enqueue_forward(plan, device->queue, &f, 0, NULL, NULL);
    for (int i = 0; status == WINATTN_SUCCESS && i < d->buffers; i++)
        status = clEnqueueReadBuffer(device->queue, b->mem[i], CL_TRUE, 0,
                                     d->buffer[i].size, d->buffer[i].bytes, 0,
                                     NULL, NULL);
    if (workspace)
        clReleaseMemObject(workspace);
    winattn_plan_destroy(plan);
    return status;
}

/* given=2: o and lse are those of a forward pass of the library. */
static bool fill_given(const test_device *device, case_buffers *d,
                       const device_buffers *b, case_result *result)
{
    if (d->c.pass != PASS_BACKWARD || d->c.given != 2)
        return true;
    const winattn_status status = fill_by_forward(device, d, b);
    if (status != WINATTN_SUCCESS)
        snprintf(result->failure, sizeof result->failure,
                 "the forward pass before: %s: %s",
                 winattn_status_name(status), winattn_last_reason());
    return status == WINATTN_SUCCESS;
}

/* Enqueues one call. */
static winattn_status call_plan(const winattn_plan *plan,
                                cl_command_queue queue, const case_buffers *d,
                                const device_buffers *b, cl_mem workspace,
                                cl_event *event)
{
    if (d->c.pass == PASS_FORWARD) {
        winattn_forward f = buffers_forward(d, b);
        f.workspace.buffer = workspace;
        return winattn_enqueue_forward(plan, queue, &f, 0, NULL, event);
    }
    winattn_backward back = buffers_backward(d, b);
    back.workspace.buffer = workspace;
    return winattn_enqueue_backward(plan, queue, &back, 0, NULL, event);
}

bool buffers_run(const test_device *device, const case_buffers *d,
                 const device_buffers *b, int times, case_result *result)
{
    winattn_plan *plan = NULL;
    cl_mem workspace = NULL;
    unsigned char *first[TENSORS] = {NULL};
    const winattn_desc desc = data_desc(d);
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &plan);
    /* so is a tier that is demanded, and whose kernel spills much */
    result->refused = status == WINATTN_UNSUPPORTED_PROBLEM ||
                      (status == WINATTN_UNSUPPORTED_DEVICE &&
                       strstr(winattn_last_reason(), "spills"));
    if (status == WINATTN_SUCCESS)
        status = make_workspace(device, plan, &workspace);
    bool passed = true;
    for (int time = 0; status == WINATTN_SUCCESS && passed && time < times;
         time++) {
        cl_event event = NULL;
        status = call_plan(plan, device->queue, d, b, workspace, &event);
        if (status != WINATTN_SUCCESS)
            break;
        const cl_int error = clWaitForEvents(1, &event);
        clReleaseEvent(event);
        if (error != CL_SUCCESS)
            snprintf(result->failure, sizeof result->failure,
                     "waiting failed: %d", error);
        passed = error == CL_SUCCESS &&
                 (times == 1 || same_bits(device->queue, d, b, first, result));
    }
    if (status != WINATTN_SUCCESS)
        snprintf(result->failure, sizeof result->failure, "%s: %s\n%.200s",
                 winattn_status_name(status), winattn_last_reason(),
                 winattn_last_build_log());
    for (int i = 0; i < TENSORS; i++)
        free(first[i]);
    if (workspace)
        clReleaseMemObject(workspace);
    winattn_plan_destroy(plan);
    return passed && status == WINATTN_SUCCESS;
}

bool case_describe(const test_device *device, const test_case *c,
                   char text[4096])
{
    case_buffers *d = data_make(c);
    winattn_plan *plan = NULL;
    text[0] = 0;
    if (d) {
        const winattn_desc desc = data_desc(d);
        winattn_plan_create(device->context, device->id, &desc, &plan);
    }
    if (plan)
        winattn_plan_describe(plan, 4096, text, NULL);
    winattn_plan_destroy(plan);
    data_free(d);
    return text[0] != 0;
}

bool case_run_by(const test_device *device, const test_case *c,
                 case_call *call, const void *how, case_result *result)
{
    bool passed = false;
    device_buffers b;
    memset(result, 0, sizeof *result);
    memset(&b, 0, sizeof b);
    case_buffers *d = data_make(c);
    if (!d || !buffers_create(device, d, &b))
        snprintf(result->failure, sizeof result->failure, "out of memory");
    else
        passed = fill_given(device, d, &b, result) &&
                 call(device, d, &b, how, result) &&
                 buffers_check(device->queue, d, &b, result);
    buffers_release(&b);
    data_free(d);
    return passed;
}

static bool call_times(const test_device *device, const case_buffers *d,
                       const device_buffers *b, const void *how,
                       case_result *result)
{
    return buffers_run(device, d, b, *(const int *)how, result);
}

bool case_repeats(const test_device *device, const test_case *c, int times,
                  case_result *result)
{
    return case_run_by(device, c, call_times, &times, result);
}

bool case_run(const test_device *device, const test_case *c,
              case_result *result)
{
    return case_repeats(device, c, 1, result);
}
