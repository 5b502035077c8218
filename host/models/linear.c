/* SPDX-License-Identifier: Apache-2.0
 * The public entry points of linear layers, and how their kernels are built.
 */
#include "models/linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "models/levels.h"
#include "plan/tuning.h"
#include "program/cache.h"

/* Bytes of slow memory that a work-item may need because registers do not
 * suffice: a few values outside the loops cost little, so many are tiles. */
#define MOST_SPILLED 1024

/* ---- Kernels ---- */

static void release_kernels(winattn_linear_plan *plan)
{
    for (int i = 0; i < WA_LINEAR_KERNELS; i++)
        if (plan->kernels[i])
            clReleaseKernel(plan->kernels[i]);
    memset(plan->kernels, 0, sizeof plan->kernels);
}

/* A kernel that built can still be one that the device cannot run. */
static winattn_status check_kernel(const winattn_linear_plan *plan, int i)
{
    cl_ulong spilled;
    WA_TRY(wa_session_check_kernel(plan->session, plan->kernels[i],
                                   plan->layout.kernel[i].work_group, NULL));
    /* a norm of long rows has these in slow memory, and still pays */
    if (plan->layout.tier != WINATTN_TIER_MATRIX || i == WA_LINEAR_NORM)
        return WINATTN_SUCCESS;
    WA_TRY(wa_session_find_spills(plan->session, plan->kernels[i], &spilled));
    return spilled <= MOST_SPILLED
               ? WINATTN_SUCCESS
               : WA_BAD_DEVICE("the kernel spills %llu bytes of registers",
                               (unsigned long long)spilled);
}

static winattn_status build_kernels(winattn_linear_plan *plan)
{
    const wa_linear_problem *p = &plan->problem;
    if (plan->layout.tier == WINATTN_TIER_MATRIX)
        WA_TRY(wa_session_check_matrix_unit(plan->session, p->dtype,
                                            p->build_options));
    for (int i = 0; i < WA_LINEAR_KERNELS; i++) {
        const wa_linear_kernel *kernel = &plan->layout.kernel[i];
        if (!kernel->name[0])
            continue;
        WA_TRY(wa_session_kernel(plan->session, kernel->name, kernel->defines,
                                 p->build_options, &plan->kernels[i]));
        WA_TRY(check_kernel(plan, i));
        if (kernel->shape.wgmma)
            WA_TRY(wa_linear_compare(plan, (wa_linear_kernel_id)i));
    }
    return WINATTN_SUCCESS;
}

static bool has_measured(const wa_linear_layout *layout)
{
    for (int i = WA_LINEAR_MANY; i <= WA_LINEAR_FEW; i++)
        if (layout->kernel[i].name[0] &&
            strcmp(layout->source[i], WA_LINEAR_BY_MODEL) != 0)
            return true;
    return false;
}

/* Plans and builds; a tier whose kernels the device does not build, or cannot
 * run, is passed over. What may pass is the call's failure. */
static winattn_status build_best(winattn_linear_plan *plan)
{
    char excluded[WA_TIERS][WA_REASON_SIZE];
    winattn_status first = WINATTN_SUCCESS;
    char reason[WA_REASON_SIZE], not_taken[WA_REASON_SIZE] = "";
    bool repeats = false, ignores_tuning = false, ignores_special = false;
    memset(excluded, 0, sizeof excluded);
    for (;;) {
        wa_device device = *wa_session_device(plan->session);
        device.ignores_tuning |= ignores_tuning;
        device.ignores_special |= ignores_special;
        winattn_status status = wa_linear_plan_make(&plan->problem, &device,
                                                    excluded, &plan->layout);
        if (not_taken[0])
            memcpy(plan->layout.not_taken, not_taken, sizeof not_taken);
        if (status != WINATTN_SUCCESS && plan->problem.hidden && not_taken[0])
            return wa_fail(status, "%s", not_taken);
        if (status != WINATTN_SUCCESS)
            return first == WINATTN_SUCCESS ? status
                                            : wa_fail(first, "%s", reason);
        status = build_kernels(plan);
        if (status == WINATTN_SUCCESS) {
            wa_forget_failure();
            return status;
        }
        release_kernels(plan);
        if (wa_may_pass(status) && status != CL_OUT_OF_RESOURCES)
            return status;
        /* what may be either must come twice */
        repeats = status == CL_OUT_OF_RESOURCES && !repeats;
        if (repeats)
            continue;
        const bool has_wgmma = plan->layout.kernel[WA_LINEAR_MANY].shape.wgmma;
        if (has_wgmma || has_measured(&plan->layout)) {
            /* the tier without such shapes */
            ignores_special |= has_wgmma;
            ignores_tuning |= !has_wgmma;
            snprintf(not_taken, sizeof not_taken, "%.200s",
                     winattn_last_reason());
            continue;
        }
        char *why = excluded[plan->layout.tier];
        snprintf(why, WA_REASON_SIZE, "%.200s", winattn_last_reason());
        if (first == WINATTN_SUCCESS) {
            first = status;
            memcpy(reason, why, sizeof reason);
        }
    }
}

/* What a row of x or of y takes, and what is behind it. */
static size_t row_bytes(const winattn_linear_plan *plan)
{
    const wa_linear_problem *p = &plan->problem;
    size_t most = p->in > p->out ? p->in : p->out;
    most = most > p->hidden ? most : p->hidden;
    return 8 * ((most + 15) / 16 * 16) + 64;
}

/* One row on zeros, in all kernels. All rows of W are the same. */
static winattn_status call_first(const void *data, cl_mem zeros, cl_mem out,
                                 wa_kernel_chain *chain)
{
    const winattn_linear_plan *plan = data;
    const wa_linear_norms norms = {.x_statistics.buffer = zeros,
                                   .y_statistics = {out, row_bytes(plan)},
                                   .x_scale.buffer = zeros,
                                   .hidden_weight.buffer = zeros,
                                   .hidden_bias.buffer = zeros};
    const winattn_linear call = {.struct_size = sizeof call,
                                 .rows = 1,
                                 .x.buffer = zeros,
                                 .x_stride = plan->problem.in,
                                 .weight.buffer = zeros,
                                 .bias.buffer = zeros,
                                 .norm_weight.buffer = zeros,
                                 .norm_bias.buffer = zeros,
                                 .residual.buffer = zeros,
                                 .y.buffer = out,
                                 .workspace = {out, row_bytes(plan)}};
    for (int i = WA_LINEAR_MANY; i <= WA_LINEAR_FEW; i++)
        if (plan->kernels[i])
            WA_TRY(wa_linear_append_as(plan, &call, &norms,
                                       (wa_linear_kernel_id)i, chain));
    return WINATTN_SUCCESS;
}

/* ---- Plans ---- */

static winattn_status build(winattn_linear_plan *plan,
                            const wa_linear_shape *shape)
{
    const wa_linear_problem *p = &plan->problem;
    const wa_device *device = wa_session_device(plan->session);
    WA_TRY(wa_read_tuning());
    if (!shape) {
        WA_TRY(build_best(plan));
    } else {
        if (!wa_linear_plan_tier(p, device, p->tier, shape, &plan->layout))
            return WA_UNSUPPORTED("%s", plan->layout.refusals[p->tier]);
        wa_linear_write_norm(p, device, &plan->layout);
        WA_TRY(build_kernels(plan));
    }
    WA_TRY(wa_program_set_origin(wa_session_programs(plan->session),
                                 plan->kernels[WA_LINEAR_MANY],
                                 &plan->origin));
    return wa_keep_kernels(plan->session, plan->kernels, WA_LINEAR_KERNELS,
                           row_bytes(plan), call_first, plan);
}

winattn_status wa_linear_plan_with_shape(cl_context context,
                                         cl_device_id device,
                                         const wa_linear_problem *problem,
                                         const wa_linear_shape *shape,
                                         winattn_linear_plan **result)
{
    winattn_linear_plan *plan = calloc(1, sizeof *plan);
    WA_TRY_MEMORY(plan);
    plan->problem = *problem;
    winattn_status status =
        wa_session_acquire(context, device, &plan->session);
    if (status == WINATTN_SUCCESS && !(plan->lock = wa_lock_create()))
        status = wa_fail_memory();
    WA_THEN(status, build(plan, shape));
    if (status != WINATTN_SUCCESS) {
        winattn_linear_plan_destroy(plan);
        return status;
    }
    plan->problem.build_options = NULL; /* the caller's memory */
    *result = plan;
    return WINATTN_SUCCESS;
}

winattn_status winattn_linear_plan_create(cl_context context,
                                          cl_device_id device,
                                          const winattn_linear_desc *desc,
                                          winattn_linear_plan **plan)
{
    wa_linear_problem problem;
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    *plan = NULL;
    WA_TRY(wa_linear_read(desc, &problem));
    return wa_linear_plan_with_shape(context, device, &problem, NULL, plan);
}

void winattn_linear_plan_destroy(winattn_linear_plan *plan)
{
    if (!plan || wa_session_is_inherited(plan->session))
        return;
    release_kernels(plan);
    wa_lock_destroy(plan->lock);
    wa_session_release(plan->session);
    free(plan);
}

winattn_status
winattn_linear_plan_workspace_size(const winattn_linear_plan *plan,
                                   cl_ulong rows, size_t *size)
{
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    WA_WANT(size, "size");
    if (rows >> 32 != 0)
        return WA_INVALID("rows is %llu, not below 2^32",
                          (unsigned long long)rows);
    const uint64_t bytes = wa_linear_workspace(plan, rows);
    if (bytes > SIZE_MAX)
        return WA_BAD_LAYOUT(
            "the workspace has more bytes than the host can count");
    *size = (size_t)bytes;
    return WINATTN_SUCCESS;
}

static void describe_kernel(const winattn_linear_plan *plan, int i,
                            const char *what, char *text, size_t size)
{
    const wa_linear_kernel *kernel = &plan->layout.kernel[i];
    if (!kernel->name[0])
        return;
    wa_append(text, size, "%skernel: %s\n", what, kernel->name);
    wa_append(text, size, "%swork-group: %u\n", what, kernel->work_group);
    wa_append(text, size, "%slocal bytes: %llu\n", what,
              (unsigned long long)kernel->local_bytes);
    if (plan->layout.source[i])
        wa_append(text, size, "%sshape: %s\n", what, plan->layout.source[i]);
    wa_append(text, size, "%sdefines: %s\n", what, kernel->defines);
}

winattn_status winattn_linear_plan_describe(const winattn_linear_plan *plan,
                                            size_t size, char *text,
                                            size_t *needed)
{
    char all[8192];
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    const wa_device *device = wa_session_device(plan->session);
    const wa_linear_layout *layout = &plan->layout;
    all[0] = 0;
    wa_append(all, sizeof all, "device: %s (%s, driver %s)\n", device->name,
              device->platform, device->driver);
    wa_append(all, sizeof all, "tier: %s\n", wa_tier_name(layout->tier));
    describe_kernel(plan, WA_LINEAR_MANY, "", all, sizeof all);
    wa_append(all, sizeof all, "reason: %s\n", layout->reason);
    if (layout->kernel[WA_LINEAR_FEW].name[0])
        wa_append(all, sizeof all,
                  "few rows: of calls with less than %u blocks of %u x %u\n",
                  layout->few_groups, layout->few_rows, layout->few_columns);
    describe_kernel(plan, WA_LINEAR_FEW, "few rows ", all, sizeof all);
    describe_kernel(plan, WA_LINEAR_NORM, "norm ", all, sizeof all);
    if (layout->not_taken[0])
        wa_append(all, sizeof all, "shape not taken: %s\n", layout->not_taken);
    for (int i = 0; i < WA_TIERS; i++)
        if (layout->refusals[i][0])
            wa_append(all, sizeof all, "tier %s not taken: %s\n",
                      wa_tier_name((winattn_tier)i), layout->refusals[i]);
    wa_describe_tuning(all, sizeof all);
    const char *trouble = wa_cache_trouble();
    if (trouble)
        wa_append(all, sizeof all, "cache: there is none: %s\n", trouble);
    wa_append(all, sizeof all, "program: %s\n", plan->origin);
    return wa_give_text(all, size, text, needed);
}

winattn_status
winattn_enqueue_linear(const winattn_linear_plan *plan, cl_command_queue queue,
                       const winattn_linear *linear, cl_uint wait_count,
                       const cl_event *wait_list, cl_event *event)
{
    winattn_linear own;
    wa_kernel_chain chain;
    uint64_t start = 0;
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    WA_TRY(wa_check_order(plan->session, queue, wait_count, wait_list));
    WA_TRY(wa_linear_check(plan, linear, &own, &start));
    WA_TRY(
        wa_chain_begin(&chain, queue, wait_count, wait_list, event != NULL));
    chain.start = start;
    return wa_chain_end(&chain, wa_linear_append(plan, &own, NULL, &chain),
                        event);
}
