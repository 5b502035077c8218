/* SPDX-License-Identifier: Apache-2.0
 * Transformer blocks on feature maps. */

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "launch/check.h"
#include "models/block.h"
#include "plan/tuning.h"

/* Rounding a norm's weights with those of a layer shows in rows of a few
 * numbers, of which no Swin is. */
#define LEAST_FOLDED 32u

static winattn_status read_desc(const winattn_block_desc *given,
                                winattn_block_desc *desc,
                                wa_attention_desc *attention)
{
    WA_TRY(wa_read_struct("block_desc", given, desc, sizeof *desc,
                          offsetof(winattn_block_desc, build_options) +
                              sizeof desc->build_options));
    if (desc->order != WINATTN_PRE_NORM && desc->order != WINATTN_POST_NORM)
        return WA_INVALID(
            "order is neither WINATTN_PRE_NORM nor WINATTN_POST_NORM");
    if (!(desc->eps >= 0.0f) || isinf(desc->eps))
        return WA_INVALID("eps is negative or not finite");
    if (desc->eps == 0.0f)
        desc->eps = 1e-5f;
    *attention =
        (wa_attention_desc){.dtype = desc->dtype,
                            .tier = desc->tier,
                            .allow_tf32 = desc->allow_tf32 != CL_FALSE,
                            .variant = desc->variant,
                            .channels = desc->channels,
                            .heads = desc->heads,
                            .window = {desc->window[0], desc->window[1]},
                            .table_dtype = desc->table_dtype,
                            .adds = desc->order == WINATTN_PRE_NORM,
                            .on_map = true,
                            .batch = desc->batch,
                            .size = {desc->height, desc->width},
                            .shift = {desc->shift[0], desc->shift[1]},
                            .grid_options = desc->grid_options,
                            .build_options = desc->build_options};
    WA_TRY(wa_attention_check(attention));
    if (desc->hidden == 0 || desc->hidden > 1u << 20)
        return WA_INVALID("hidden is %u, not 1 to 2^20", desc->hidden);
    return WINATTN_SUCCESS;
}

static uint64_t rows_of(const winattn_block_desc *desc)
{
    return (uint64_t)desc->batch * desc->height * desc->width;
}

static wa_layer_maker maker_of(const winattn_block_plan *plan)
{
    const winattn_block_desc *desc = &plan->desc;
    return (wa_layer_maker){plan->session,       desc->dtype,
                            desc->tier,          desc->allow_tf32,
                            desc->build_options, rows_of(desc)};
}

static winattn_status make_mlp(winattn_block_plan *plan, unsigned fc1_norms,
                               unsigned fc2_norms)
{
    const winattn_block_desc *desc = &plan->desc;
    const wa_layer_maker maker = maker_of(plan);
    const wa_layer fc1 = {.in = desc->channels,
                          .out = desc->hidden,
                          .has_bias = true,
                          .activation = WINATTN_ACTIVATION_GELU,
                          .norms = fc1_norms};
    const wa_layer fc2 = {.in = desc->hidden,
                          .out = desc->channels,
                          .has_bias = true,
                          .adds = desc->order == WINATTN_PRE_NORM,
                          .norms = fc2_norms};
    WA_TRY(wa_make_layer(&maker, &fc1, &plan->fc1));
    return wa_make_layer(&maker, &fc2, &plan->fc2);
}

static void release_layers(winattn_block_plan *plan)
{
    winattn_linear_plan_destroy(plan->fc1);
    winattn_linear_plan_destroy(plan->fc2);
    plan->fc1 = plan->fc2 = NULL;
    wa_attention_release(&plan->attention);
}

/* What layers do about norms: those that norms stand before or behind, and
 * those whose results these read. */
typedef struct norm_place {
    unsigned normed, before;
} norm_place;

/* Norms before layers, best first: statistics handed on, in calls of many
 * rows; found, in those of few; norms of their own. */
static const norm_place pre_norm[] = {
    {WA_TAKES_STATISTICS, WA_GIVES_STATISTICS},
    {WA_FINDS_STATISTICS, 0},
    {0, 0}};

/* Asks before anything is built. */
static bool may_fold(const winattn_block_plan *plan, const norm_place *place)
{
    const uint32_t c = plan->desc.channels, hidden = plan->desc.hidden;
    const wa_layer_maker maker = maker_of(plan);
    const wa_layer layers[] = {
        {c, 3 * c, true, false, WINATTN_ACTIVATION_NONE, place->normed},
        {c, c, true, true, WINATTN_ACTIVATION_NONE, place->before},
        {c, hidden, true, false, WINATTN_ACTIVATION_GELU, place->normed},
        {hidden, c, true, true, WINATTN_ACTIVATION_NONE, place->before}};
    for (int i = 0; i < 4; i++)
        if (layers[i].norms && !wa_layer_may_have_norms(&maker, &layers[i]))
            return false;
    return true;
}

static winattn_status make_layers_as(winattn_block_plan *plan,
                                     const wa_attention_desc *given,
                                     unsigned first, unsigned second)
{
    wa_attention_desc attention = *given;
    attention.qkv_norms = first;
    attention.proj_norms = second;
    WA_TRY(wa_attention_make(plan->session, &attention, &plan->attention));
    return make_mlp(plan, first, second);
}

static winattn_status make_layers(winattn_block_plan *plan,
                                  const wa_attention_desc *attention,
                                  bool folds)
{
    /* sums that a layer can normalise are, whatever others do */
    if (plan->desc.order == WINATTN_POST_NORM)
        return make_layers_as(plan, attention, 0, WA_NORMALISES);
    for (const norm_place *place = &pre_norm[folds ? 0 : 2];; place++) {
        if (!may_fold(plan, place))
            continue;
        WA_TRY(make_layers_as(plan, attention, place->normed, place->before));
        plan->folds = place->normed != 0;
        plan->hands_on = place->before != 0;
        if (plan->attention.qkv->problem.norms == place->normed &&
            plan->fc1->problem.norms == place->normed &&
            plan->attention.proj->problem.norms == place->before &&
            plan->fc2->problem.norms == place->before)
            return WINATTN_SUCCESS;
        release_layers(plan);
    }
}

static winattn_status make_rows(winattn_block_plan *plan, wa_row_job job,
                                wa_row_plan *rows)
{
    const winattn_block_desc *desc = &plan->desc;
    const wa_row_desc made = {.job = job,
                              .dtype = desc->dtype,
                              .on_cpu =
                                  wa_row_on_cpu(plan->session, desc->tier),
                              .row_size = desc->channels,
                              .build_options = desc->build_options};
    return wa_row_plan_make(plan->session, &made, rows);
}

uint64_t wa_block_statistics(const winattn_block_plan *plan)
{
    const uint32_t c = plan->desc.channels;
    const uint32_t proj = wa_block_part_of(plan->attention.proj);
    const uint32_t fc2 = wa_block_part_of(plan->fc2);
    return plan->hands_on ? plan->attention.rows * WA_STATISTICS_BYTES *
                                wa_linear_blocks(c, proj < fc2 ? proj : fc2)
                          : 0;
}

static winattn_status lay_out(winattn_block_plan *plan)
{
    const winattn_block_desc *desc = &plan->desc;
    const uint64_t wide =
        desc->hidden > 3 * desc->channels ? desc->hidden : 3 * desc->channels;
    const uint64_t row = plan->attention.element_size;
    const uint64_t wide_bytes = wa_product(plan->attention.rows, wide * row);
    plan->map_bytes = plan->attention.rows * desc->channels * row;
    if (wide_bytes > SIZE_MAX / 4)
        return WA_BAD_LAYOUT(
            "the workspace has more bytes than the host can count");
    plan->wide_at = wa_part_bytes(plan->map_bytes);
    plan->core_at = plan->wide_at + wa_part_bytes(wide_bytes);
    plan->workspace =
        plan->core_at + wa_part_bytes(plan->attention.core_bytes);
    return WINATTN_SUCCESS;
}

static winattn_status build(cl_context context, cl_device_id device,
                            const wa_attention_desc *attention, bool folds,
                            winattn_block_plan *plan)
{
    const bool is_pre = plan->desc.order == WINATTN_PRE_NORM;
    WA_TRY(wa_session_acquire(context, device, &plan->session));
    plan->lock = wa_lock_create();
    WA_TRY_MEMORY(plan->lock);
    WA_TRY(wa_read_tuning());
    WA_TRY(
        make_layers(plan, attention,
                    folds && is_pre && plan->desc.channels >= LEAST_FOLDED));
    if (plan->hands_on)
        WA_TRY(make_rows(plan, WA_ROW_STATISTICS, &plan->statistics));
    else if (is_pre ? !plan->folds
                    : !wa_block_has_norms(plan->attention.proj) ||
                          !wa_block_has_norms(plan->fc2))
        WA_TRY(make_rows(plan, is_pre ? WA_ROW_NORM : WA_ROW_NORM_ADD,
                         &plan->norm));
    return lay_out(plan);
}

winattn_status winattn_block_plan_create(cl_context context,
                                         cl_device_id device,
                                         const winattn_block_desc *desc,
                                         winattn_block_plan **result)
{
    return wa_block_plan_make(context, device, desc, false, result);
}

winattn_status wa_block_plan_make(cl_context context, cl_device_id device,
                                  const winattn_block_desc *desc, bool folds,
                                  winattn_block_plan **result)
{
    wa_attention_desc attention;
    WA_TRY(wa_models_begin());
    WA_WANT(result, "plan");
    *result = NULL;
    winattn_block_plan *plan = calloc(1, sizeof *plan);
    WA_TRY_MEMORY(plan);
    winattn_status status = read_desc(desc, &plan->desc, &attention);
    WA_THEN(status, build(context, device, &attention, folds, plan));
    if (status != WINATTN_SUCCESS) {
        winattn_block_plan_destroy(plan);
        return status;
    }
    plan->desc.build_options = NULL; /* the caller's memory */
    *result = plan;
    return WINATTN_SUCCESS;
}

void winattn_block_plan_destroy(winattn_block_plan *plan)
{
    if (!plan || wa_session_is_inherited(plan->session))
        return;
    wa_row_plan_release(&plan->norm);
    wa_row_plan_release(&plan->statistics);
    release_layers(plan);
    wa_lock_destroy(plan->lock);
    wa_session_release(plan->session);
    free(plan);
}

uint64_t wa_block_workspace(const winattn_block_plan *plan)
{
    return plan->workspace;
}

bool wa_block_folds(const winattn_block_plan *plan) { return plan->folds; }

bool wa_blocks_match(const winattn_block_plan *a, const winattn_block_plan *b)
{
    return a->folds == b->folds && a->hands_on == b->hands_on &&
           (!a->hands_on ||
            (wa_block_part_of(a->attention.proj) ==
                 wa_block_part_of(b->attention.proj) &&
             wa_block_part_of(a->fc2) == wa_block_part_of(b->fc2)));
}

winattn_status
winattn_block_plan_workspace_size(const winattn_block_plan *plan, size_t *size)
{
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    WA_WANT(size, "size");
    *size = (size_t)plan->workspace;
    return WINATTN_SUCCESS;
}

winattn_status winattn_block_plan_describe(const winattn_block_plan *plan,
                                           size_t size, char *text,
                                           size_t *needed)
{
    char all[16384] = "";
    WA_TRY(wa_models_begin());
    WA_WANT(plan, "plan");
    wa_append(all, sizeof all, "workspace: %llu bytes\n",
              (unsigned long long)plan->workspace);
    if (plan->norm.kernel)
        wa_row_describe(&plan->norm, "norm", all, sizeof all);
    if (plan->folds)
        wa_append(all, sizeof all, "norms: in qkv and fc1, of statistics %s\n",
                  plan->hands_on ? "from proj and fc2" : "of their own");
    if (wa_block_has_norms(plan->fc2) && !plan->folds)
        wa_append(all, sizeof all, "norm of the mlp: in fc2\n");
    if (wa_block_has_norms(plan->attention.proj) && !plan->folds)
        wa_append(all, sizeof all, "norm of the attention: in proj\n");
    WA_TRY(wa_attention_describe(&plan->attention, all, sizeof all));
    WA_TRY(wa_describe_part("fc1", wa_describe_linear, plan->fc1, all,
                            sizeof all));
    WA_TRY(wa_describe_part("fc2", wa_describe_linear, plan->fc2, all,
                            sizeof all));
    return wa_give_text(all, size, text, needed);
}
