/* SPDX-License-Identifier: Apache-2.0
 * Transformer blocks on feature maps. */

#include <math.h>
#include <stddef.h>
#include <stdio.h>
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
                            .adds = true,
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

static void release_layers(winattn_block_plan *plan)
{
    winattn_linear_plan_destroy(plan->fc1);
    winattn_linear_plan_destroy(plan->fc2);
    plan->fc1 = plan->fc2 = NULL;
    wa_attention_release(&plan->attention);
}

/* What layers do about norms, and whether the mlp is one launch. */
typedef struct layer_norms {
    unsigned qkv, proj, fc1, fc2;
    bool one_launch;
} layer_norms;

/* Norms before layers, best first: in calls of many rows statistics that the
 * mlp before hands on, where it is one launch; found, in calls of few rows,
 * and by an mlp in one launch; norms of their own. */
static const layer_norms pre_norm[] = {
    {WA_TAKES_STATISTICS, 0, WA_FINDS_STATISTICS, WA_GIVES_STATISTICS, true},
    {WA_FINDS_STATISTICS, 0, WA_FINDS_STATISTICS, 0, true},
    {WA_FINDS_STATISTICS, 0, WA_FINDS_STATISTICS, 0, false},
    {0, 0, 0, 0, false}};
#define NO_FOLDS (sizeof pre_norm / sizeof *pre_norm - 1)
/* Norms behind layers: each normalises sums if it can. */
static const layer_norms post_norm[] = {
    {0, WA_NORMALISES, 0, WA_NORMALISES, true},
    {0, WA_NORMALISES, 0, WA_NORMALISES, false}};

enum { QKV, PROJ, FC1, FC2, LAYERS };

/* Where the mlp is one launch, FC1 has no outputs. */
static void find_layers(const wa_attention_desc *attention,
                        const winattn_block_desc *desc,
                        const layer_norms *norms, wa_layer layers[LAYERS])
{
    const wa_layer fc1 = {.in = desc->channels,
                          .out = norms->one_launch ? 0 : desc->hidden,
                          .has_bias = true,
                          .activation = WINATTN_ACTIVATION_GELU,
                          .norms = norms->fc1};
    wa_layer fc2 = {.in = desc->hidden,
                    .out = desc->channels,
                    .has_bias = true,
                    .adds = true,
                    .norms = norms->fc2};
    if (norms->one_launch) {
        fc2.in = desc->channels;
        fc2.hidden = desc->hidden;
        fc2.norms |= norms->fc1;
    }
    wa_attention_layers(attention, &layers[QKV], &layers[PROJ]);
    layers[FC1] = fc1;
    layers[FC2] = fc2;
}

/* Asks before anything is built. Norms behind layers are nobody else's
 * concern. */
static bool may_be(const wa_layer_maker *maker, const wa_layer layers[LAYERS],
                   bool is_pre)
{
    for (int i = 0; i < LAYERS; i++)
        if (layers[i].out &&
            (layers[i].hidden || (is_pre && layers[i].norms)) &&
            !wa_layer_may_be(maker, &layers[i]))
            return false;
    return true;
}

static winattn_status build_layers(winattn_block_plan *plan,
                                   const wa_attention_desc *attention,
                                   const wa_layer_maker *maker,
                                   const wa_layer layers[LAYERS])
{
    WA_TRY(wa_attention_make(plan->session, attention, &plan->attention));
    if (layers[FC1].out)
        WA_TRY(wa_make_layer(maker, &layers[FC1], &plan->fc1));
    return wa_make_layer(maker, &layers[FC2], &plan->fc2);
}

/* Do they what norms before them want? */
static bool have_norms(const winattn_block_plan *plan,
                       const wa_layer layers[LAYERS])
{
    const winattn_linear_plan *made[LAYERS] = {
        plan->attention.qkv, plan->attention.proj, plan->fc1, plan->fc2};
    for (int i = 0; i < LAYERS; i++)
        if (made[i] && made[i]->problem.norms != layers[i].norms)
            return false;
    return true;
}

static winattn_status make_layers(winattn_block_plan *plan,
                                  const wa_attention_desc *given, bool folds)
{
    const bool is_pre = plan->desc.order == WINATTN_PRE_NORM;
    const wa_layer_maker maker = maker_of(plan);
    wa_attention_desc attention = *given;
    wa_layer layers[LAYERS];
    for (const layer_norms *norms = !is_pre ? post_norm
                                    : folds ? pre_norm
                                            : &pre_norm[NO_FOLDS];
         ; norms++) {
        attention.qkv_norms = norms->qkv;
        attention.proj_norms = norms->proj;
        find_layers(&attention, &plan->desc, norms, layers);
        if (!may_be(&maker, layers, is_pre))
            continue;
        const winattn_status status =
            build_layers(plan, &attention, &maker, layers);
        if (status != WINATTN_SUCCESS &&
            (!norms->one_launch || wa_may_pass(status)))
            return status;
        plan->folds = is_pre && norms->qkv != 0;
        plan->hands_on = (norms->fc2 & WA_GIVES_STATISTICS) != 0;
        if (status == WINATTN_SUCCESS && (!is_pre || have_norms(plan, layers)))
            return status;
        if (status != WINATTN_SUCCESS)
            snprintf(plan->two_launches, sizeof plan->two_launches, "%.200s",
                     winattn_last_reason());
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
    return plan->hands_on ? plan->attention.rows * WA_STATISTICS_BYTES : 0;
}

static winattn_status lay_out(winattn_block_plan *plan)
{
    const winattn_block_desc *desc = &plan->desc;
    const uint32_t hidden = plan->fc1 ? desc->hidden : 0;
    const uint64_t wide =
        hidden > 3 * desc->channels ? hidden : 3 * desc->channels;
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

wa_norms_in wa_block_norms_in(const winattn_block_plan *plan)
{
    return !plan->folds     ? WA_NORMS_ALONE
           : plan->fc1      ? WA_NORMS_IN_LAYERS
           : plan->hands_on ? WA_NORMS_IN_WEIGHTS
                            : WA_NORMS_IN_MLP;
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
    const uint64_t rows = plan->attention.rows;
    const unsigned norms = 2u - wa_block_has_norms(plan->attention.proj) -
                           wa_block_has_norms(plan->fc2);
    uint64_t bytes = norms * wa_row_bytes(&plan->norm, rows) +
                     wa_attention_bytes(&plan->attention) +
                     wa_linear_bytes(plan->fc2, rows);
    if (plan->fc1)
        bytes += wa_linear_bytes(plan->fc1, rows);
    wa_append(all, sizeof all, "workspace: %llu bytes\nbytes: %llu\n",
              (unsigned long long)plan->workspace, (unsigned long long)bytes);
    if (plan->norm.kernel)
        wa_row_describe(&plan->norm, "norm", rows, all, sizeof all);
    if (plan->hands_on)
        wa_row_describe(&plan->statistics, "statistics", rows, all,
                        sizeof all);
    if (plan->folds)
        wa_append(all, sizeof all, "norms: in qkv and %s, of statistics %s\n",
                  plan->fc1 ? "fc1" : "mlp",
                  plan->hands_on ? "from the mlp before, and of its own"
                                 : "of their own");
    if (wa_block_has_norms(plan->fc2) && !plan->folds)
        wa_append(all, sizeof all, "norm of the mlp: in fc2\n");
    if (wa_block_has_norms(plan->attention.proj) && !plan->folds)
        wa_append(all, sizeof all, "norm of the attention: in proj\n");
    WA_TRY(wa_attention_describe(&plan->attention, all, sizeof all));
    if (plan->two_launches[0])
        wa_append(all, sizeof all, "mlp in one launch: %s\n",
                  plan->two_launches);
    if (plan->fc1)
        WA_TRY(wa_describe_layer("fc1", plan->fc1, rows, all, sizeof all));
    WA_TRY(wa_describe_layer(plan->fc1 ? "fc2" : "mlp", plan->fc2, rows, all,
                             sizeof all));
    return wa_give_text(all, size, text, needed);
}
