/* SPDX-License-Identifier: Apache-2.0
 * Runs of what a test demands: plan -> program -> launch, by hand. */
#include "demand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "launch/bias_table.h"
#include "launch/launch.h"
#include "plan/planner.h"
#include "session/build.h"

/* ---- Plans ---- */

/* Does the device itself take that unit for the tier? */
static bool is_own(const test_device *device, const wa_matrix_unit *unit)
{
    wa_device own;
    return !unit || (wa_device_query(device->id, &own) == WINATTN_SUCCESS &&
                     own.matrix_unit == unit);
}

/* The device as the planner is told of it. One may have several units; of one
 * that it does not take itself it holds few work-groups, which go on to other
 * rows or windows. */
static wa_device device_told(const test_device *device, const test_case *c,
                             const wa_device *found, const demand *d)
{
    wa_device told = *found;
    const bool lacks_unit = d->unit && found->matrix_unit != d->unit;
    if (d->registers)
        told.registers = (uint32_t)d->registers;
    if (lacks_unit) {
        told.matrix_unit = d->unit;
        told.compute_units = 2;
    }
    uint32_t groups = (uint32_t)d->groups;
    if (groups == 0 && c->pass == PASS_FORWARD && !is_own(device, d->unit))
        groups = 1;
    if (groups) { /* one to a compute unit */
        told.compute_units = groups;
        told.local_capacity = 0;
    }
    return told;
}

/* No more than so many, where a test demands it. */
static uint64_t bounded(uint64_t value, uint64_t most)
{
    return most && value > most ? most : value;
}

/* Launches of so many work tiles, or windows where work-groups iterate over
 * them; of a backward pass with splits for half of them, and of 50 times as
 * many entries of a table. The workspace was planned for at least as much. */
static void cut_launches(const demand *d, wa_pass pass, wa_schedule *schedule)
{
    const uint32_t launch = (uint32_t)d->launch;
    const uint32_t splits = launch ? launch / 2 + 1 : 0;
    if (launch && pass == WA_FORWARD) {
        schedule->work_tiles_per_launch = launch;
        if (schedule->groups)
            schedule->windows_per_launch = launch;
    }
    if (pass == WA_FORWARD)
        return;
    schedule->windows_per_launch =
        bounded(schedule->windows_per_launch, launch);
    schedule->splits = (uint32_t)bounded(schedule->splits, splits);
    schedule->row_splits = (uint32_t)bounded(schedule->row_splits, splits);
    schedule->entries_per_launch =
        (uint32_t)bounded(schedule->entries_per_launch, 50ull * launch);
}

/* What is launched, and what that takes. */
typedef struct planned {
    wa_problem problem;
    wa_plan plan;
    wa_kernels kernels;
    wa_buffers buffers;
} planned;

static winattn_status make_plan(const test_case *c, const demand *d,
                                const wa_device *told, planned *p)
{
    static const wa_exclusions none;
    const wa_pass pass = c->pass == PASS_FORWARD ? WA_FORWARD : WA_BACKWARD;
    if (d->pairs) /* of a table, by position, however small it is */
        p->problem.table.is_listed = p->problem.table.has_index;
    if (!d->shape[0])
        WA_TRY(wa_plan_make(&p->problem, told, pass, &none, &p->plan));
    else if (demand_plan(c, d, &p->problem, told, &p->plan))
        WA_TRY(wa_plan_finish(&p->problem, told, &p->plan));
    else
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s",
                       p->plan.refusals[c->tier]);
    cut_launches(d, pass, &p->plan.schedule);
    for (int i = WA_STEP_FIRST;
         getenv("WINATTN_TEST_VERBOSE") && i <= WA_STEP_LAST; i++)
        if (p->plan.step[i].kernel)
            printf("%s, %u slots: %s\n", p->plan.step[i].kernel,
                   p->plan.schedule.splits, p->plan.step[i].defines);
    return WINATTN_SUCCESS;
}

static winattn_status make_workspace(const test_device *device, planned *p)
{
    cl_int error = CL_SUCCESS;
    if (p->plan.workspace.all == 0)
        return WINATTN_SUCCESS;
    p->buffers.workspace.offset = 16;
    p->buffers.workspace.buffer =
        clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                       (size_t)p->plan.workspace.all + 16, NULL, &error);
    return error;
}

/* Kernels, lists of a table and a workspace; to be released, also after a
 * failure. */
static winattn_status prepare(const test_device *device, wa_session *session,
                              const wa_device *told, planned *p)
{
    uint32_t most;
    const winattn_status status =
        wa_build_steps(session, &p->problem, &p->plan, &p->kernels, &most);
    if (status == WINATTN_UNSUPPORTED_DEVICE)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "work-group too large");
    WA_TRY(status);
    WA_TRY(wa_table_buffers_make(device->context, told, &p->problem,
                                 &p->buffers.table));
    return make_workspace(device, p);
}

/* What was enqueued keeps what it needs. */
static void release(planned *p)
{
    if (p->buffers.workspace.buffer)
        clReleaseMemObject(p->buffers.workspace.buffer);
    wa_table_buffers_release(&p->buffers.table);
    wa_kernels_release(&p->kernels);
}

/* Commands that wait for a user event read kernels, buffers and events again
 * when it is set, in a thread of NVIDIA's driver (580.159.04), though the
 * application may have released them by then: heaps were damaged. Nothing
 * waits there. */
static bool forgets_what_waits(const test_device *device)
{
    return strstr(device->name, "NVIDIA") != NULL;
}

static winattn_status
launch_behind_gate(const test_device *device, cl_command_queue queue,
                   const planned *p, cl_bitfield accumulate, cl_event *event)
{
    if (forgets_what_waits(device))
        return wa_launch(&p->problem, &p->plan, &p->kernels, queue,
                         &p->buffers, accumulate, 0, NULL, event);
    cl_int error;
    cl_event gate = clCreateUserEvent(device->context, &error);
    if (error != CL_SUCCESS)
        return error;
    const winattn_status status =
        wa_launch(&p->problem, &p->plan, &p->kernels, queue, &p->buffers,
                  accumulate, 1, &gate, event);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
    return status;
}

static winattn_status launch(const test_device *device,
                             const case_buffers *data, const device_buffers *b,
                             const demand *d, wa_session *session,
                             cl_event *event)
{
    const winattn_desc desc = data_desc(data);
    const wa_device told =
        device_told(device, &data->c, wa_session_device(session), d);
    /* several launches may run beside each other, if nothing orders them */
    const cl_command_queue queue =
        d->launch && device->unordered ? device->unordered : device->queue;
    planned p;
    memset(&p, 0, sizeof p);
    for (int id = 0; id < TENSORS; id++)
        p.buffers.tensor[id] = buffers_tensor(data, b, (tensor_id)id);
    WA_TRY(wa_problem_read(&desc, &p.problem));
    WA_TRY(make_plan(&data->c, d, &told, &p));
    winattn_status status = prepare(device, session, &told, &p);
    if (status == WINATTN_SUCCESS)
        status = launch_behind_gate(
            device, queue, &p,
            (cl_bitfield)(data->c.accumulate & data->c.outputs), event);
    release(&p);
    return status;
}

/* ---- Runs ---- */

/* Waits for what was launched; a status that is no success is the reason of
 * the failure. */
static bool take_status(winattn_status status, cl_event event,
                        case_result *result)
{
    result->refused = status == WINATTN_UNSUPPORTED_PROBLEM;
    if (status == WINATTN_SUCCESS && event)
        status = clWaitForEvents(1, &event);
    if (status != WINATTN_SUCCESS)
        snprintf(result->failure, sizeof result->failure, "%s: %s\n%.200s",
                 winattn_status_name(status), winattn_last_reason(),
                 winattn_last_build_log());
    return status == WINATTN_SUCCESS;
}

bool demand_run_buffers(const test_device *device, const case_buffers *data,
                        const device_buffers *b, const void *demanded,
                        case_result *result)
{
    cl_event event = NULL;
    wa_session *session = NULL;
    winattn_status status =
        wa_session_acquire(device->context, device->id, &session);
    if (status == WINATTN_SUCCESS)
        status = launch(device, data, b, demanded, session, &event);
    const bool done = take_status(status, event, result);
    if (event)
        clReleaseEvent(event);
    if (session)
        wa_session_release(session);
    return done;
}

/* Has the plan of the public interface the kernel? */
static bool has_kernel(const test_device *device, const test_case *c,
                       const char *name, case_result *result)
{
    char text[4096], line[128];
    const bool is_planned = case_describe(device, c, text);
    memset(result, 0, sizeof *result);
    snprintf(line, sizeof line, "kernel: %s", name);
    if (strstr(text, line))
        return true;
    snprintf(result->failure, sizeof result->failure, "not by %s: %.300s",
             name, is_planned ? text : winattn_last_reason());
    return false;
}

bool demand_run(const test_device *device, const test_case *c, const demand *d,
                case_result *result)
{
    if (!demand_is_shape(c, d)) {
        memset(result, 0, sizeof *result);
        snprintf(result->failure, sizeof result->failure,
                 "no shape of the kernel: %s %s", d->shape, d->rows);
        return false;
    }
    if (d->kernel[0] && !has_kernel(device, c, d->kernel, result))
        return false;
    if (!d->shape[0] && !d->registers && !d->launch && !d->groups &&
        !d->pairs && is_own(device, d->unit))
        return case_run(device, c, result);
    return case_run_by(device, c, demand_run_buffers, d, result);
}
