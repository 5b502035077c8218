/* SPDX-License-Identifier: Apache-2.0 */
#include "models/linear_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* As winattn's own (plan/tuning.c): each beats the model by 4% or more.
 * Measured on one H200, driver 580.159.04, November 2026, in fp16 and fp32, as
 * layers of Swin-T at batch 64, or of few rows at batch 1
 * (bench/decisions/short-layers-keep-their-weights.md). Blocks are not much
 * larger than the model's, so that smaller batches keep as many work-groups.
 */
const char *const wa_linear_built_in_rows[] = {
    "linear-matrix NVIDIA 90 half many plain 96 288 128:96:96:2:4:2:1:1",
    "linear-matrix NVIDIA 90 half many residual 96 96 64:96:96:2:4:1:1:1",
    "linear-matrix NVIDIA 90 half many gelu 96 384 64:192:96:2:2:4:1:1",
    "linear-matrix NVIDIA 90 half many plain 192 576 128:144:64:3:4:3:1:1",
    "linear-matrix NVIDIA 90 half many residual 192 192 64:96:64:3:4:2:1:1",
    "linear-matrix NVIDIA 90 half many residual 1536 384 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 half many plain 768 2304 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 half many gelu 768 3072 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 half many residual 3072 768 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 fp32 many plain 96 288 128:64:32:4:4:2:1",
    "linear-matrix NVIDIA 90 fp32 many residual 96 96 64:96:32:4:4:2:1",
    "linear-matrix NVIDIA 90 fp32 many gelu 96 384 64:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many residual 384 96 128:96:32:4:4:1:1",
    "linear-matrix NVIDIA 90 fp32 many plain 384 192 128:96:64:4:4:2:1",
    "linear-matrix NVIDIA 90 fp32 many plain 192 576 128:96:32:4:4:1:1",
    "linear-matrix NVIDIA 90 fp32 many residual 192 192 128:64:32:4:4:2:1",
    "linear-matrix NVIDIA 90 fp32 many residual 768 192 128:96:32:4:4:1:1",
    "linear-matrix NVIDIA 90 fp32 many plain 768 384 160:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many residual 384 384 64:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many residual 1536 384 160:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many plain 1536 768 160:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many plain 768 2304 160:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many residual 768 768 160:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 fp32 many residual 3072 768 160:128:32:3:2:4:1",
    "linear-matrix NVIDIA 90 half few plain 96 288 64:32:64:4:1:1:4",
    "linear-matrix NVIDIA 90 half few plain 192 576 32:32:64:4:1:1:4",
    "linear-matrix NVIDIA 90 half few residual 768 192 16:32:128:4:1:1:4",
    "linear-matrix NVIDIA 90 half few residual 1536 384 16:16:256:4:1:1:4",
    "linear-matrix NVIDIA 90 half few plain 1536 768 16:32:256:4:1:1:4",
    "linear-matrix NVIDIA 90 half few residual 768 768 16:32:128:4:1:1:4",
    "linear-matrix NVIDIA 90 half few gelu 768 3072 16:32:128:4:1:1:4",
    "linear-matrix NVIDIA 90 half few residual 3072 768 16:32:256:4:1:1:4",
    NULL};

/* Rows of hopper/linear_wgmma.cl. */
const char *const wa_linear_wgmma_rows[] = {
    "linear-matrix NVIDIA 90 half many residual 192 192 "
    "192:192:64:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 half many gelu 192 768 64:192:64:8:12:1:1:1:1",
    "linear-matrix NVIDIA 90 half many residual 768 192 "
    "128:192:64:5:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many plain 384 192 128:192:64:5:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many gelu 384 1536 192:192:64:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 half many residual 1536 384 "
    "128:192:64:5:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many plain 768 384 64:192:64:6:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many plain 1536 768 64:192:64:6:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many residual 768 768 64:96:64:8:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many plain 768 2304 128:256:64:4:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many gelu 768 3072 128:128:64:6:8:1:1:0:1",
    "linear-matrix NVIDIA 90 half many residual 3072 768 "
    "64:192:64:6:8:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many residual 192 192 "
    "64:192:32:8:12:1:1:1:1",
    "linear-matrix NVIDIA 90 tf32 many plain 192 576 192:192:32:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many gelu 192 768 192:192:32:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many plain 384 1152 192:192:32:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many gelu 384 1536 192:192:32:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many plain 1536 768 64:192:32:5:8:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many gelu 768 3072 192:144:32:4:12:1:1:0:1",
    "linear-matrix NVIDIA 90 tf32 many residual 3072 768 "
    "192:128:32:5:12:1:1:0:1",
    NULL};

/* ---- Shapes ---- */

/* Where the numbers of a text go; the last two of tier matrix are there as far
 * as they are not 0. */
#define AT(field) offsetof(wa_linear_shape, field)
static const size_t cpu[] = {AT(block_rows), AT(block_columns), AT(stage_dims),
                             AT(lanes),      AT(tile_rows),     AT(tile_vecs)};
static const size_t local[] = {AT(block_rows), AT(block_columns),
                               AT(stage_dims), AT(item_rows),
                               AT(item_columns)};
static const size_t matrix[] = {
    AT(block_rows), AT(block_columns), AT(stage_dims),
    AT(stages),     AT(row_waves),     AT(column_waves),
    AT(dim_waves),  AT(keeps_weight),  AT(wgmma)};

static const struct {
    const char *kernel;
    const size_t *at;
    size_t least, count;
} of_tier[] = {
    [WINATTN_TIER_CPU] = {"linear-cpu", cpu, COUNT(cpu), COUNT(cpu)},
    [WINATTN_TIER_LOCAL] = {"linear-local", local, COUNT(local), COUNT(local)},
    [WINATTN_TIER_MATRIX] = {"linear-matrix", matrix, COUNT(matrix) - 2,
                             COUNT(matrix)}};

const char *wa_linear_row_kernel(winattn_tier tier)
{
    return of_tier[tier].kernel;
}

bool wa_linear_shape_parse(winattn_tier tier, const char *text,
                           wa_linear_shape *shape)
{
    uint32_t numbers[COUNT(matrix)];
    const size_t count = wa_read_numbers(text, of_tier[tier].count, numbers);
    memset(shape, 0, sizeof *shape);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)shape + of_tier[tier].at[i], &numbers[i],
               sizeof *numbers);
    uint32_t last = 1; /* number that may not be there */
    if (count > of_tier[tier].least)
        memcpy(&last, (char *)shape + of_tier[tier].at[count - 1],
               sizeof last);
    return count >= of_tier[tier].least && last != 0;
}

void wa_linear_shape_print(winattn_tier tier, const wa_linear_shape *shape,
                           char *text, size_t size)
{
    size_t count = of_tier[tier].count;
    if (tier == WINATTN_TIER_MATRIX && !shape->wgmma)
        count -= shape->keeps_weight ? 1 : 2;
    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t number;
        memcpy(&number, (const char *)shape + of_tier[tier].at[i],
               sizeof number);
        wa_append(text, size, "%s%u", i ? ":" : "", number);
    }
}

/* ---- Rows ---- */

static const char *const types[] = {WA_ROW_ANY, "fp32", "tf32", "half", NULL};
static const char *const calls[] = {"many", "few", NULL};
/* by their bits: a norm, GELU, a residual */
static const char *const terms[] = {"plain",         "norm",
                                    "gelu",          "norm+gelu",
                                    "residual",      "norm+residual",
                                    "gelu+residual", "norm+gelu+residual",
                                    WA_ROW_ANY,      NULL};
static const char *const any[] = {WA_ROW_ANY, NULL};
static const wa_row_word columns[] = {
    {types, false, "no type: any, fp32, tf32 or half"},
    {calls, false, "no calls: many or few"},
    {terms, false,
     "no terms: any, plain, or norm, gelu and residual in that order with + "
     "between them"},
    {any, true, "no numbers of features"},
    {any, true, "no numbers of features"}};

/* For which kernel of which layers a shape was measured. */
static void write_words(const wa_linear_problem *p, winattn_tier tier,
                        wa_linear_kernel_id id, char *text, size_t size)
{
    const bool is_tf32 = tier == WINATTN_TIER_MATRIX && p->allow_tf32;
    const unsigned bits = (p->layer_norm ? 1u : 0u) |
                          (p->activation ? 2u : 0u) |
                          (p->has_residual ? 4u : 0u);
    snprintf(text, size, "%s %s %s %u %u",
             p->dtype != WINATTN_FP32 ? "half"
             : is_tf32                ? "tf32"
                                      : "fp32",
             calls[id == WA_LINEAR_FEW], terms[bits], p->in, p->out);
}

void wa_linear_row_print(const wa_linear_problem *problem, winattn_tier tier,
                         wa_linear_kernel_id id, const wa_linear_shape *shape,
                         char *text, size_t size)
{
    char numbers[128];
    wa_linear_shape_print(tier, shape, numbers, sizeof numbers);
    write_words(problem, tier, id, text, size);
    wa_append(text, size, " %s", numbers);
}

/* ---- What plans take ---- */

typedef struct search {
    const wa_linear_problem *problem;
    const wa_device *device;
    winattn_tier tier;
    wa_linear_kernel_id id;
    wa_linear_layout *layout;
    wa_linear_shape *shape;
} search;

static bool take(void *data, const char *words, const char *reason)
{
    const search *s = data;
    char own[WA_ROW_WORDS_SIZE], *not_taken = s->layout->not_taken;
    wa_linear_shape shape;
    const char *numbers = "";
    const char *why = wa_row_check(columns, COUNT(columns), words, &numbers);
    if (!why && !wa_linear_shape_parse(s->tier, numbers, &shape))
        why = "no shape of that kernel";
    if (!why && strchr(numbers, ' '))
        why = "more than a row";
    write_words(s->problem, s->tier, s->id, own, sizeof own);
    if (!why && !wa_row_fits(words, own))
        return false;
    if (!why)
        why = wa_linear_check_shape(s->problem, s->device, s->tier, &shape);
    if (why) {
        if (!not_taken[0])
            snprintf(not_taken, WA_REASON_SIZE, "%s", why);
        return false;
    }
    *s->shape = shape;
    s->layout->source[s->id] = reason;
    return true;
}

bool wa_linear_measured(const wa_linear_problem *problem,
                        const wa_device *device, winattn_tier tier,
                        wa_linear_kernel_id id, wa_linear_layout *layout,
                        wa_linear_shape *shape)
{
    search s = {problem, device, tier, id, layout, shape};
    const bool has_wgmma = tier == WINATTN_TIER_MATRIX &&
                           id == WA_LINEAR_MANY &&
                           !wa_linear_wgmma_refusal(problem, device);
    if (device->loop_limit) /* shapes of other devices have longer loops */
        return false;
    if (has_wgmma && wa_offer_rows(wa_linear_row_kernel(tier), device,
                                   wa_linear_wgmma_rows, take, &s))
        return true;
    if (has_wgmma && !wa_linear_wgmma_loses(problem, device))
        return false;
    return wa_offer_rows(wa_linear_row_kernel(tier), device,
                         wa_linear_built_in_rows, take, &s);
}
