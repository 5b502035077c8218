/* SPDX-License-Identifier: Apache-2.0
 * The public entry points: argument checks, lifetimes, and the loop that plans
 * again where a kernel does not build. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "launch/bias_table.h"
#include "launch/launch_backward.h"
#include "plan/plan_backward.h"
#include "plan/tuning.h"
#include "program/cache.h"
#include "session/session.h"
#include "session/trial.h"

struct winattn_plan {
    wa_problem problem;
    wa_plan plan;
    wa_session *session;
    wa_lock *lock; /* held from the first clSetKernelArg to the last enqueue */
    wa_forward_kernels forward_kernels; /* NULL without a forward pass */
    const char *origin;                 /* of the main kernel's program */
    wa_table_buffers table;
    wa_backward_plan backward;
    wa_backward_kernels backward_kernels;
};

int winattn_version(void) { return WINATTN_VERSION; }

/* A kernel that built can still be one that the device cannot run; *most, if
 * not NULL, becomes the work-items that it can. */
static winattn_status check_kernel(uint32_t work_group,
                                   const wa_session *session, cl_kernel kernel,
                                   uint32_t *most)
{
    size_t size = 0;
    const cl_int error = clGetKernelWorkGroupInfo(
        kernel, wa_session_device_id(session), CL_KERNEL_WORK_GROUP_SIZE,
        sizeof size, &size, NULL);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetKernelWorkGroupInfo");
    if (most)
        *most = (uint32_t)size;
    if (size < work_group && wa_session_device(session)->reports_kernel_sizes)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "the kernel built for work-groups of %llu, not %u",
                       (unsigned long long)size, work_group);
    return WINATTN_SUCCESS;
}

/* Lets the binaries of new programs be kept, once they are complete. A trial
 * that fails for a cause that may pass leaves them to the next plan. */
static winattn_status keep_forward_binaries(winattn_plan *plan)
{
    const wa_forward_kernels *kernels = &plan->forward_kernels;
    wa_program_set *set = wa_session_programs(plan->session);
    bool keeps = false;
    WA_TRY(wa_program_set_keeps(set, kernels->main, &keeps));
    if (!keeps && kernels->expand)
        WA_TRY(wa_program_set_keeps(set, kernels->expand, &keeps));
    if (!keeps || wa_may_pass(wa_trial_forward(
                      wa_session_context(plan->session),
                      wa_session_device_id(plan->session), &plan->problem,
                      &plan->plan, kernels, &plan->table)))
        return WINATTN_SUCCESS;
    wa_program_set_keep(set, kernels->main);
    if (kernels->expand)
        wa_program_set_keep(set, kernels->expand);
    return WINATTN_SUCCESS;
}

static void release_forward(wa_forward_kernels *kernels)
{
    if (kernels->main)
        clReleaseKernel(kernels->main);
    if (kernels->expand)
        clReleaseKernel(kernels->expand);
    memset(kernels, 0, sizeof *kernels);
}

static winattn_status build_expansion(winattn_plan *plan)
{
    char defines[WA_DEFINES_SIZE] = "";
    if (!plan->plan.expands_table)
        return WINATTN_SUCCESS;
    wa_append_table(&plan->problem, defines, sizeof defines);
    return wa_session_kernel(plan->session, "expand_table", defines,
                             plan->problem.build_options,
                             &plan->forward_kernels.expand);
}

/* What attempts to build a pass taught. The first failure is the best tier's,
 * so it is what the caller is told where no tier works. */
typedef struct attempts {
    wa_exclusions exclusions;
    winattn_status first; /* failure; success: none yet */
    char reason[WA_REASON_SIZE];
    bool repeats; /* the last attempt, which ran out of resources */
} attempts;

/* May there be another plan of the tier, with fewer work-items? */
static bool may_retry(const attempts *tried, winattn_tier tier)
{
    return tier == WINATTN_TIER_MATRIX &&
           tried->exclusions.most_items[tier] == 0;
}

/* After a failure that says something of kernel and device: where the shape
 * was a measured one, the planner has another of its own; the registers that
 * its kernel needs may be there for `most` work-items, fewer than it had; else
 * the next tier. Where the failure may pass, the call fails; what may be
 * either must come twice. */
static winattn_status learn(attempts *tried, winattn_tier tier, bool tuned,
                            winattn_status status, uint32_t work_group,
                            uint32_t most)
{
    char *reason = tried->exclusions.reason[tier];
    if (wa_may_pass(status) && status != CL_OUT_OF_RESOURCES)
        return status;
    tried->repeats = status == CL_OUT_OF_RESOURCES && !tried->repeats;
    if (tried->repeats)
        return WINATTN_SUCCESS;
    if (tuned) {
        snprintf(tried->exclusions.untuned[tier], WA_REASON_SIZE, "%.200s",
                 winattn_last_reason());
        return WINATTN_SUCCESS;
    }
    if (may_retry(tried, tier) && most > 0 && most < work_group) {
        tried->exclusions.most_items[tier] = most;
        return WINATTN_SUCCESS;
    }
    snprintf(reason, WA_REASON_SIZE, "%.200s", winattn_last_reason());
    if (tried->first == WINATTN_SUCCESS) {
        tried->first = status;
        memcpy(tried->reason, reason, sizeof tried->reason);
    }
    return WINATTN_SUCCESS;
}

static winattn_status report_first(const attempts *tried, winattn_status last)
{
    return tried->first == WINATTN_SUCCESS
               ? last
               : wa_fail(tried->first, "%s", tried->reason);
}

/* Bytes of slow memory that a work-item of the kernel needs because registers
 * do not suffice; 0 where the driver does not tell. */
static winattn_status find_spills(const wa_session *session, cl_kernel kernel,
                                  cl_ulong *bytes)
{
    *bytes = 0;
    const cl_int error = clGetKernelWorkGroupInfo(
        kernel, wa_session_device_id(session), CL_KERNEL_PRIVATE_MEM_SIZE,
        sizeof *bytes, bytes, NULL);
    if (wa_may_pass(error))
        return wa_fail_cl(error, "clGetKernelWorkGroupInfo");
    if (error != CL_SUCCESS)
        *bytes = 0;
    return WINATTN_SUCCESS;
}

/* Bytes of a work-item: a few values that are kept outside the loops cost
 * little (49 x 49 x 32 on an H200: 16 waves, for which ptxas spills 8 bytes,
 * were faster than 8 and 12); so many are tiles, and the next tier is faster.
 */
#define FEW_SPILLED 128
#define TILES_SPILLED 1024

/* A kernel for a matrix unit must be right about the unit, which is tested
 * before it is built as that is soon done, */
static winattn_status check_unit(const winattn_plan *plan, winattn_tier tier)
{
    return tier == WINATTN_TIER_MATRIX
               ? wa_session_check_unit(plan->session, plan->problem.dtype,
                                       plan->problem.build_options)
               : WINATTN_SUCCESS;
}

/* and keep its tiles in registers. *most becomes fewer work-items, which can
 * have more registers, where the plan may be made again. */
static winattn_status check_spills(const winattn_plan *plan, winattn_tier tier,
                                   cl_kernel kernel, uint32_t work_group,
                                   bool again, uint32_t *most)
{
    if (tier != WINATTN_TIER_MATRIX ||
        wa_session_device(plan->session)->emulates_unit)
        return WINATTN_SUCCESS;
    cl_ulong spilled;
    WA_TRY(find_spills(plan->session, kernel, &spilled));
    const bool retry = spilled > FEW_SPILLED && again;
    if (retry)
        *most = work_group / 2;
    if (retry || spilled > TILES_SPILLED)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "the kernel spills %llu bytes of registers",
                       (unsigned long long)spilled);
    return WINATTN_SUCCESS;
}

/* *most becomes the work-items that the kernel should have at most; again:
 * there can be another plan with fewer. */
static winattn_status build_forward(winattn_plan *plan, bool again,
                                    uint32_t *most)
{
    const wa_plan *forward = &plan->plan;
    cl_kernel *kernel = &plan->forward_kernels.main;
    WA_TRY(check_unit(plan, forward->tier));
    WA_TRY(wa_session_kernel(plan->session, forward->kernel, forward->defines,
                             plan->problem.build_options, kernel));
    WA_TRY(check_kernel(forward->work_group, plan->session, *kernel, most));
    WA_TRY(build_expansion(plan));
    WA_TRY(keep_forward_binaries(plan));
    WA_TRY(check_spills(plan, forward->tier, *kernel, forward->work_group,
                        again, most));
    return wa_program_set_origin(wa_session_programs(plan->session), *kernel,
                                 &plan->origin);
}

/* Plans, builds and checks; a tier that fails is excluded and the next one
 * planned. */
static winattn_status choose_forward(winattn_plan *plan)
{
    attempts tried;
    memset(&tried, 0, sizeof tried);
    for (;;) {
        uint32_t most = 0;
        winattn_status status =
            wa_plan_make(&plan->problem, wa_session_device(plan->session),
                         &tried.exclusions, &plan->plan);
        if (status != WINATTN_SUCCESS)
            return report_first(&tried, status);
        status =
            build_forward(plan, may_retry(&tried, plan->plan.tier), &most);
        if (status == WINATTN_SUCCESS) {
            wa_forget_failure();
            return status;
        }
        release_forward(&plan->forward_kernels);
        WA_TRY(learn(&tried, plan->plan.tier, plan->plan.tuned, status,
                     plan->plan.work_group, most));
    }
}

static void release_backward(wa_backward_kernels *kernels)
{
    for (int i = 0; i < WA_BACKWARD_PARTS; i++)
        if (kernels->part[i])
            clReleaseKernel(kernels->part[i]);
    memset(kernels, 0, sizeof *kernels);
}

static winattn_status keep_backward_binaries(winattn_plan *plan)
{
    const wa_backward_kernels *kernels = &plan->backward_kernels;
    wa_program_set *set = wa_session_programs(plan->session);
    bool keeps = false;
    for (int i = 0; i < WA_BACKWARD_PARTS && !keeps; i++)
        if (kernels->part[i])
            WA_TRY(wa_program_set_keeps(set, kernels->part[i], &keeps));
    if (!keeps || wa_may_pass(wa_trial_backward(
                      wa_session_context(plan->session),
                      wa_session_device_id(plan->session), &plan->problem,
                      &plan->backward, kernels, &plan->table)))
        return WINATTN_SUCCESS;
    for (int i = 0; i < WA_BACKWARD_PARTS; i++)
        if (kernels->part[i])
            wa_program_set_keep(set, kernels->part[i]);
    return WINATTN_SUCCESS;
}

/* The same as build_forward; the last kernel is what computes on a unit. */
static winattn_status build_backward(winattn_plan *plan, bool again,
                                     uint32_t *most)
{
    const wa_backward_plan *backward = &plan->backward;
    const wa_backward_kernel *last = &backward->kernels[WA_BACKWARD_KEYS];
    const wa_backward_kernels *kernels = &plan->backward_kernels;
    WA_TRY(check_unit(plan, backward->tier));
    for (int i = 0; i < WA_BACKWARD_PARTS; i++) {
        const wa_backward_kernel *part = &backward->kernels[i];
        cl_kernel *kernel = &plan->backward_kernels.part[i];
        if (!part->name)
            continue;
        WA_TRY(wa_session_kernel(plan->session, part->name, part->defines,
                                 plan->problem.build_options, kernel));
        WA_TRY(check_kernel(part->work_group, plan->session, *kernel,
                            part == last ? most : NULL));
    }
    WA_TRY(keep_backward_binaries(plan));
    WA_TRY(check_spills(plan, backward->tier, kernels->part[WA_BACKWARD_KEYS],
                        last->work_group, again, most));
    return plan->origin
               ? WINATTN_SUCCESS
               : wa_program_set_origin(wa_session_programs(plan->session),
                                       kernels->part[WA_BACKWARD_KEYS],
                                       &plan->origin);
}

static winattn_status choose_backward(winattn_plan *plan)
{
    attempts tried;
    memset(&tried, 0, sizeof tried);
    for (;;) {
        uint32_t most = 0;
        winattn_status status = wa_backward_plan_make(
            &plan->problem, wa_session_device(plan->session),
            &tried.exclusions, &plan->backward);
        if (status != WINATTN_SUCCESS)
            return report_first(&tried, status);
        const winattn_tier tier = plan->backward.tier;
        status = build_backward(plan, may_retry(&tried, tier), &most);
        if (status == WINATTN_SUCCESS) {
            wa_forget_failure();
            return status;
        }
        release_backward(&plan->backward_kernels);
        WA_TRY(learn(&tried, tier, plan->backward.tuned, status,
                     plan->backward.kernels[WA_BACKWARD_KEYS].work_group,
                     most));
    }
}

winattn_status winattn_load_tuning(const char *text)
{
    wa_forget_failure();
    return wa_load_tuning(text);
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
        return wa_fail_memory();
    winattn_status status = wa_problem_read(desc, &plan->problem);
    if (status == WINATTN_SUCCESS)
        status = wa_read_tuning();
    if (status == WINATTN_SUCCESS)
        status = wa_session_acquire(context, device, &plan->session);
    if (status == WINATTN_SUCCESS && !(plan->lock = wa_lock_create()))
        status = wa_fail_memory();
    if (status == WINATTN_SUCCESS)
        status = wa_table_buffers_make(wa_session_context(plan->session),
                                       wa_session_device(plan->session),
                                       &plan->problem, &plan->table);
    plan->problem.table.index = NULL; /* the caller's memory */
    if (status == WINATTN_SUCCESS && plan->problem.passes[WA_FORWARD])
        status = choose_forward(plan);
    if (status == WINATTN_SUCCESS && plan->problem.passes[WA_BACKWARD])
        status = choose_backward(plan);
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
    release_forward(&plan->forward_kernels);
    release_backward(&plan->backward_kernels);
    wa_table_buffers_release(&plan->table);
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

/* Legal, for batches that may be empty, but more often forgotten than meant;
 * enqueueing cannot tell, so the plan does. */
static void describe_nothing(const wa_problem *problem, char *text,
                             size_t size)
{
    if (problem->windows == 0)
        wa_append(text, size, "computes: nothing, as %s is 0\n",
                  problem->grid.used ? "grid.batch" : "windows");
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
    char all[8192];
    all[0] = 0;
    describe_nothing(&plan->problem, all, sizeof all);
    const size_t said = strlen(all);
    if (plan->problem.passes[WA_FORWARD])
        wa_plan_describe(&plan->plan, wa_session_device(plan->session),
                         all + said, sizeof all - said);
    if (plan->problem.passes[WA_BACKWARD])
        wa_backward_plan_describe(&plan->backward, all, sizeof all);
    const char *trouble = wa_cache_trouble();
    wa_describe_tuning(all, sizeof all);
    if (trouble)
        wa_append(all, sizeof all, "cache: there is none: %s\n", trouble);
    wa_append(all, sizeof all, "program: %s\n", plan->origin);
    if (size != 0)
        snprintf(text, size, "%s", all);
    if (needed)
        *needed = strlen(all) + 1;
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
    WA_TRY(wa_read_struct("forward", forward, &own, sizeof own,
                          offsetof(winattn_forward, lse)));
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
                   [WA_PAD_K] = own.pad_k,
                   [WA_PAD_V] = own.pad_v,
                   [WA_O] = own.o,
                   [WA_LSE] = own.lse},
        .workspace = own.workspace,
        .table = plan->table};
    WA_TRY(wa_check_buffers(&plan->problem, WA_FORWARD,
                            plan->plan.workspace_bytes,
                            wa_session_context(plan->session), &buffers));
    wa_lock_take(plan->lock);
    const winattn_status status =
        wa_launch_forward(&plan->problem, &plan->plan, &plan->forward_kernels,
                          queue, &buffers, wait_count, wait_list, event);
    wa_lock_release(plan->lock);
    return status;
}

winattn_status
winattn_enqueue_backward(const winattn_plan *plan, cl_command_queue queue,
                         const winattn_backward *backward, cl_uint wait_count,
                         const cl_event *wait_list, cl_event *event)
{
    static const cl_bitfield outputs = WINATTN_DQ | WINATTN_DK | WINATTN_DV |
                                       WINATTN_DBIAS | WINATTN_D_LOGIT_SCALE |
                                       WINATTN_D_PAD_K | WINATTN_D_PAD_V;
    winattn_backward own;
    wa_forget_failure();
    if (!plan)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    WA_TRY(wa_read_struct("backward", backward, &own, sizeof own,
                          offsetof(winattn_backward, d_lse)));
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
                   [WA_PAD_K] = own.pad_k,
                   [WA_PAD_V] = own.pad_v,
                   [WA_O] = own.o,
                   [WA_LSE] = own.lse,
                   [WA_D_O] = own.d_o,
                   [WA_D_LSE] = own.d_lse,
                   [WA_DQ] = own.dq,
                   [WA_DK] = own.dk,
                   [WA_DV] = own.dv,
                   [WA_DBIAS] = own.dbias,
                   [WA_D_LOGIT_SCALE] = own.d_logit_scale,
                   [WA_D_PAD_K] = own.d_pad_k,
                   [WA_D_PAD_V] = own.d_pad_v},
        .workspace = own.workspace,
        .table = plan->table};
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
