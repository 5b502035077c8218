/* SPDX-License-Identifier: Apache-2.0
 * The public entry points: argument checks, lifetimes, and the loop that plans
 * again where a kernel does not build. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch_backward.h"
#include "os.h"
#include "plan_backward.h"
#include "session.h"
#include "status.h"
#include "trial.h"

struct winattn_plan {
    wa_problem problem;
    wa_plan plan;
    wa_session *session;
    wa_lock *lock; /* held from the first clSetKernelArg to the last enqueue */
    cl_kernel kernel;   /* NULL without a forward pass */
    const char *origin; /* of the kernel's program */
    wa_backward_plan backward;
    wa_backward_kernels backward_kernels;
};

int winattn_version(void) { return WINATTN_VERSION; }

/* A kernel that built can still be one that the device cannot run. */
static winattn_status check_kernel(const wa_plan *plan,
                                   const wa_session *session, cl_kernel kernel)
{
    size_t size = 0;
    const cl_int error = clGetKernelWorkGroupInfo(
        kernel, wa_session_device_id(session), CL_KERNEL_WORK_GROUP_SIZE,
        sizeof size, &size, NULL);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetKernelWorkGroupInfo");
    if (size < plan->work_group &&
        wa_session_device(session)->reports_kernel_sizes)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "the kernel built for work-groups of %llu, not %u",
                       (unsigned long long)size, plan->work_group);
    return WINATTN_SUCCESS;
}

/* Lets the binary of a new program be kept, once it is complete. */
static void keep_binary(winattn_plan *plan)
{
    wa_program_set *set = wa_session_programs(plan->session);
    plan->origin = wa_program_set_origin(set, plan->kernel);
    if (!wa_program_set_keeps(set, plan->kernel))
        return;
    wa_trial_forward(wa_session_context(plan->session),
                     wa_session_device_id(plan->session), &plan->problem,
                     &plan->plan, plan->kernel);
    wa_program_set_keep(set, plan->kernel);
}

/* Builds a kernel with a plan's options and the caller's. */
static winattn_status build(const winattn_plan *plan, const char *name,
                            const char *defines, cl_kernel *kernel)
{
    const char *extra = plan->problem.build_options;
    const size_t size = strlen(defines) + strlen(extra) + 2;
    char *options = malloc(size);
    if (!options)
        return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
    snprintf(options, size, "%s %s", defines, extra);
    const winattn_status status =
        wa_session_kernel(plan->session, name, options, kernel);
    free(options);
    return status;
}

/* Plans, builds and checks; a tier that fails is excluded and the next one
 * planned. */
static winattn_status choose_kernel(winattn_plan *plan)
{
    wa_exclusions exclusions;
    memset(&exclusions, 0, sizeof exclusions);
    winattn_status failure = WINATTN_SUCCESS;
    const char *first_reason = "";
    for (;;) {
        winattn_status status =
            wa_plan_make(&plan->problem, wa_session_device(plan->session),
                         &exclusions, &plan->plan);
        if (status != WINATTN_SUCCESS && failure != WINATTN_SUCCESS)
            return wa_fail(failure, "%s", first_reason);
        if (status != WINATTN_SUCCESS)
            return status;
        status =
            build(plan, plan->plan.kernel, plan->plan.defines, &plan->kernel);
        if (status == WINATTN_SUCCESS)
            status = check_kernel(&plan->plan, plan->session, plan->kernel);
        if (status == WINATTN_SUCCESS) {
            keep_binary(plan);
            wa_forget_failure();
            return status;
        }
        if (plan->kernel) {
            clReleaseKernel(plan->kernel);
            plan->kernel = NULL;
        }
        /* the first failure is the best tier's */
        char *reason = exclusions.reason[plan->plan.tier];
        snprintf(reason, WA_REASON_SIZE, "%.200s", winattn_last_reason());
        if (failure == WINATTN_SUCCESS) {
            failure = status;
            first_reason = reason;
        }
    }
}

static winattn_status prepare_backward(winattn_plan *plan)
{
    wa_backward_plan *backward = &plan->backward;
    wa_backward_kernels *kernels = &plan->backward_kernels;
    wa_program_set *set = wa_session_programs(plan->session);
    WA_TRY(wa_backward_plan_make(&plan->problem,
                                 wa_session_device(plan->session), backward));
    if (!backward->whole)
        WA_TRY(build(plan, "backward_rows_cpu", backward->defines,
                     &kernels->rows));
    WA_TRY(
        build(plan, "backward_keys_cpu", backward->defines, &kernels->keys));
    WA_TRY(build(plan, "sum_partials", "", &kernels->sum));
    if (!plan->origin)
        plan->origin = wa_program_set_origin(set, kernels->keys);
    if (!wa_program_set_keeps(set, kernels->keys))
        return WINATTN_SUCCESS;
    wa_trial_backward(wa_session_context(plan->session),
                      wa_session_device_id(plan->session), &plan->problem,
                      backward, kernels);
    if (kernels->rows)
        wa_program_set_keep(set, kernels->rows);
    wa_program_set_keep(set, kernels->keys);
    wa_program_set_keep(set, kernels->sum);
    return WINATTN_SUCCESS;
}

winattn_status winattn_plan_create(cl_context context, cl_device_id device,
                                   const winattn_desc *desc,
                                   winattn_plan **result)
{
    wa_forget_failure();
    if (!result)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    *result = NULL;
    winattn_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
    winattn_status status = wa_problem_read(desc, &plan->problem);
    if (status == WINATTN_SUCCESS)
        status = wa_session_acquire(context, device, &plan->session);
    if (status == WINATTN_SUCCESS && !(plan->lock = wa_lock_create()))
        status = wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
    if (status == WINATTN_SUCCESS && plan->problem.passes[WA_FORWARD])
        status = choose_kernel(plan);
    if (status == WINATTN_SUCCESS && plan->problem.passes[WA_BACKWARD])
        status = prepare_backward(plan);
    if (status != WINATTN_SUCCESS) {
        winattn_plan_destroy(plan);
        return status;
    }
    plan->problem.build_options = NULL; /* the caller's memory */
    *result = plan;
    return WINATTN_SUCCESS;
}

void winattn_plan_destroy(winattn_plan *plan)
{
    if (!plan)
        return;
    const cl_kernel kernels[] = {plan->kernel, plan->backward_kernels.rows,
                                 plan->backward_kernels.keys,
                                 plan->backward_kernels.sum};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i])
            clReleaseKernel(kernels[i]);
    if (plan->lock)
        wa_lock_destroy(plan->lock);
    if (plan->session)
        wa_session_release(plan->session);
    free(plan);
}

winattn_status winattn_plan_workspace_size(const winattn_plan *plan,
                                           size_t *size)
{
    wa_forget_failure();
    if (!plan || !size)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is NULL",
                       plan ? "size" : "plan");
    const uint64_t forward = plan->plan.workspace_bytes;
    const uint64_t backward = plan->backward.workspace_bytes;
    *size = (size_t)(forward > backward ? forward : backward);
    return WINATTN_SUCCESS;
}

winattn_status winattn_plan_describe(const winattn_plan *plan, size_t size,
                                     char *text, size_t *needed)
{
    wa_forget_failure();
    if (!plan)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    if (!text && size != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "text is NULL, but size is not 0");
    char all[4096];
    all[0] = 0;
    if (plan->problem.passes[WA_FORWARD])
        wa_plan_describe(&plan->plan, wa_session_device(plan->session), all,
                         sizeof all);
    if (plan->problem.passes[WA_BACKWARD])
        wa_backward_plan_describe(&plan->backward, all, sizeof all);
    wa_append(all, sizeof all, "program: %s\n", plan->origin);
    if (size != 0)
        snprintf(text, size, "%s", all);
    if (needed)
        *needed = strlen(all) + 1;
    return WINATTN_SUCCESS;
}

/* Copies the caller's struct, whatever its version, to one of `size` bytes. */
static winattn_status read_struct(const char *name, const void *given,
                                  void *own, size_t size)
{
    size_t struct_size;
    memset(own, 0, size);
    if (!given)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is NULL", name);
    memcpy(&struct_size, given, sizeof struct_size); /* the first member */
    if (struct_size < size)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "%s.struct_size is %llu, not sizeof(winattn_%s)", name,
                       (unsigned long long)struct_size, name);
    for (size_t i = size; i < struct_size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "%s sets a field that this version of the library "
                           "does not know",
                           name);
    memcpy(own, given, size);
    return WINATTN_SUCCESS;
}

/* What every call checks besides its tensors. */
static winattn_status check_call(const winattn_plan *plan, wa_pass pass,
                                 cl_command_queue queue, cl_uint wait_count,
                                 const cl_event *wait_list)
{
    if (!plan->problem.passes[pass])
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "the plan was made without the %s pass",
                       pass == WA_FORWARD ? "forward" : "backward");
    if ((wait_count == 0) != (wait_list == NULL))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "wait_count and wait_list contradict each other");
    return wa_check_queue(queue, wa_session_context(plan->session),
                          wa_session_device_id(plan->session));
}

winattn_status
winattn_enqueue_forward(const winattn_plan *plan, cl_command_queue queue,
                        const winattn_forward *forward, cl_uint wait_count,
                        const cl_event *wait_list, cl_event *event)
{
    winattn_forward own;
    wa_forget_failure();
    if (!plan)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    WA_TRY(read_struct("forward", forward, &own, sizeof own));
    WA_TRY(check_call(plan, WA_FORWARD, queue, wait_count, wait_list));
    if (plan->problem.windows == 0) {
        if (!event)
            return WINATTN_SUCCESS;
        const cl_int error =
            clEnqueueMarkerWithWaitList(queue, wait_count, wait_list, event);
        return error == CL_SUCCESS
                   ? WINATTN_SUCCESS
                   : wa_fail_cl(error, "clEnqueueMarkerWithWaitList");
    }
    const wa_buffers buffers = {
        .tensor = {[WA_Q] = own.q,
                   [WA_K] = own.k,
                   [WA_V] = own.v,
                   [WA_BIAS] = own.bias,
                   [WA_MASK] = own.mask,
                   [WA_QUERY_REGIONS] = own.query_regions,
                   [WA_KEY_REGIONS] = own.key_regions,
                   [WA_LOGIT_SCALE] = own.logit_scale,
                   [WA_O] = own.o,
                   [WA_LSE] = own.lse},
        .workspace = own.workspace};
    WA_TRY(wa_check_buffers(&plan->problem, WA_FORWARD,
                            plan->plan.workspace_bytes,
                            wa_session_context(plan->session), &buffers));
    wa_lock_take(plan->lock);
    const winattn_status status =
        wa_launch_forward(&plan->problem, &plan->plan, plan->kernel, queue,
                          &buffers, wait_count, wait_list, event);
    wa_lock_release(plan->lock);
    return status;
}

winattn_status
winattn_enqueue_backward(const winattn_plan *plan, cl_command_queue queue,
                         const winattn_backward *backward, cl_uint wait_count,
                         const cl_event *wait_list, cl_event *event)
{
    static const cl_bitfield outputs = WINATTN_DQ | WINATTN_DK | WINATTN_DV |
                                       WINATTN_DBIAS | WINATTN_D_LOGIT_SCALE;
    winattn_backward own;
    wa_forget_failure();
    if (!plan)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    WA_TRY(read_struct("backward", backward, &own, sizeof own));
    WA_TRY(check_call(plan, WA_BACKWARD, queue, wait_count, wait_list));
    if ((own.accumulate & ~outputs) != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "backward.accumulate has a bit that is no output");
    if (own.d_logit_scale.buffer && !own.logit_scale.buffer)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "d_logit_scale is given, but logit_scale is NULL");
    const wa_buffers buffers = {
        .tensor = {[WA_Q] = own.q,
                   [WA_K] = own.k,
                   [WA_V] = own.v,
                   [WA_BIAS] = own.bias,
                   [WA_MASK] = own.mask,
                   [WA_QUERY_REGIONS] = own.query_regions,
                   [WA_KEY_REGIONS] = own.key_regions,
                   [WA_LOGIT_SCALE] = own.logit_scale,
                   [WA_O] = own.o,
                   [WA_LSE] = own.lse,
                   [WA_D_O] = own.d_o,
                   [WA_D_LSE] = own.d_lse,
                   [WA_DQ] = own.dq,
                   [WA_DK] = own.dk,
                   [WA_DV] = own.dv,
                   [WA_DBIAS] = own.dbias,
                   [WA_D_LOGIT_SCALE] = own.d_logit_scale},
        .workspace = own.workspace};
    WA_TRY(wa_check_buffers(&plan->problem, WA_BACKWARD,
                            plan->backward.workspace_bytes,
                            wa_session_context(plan->session), &buffers));
    wa_lock_take(plan->lock);
    const winattn_status status = wa_launch_backward(
        &plan->problem, &plan->backward, &plan->backward_kernels, queue,
        &buffers, own.accumulate, wait_count, wait_list, event);
    wa_lock_release(plan->lock);
    return status;
}
