/* SPDX-License-Identifier: Apache-2.0
 * What blocks and modules of window attention share, and these modules, on
 * windows that the caller has cut. */
#include "models/attention.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "launch/check.h"
#include "models/levels.h"

winattn_status wa_attention_check(const wa_attention_desc *desc)
{
    WA_TRY(wa_check_types(desc->dtype, desc->tier));
    if (desc->variant != WINATTN_DOT && desc->variant != WINATTN_COSINE)
        return WA_INVALID("variant is neither WINATTN_DOT nor WINATTN_COSINE");
    if (desc->heads == 0 || desc->channels == 0 ||
        desc->channels % desc->heads != 0)
        return WA_INVALID("channels, %u, are no multiple of heads, %u",
                          desc->channels, desc->heads);
    if (desc->channels > 1u << 18)
        return WA_UNSUPPORTED("channels, %u, are more than 2^18",
                              desc->channels);
    if (desc->window[0] == 0 || desc->window[1] == 0 ||
        desc->window[0] > 65535 || desc->window[1] > 65535)
        return WA_INVALID("window has %u x %u tokens, not 1 to 65535 each",
                          desc->window[0], desc->window[1]);
    const uint64_t tokens =
        desc->on_map
            ? wa_product(wa_product(desc->size[0], desc->size[1]), desc->batch)
            : wa_product(wa_product(desc->window[0], desc->window[1]),
                         desc->windows);
    if (tokens == 0)
        return WA_INVALID(desc->on_map ? "batch, height or width is 0"
                                       : "windows is 0");
    if (tokens > UINT32_MAX)
        return WA_UNSUPPORTED("there are 2^32 tokens or more");
    return WINATTN_SUCCESS;
}

/* ---- Plans ---- */

/* q, k and v of a token stand together, and so do its heads in o. */
static void set_strides(const wa_attention_desc *desc, winattn_desc *core)
{
    const uint64_t tokens = (uint64_t)desc->window[0] * desc->window[1];
    winattn_strides s = {.column = 1, .head = core->head_dim};
    const uint64_t token = 3ull * desc->channels;
    if (desc->on_map) {
        s.axis[1] = token;
        s.axis[0] = desc->size[1] * token;
        s.window = desc->size[0] * s.axis[0];
    } else {
        s.row = token;
        s.window = tokens * token;
        core->o.column = 1;
        core->o.head = core->head_dim;
        core->o.row = desc->channels;
        core->o.window = tokens * desc->channels;
    }
    core->q = core->k = core->v = s;
}

static void set_grid(const wa_attention_desc *desc, winattn_desc *core)
{
    core->grid.axes = 2;
    core->grid.batch = desc->batch;
    core->grid_options = desc->grid_options;
    for (int a = 0; a < 2; a++) {
        core->grid.size[a] = desc->size[a];
        core->grid.window[a] = desc->window[a];
        core->grid.shift[a] = desc->shift[a];
    }
    if (desc->shift[0] || desc->shift[1])
        core->mask = WINATTN_MASK_SHIFT;
}

static winattn_status make_core(wa_session *session,
                                const wa_attention_desc *desc,
                                winattn_plan **plan)
{
    const uint64_t tokens = (uint64_t)desc->window[0] * desc->window[1];
    winattn_desc core = {.struct_size = sizeof core};
    core.variant = desc->variant;
    core.dtype = desc->dtype;
    core.tier = desc->tier;
    core.allow_tf32 = desc->allow_tf32;
    core.heads = desc->heads;
    core.head_dim = desc->channels / desc->heads;
    core.bias = WINATTN_BIAS_TABLE;
    core.bias_dtype = desc->table_dtype;
    core.table.axes = 2;
    core.table.window[0] = desc->window[0];
    core.table.window[1] = desc->window[1];
    core.build_options = desc->build_options;
    if (desc->on_map) {
        set_grid(desc, &core);
    } else {
        core.windows = desc->windows;
        core.queries = core.keys = (cl_uint)tokens; /* below 2^32 */
        core.mask =
            desc->mask_windows ? WINATTN_MASK_ADDITIVE : WINATTN_MASK_NONE;
        core.mask_windows = desc->mask_windows;
        core.mask_dtype = desc->mask_dtype;
    }
    set_strides(desc, &core);
    return winattn_plan_create(wa_session_context(session),
                               wa_session_device_id(session), &core, plan);
}

void wa_attention_layers(const wa_attention_desc *desc, wa_layer *qkv,
                         wa_layer *proj)
{
    const uint32_t c = desc->channels;
    *qkv = (wa_layer){
        .in = c, .out = 3 * c, .has_bias = true, .norms = desc->qkv_norms};
    *proj = (wa_layer){.in = c,
                       .out = c,
                       .has_bias = true,
                       .adds = desc->adds,
                       .norms = desc->proj_norms};
}

/* q, k, v and o, and what is added to logits. */
static uint64_t core_moves(const wa_attention_desc *desc, uint64_t rows)
{
    const uint64_t tokens = (uint64_t)desc->window[0] * desc->window[1];
    const uint64_t entries =
        (2ull * desc->window[0] - 1) * (2ull * desc->window[1] - 1);
    return 4 * rows * desc->channels * wa_element_size(desc->dtype) +
           entries * desc->heads *
               wa_term_size(desc->dtype, desc->table_dtype) +
           desc->mask_windows * tokens * tokens *
               wa_term_size(desc->dtype, desc->mask_dtype);
}

winattn_status wa_attention_make(wa_session *session,
                                 const wa_attention_desc *desc,
                                 wa_attention *attention)
{
    memset(attention, 0, sizeof *attention);
    attention->channels = desc->channels;
    attention->element_size = wa_element_size(desc->dtype);
    attention->rows =
        desc->on_map
            ? (uint64_t)desc->size[0] * desc->size[1] * desc->batch
            : (uint64_t)desc->window[0] * desc->window[1] * desc->windows;
    attention->is_padded =
        desc->on_map && (desc->size[0] % desc->window[0] != 0 ||
                         desc->size[1] % desc->window[1] != 0);
    attention->core_moves = core_moves(desc, attention->rows);
    WA_TRY(make_core(session, desc, &attention->core));
    WA_TRY(
        winattn_plan_workspace_size(attention->core, &attention->core_bytes));
    const wa_layer_maker maker = {
        session,          desc->dtype,         desc->tier,
        desc->allow_tf32, desc->build_options, attention->rows};
    wa_layer qkv, proj;
    wa_attention_layers(desc, &qkv, &proj);
    WA_TRY(wa_make_layer(&maker, &qkv, &attention->qkv));
    return wa_make_layer(&maker, &proj, &attention->proj);
}

void wa_attention_release(wa_attention *attention)
{
    winattn_linear_plan_destroy(attention->qkv);
    winattn_linear_plan_destroy(attention->proj);
    winattn_plan_destroy(attention->core);
    memset(attention, 0, sizeof *attention);
}

/* ---- Calls ---- */

static winattn_tensor behind(winattn_tensor tensor, uint64_t bytes)
{
    tensor.offset += bytes;
    return tensor;
}

winattn_status wa_attention_append(const wa_attention *attention,
                                   const wa_attention_call *call,
                                   wa_kernel_chain *chain)
{
    const uint64_t part =
        (uint64_t)attention->channels * attention->element_size;
    const wa_layer_call qkv = {.rows = attention->rows,
                               .x = call->x,
                               .weight = call->qkv_weight,
                               .bias = call->qkv_terms.buffer ? call->qkv_terms
                                                              : call->qkv_bias,
                               .y = call->qkv,
                               .norms = call->qkv_norms};
    winattn_forward forward = {.struct_size = sizeof forward,
                               .q = call->qkv,
                               .k = behind(call->qkv, part),
                               .v = behind(call->qkv, 2 * part),
                               .bias = call->table,
                               .mask = call->mask,
                               .logit_scale = call->logit_scale,
                               .o = call->o};
    const wa_layer_call proj = {.rows = attention->rows,
                                .x = call->o,
                                .weight = call->proj_weight,
                                .bias = call->proj_bias,
                                .residual = call->residual,
                                .y = call->y,
                                .norm_weight = call->norm_weight,
                                .norm_bias = call->norm_bias,
                                .norms = call->proj_norms};
    if (attention->is_padded) {
        forward.pad_k = behind(call->qkv_bias, part);
        forward.pad_v = behind(call->qkv_bias, 2 * part);
    }
    if (attention->core_bytes)
        forward.workspace = call->workspace;
    WA_TRY(wa_chain_append_linear(chain, attention->qkv, &qkv));
    WA_TRY(wa_chain_append_attention(chain, attention->core, &forward));
    return wa_chain_append_linear(chain, attention->proj, &proj);
}

static winattn_status describe_core(const void *plan, size_t size, char *text,
                                    size_t *needed)
{
    return winattn_plan_describe(plan, size, text, needed);
}

uint64_t wa_attention_bytes(const wa_attention *attention)
{
    return wa_linear_bytes(attention->qkv, attention->rows) +
           attention->core_moves +
           wa_linear_bytes(attention->proj, attention->rows);
}

winattn_status wa_attention_describe(const wa_attention *attention, char *text,
                                     size_t size)
{
    const uint64_t rows = attention->rows;
    WA_TRY(wa_describe_layer("qkv", attention->qkv, rows, text, size));
    WA_TRY(wa_describe_part("attention", describe_core, attention->core, text,
                            size));
    wa_append(text, size, "attention bytes: %llu\n",
              (unsigned long long)attention->core_moves);
    return wa_describe_layer("proj", attention->proj, rows, text, size);
}

/* ---- Window attention as a module ---- */

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
        return WA_BAD_LAYOUT(
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
    WA_WANT(result, "plan");
    *result = NULL;
    winattn_window_attention_plan *plan = calloc(1, sizeof *plan);
    WA_TRY_MEMORY(plan);
    winattn_status status = read_desc(desc, &plan->desc, &attention);
    WA_THEN(status, wa_session_acquire(context, device, &plan->session));
    WA_THEN(status,
            wa_attention_make(plan->session, &attention, &plan->attention));
    WA_THEN(status, lay_out(plan));
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
    wa_session_release(plan->session);
    free(plan);
}

winattn_status winattn_window_attention_plan_workspace_size(
    const winattn_window_attention_plan *plan, size_t *size)
{
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    WA_WANT(size, "size");
    *size = (size_t)plan->workspace;
    return WINATTN_SUCCESS;
}

winattn_status winattn_window_attention_plan_describe(
    const winattn_window_attention_plan *plan, size_t size, char *text,
    size_t *needed)
{
    char all[16384] = "";
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    wa_append(all, sizeof all, "workspace: %llu bytes\n",
              (unsigned long long)plan->workspace);
    wa_append(all, sizeof all, "bytes: %llu\n",
              (unsigned long long)wa_attention_bytes(&plan->attention));
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
    WA_WANT(call->y.buffer, "y");
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
    WA_WANT(plan, "plan");
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
