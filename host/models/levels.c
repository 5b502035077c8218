/* SPDX-License-Identifier: Apache-2.0 */
#include "models/levels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/status.h"
#include "base/text.h"
#include "launch/check.h"
#include "models/linear.h"
#include "session/warmup.h"

/* Parts of a workspace start on lines of memory. */
#define PART_ALIGNMENT 256u

int winattn_models_version(void) { return WINATTN_VERSION; }

winattn_status wa_models_begin(void)
{
    wa_forget_failure();
    if (winattn_version() != WINATTN_VERSION)
        return WA_UNSUPPORTED(
            "winattn_models is of version %d, but winattn of %d",
            WINATTN_VERSION, winattn_version());
    return WINATTN_SUCCESS;
}

uint32_t wa_element_size(winattn_dtype dtype)
{
    return dtype == WINATTN_FP32 ? 4 : 2;
}

uint32_t wa_term_size(winattn_dtype dtype, winattn_term_dtype term)
{
    return term == WINATTN_TERM_FP32 ? 4 : wa_element_size(dtype);
}

winattn_status wa_check_types(winattn_dtype dtype, winattn_tier tier)
{
    if ((unsigned)dtype > WINATTN_BF16)
        return WA_INVALID("dtype is %d, which is none", (int)dtype);
    if ((unsigned)tier > WINATTN_TIER_MATRIX)
        return WA_INVALID("tier is %d, which is none", (int)tier);
    return WINATTN_SUCCESS;
}

uint64_t wa_product(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

uint64_t wa_part_bytes(uint64_t bytes)
{
    return (bytes + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
}

winattn_status wa_check_inputs(const wa_wanted_tensor *wanted, size_t count,
                               cl_context context, uint64_t *start)
{
    for (size_t i = 0; i < count; i++) {
        const wa_wanted_tensor *t = &wanted[i];
        if (t->is_wanted != (t->at->buffer != NULL))
            return WA_INVALID(
                t->is_wanted ? "%s is NULL"
                             : "%s is given, but the plan does not use it",
                t->name);
        if (t->is_wanted)
            WA_TRY(wa_check_memory(t->name, t->at, context, WA_READS,
                                   t->element_size, t->count * t->element_size,
                                   start));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_check_workspace(const winattn_tensor *workspace,
                                  cl_context context, uint64_t bytes,
                                  uint64_t *start)
{
    if (!workspace->buffer)
        return WA_INVALID("workspace is NULL, but the call needs %llu bytes",
                          (unsigned long long)bytes);
    const winattn_status status =
        wa_check_memory("workspace", workspace, context, WA_READS_AND_WRITES,
                        16, bytes, start);
    return status == WINATTN_BUFFER_TOO_SMALL ? WINATTN_WORKSPACE_TOO_SMALL
                                              : status;
}

winattn_status wa_check_order(const wa_session *session,
                              cl_command_queue queue, cl_uint wait_count,
                              const cl_event *wait_list)
{
    return wa_check_queue(queue, wa_session_context(session),
                          wa_session_device_id(session), wait_count,
                          wait_list);
}

winattn_status wa_describe_part(const char *name, wa_describer *describe,
                                const void *plan, char *text, size_t size)
{
    size_t needed = 0;
    WA_TRY(describe(plan, 0, NULL, &needed));
    char *own = malloc(needed);
    WA_TRY_MEMORY(own);
    const winattn_status status = describe(plan, needed, own, NULL);
    for (const char *line = own; status == WINATTN_SUCCESS && *line;) {
        const size_t length = strcspn(line, "\n");
        wa_append(text, size, "%s %.*s\n", name, (int)length, line);
        line += length + (line[length] == '\n');
    }
    free(own);
    return status;
}

/* ---- Chains ---- */

winattn_status wa_models_chain_begin(wa_kernel_chain *chain,
                                     cl_command_queue queue,
                                     cl_uint wait_count,
                                     const cl_event *wait_list,
                                     const cl_event *event)
{
    WA_TRY(wa_chain_begin(chain, queue, wait_count, wait_list, event != NULL));
    if (chain->in_order)
        chain->wants_event = false;
    return WINATTN_SUCCESS;
}

winattn_status wa_models_chain_end(wa_kernel_chain *chain,
                                   winattn_status status, cl_event *event)
{
    if (chain->in_order)
        chain->has_begun = false; /* there is no event yet: a marker's */
    return wa_chain_end(chain, status, event);
}

static winattn_status call_first(const wa_session *session, size_t bytes,
                                 wa_first_call *call, const void *plan)
{
    wa_zeros z;
    wa_kernel_chain chain;
    winattn_status status =
        wa_zeros_begin(&z, wa_session_context(session),
                       wa_session_device_id(session), bytes, 2 * bytes, 0);
    WA_THEN(status, wa_chain_begin(&chain, z.queue, 0, NULL, false));
    WA_THEN(status,
            wa_chain_end(&chain, call(plan, z.in, z.out, &chain), NULL));
    return wa_zeros_end(&z, status);
}

winattn_status wa_keep_kernels(const wa_session *session,
                               const cl_kernel *kernels, size_t count,
                               size_t bytes, wa_first_call *call,
                               const void *plan)
{
    wa_program_set *set = wa_session_programs(session);
    bool keeps = false;
    for (size_t i = 0; i < count && !keeps; i++)
        if (kernels[i])
            WA_TRY(wa_program_set_keeps(set, kernels[i], &keeps));
    if (keeps && !wa_may_pass(call_first(session, bytes, call, plan)))
        for (size_t i = 0; i < count; i++)
            if (kernels[i])
                wa_program_set_keep(set, kernels[i]);
    wa_forget_failure(); /* the plan is good without */
    return WINATTN_SUCCESS;
}

winattn_status wa_chain_append_attention(wa_kernel_chain *chain,
                                         const winattn_plan *plan,
                                         const winattn_forward *forward)
{
    cl_event done;
    WA_TRY(winattn_enqueue_forward(plan, chain->queue, forward,
                                   chain->wait_count, chain->wait_list,
                                   wa_chain_event(chain, &done)));
    wa_chain_go_on(chain, done);
    return WINATTN_SUCCESS;
}

/* The layer, with what it is to do besides, or without. */
static winattn_status read_layer(const wa_layer_maker *maker,
                                 const wa_layer *layer, bool does_more,
                                 wa_linear_problem *problem)
{
    const bool leaves_norm = (layer->norms & WA_NORMALISES) && !does_more;
    const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                      .dtype = maker->dtype,
                                      .tier = maker->tier,
                                      .allow_tf32 = maker->allow_tf32,
                                      .in_features = layer->in,
                                      .out_features = layer->out,
                                      .has_bias = layer->has_bias,
                                      .activation = layer->activation,
                                      .has_residual =
                                          layer->adds && !leaves_norm,
                                      .build_options = maker->build_options};
    WA_TRY(wa_linear_read(&desc, problem));
    problem->norms = does_more ? layer->norms : 0;
    problem->hidden = does_more ? layer->hidden : 0;
    problem->merges = does_more && layer->merges;
    return WINATTN_SUCCESS;
}

/* A work-group has rows so short in one panel of products: all of it takes
 * less than a launch, however few work-groups there are. */
#define SHORT_ROW 64u

/* Each block of columns finds neighbours, four times as long as other rows of
 * their stage, anew: few are a fourth of what else is few. */
#define MERGED 4u

bool wa_layer_may_be(const wa_layer_maker *maker, const wa_layer *layer)
{
    char excluded[WA_TIERS][WA_REASON_SIZE] = {""};
    wa_linear_problem problem;
    wa_linear_layout layout;
    if (read_layer(maker, layer, true, &problem) != WINATTN_SUCCESS ||
        wa_linear_plan_make(&problem, wa_session_device(maker->session),
                            excluded, &layout) != WINATTN_SUCCESS)
        return false;
    if (layer->hidden) { /* weights that each work-group fetches want rows */
        const wa_linear_kernel *kernel = &layout.kernel[WA_LINEAR_MANY];
        return kernel->shape.keeps_weight ||
               wa_linear_blocks(maker->rows, kernel->rows) >=
                   wa_session_device(maker->session)->compute_units;
    }
    if (layer->norms == WA_NORMALISES && layer->in <= SHORT_ROW)
        return true;
    return wa_linear_is_few(&layout, &problem,
                            (layer->merges ? MERGED : 1) * maker->rows) ==
           (layer->norms == WA_FINDS_STATISTICS || layer->merges);
}

winattn_status wa_make_layer(const wa_layer_maker *maker,
                             const wa_layer *layer, winattn_linear_plan **plan)
{
    const cl_context context = wa_session_context(maker->session);
    const cl_device_id device = wa_session_device_id(maker->session);
    wa_linear_problem problem;
    if ((layer->norms || layer->hidden || layer->merges) &&
        wa_layer_may_be(maker, layer)) {
        WA_TRY(read_layer(maker, layer, true, &problem));
        const winattn_status status =
            wa_linear_plan_with_shape(context, device, &problem, NULL, plan);
        if (status == WINATTN_SUCCESS || wa_may_pass(status) || layer->hidden)
            return status;
    }
    wa_forget_failure();
    WA_TRY(read_layer(maker, layer, false, &problem));
    return wa_linear_plan_with_shape(context, device, &problem, NULL, plan);
}

winattn_status wa_chain_append_linear(wa_kernel_chain *chain,
                                      const winattn_linear_plan *plan,
                                      const wa_layer_call *call)
{
    const wa_linear_problem *problem = &plan->problem;
    const winattn_linear linear = {
        .struct_size = sizeof linear,
        .rows = call->rows,
        .x_stride = call->line ? call->line : problem->in,
        .weight_stride = problem->hidden ? problem->hidden : problem->in,
        .residual_stride = problem->out,
        .y_stride = problem->out,
        .x = call->x,
        .weight = call->weight,
        .bias = call->bias,
        .norm_weight = call->norm_weight,
        .norm_bias = call->norm_bias,
        .residual = call->residual,
        .y = call->y};
    return wa_linear_append(plan, &linear, &call->norms, chain);
}

static winattn_status describe_linear(const void *plan, size_t size,
                                      char *text, size_t *needed)
{
    return winattn_linear_plan_describe(plan, size, text, needed);
}

winattn_status wa_describe_layer(const char *name,
                                 const winattn_linear_plan *plan,
                                 uint64_t rows, char *text, size_t size)
{
    WA_TRY(wa_describe_part(name, describe_linear, plan, text, size));
    wa_append(text, size, "%s bytes: %llu\n", name,
              (unsigned long long)wa_linear_bytes(plan, rows));
    return WINATTN_SUCCESS;
}

/* ---- Tensors of a block ---- */

const char *const wa_block_tensor_names[WA_BLOCK_TENSORS] = {
    "norm1_weight", "norm1_bias",   "qkv_weight", "qkv_bias",   "proj_weight",
    "proj_bias",    "norm2_weight", "norm2_bias", "fc1_weight", "fc1_bias",
    "fc2_weight",   "fc2_bias",     "table",      "logit_scale"};

void wa_block_extents(const wa_block_shape *s,
                      uint64_t extent[WA_BLOCK_TENSORS][4])
{
    const uint64_t c = s->channels, h = s->hidden;
    const uint64_t entries =
        (2ull * s->window[0] - 1) * (2ull * s->window[1] - 1);
    const uint64_t all[WA_BLOCK_TENSORS][4] = {
        [WA_BLOCK_NORM1_WEIGHT] = {c, 1},
        [WA_BLOCK_NORM1_BIAS] = {c, 1},
        [WA_BLOCK_QKV_WEIGHT] = {3 * c, c},
        [WA_BLOCK_QKV_BIAS] = {3 * c, 1},
        [WA_BLOCK_PROJ_WEIGHT] = {c, c},
        [WA_BLOCK_PROJ_BIAS] = {c, 1},
        [WA_BLOCK_NORM2_WEIGHT] = {c, 1},
        [WA_BLOCK_NORM2_BIAS] = {c, 1},
        [WA_BLOCK_FC1_WEIGHT] = {h, c},
        [WA_BLOCK_FC1_BIAS] = {h, 1},
        [WA_BLOCK_FC2_WEIGHT] = {c, h},
        [WA_BLOCK_FC2_BIAS] = {c, 1},
        [WA_BLOCK_TABLE] = {entries, s->heads},
        [WA_BLOCK_LOGIT_SCALE] = {s->is_cosine ? s->heads : 0, 1, 1}};
    memcpy(extent, all, sizeof all);
}

void wa_store_numbers(winattn_dtype dtype, const float *from, size_t count,
                      void *to)
{
    uint16_t *half = to;
    if (dtype == WINATTN_FP32)
        memcpy(to, from, count * sizeof *from);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = wa_half_of(dtype == WINATTN_FP16, from[i]);
}
