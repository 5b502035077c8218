/* SPDX-License-Identifier: Apache-2.0
 * plan -> program -> launch, by hand. */
#include "planned.h"

#include "shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "launch/bias_table.h"
#include "plan/planner.h"
#include "plan/tuning_row.h"
#include "session/build.h"

bool shape_parse(const char *text, wa_local_shape *s)
{
    wa_tuned_shape shape;
    const bool whole = wa_tuned_shape_parse(WA_LOCAL_FORWARD, text, &shape);
    *s = shape.local_forward;
    return whole;
}

void shape_print(const wa_local_shape *s, char *text, size_t size)
{
    const wa_tuned_shape shape = {.local_forward = *s};
    wa_tuned_shape_print(WA_LOCAL_FORWARD, &shape, text, size);
}

bool matrix_shape_parse(const char *text, wa_matrix_shape *s)
{
    wa_tuned_shape shape;
    const bool whole = wa_tuned_shape_parse(WA_MATRIX_FORWARD, text, &shape);
    *s = shape.matrix_forward;
    return whole;
}

void matrix_shape_print(const wa_matrix_shape *s, char *text, size_t size)
{
    const wa_tuned_shape shape = {.matrix_forward = *s};
    wa_tuned_shape_print(WA_MATRIX_FORWARD, &shape, text, size);
}

bool gradient_shape_parse(const char *text, wa_gradient_shape *s)
{
    wa_tuned_shape shape;
    const bool whole = wa_tuned_shape_parse(WA_LOCAL_BACKWARD, text, &shape);
    *s = shape.local_backward.fused;
    return whole;
}

void gradient_shape_print(const wa_gradient_shape *s, char *text, size_t size)
{
    const wa_tuned_shape shape = {.local_backward = {*s, 0}};
    wa_tuned_shape_print(WA_LOCAL_BACKWARD, &shape, text, size);
}

bool matrix_gradient_shape_parse(const char *text, wa_matrix_gradient_shape *s)
{
    wa_tuned_shape shape;
    const bool whole = wa_tuned_shape_parse(WA_MATRIX_BACKWARD, text, &shape);
    *s = shape.matrix_backward;
    return whole;
}

void matrix_gradient_shape_print(const wa_matrix_gradient_shape *s, char *text,
                                 size_t size)
{
    const wa_tuned_shape shape = {.matrix_backward = *s};
    wa_tuned_shape_print(WA_MATRIX_BACKWARD, &shape, text, size);
}

uint32_t matrix_tiles(uint32_t tiles, uint32_t tile, int all)
{
    return tiles == 0 || tiles * tile > (uint32_t)all ? (uint32_t)all
                                                      : tiles * tile;
}

bool planned_lacks_unit(const test_device *device, int tier)
{
    wa_device capabilities;
    if (tier != WINATTN_TIER_MATRIX ||
        wa_device_query(device->id, &capabilities) != WINATTN_SUCCESS ||
        capabilities.matrix_unit)
        return false;
    printf("skipped: the device has no matrix unit\n");
    return true;
}

wa_buffers planned_buffers(const winattn_forward *f)
{
    const wa_buffers buffers = {
        .tensor = {[WA_Q] = f->q,
                   [WA_K] = f->k,
                   [WA_V] = f->v,
                   [WA_BIAS] = f->bias,
                   [WA_MASK] = f->mask,
                   [WA_QUERY_REGIONS] = f->query_regions,
                   [WA_KEY_REGIONS] = f->key_regions,
                   [WA_LOGIT_SCALE] = f->logit_scale,
                   [WA_PAD_K] = f->pad_k,
                   [WA_PAD_V] = f->pad_v,
                   [WA_O] = f->o,
                   [WA_LSE] = f->lse}};
    return buffers;
}

bool demand_local(const wa_problem *problem, const wa_device *device,
                  const wa_local_shape *shape, wa_plan *plan)
{
    const wa_tuned_shape own = {.local_forward = *shape};
    return plan_shape(WA_LOCAL_FORWARD, problem, device, &own, plan);
}

bool demand_matrix(const wa_problem *problem, const wa_device *device,
                   const wa_matrix_shape *shape, wa_plan *plan)
{
    const wa_tuned_shape own = {.matrix_forward = *shape};
    return plan_shape(WA_MATRIX_FORWARD, problem, device, &own, plan);
}

bool demand_gradients(const wa_problem *problem, const wa_device *device,
                      const wa_gradient_shape *rows,
                      const wa_gradient_shape *keys, wa_plan *plan)
{
    const wa_tuned_shape whole = {.local_backward = {*keys, 0}};
    if (!rows)
        return plan_shape(WA_LOCAL_BACKWARD, problem, device, &whole, plan);
    const wa_tuned_shape pair = {.local_pair = {*rows, *keys}};
    return wa_take_shape(&wa_local_pair, problem, device, &pair, plan);
}

bool demand_matrix_gradients(const wa_problem *problem,
                             const wa_device *device,
                             const wa_matrix_gradient_shape *shape,
                             wa_plan *plan)
{
    const wa_tuned_shape own = {.matrix_backward = *shape};
    return plan_shape(WA_MATRIX_BACKWARD, problem, device, &own, plan);
}

/* The shape that a test demands; all NULL: none. */
typedef struct demanded_shape {
    const wa_local_shape *local;
    const wa_matrix_shape *matrix;
    const wa_gradient_shape *rows, *keys; /* rows may be NULL */
    const wa_matrix_gradient_shape *matrix_gradients;
} demanded_shape;

/* So many, one to a compute unit. */
static void tell_held_groups(wa_device *device, uint32_t groups)
{
    if (groups == 0)
        return;
    device->compute_units = groups;
    device->local_capacity = 0;
}

/* Of the unit that a test demands, if any; a device may have several. */
static void tell_unit(wa_device *device, const wa_matrix_unit *unit)
{
    if (!unit || device->matrix_unit == unit)
        return;
    device->matrix_unit = unit;
    device->compute_units = 2; /* a work-group iterates over several windows */
}

/* A plan of the shape that a test demands, if any; else the planner's. */
static winattn_status make_plan(const wa_problem *problem,
                                const wa_device *device, wa_pass pass,
                                const demanded_shape *shape, wa_plan *plan)
{
    static const wa_exclusions none;
    const winattn_tier tier = shape->matrix || shape->matrix_gradients
                                  ? WINATTN_TIER_MATRIX
                                  : WINATTN_TIER_LOCAL;
    bool taken;
    wa_plan_begin(pass, plan);
    if (shape->local)
        taken = demand_local(problem, device, shape->local, plan);
    else if (shape->matrix)
        taken = demand_matrix(problem, device, shape->matrix, plan);
    else if (shape->matrix_gradients)
        taken = demand_matrix_gradients(problem, device,
                                        shape->matrix_gradients, plan);
    else if (shape->keys)
        taken =
            demand_gradients(problem, device, shape->rows, shape->keys, plan);
    else
        return wa_plan_make(problem, device, pass, &none, plan);
    return taken ? wa_plan_finish(problem, device, plan)
                 : wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s",
                           plan->refusals[tier]);
}

/* What is launched, and what that takes. */
typedef struct planned {
    wa_problem problem;
    wa_plan plan;
    wa_kernels kernels;
    wa_buffers buffers;
} planned;

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

static winattn_status plan_forward(const wa_device *told,
                                   const demanded_plan *demand, planned *p)
{
    const demanded_shape shape = {.local = demand->shape,
                                  .matrix = demand->matrix};
    wa_schedule *schedule = &p->plan.schedule;
    WA_TRY(make_plan(&p->problem, told, WA_FORWARD, &shape, &p->plan));
    if (demand->work_tiles_per_launch)
        schedule->work_tiles_per_launch = demand->work_tiles_per_launch;
    if (demand->work_tiles_per_launch && schedule->groups)
        schedule->windows_per_launch = demand->work_tiles_per_launch;
    if (demand->persistent_multi_block && !schedule->persistent_multi_block)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "work-groups have one block of rows each");
    return WINATTN_SUCCESS;
}

static winattn_status launch_forward(const test_device *device,
                                     cl_command_queue queue,
                                     const case_buffers *data,
                                     const device_buffers *b,
                                     const demanded_plan *demand,
                                     wa_session *session, cl_event *event)
{
    const winattn_desc desc = data_desc(data);
    const winattn_forward forward = buffers_forward(data, b);
    wa_device told = *wa_session_device(session);
    planned p = {.buffers = planned_buffers(&forward)};
    tell_unit(&told, demand->matrix_unit);
    tell_held_groups(&told, demand->held_groups);
    WA_TRY(wa_problem_read(&desc, &p.problem));
    WA_TRY(plan_forward(&told, demand, &p));
    winattn_status status = prepare(device, session, &told, &p);
    if (status == WINATTN_SUCCESS)
        status = launch_behind_gate(device, queue, &p, 0, event);
    release(&p);
    return status;
}

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

bool planned_run_buffers(const test_device *device, cl_command_queue queue,
                         const case_buffers *data, const device_buffers *b,
                         const demanded_plan *demand, case_result *result)
{
    cl_event event = NULL;
    wa_session *session = NULL;
    winattn_status status =
        wa_session_acquire(device->context, device->id, &session);
    if (status == WINATTN_SUCCESS)
        status =
            launch_forward(device, queue, data, b, demand, session, &event);
    const bool done = take_status(status, event, result);
    if (event)
        clReleaseEvent(event);
    if (session)
        wa_session_release(session);
    return done;
}

bool planned_run(const test_device *device, cl_command_queue queue,
                 const test_case *c, const demanded_plan *demand,
                 case_result *result)
{
    bool passed = false;
    device_buffers b;
    memset(result, 0, sizeof *result);
    memset(&b, 0, sizeof b);
    case_buffers *data = data_make(c);
    if (!data || !buffers_create(device, data, &b))
        snprintf(result->failure, sizeof result->failure, "out of memory");
    else
        passed =
            planned_run_buffers(device, queue, data, &b, demand, result) &&
            buffers_check(device->queue, data, &b, 0, result);
    buffers_release(&b);
    data_free(data);
    return passed;
}

/* No more than so many, where a test demands it. */
static uint64_t bounded(uint64_t value, uint64_t most)
{
    return most && value > most ? most : value;
}

static winattn_status plan_backward(const wa_device *told,
                                    const demanded_backward *demand,
                                    planned *p)
{
    const demanded_shape shape = {.rows = demand->rows,
                                  .keys = demand->keys,
                                  .matrix_gradients = demand->matrix};
    const unsigned windows = demand->windows;
    const unsigned splits = windows ? windows / 2 + 1 : 0;
    wa_schedule *schedule = &p->plan.schedule;
    if (demand->finds_pairs)
        p->problem.table.is_listed = p->problem.table.has_index;
    WA_TRY(make_plan(&p->problem, told, WA_BACKWARD, &shape, &p->plan));
    /* the workspace was planned for at least as much */
    schedule->windows_per_launch =
        bounded(schedule->windows_per_launch, windows);
    schedule->splits = (uint32_t)bounded(schedule->splits, splits);
    schedule->row_splits = (uint32_t)bounded(schedule->row_splits, splits);
    schedule->entries_per_launch =
        (uint32_t)bounded(schedule->entries_per_launch, 50ull * windows);
    if (getenv("WINATTN_TEST_VERBOSE"))
        for (int i = WA_STEP_FIRST; i <= WA_STEP_LAST; i++)
            if (p->plan.step[i].kernel)
                printf("%s, %u slots: %s\n", p->plan.step[i].kernel,
                       schedule->splits, p->plan.step[i].defines);
    return WINATTN_SUCCESS;
}

static wa_buffers gradient_buffers(const winattn_backward *call)
{
    const wa_buffers buffers = {
        .tensor = {[WA_Q] = call->q,
                   [WA_K] = call->k,
                   [WA_V] = call->v,
                   [WA_BIAS] = call->bias,
                   [WA_MASK] = call->mask,
                   [WA_QUERY_REGIONS] = call->query_regions,
                   [WA_KEY_REGIONS] = call->key_regions,
                   [WA_LOGIT_SCALE] = call->logit_scale,
                   [WA_PAD_K] = call->pad_k,
                   [WA_PAD_V] = call->pad_v,
                   [WA_O] = call->o,
                   [WA_LSE] = call->lse,
                   [WA_D_O] = call->d_o,
                   [WA_D_LSE] = call->d_lse,
                   [WA_DQ] = call->dq,
                   [WA_DK] = call->dk,
                   [WA_DV] = call->dv,
                   [WA_DBIAS] = call->dbias,
                   [WA_D_LOGIT_SCALE] = call->d_logit_scale,
                   [WA_D_PAD_K] = call->d_pad_k,
                   [WA_D_PAD_V] = call->d_pad_v}};
    return buffers;
}

/* The device as the planner is told of it. */
static wa_device device_told(const wa_device *device,
                             const demanded_backward *demand)
{
    wa_device told = *device;
    if (demand->registers)
        told.registers = demand->registers;
    tell_unit(&told, demand->matrix_unit);
    tell_held_groups(&told, demand->held_groups);
    return told;
}

static winattn_status launch_backward(const test_device *device,
                                      cl_command_queue queue,
                                      const case_buffers *data,
                                      const device_buffers *b,
                                      const demanded_backward *demand,
                                      wa_session *session, cl_event *event)
{
    const winattn_desc desc = data_desc(data);
    const winattn_backward call = buffers_backward(data, b);
    const wa_device told = device_told(wa_session_device(session), demand);
    planned p = {.buffers = gradient_buffers(&call)};
    WA_TRY(wa_problem_read(&desc, &p.problem));
    WA_TRY(plan_backward(&told, demand, &p));
    winattn_status status = prepare(device, session, &told, &p);
    if (status == WINATTN_SUCCESS)
        status = launch_behind_gate(device, queue, &p, call.accumulate, event);
    release(&p);
    return status;
}

bool planned_backward_buffers(const test_device *device,
                              cl_command_queue queue, const case_buffers *data,
                              const device_buffers *b,
                              const demanded_backward *demand,
                              case_result *result)
{
    cl_event event = NULL;
    wa_session *session = NULL;
    winattn_status status =
        wa_session_acquire(device->context, device->id, &session);
    if (status == WINATTN_SUCCESS)
        status =
            launch_backward(device, queue, data, b, demand, session, &event);
    const bool done = take_status(status, event, result);
    if (event)
        clReleaseEvent(event);
    if (session)
        wa_session_release(session);
    return done;
}

bool planned_backward(const test_device *device, cl_command_queue queue,
                      const test_case *c, const demanded_backward *demand,
                      case_result *result)
{
    bool passed = false;
    device_buffers b;
    memset(result, 0, sizeof *result);
    memset(&b, 0, sizeof b);
    case_buffers *data = data_make(c);
    if (!data || !buffers_create(device, data, &b))
        snprintf(result->failure, sizeof result->failure, "out of memory");
    else
        passed = buffers_fill_given(device, data, &b, result) &&
                 planned_backward_buffers(device, queue, data, &b, demand,
                                          result) &&
                 buffers_check(device->queue, data, &b, 0, result);
    buffers_release(&b);
    data_free(data);
    return passed;
}
