/* SPDX-License-Identifier: Apache-2.0
 * The public entry points of plans and calls: argument checks, lifetimes. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/os.h"
#include "base/process.h"
#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "launch/bias_table.h"
#include "launch/check.h"
#include "launch/list.h"
#include "plan/family.h"
#include "plan/tuning.h"
#include "program/cache.h"
#include "session/build.h"

struct winattn_plan {
    wa_problem problem;
    wa_session *session;
    wa_lock *lock; /* held from the first clSetKernelArg to the last enqueue */
    wa_plan passes[WA_PASSES];     /* zeroed where one is not planned, */
    wa_kernels kernels[WA_PASSES]; /* and no kernels then */
    const char *origin; /* of the program of the first pass's main step */
    wa_table_buffers table;
};

int winattn_version(void) { return WINATTN_VERSION; }

winattn_status winattn_load_tuning(const char *text)
{
    wa_forget_failure();
    return wa_load_tuning(text);
}

/* Plans and builds the passes that the problem is for. */
static winattn_status build_passes(winattn_plan *plan)
{
    for (wa_pass pass = WA_FORWARD; pass < WA_PASSES; pass++) {
        wa_kernels *kernels = &plan->kernels[pass];
        if (!plan->problem.passes[pass])
            continue;
        WA_TRY(wa_build_pass(plan->session, &plan->problem, pass, &plan->table,
                             &plan->passes[pass], kernels));
        if (!plan->origin)
            WA_TRY(wa_program_set_origin(wa_session_programs(plan->session),
                                         kernels->step[wa_main_step(pass)],
                                         &plan->origin));
    }
    return WINATTN_SUCCESS;
}

winattn_status winattn_plan_create(cl_context context, cl_device_id device,
                                   const winattn_desc *desc,
                                   winattn_plan **result)
{
    wa_forget_failure();
    WA_WANT(result, "plan");
    *result = NULL;
    winattn_plan *plan = calloc(1, sizeof *plan);
    WA_TRY_MEMORY(plan);
    winattn_status status = wa_problem_read(desc, &plan->problem);
    WA_THEN(status, wa_read_tuning());
    WA_THEN(status, wa_session_acquire(context, device, &plan->session));
    if (status == WINATTN_SUCCESS && !(plan->lock = wa_lock_create()))
        status = wa_fail_memory();
    WA_THEN(status, wa_table_buffers_make(wa_session_context(plan->session),
                                          wa_session_device(plan->session),
                                          &plan->problem, &plan->table));
    WA_THEN(status, build_passes(plan));
    if (status != WINATTN_SUCCESS) {
        winattn_plan_destroy(plan);
        return status;
    }
    /* the caller's memory */
    plan->problem.table.index = NULL;
    plan->problem.build_options = NULL;
    *result = plan;
    return WINATTN_SUCCESS;
}

void winattn_plan_destroy(winattn_plan *plan)
{
    if (!plan || wa_session_is_inherited(plan->session))
        return;
    for (wa_pass pass = WA_FORWARD; pass < WA_PASSES; pass++)
        wa_kernels_release(&plan->kernels[pass]);
    wa_table_buffers_release(&plan->table);
    wa_lock_destroy(plan->lock);
    wa_session_release(plan->session);
    free(plan);
}

winattn_status winattn_plan_workspace_size(const winattn_plan *plan,
                                           size_t *size)
{
    wa_forget_failure();
    WA_WANT(plan, "plan");
    WA_WANT(size, "size");
    const uint64_t forward = plan->passes[WA_FORWARD].workspace.all;
    const uint64_t backward = plan->passes[WA_BACKWARD].workspace.all;
    *size = (size_t)(forward > backward ? forward : backward);
    return WINATTN_SUCCESS;
}

/* Legal, for batches that may be empty, but more often forgotten than meant;
 * enqueueing cannot tell, so the plan does. */
static void describe_nothing(const wa_problem *problem, char *text,
                             size_t size)
{
    if (problem->windows == 0)
        wa_append(text, size, "computes: nothing, as %s is 0\n",
                  problem->grid.used ? "grid.batch" : "windows");
}

static void describe_device(const wa_device *device, char *text, size_t size)
{
    wa_append(text, size, "device: %s (%s, driver %s)\n", device->name,
              device->platform, device->driver);
}

winattn_status winattn_plan_describe(const winattn_plan *plan, size_t size,
                                     char *text, size_t *needed)
{
    wa_forget_failure();
    WA_WANT(plan, "plan");
    char all[8192] = "";
    describe_nothing(&plan->problem, all, sizeof all);
    if (plan->problem.passes[WA_FORWARD])
        describe_device(wa_session_device(plan->session), all, sizeof all);
    for (wa_pass pass = WA_FORWARD; pass < WA_PASSES; pass++)
        if (plan->problem.passes[pass])
            wa_plan_describe(&plan->passes[pass], all, sizeof all);
    const char *trouble = wa_cache_trouble();
    wa_describe_tuning(all, sizeof all);
    if (trouble)
        wa_append(all, sizeof all, "cache: there is none: %s\n", trouble);
    wa_append(all, sizeof all, "program: %s\n", plan->origin);
    return wa_give_text(all, size, text, needed);
}

static winattn_status check_pass(const winattn_plan *plan, wa_pass pass)
{
    return plan->problem.passes[pass]
               ? WINATTN_SUCCESS
               : WA_INVALID("the plan was made without the %s pass",
                            pass == WA_FORWARD ? "forward" : "backward");
}

/* Which outputs there are. */
static winattn_status check_gradients(const wa_buffers *buffers,
                                      cl_bitfield accumulate)
{
    static const cl_bitfield outputs = WINATTN_DQ | WINATTN_DK | WINATTN_DV |
                                       WINATTN_DBIAS | WINATTN_D_LOGIT_SCALE |
                                       WINATTN_D_PAD_K | WINATTN_D_PAD_V;
    const winattn_tensor *tensor = buffers->tensor;
    if ((accumulate & ~outputs) != 0)
        return WA_INVALID("accumulate has a bit that is no output");
    if (tensor[WA_D_LOGIT_SCALE].buffer && !tensor[WA_LOGIT_SCALE].buffer)
        return WA_INVALID("d_logit_scale is given, but logit_scale is NULL");
    return WINATTN_SUCCESS;
}

/* What every call checks besides its tensors. */
static winattn_status check_call(const winattn_plan *plan, wa_pass pass,
                                 cl_command_queue queue, cl_uint wait_count,
                                 const cl_event *wait_list)
{
    WA_TRY(check_pass(plan, pass));
    return wa_check_queue(queue, wa_session_context(plan->session),
                          wa_session_device_id(plan->session), wait_count,
                          wait_list);
}

static winattn_status launch(const winattn_plan *plan, wa_pass pass,
                             cl_command_queue queue, const wa_buffers *given,
                             cl_bitfield accumulate, cl_uint wait_count,
                             const cl_event *wait_list, cl_event *event)
{
    const wa_plan *planned = &plan->passes[pass];
    wa_buffers buffers = *given;
    WA_TRY(wa_check_buffers(&plan->problem, pass, planned->workspace.all,
                            wa_session_context(plan->session), &buffers,
                            accumulate));
    wa_lock_take(plan->lock);
    const winattn_status status =
        wa_launch(&plan->problem, planned, &plan->kernels[pass], queue,
                  &buffers, accumulate, wait_count, wait_list, event);
    wa_lock_release(plan->lock);
    return status;
}

/* Those of a call, from q to the last, stand in it as wa_tensor_id has them.
 */
#define COPY_TENSORS(buffers, call, type, last_id, last)                      \
    do {                                                                      \
        _Static_assert(offsetof(type, last) ==                                \
                           offsetof(type, q) +                                \
                               (last_id) * sizeof(winattn_tensor),            \
                       "tensors in another order");                           \
        memcpy((buffers).tensor, (const char *)&(call) + offsetof(type, q),   \
               ((last_id) + 1) * sizeof(winattn_tensor));                     \
    } while (0)

winattn_status
winattn_enqueue_forward(const winattn_plan *plan, cl_command_queue queue,
                        const winattn_forward *forward, cl_uint wait_count,
                        const cl_event *wait_list, cl_event *event)
{
    winattn_forward own;
    wa_forget_failure();
    WA_WANT(plan, "plan");
    WA_TRY(wa_read_struct("forward", forward, &own, sizeof own,
                          offsetof(winattn_forward, lse)));
    WA_TRY(check_call(plan, WA_FORWARD, queue, wait_count, wait_list));
    if (plan->problem.windows == 0) {
        if (!event)
            return WINATTN_SUCCESS;
        return WA_CL(clEnqueueMarkerWithWaitList, queue, wait_count, wait_list,
                     event);
    }
    wa_buffers buffers = {.workspace = own.workspace, .table = plan->table};
    COPY_TENSORS(buffers, own, winattn_forward, WA_LSE, lse);
    return launch(plan, WA_FORWARD, queue, &buffers, 0, wait_count, wait_list,
                  event);
}

winattn_status
winattn_enqueue_backward(const winattn_plan *plan, cl_command_queue queue,
                         const winattn_backward *backward, cl_uint wait_count,
                         const cl_event *wait_list, cl_event *event)
{
    winattn_backward own;
    wa_forget_failure();
    WA_WANT(plan, "plan");
    WA_TRY(wa_read_struct("backward", backward, &own, sizeof own,
                          offsetof(winattn_backward, d_lse)));
    WA_TRY(check_call(plan, WA_BACKWARD, queue, wait_count, wait_list));
    wa_buffers buffers = {.workspace = own.workspace, .table = plan->table};
    COPY_TENSORS(buffers, own, winattn_backward, WA_D_PAD_V, d_pad_v);
    WA_TRY(check_gradients(&buffers, own.accumulate));
    return launch(plan, WA_BACKWARD, queue, &buffers, own.accumulate,
                  wait_count, wait_list, event);
}

/* ---- Other runtimes ---- */

winattn_launch_list *wa_plan_begin_list(const winattn_plan *plan)
{
    return wa_list_create(wa_session_context(plan->session),
                          wa_session_device_id(plan->session));
}

bool wa_plan_is_checked(const winattn_plan *plan, wa_pass pass)
{
    return plan->passes[pass].family->engine > WA_ENGINE_MATRIX;
}

winattn_status wa_plan_check(const winattn_plan *plan, wa_pass pass,
                             wa_runner *runner, void *data)
{
    wa_problem problem = plan->problem;
    problem.build_options = ""; /* of plain kernels */
    return wa_check_family(plan->session, &problem, &plan->passes[pass],
                           &plan->kernels[pass], &plan->table, runner, data);
}

static winattn_status write_down(const winattn_plan *plan, wa_pass pass,
                                 const winattn_memory *memory,
                                 cl_bitfield accumulate,
                                 winattn_launch_list *list)
{
    const wa_plan *planned = &plan->passes[pass];
    const uint64_t workspace = planned->workspace.all;
    wa_buffers buffers = {.table = plan->table};
    if (pass == WA_FORWARD && plan->problem.windows == 0)
        return WINATTN_SUCCESS;
    wa_list_place(list, &plan->problem, workspace, memory, &buffers);
    WA_TRY(check_gradients(&buffers, accumulate));
    WA_TRY(wa_check_buffers(&plan->problem, pass, workspace,
                            wa_session_context(plan->session), &buffers,
                            accumulate));
    return wa_list_launches(&plan->problem, planned, &plan->kernels[pass],
                            &buffers, accumulate, list);
}

winattn_status winattn_launch_list_create(const winattn_plan *plan,
                                          cl_bitfield passes,
                                          const winattn_memory *memory,
                                          cl_bitfield accumulate,
                                          winattn_launch_list **result)
{
    const wa_pass pass =
        passes == WINATTN_PASS_FORWARD ? WA_FORWARD : WA_BACKWARD;
    wa_forget_failure();
    WA_WANT(result, "list");
    *result = NULL;
    WA_WANT(plan, "plan");
    WA_WANT(memory, "memory");
    if (passes != WINATTN_PASS_FORWARD && passes != WINATTN_PASS_BACKWARD)
        return WA_INVALID("a list is of one pass, forward or backward");
    if (pass == WA_FORWARD && accumulate != 0)
        return WA_INVALID("accumulate belongs to the backward pass");
    WA_TRY(wa_check_process());
    WA_TRY(check_pass(plan, pass));
    winattn_launch_list *list = wa_plan_begin_list(plan);
    WA_TRY_MEMORY(list);
    const winattn_status status =
        write_down(plan, pass, memory, accumulate, list);
    if (status != WINATTN_SUCCESS)
        winattn_launch_list_destroy(list);
    else
        *result = list;
    return status;
}
