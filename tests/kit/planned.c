/* SPDX-License-Identifier: Apache-2.0
 * plan -> program -> launch, by hand. */
#include "planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "launch/bias_table.h"
#include "launch/launch_backward.h"
#include "plan/tuning_row.h"
#include "session/session.h"

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
    *s = shape.local_backward.whole;
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
        capabilities.unit)
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

/* So many, one to a compute unit. */
static void tell_held_groups(wa_device *device, uint32_t groups)
{
    if (groups == 0)
        return;
    device->compute_units = groups;
    device->local_capacity = 0;
}

/* Of the unit that a test demands, if any. */
static void tell_unit(wa_device *device, const wa_unit *unit)
{
    if (!unit || device->unit == unit)
        return;
    device->unit = unit;
    device->emulates_unit = true;
    device->compute_units = 2; /* a work-group walks several windows */
}

static winattn_status make_plan(const wa_problem *problem,
                                const wa_device *device,
                                const demanded_plan *demand, wa_plan *plan)
{
    static const wa_exclusions none;
    if (demand->matrix) {
        memset(plan, 0, sizeof *plan);
        if (!wa_plan_matrix_shape(problem, device, demand->matrix, plan))
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s",
                           plan->refusals[WINATTN_TIER_MATRIX]);
        WA_TRY(wa_plan_finish(problem, device, plan));
    } else if (!demand->shape) {
        WA_TRY(wa_plan_make(problem, device, &none, plan));
    } else {
        memset(plan, 0, sizeof *plan);
        if (!wa_plan_local_shape(problem, device, demand->shape, plan))
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s",
                           plan->refusals[WINATTN_TIER_LOCAL]);
        WA_TRY(wa_plan_finish(problem, device, plan));
    }
    if (demand->units_per_launch)
        plan->units_per_launch = demand->units_per_launch;
    if (demand->units_per_launch && plan->groups)
        plan->windows_per_launch = demand->units_per_launch;
    return WINATTN_SUCCESS;
}

/* The kernels that a plan wants; what was built is left to release. */
static winattn_status build_forward(wa_session *session,
                                    const wa_problem *problem,
                                    const wa_plan *plan,
                                    wa_forward_kernels *kernels)
{
    char defines[WA_DEFINES_SIZE] = "";
    WA_TRY(wa_session_kernel(session, plan->kernel, plan->defines,
                             problem->build_options, &kernels->main));
    if (!plan->expands_table)
        return WINATTN_SUCCESS;
    wa_append_table(problem, defines, sizeof defines);
    return wa_session_kernel(session, "expand_table", defines,
                             problem->build_options, &kernels->expand);
}

static winattn_status
launch_behind_gate(const test_device *device, cl_command_queue queue,
                   const wa_problem *problem, const wa_plan *plan,
                   const wa_forward_kernels *kernels,
                   const wa_buffers *buffers, cl_event *event)
{
    cl_int error;
    cl_event gate = clCreateUserEvent(device->context, &error);
    if (error != CL_SUCCESS)
        return error;
    const winattn_status status = wa_launch_forward(
        problem, plan, kernels, queue, buffers, 1, &gate, event);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
    return status;
}

/* Of a kernel of tier matrix: may a work-group have so many work-items? */
static winattn_status check_work_group(const test_device *device,
                                       const wa_device *told, cl_kernel kernel,
                                       size_t work_group)
{
    size_t most = work_group;
    clGetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE,
                             sizeof most, &most, NULL);
    return most < work_group && told->reports_kernel_sizes
               ? wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "work-group too large")
               : WINATTN_SUCCESS;
}

static winattn_status launch(const test_device *device, cl_command_queue queue,
                             const case_buffers *data, const device_buffers *b,
                             const demanded_plan *demand, wa_session *session,
                             cl_event *event)
{
    const winattn_desc desc = data_desc(data);
    const winattn_forward forward = buffers_forward(data, b);
    wa_buffers buffers = planned_buffers(&forward);
    wa_device told = *wa_session_device(session);
    wa_problem problem;
    wa_plan plan;
    wa_forward_kernels kernels = {NULL, NULL};
    cl_int error = CL_SUCCESS;
    tell_unit(&told, demand->unit);
    tell_held_groups(&told, demand->held_groups);
    WA_TRY(wa_problem_read(&desc, &problem));
    WA_TRY(make_plan(&problem, &told, demand, &plan));
    if (demand->shares_owners && !plan.shares_owners)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "work-groups have one block of rows each");
    winattn_status status = build_forward(session, &problem, &plan, &kernels);
    if (status == WINATTN_SUCCESS && demand->matrix)
        status =
            check_work_group(device, &told, kernels.main, plan.work_group);
    if (status == WINATTN_SUCCESS)
        status = wa_table_buffers_make(device->context, &told, &problem,
                                       &buffers.table);
    if (status == WINATTN_SUCCESS && plan.workspace_bytes != 0) {
        buffers.workspace.offset = 16;
        buffers.workspace.buffer =
            clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                           (size_t)plan.workspace_bytes + 16, NULL, &error);
        status = error;
    }
    if (status == WINATTN_SUCCESS)
        status = launch_behind_gate(device, queue, &problem, &plan, &kernels,
                                    &buffers, event);
    /* what was enqueued keeps what it needs */
    if (buffers.workspace.buffer)
        clReleaseMemObject(buffers.workspace.buffer);
    wa_table_buffers_release(&buffers.table);
    if (kernels.expand)
        clReleaseKernel(kernels.expand);
    if (kernels.main)
        clReleaseKernel(kernels.main);
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
        status = launch(device, queue, data, b, demand, session, &event);
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

static winattn_status make_backward_plan(const wa_problem *problem,
                                         const wa_device *device,
                                         const demanded_backward *demand,
                                         wa_backward_plan *plan)
{
    static const wa_exclusions none;
    if (!demand->keys && !demand->matrix) {
        WA_TRY(wa_backward_plan_make(problem, device, &none, plan));
    } else {
        memset(plan, 0, sizeof *plan);
        if (!(demand->matrix
                  ? wa_plan_backward_matrix_shape(problem, device,
                                                  demand->matrix, plan)
                  : wa_plan_backward_shapes(problem, device, demand->rows,
                                            demand->keys, plan)))
            return wa_fail(
                WINATTN_UNSUPPORTED_PROBLEM, "%s",
                plan->refusals[demand->matrix ? WINATTN_TIER_MATRIX
                                              : WINATTN_TIER_LOCAL]);
        wa_backward_plan_finish(problem, device, plan);
    }
    /* the workspace was planned for at least as much */
    if (demand->windows && plan->windows_per_launch > demand->windows)
        plan->windows_per_launch = demand->windows;
    if (demand->windows && plan->slots > demand->windows / 2 + 1)
        plan->slots = demand->windows / 2 + 1;
    if (demand->windows && plan->row_slots > demand->windows / 2 + 1)
        plan->row_slots = demand->windows / 2 + 1;
    if (demand->windows && plan->entries_per_launch > 50 * demand->windows)
        plan->entries_per_launch = 50 * demand->windows;
    if (getenv("WINATTN_TEST_VERBOSE"))
        for (int i = WA_BACKWARD_FIRST; i <= WA_BACKWARD_LAST; i++)
            if (plan->kernels[i].name)
                printf("%s, %u slots: %s\n", plan->kernels[i].name,
                       plan->slots, plan->kernels[i].defines);
    return WINATTN_SUCCESS;
}

static winattn_status launch_backward(const test_device *device,
                                      cl_command_queue queue,
                                      const case_buffers *data,
                                      const device_buffers *b,
                                      const demanded_backward *demand,
                                      wa_session *session, cl_mem *workspace)
{
    const winattn_desc desc = data_desc(data);
    const winattn_backward call = buffers_backward(data, b);
    wa_problem problem;
    wa_backward_plan plan;
    wa_backward_kernels kernels;
    cl_event event = NULL;
    cl_int error;
    WA_TRY(wa_problem_read(&desc, &problem));
    if (demand->finds_pairs)
        problem.table.is_listed = problem.table.has_index;
    memset(&kernels, 0, sizeof kernels);
    wa_device told = *wa_session_device(session);
    if (demand->registers)
        told.registers = demand->registers;
    tell_unit(&told, demand->unit);
    /* PoCL keeps all work-items' variables of a work-group on one stack, where
     * those of 512 emulated lanes were seen to overflow */
    if (told.emulates_unit && !demand->matrix && told.max_work_group > 256)
        told.max_work_group = 256;
    WA_TRY(make_backward_plan(&problem, &told, demand, &plan));
    *workspace =
        clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                       (size_t)plan.workspace_bytes + 16, NULL, &error);
    if (error != CL_SUCCESS)
        return error;
    wa_buffers buffers = {.tensor = {[WA_Q] = call.q,
                                     [WA_K] = call.k,
                                     [WA_V] = call.v,
                                     [WA_BIAS] = call.bias,
                                     [WA_MASK] = call.mask,
                                     [WA_QUERY_REGIONS] = call.query_regions,
                                     [WA_KEY_REGIONS] = call.key_regions,
                                     [WA_LOGIT_SCALE] = call.logit_scale,
                                     [WA_PAD_K] = call.pad_k,
                                     [WA_PAD_V] = call.pad_v,
                                     [WA_O] = call.o,
                                     [WA_LSE] = call.lse,
                                     [WA_D_O] = call.d_o,
                                     [WA_D_LSE] = call.d_lse,
                                     [WA_DQ] = call.dq,
                                     [WA_DK] = call.dk,
                                     [WA_DV] = call.dv,
                                     [WA_DBIAS] = call.dbias,
                                     [WA_D_LOGIT_SCALE] = call.d_logit_scale,
                                     [WA_D_PAD_K] = call.d_pad_k,
                                     [WA_D_PAD_V] = call.d_pad_v},
                          .workspace = {*workspace, 16}};
    winattn_status status = wa_table_buffers_make(device->context, &told,
                                                  &problem, &buffers.table);
    for (int i = 0; i < WA_BACKWARD_PARTS && status == WINATTN_SUCCESS; i++) {
        const wa_backward_kernel *part = &plan.kernels[i];
        if (part->name)
            status =
                wa_session_kernel(session, part->name, part->defines,
                                  problem.build_options, &kernels.part[i]);
    }
    if (status == WINATTN_SUCCESS && demand->matrix)
        status =
            check_work_group(device, &told, kernels.part[WA_BACKWARD_KEYS],
                             plan.kernels[WA_BACKWARD_KEYS].work_group);
    if (status == WINATTN_SUCCESS)
        status = wa_launch_backward(&problem, &plan, &kernels, queue, &buffers,
                                    call.accumulate, 0, NULL, &event);
    if (status == WINATTN_SUCCESS)
        status = clWaitForEvents(1, &event);
    if (event)
        clReleaseEvent(event);
    for (int i = 0; i < WA_BACKWARD_PARTS; i++)
        if (kernels.part[i])
            clReleaseKernel(kernels.part[i]);
    wa_table_buffers_release(&buffers.table);
    return status;
}

bool planned_backward_buffers(const test_device *device,
                              cl_command_queue queue, const case_buffers *data,
                              const device_buffers *b,
                              const demanded_backward *demand,
                              case_result *result)
{
    wa_session *session = NULL;
    cl_mem workspace = NULL;
    winattn_status status =
        wa_session_acquire(device->context, device->id, &session);
    if (status == WINATTN_SUCCESS)
        status = launch_backward(device, queue, data, b, demand, session,
                                 &workspace);
    const bool done = take_status(status, NULL, result);
    if (session)
        wa_session_release(session);
    if (workspace)
        clReleaseMemObject(workspace);
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
