/* SPDX-License-Identifier: Apache-2.0
 * Window attention as a module, on windows that the caller has cut. */
#include <stdlib.h>

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "launch/check.h"
#include "models/attention.h"
#include "models/chain.h"
#include "models/levels.h"

struct winattn_window_attention_plan {
    winattn_window_attention_desc desc;
    wa_session *session;
    wa_attention attention;
    uint64_t x_bytes;
    /* The workspace: q, k and v; o; what the attention needs. */
    uint64_t o_at, core_at, workspace;
};

static winattn_status read_desc(const winattn_window_attention_desc *given,
                                winattn_window_attention_desc *desc,
                                wa_attention_desc *attention)
{
    WA_TRY(wa_read_struct("window_attention_desc", given, desc, sizeof *desc,
                          sizeof *desc));
    *attention =
        (wa_attention_desc){.dtype = desc->dtype,
                            .tier = desc->tier,
                            .allow_tf32 = desc->allow_tf32 != CL_FALSE,
                            .variant = desc->variant,
                            .channels = desc->channels,
                            .heads = desc->heads,
                            .window = {desc->window[0], desc->window[1]},
                            .table_dtype = desc->table_dtype,
                            .windows = desc->windows,
                            .mask_windows = desc->mask_windows,
                            .mask_dtype = desc->mask_dtype,
                            .build_options = desc->build_options};
    return wa_attention_check(attention);
}

static winattn_status lay_out(winattn_window_attention_plan *plan)
{
    const uint64_t row =
        (uint64_t)plan->desc.channels * plan->attention.element_size;
    plan->x_bytes = plan->attention.rows * row;
    if (plan->x_bytes > SIZE_MAX / 8)
        return wa_fail(WINATTN_INVALID_LAYOUT,
                       "the workspace has more bytes than the host can count");
    plan->o_at = wa_part_bytes(3 * plan->x_bytes);
    plan->core_at = plan->o_at + wa_part_bytes(plan->x_bytes);
    plan->workspace =
        plan->core_at + wa_part_bytes(plan->attention.core_bytes);
    return WINATTN_SUCCESS;
}

winattn_status
winattn_window_attention_plan_create(cl_context context, cl_device_id device,
                                     const winattn_window_attention_desc *desc,
                                     winattn_window_attention_plan **result)
{
    wa_attention_desc attention;
    WA_TRY(wa_models_begin());
    if (!result)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    *result = NULL;
    winattn_window_attention_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return wa_fail_memory();
    winattn_status status = read_desc(desc, &plan->desc, &attention);
    if (status == WINATTN_SUCCESS)
        status = wa_session_acquire(context, device, &plan->session);
    if (status == WINATTN_SUCCESS)
        status =
            wa_attention_make(plan->session, &attention, &plan->attention);
    if (status == WINATTN_SUCCESS)
        status = lay_out(plan);
    if (status != WINATTN_SUCCESS) {
        winattn_window_attention_plan_destroy(plan);
        return status;
    }
    plan->desc.build_options = NULL; /* the caller's memory */
    *result = plan;
    return WINATTN_SUCCESS;
}

void winattn_window_attention_plan_destroy(winattn_window_attention_plan *plan)
{
    if (!plan || wa_session_is_inherited(plan->session))
        return;
    wa_attention_release(&plan->attention);
    if (plan->session)
        wa_session_release(plan->session);
    free(plan);
}

winattn_status winattn_window_attention_plan_workspace_size(
    const winattn_window_attention_plan *plan, size_t *size)
{
    WA_TRY(wa_models_begin());
    if (!plan || !size)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is NULL",
                       plan ? "size" : "plan");
    *size = (size_t)plan->workspace;
    return WINATTN_SUCCESS;
}

winattn_status winattn_window_attention_plan_describe(
    const winattn_window_attention_plan *plan, size_t size, char *text,
    size_t *needed)
{
    char all[16384] = "";
    WA_TRY(wa_models_begin());
    if (!plan)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    wa_append(all, sizeof all, "workspace: %llu bytes\n",
              (unsigned long long)plan->workspace);
    WA_TRY(wa_attention_describe(&plan->attention, all, sizeof all));
    return wa_give_text(all, size, text, needed);
}

static winattn_status check_call(const winattn_window_attention_plan *plan,
                                 const winattn_window_attention *call,
                                 uint64_t *start)
{
    const winattn_window_attention_desc *d = &plan->desc;
    const cl_context context = wa_session_context(plan->session);
    const uint32_t size = plan->attention.element_size;
    const uint64_t c = d->channels;
    const uint64_t tokens = (uint64_t)d->window[0] * d->window[1];
    const uint64_t entries =
        (2ull * d->window[0] - 1) * (2ull * d->window[1] - 1);
    /* of masks: the plan of the attention has found that they can be */
    const wa_wanted_tensor wanted[] = {
        {"x", &call->x, size, plan->x_bytes / size, true},
        {"qkv_weight", &call->qkv_weight, size, 3 * c * c, true},
        {"qkv_bias", &call->qkv_bias, size, 3 * c, true},
        {"proj_weight", &call->proj_weight, size, c * c, true},
        {"proj_bias", &call->proj_bias, size, c, true},
        {"table", &call->table, wa_term_size(d->dtype, d->table_dtype),
         entries * d->heads, true},
        {"logit_scale", &call->logit_scale, 4, d->heads,
         d->variant == WINATTN_COSINE},
        {"mask", &call->mask, wa_term_size(d->dtype, d->mask_dtype),
         d->mask_windows * tokens * tokens, d->mask_windows != 0},
    };
    WA_TRY(wa_check_inputs(wanted, sizeof wanted / sizeof *wanted, context,
                           start));
    if (!call->y.buffer)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "y is NULL");
    WA_TRY(wa_check_memory("y", &call->y, context, WA_WRITES, size,
                           plan->x_bytes, start));
    return wa_check_workspace(&call->workspace, context, plan->workspace,
                              start);
}

winattn_status winattn_enqueue_window_attention(
    const winattn_window_attention_plan *plan, cl_command_queue queue,
    const winattn_window_attention *call, cl_uint wait_count,
    const cl_event *wait_list, cl_event *event)
{
    winattn_window_attention own;
    wa_kernel_chain chain;
    uint64_t start = 0;
    WA_TRY(wa_models_begin());
    if (!plan)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "plan is NULL");
    WA_TRY(wa_read_struct("window_attention", call, &own, sizeof own,
                          sizeof own));
    WA_TRY(wa_check_order(plan->session, queue, wait_count, wait_list));
    WA_TRY(check_call(plan, &own, &start));
    WA_TRY(wa_models_chain_begin(&chain, queue, wait_count, wait_list, event));
    chain.start = start;
    wa_attention_call inner = {.x = own.x,
                               .qkv_weight = own.qkv_weight,
                               .qkv_bias = own.qkv_bias,
                               .proj_weight = own.proj_weight,
                               .proj_bias = own.proj_bias,
                               .table = own.table,
                               .logit_scale = own.logit_scale,
                               .mask = own.mask,
                               .qkv = own.workspace,
                               .o = own.workspace,
                               .y = own.y,
                               .workspace = own.workspace};
    inner.o.offset += plan->o_at;
    inner.workspace.offset += plan->core_at;
    return wa_models_chain_end(
        &chain, wa_attention_append(&plan->attention, &inner, &chain), event);
}
