/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of the backward pass rely on. */
#include "plan_legal.h"

#include <string.h>

#include "plan/family.h"
#include "plan/schedule.h"
#include "plan_made.h"

/* What a kernel's options say of teams, for either side of a pair: blocks of
 * `down` of `rows` run down tiles, those of `across` of `keys` across. */
static const char *broken_side(const wa_matrix_unit *unit,
                               const wa_step *kernel, uint32_t down,
                               uint32_t rows, uint32_t across, uint32_t keys)
{
    const char *broken = NULL;
    const char *options = kernel->defines;
    const uint32_t waves_per_window = define_of(options, "WAVES_PER_WINDOW");
    const uint32_t teams = define_of(options, "WINDOWS_PER_GROUP");
    const uint32_t stages = define_of(options, "STAGES");
    const uint32_t subtile_keys = define_of(options, "SUBTILE_KEYS");
    REQUIRE(down >= 1 && down <= rows && across >= 1 && across <= keys);
    REQUIRE(down == rows || down % unit->queries == 0);
    REQUIRE(across == keys || across % unit->tile == 0);
    REQUIRE(waves_per_window >= 1 && teams >= 1 && teams <= 15);
    REQUIRE(waves_per_window * teams * unit->wave == kernel->work_group);
    REQUIRE(stages == 1 || (stages == 2 && unit->copies_async));
    REQUIRE(subtile_keys >= 1 && subtile_keys % unit->tile == 0);
    REQUIRE(define_of(options, "BIAS_CACHE") != 2);
    return broken;
}

/* NULL if the kernels are what cl/matrix/backward_rows_matrix.cl and
 * cl/matrix/backward_keys_matrix.cl compute right. */
static const char *broken_pair(const wa_problem *p, const wa_matrix_unit *unit,
                               const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *first = &plan->step[WA_STEP_ROWS];
    const wa_step *last = &plan->step[WA_STEP_KEYS];
    const bool has_bias = p->bias != WINATTN_BIAS_NONE;
    const uint32_t keeps_dbias = define_of(first->defines, "KEEPS_DBIAS");
    const uint32_t row_waves = define_of(first->defines, "WAVES_PER_WINDOW");
    const uint32_t row_tiles = wa_ceil_div(first->block_rows, unit->queries);
    const bool streams = first->block_keys < p->keys;
    const char *of_rows = broken_side(unit, first, first->block_rows,
                                      p->queries, first->block_keys, p->keys);
    const char *of_keys = broken_side(unit, last, last->block_keys, p->keys,
                                      last->block_rows, p->queries);
    REQUIRE(!of_rows && !of_keys);
    REQUIRE(strcmp(first->kernel, unit->rows_kernel) == 0);
    REQUIRE(strcmp(last->kernel, unit->keys_kernel) == 0);
    REQUIRE(!plan->step[WA_STEP_STATISTICS].kernel);
    /* o comes where delta may be taken from it */
    const bool takes_o = unit->votes && p->queries > unit->tile &&
                         p->keys > unit->tile &&
                         (first->block_keys >= p->keys ||
                          plan->schedule.row_windows_per_group == 1);
    REQUIRE(has_define(first->defines, "ROW_PLANES", takes_o ? 3 : 2));
    REQUIRE(plan->schedule.row_blocks ==
            wa_ceil_div(p->queries, first->block_rows));
    REQUIRE(plan->schedule.key_blocks ==
            wa_ceil_div(p->keys, last->block_keys));
    REQUIRE(plan->schedule.row_windows_per_group ==
            define_of(first->defines, "WINDOWS_PER_GROUP"));
    REQUIRE(plan->schedule.windows_per_group ==
            define_of(last->defines, "WINDOWS_PER_GROUP"));
    REQUIRE(row_waves >= row_tiles ||
            (!streams && keeps_dbias != 1)); /* waves take tiles in turn */
    REQUIRE(row_waves <= row_tiles || row_waves % row_tiles == 0);
    REQUIRE(keeps_dbias <= 2 && (keeps_dbias == 0 || has_bias));
    REQUIRE(keeps_dbias != 1 || !streams);
    REQUIRE(keeps_dbias == 1 || !has_bias ||
            plan->schedule.row_windows_per_group == 1);
    REQUIRE(wa_ceil_div(last->block_keys, unit->queries) <=
            define_of(last->defines, "WAVES_PER_WINDOW"));
    REQUIRE(define_of(last->defines, "BIAS_CACHE") == 0 || !has_bias ||
            p->heads == p->kv_heads);
    REQUIRE(plan->schedule.row_splits >= 1);
    REQUIRE(plan->schedule.row_splits <= plan->schedule.windows_per_launch);
    REQUIRE(plan->workspace.statistics >=
            plan->schedule.windows_per_launch * p->heads * p->queries * 16);
    REQUIRE(plan->workspace.bias >= (has_bias
                                         ? 4ull * plan->schedule.row_splits *
                                               p->heads * p->queries * p->keys
                                         : 0));
    return broken;
}

/* NULL if the kernel is one that cl/matrix/backward_matrix.cl computes right.
 */
static const char *broken_whole(const wa_problem *p,
                                const wa_matrix_unit *unit,
                                const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *kernel = &plan->step[WA_STEP_KEYS];
    const char *options = kernel->defines;
    const uint32_t rows = kernel->block_rows;
    const uint32_t waves_per_window = define_of(options, "WAVES_PER_WINDOW");
    const uint32_t teams = define_of(options, "WINDOWS_PER_GROUP");
    const uint32_t stages = define_of(options, "STAGES");
    const uint32_t bias_cache = define_of(options, "BIAS_CACHE");
    const uint32_t keeps_dbias = define_of(options, "KEEPS_DBIAS");
    const bool single_q_block = p->heads == p->kv_heads && rows >= p->queries;
    const bool has_bias = p->bias != WINATTN_BIAS_NONE;
    const char *of_side = broken_side(unit, kernel, rows, p->queries,
                                      kernel->block_keys, p->keys);
    REQUIRE(!of_side && kernel->block_keys == p->keys);
    REQUIRE(strcmp(kernel->kernel, unit->backward_kernel) == 0);
    REQUIRE(plan->schedule.key_blocks == 1 &&
            plan->schedule.windows_per_group == teams);
    REQUIRE(plan->schedule.row_splits == 0);
    REQUIRE(plan->schedule.row_blocks == wa_ceil_div(p->queries, rows));
    REQUIRE(wa_ceil_div(rows, unit->queries) <= waves_per_window);
    REQUIRE(has_define(options, "SINGLE_Q_BLOCK", single_q_block));
    REQUIRE(bias_cache == 0 || single_q_block);
    REQUIRE(keeps_dbias <= 1 &&
            (!keeps_dbias || (has_bias && single_q_block)));
    REQUIRE(keeps_dbias || !has_bias || teams == 1);
    /* the ring alone */
    REQUIRE(kernel->local_bytes >=
            teams * stages * 2 * (rows + p->keys) * p->head_dim * 2);
    /* every round of a launch but the last gives each team a window */
    REQUIRE(plan->schedule.windows_per_launch == p->windows ||
            plan->schedule.windows_per_launch %
                    (plan->schedule.splits * teams) ==
                0);
    REQUIRE(plan->schedule.splits == 1 ||
            plan->schedule.splits * p->kv_heads <= plan->schedule.busy_groups);
    return broken;
}

/* What finds statistics from o and lse, of as many rows as who else does. */
static const char *broken_given(const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *given = &plan->step[WA_STEP_GIVEN];
    const wa_step *statistics = &plan->step[WA_STEP_STATISTICS];
    REQUIRE(given->kernel);
    if (broken)
        return broken;
    REQUIRE(strcmp(given->kernel, "sliding_given") == 0);
    REQUIRE(given->work_group == 128);
    REQUIRE(given->local_bytes == 16 + 64 * given->block_rows);
    REQUIRE(given->block_rows == statistics->block_rows);
    REQUIRE(has_define(given->defines, "BLOCK_ROWS", given->block_rows));
    return broken;
}

/* NULL if the kernels are such that cl/matrix/sliding_rows_matrix.cl and
 * sliding_keys_matrix.cl compute right. */
static const char *broken_sliding(const wa_matrix_unit *unit,
                                  const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *rows = &plan->step[WA_STEP_ROWS];
    const wa_step *keys = &plan->step[WA_STEP_KEYS];
    const uint32_t row_waves = define_of(rows->defines, "WAVES_PER_WINDOW");
    const uint32_t key_waves = define_of(keys->defines, "WAVES_PER_WINDOW");
    REQUIRE(!plan->fused && plan->step[WA_STEP_STATISTICS].kernel);
    REQUIRE(strcmp(rows->kernel, unit->sliding_rows_kernel) == 0);
    REQUIRE(strcmp(keys->kernel, unit->sliding_keys_kernel) == 0);
    REQUIRE(plan->step[WA_STEP_STATISTICS].block_rows == rows->block_rows);
    REQUIRE(plan->schedule.bound_blocks == plan->schedule.row_blocks);
    REQUIRE(rows->block_rows % (row_waves * unit->queries) == 0);
    REQUIRE(rows->block_keys % unit->tile == 0);
    REQUIRE(keys->block_keys % (key_waves * unit->queries) == 0);
    REQUIRE(keys->block_rows % unit->tile == 0);
    REQUIRE(row_waves * unit->wave == rows->work_group);
    REQUIRE(key_waves * unit->wave == keys->work_group);
    /* each window has work-groups of its own */
    REQUIRE(plan->schedule.row_splits == 0);
    REQUIRE(plan->schedule.splits == plan->schedule.windows_per_launch);
    return broken;
}

/* Are the options all that kernels with wgmma ask for? */
static bool has_wgmma_options(const wa_problem *p, const wa_step *kernel)
{
    const char *options = kernel->defines;
    const uint32_t stages = define_of(options, "STAGES");
    return has_define(options, "VARIANT", p->variant) &&
           has_define(options, "DTYPE", p->dtype) &&
           has_define(options, "HEAD_DIM", p->head_dim) &&
           has_define(options, "BLOCK_ROWS", kernel->block_rows) &&
           has_define(options, "BLOCK_KEYS", kernel->block_keys) &&
           has_define(options, "COMPUTE_CAPABILITY", 90) && stages >= 2 &&
           stages <= 6;
}

/* NULL if the kernels are such that cl/hopper/sliding_rows_wgmma.cl and
 * sliding_keys_wgmma.cl compute right, behind statistics by fragments. */
static const char *broken_wgmma(const wa_problem *p, const wa_device *device,
                                const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *statistics = &plan->step[WA_STEP_STATISTICS];
    const wa_step *rows = &plan->step[WA_STEP_ROWS];
    const wa_step *keys = &plan->step[WA_STEP_KEYS];
    const wa_schedule *s = &plan->schedule;
    REQUIRE(device->compute_capability == 90 &&
            plan->refusals[WA_ENGINE_SPECIAL][0] == 0);
    REQUIRE(p->variant == WINATTN_SLIDING && p->dtype != WINATTN_FP32);
    REQUIRE(p->head_dim % 16 == 0 && p->head_dim <= 128);
    REQUIRE(!plan->fused && statistics->kernel);
    if (broken)
        return broken;
    REQUIRE(strcmp(statistics->kernel,
                   device->matrix_unit->sliding_rows_kernel) == 0);
    REQUIRE(has_define(statistics->defines, "STATISTICS", 1));
    REQUIRE(strcmp(rows->kernel, "sliding_rows_wgmma") == 0);
    REQUIRE(strcmp(keys->kernel, "sliding_keys_wgmma") == 0);
    REQUIRE(rows->block_rows == 128 && rows->block_keys == 64);
    REQUIRE(s->bound_blocks ==
            wa_ceil_div(p->queries, statistics->block_rows));
    REQUIRE(keys->block_rows == 64 && keys->block_keys == 128);
    REQUIRE(rows->work_group == 384 && keys->work_group == 384);
    REQUIRE(has_wgmma_options(p, rows) && has_wgmma_options(p, keys));
    REQUIRE(plan->access_bytes == 16 && plan->access_elements == 8);
    REQUIRE(s->row_blocks == wa_ceil_div(p->queries, rows->block_rows));
    REQUIRE(s->key_blocks == wa_ceil_div(p->keys, keys->block_keys));
    REQUIRE(s->key_parts <= 1); /* dK and dV have one work-group */
    /* each window has work-groups of its own */
    REQUIRE(s->row_splits == 0 && s->splits == s->windows_per_launch);
    REQUIRE(plan->workspace.statistics >=
            s->windows_per_launch * p->heads * p->queries * 16);
    REQUIRE(plan->workspace.bounds >=
            s->windows_per_launch * p->heads * s->bound_blocks * 16);
    return broken;
}

/* NULL if the kernel is such that cl/hopper/window_gradients_wgmma.cl computes
 * right. */
static const char *broken_whole_windows(const wa_problem *p,
                                        const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *all = &plan->step[WA_STEP_KEYS];
    const wa_schedule *s = &plan->schedule;
    REQUIRE(!plan->step[WA_STEP_ROWS].kernel);
    REQUIRE(strcmp(all->kernel, "window_gradients_wgmma") == 0);
    REQUIRE(p->variant == WINATTN_DOT);
    /* tiles of 16 rows, and of 48 keys, without a remainder */
    REQUIRE(p->queries == 144 && p->keys == 144);
    REQUIRE(all->block_rows == 144 && all->block_keys == 48);
    REQUIRE(all->work_group == 512 && has_wgmma_options(p, all));
    REQUIRE(s->row_blocks == 1 && s->key_blocks == 1 && s->key_parts <= 1);
    REQUIRE(s->windows_per_group == 1 && s->row_splits == 0);
    REQUIRE(s->splits >= 1 && s->splits <= s->windows_per_launch);
    REQUIRE(plan->workspace.bias >=
            4ull * s->splits * p->heads * p->queries * p->keys);
    return broken;
}

/* NULL if the kernels are such that cl/hopper/window_rows_wgmma.cl and
 * window_keys_wgmma.cl compute right, or the one for both. */
static const char *broken_windows(const wa_problem *p, const wa_device *device,
                                  const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *rows = &plan->step[WA_STEP_ROWS];
    const wa_step *keys = &plan->step[WA_STEP_KEYS];
    const wa_schedule *s = &plan->schedule;
    REQUIRE(device->compute_capability == 90 &&
            plan->refusals[WA_ENGINE_SPECIAL][0] == 0);
    REQUIRE(p->dtype != WINATTN_FP32 && p->head_dim == 32);
    REQUIRE(p->mask == MASK_NONE || p->mask == MASK_REGIONS ||
            p->mask == MASK_SHIFT);
    REQUIRE(!p->grid.used || !p->grid.is_padded);
    REQUIRE(p->heads == p->kv_heads);
    REQUIRE(p->bias != WINATTN_BIAS_NONE &&
            p->bias_dtype == WINATTN_TERM_SAME);
    REQUIRE(plan->access_bytes == 16 && plan->access_elements == 8);
    REQUIRE(!plan->step[WA_STEP_STATISTICS].kernel);
    if (plan->fused)
        return broken ? broken : broken_whole_windows(p, plan);
    REQUIRE(strcmp(rows->kernel, "window_rows_wgmma") == 0);
    REQUIRE(strcmp(keys->kernel, "window_keys_wgmma") == 0);
    REQUIRE(rows->block_rows == 128 && keys->block_keys == 128);
    REQUIRE(rows->work_group == 384 && keys->work_group == 384);
    REQUIRE(has_wgmma_options(p, rows) && has_wgmma_options(p, keys));
    /* there are products of tiles of so many; of keys a lane has a sum of
     * dBias for each two; and each of two blocks has rows */
    REQUIRE(rows->block_keys == 32 && keys->block_rows == 64);
    REQUIRE(p->queries > 128 && p->queries <= 256);
    REQUIRE(p->keys > 128 && p->keys <= 256);
    REQUIRE(s->row_blocks == wa_ceil_div(p->queries, 128));
    REQUIRE(s->key_blocks == wa_ceil_div(p->keys, 128));
    REQUIRE(s->key_parts <= 1 && s->windows_per_group == 1 &&
            s->row_windows_per_group == 1);
    REQUIRE(s->row_splits >= 1 && s->row_splits <= s->windows_per_launch);
    REQUIRE(plan->workspace.statistics >=
            s->windows_per_launch * p->heads * p->queries * 16);
    REQUIRE(plan->workspace.bias >=
            4ull * s->row_splits * p->heads * p->queries * p->keys);
    REQUIRE(p->variant != WINATTN_COSINE ||
            plan->workspace.scale >=
                4ull * s->row_splits * s->row_blocks * p->heads);
    return broken;
}

static const char *broken_gradients(const wa_problem *p,
                                    const wa_device *device,
                                    const wa_plan *plan)
{
    const char *broken = NULL;
    REQUIRE(suits_matrix(p, device, WA_BACKWARD) && p->dtype != WINATTN_FP32);
    REQUIRE(p->tier != WINATTN_TIER_LOCAL);
    REQUIRE(device->matrix_unit->proven || p->tier == WINATTN_TIER_MATRIX);
    if (!broken && p->variant == WINATTN_SLIDING)
        broken = broken_given(plan);
    if (broken)
        return broken;
    if (plan->family->engine > WA_ENGINE_MATRIX)
        return p->variant == WINATTN_SLIDING ? broken_wgmma(p, device, plan)
                                             : broken_windows(p, device, plan);
    if (p->variant == WINATTN_SLIDING)
        return broken_sliding(device->matrix_unit, plan);
    return plan->fused ? broken_whole(p, device->matrix_unit, plan)
                       : broken_pair(p, device->matrix_unit, plan);
}

void assert_legal_backward(const wa_problem *p, const wa_device *device,
                           const wa_plan *plan, const char *what)
{
    const char *broken = NULL;
    const wa_step *last = &plan->step[WA_STEP_KEYS];
    const uint64_t logits = (uint64_t)p->heads * p->queries * p->keys;
    for (int i = WA_STEP_STATISTICS; i <= WA_STEP_LAST; i++) {
        const wa_step *kernel = &plan->step[i];
        if (!kernel->kernel)
            continue;
        REQUIRE(kernel->work_group <= device->max_work_group);
        REQUIRE(kernel->local_bytes <= device->local_bytes);
        REQUIRE(strlen(kernel->defines) + 1 < sizeof kernel->defines);
        REQUIRE(has_define(kernel->defines, "BLOCK_KEYS", kernel->block_keys));
        REQUIRE((plan->tier == WINATTN_TIER_LOCAL) ==
                (strstr(kernel->kernel, "_local") != NULL));
        REQUIRE(
            (strstr(kernel->defines, "-cl-opt-disable") != NULL) ==
            (device->miscompiles_barriers && plan->tier != WINATTN_TIER_CPU));
    }
    if (plan->tier == WINATTN_TIER_MATRIX) {
        const char *of_matrix = broken_gradients(p, device, plan);
        broken = of_matrix ? of_matrix : broken;
    }
    REQUIRE(last->kernel != NULL);
    REQUIRE(plan->fused == (plan->step[WA_STEP_ROWS].kernel == NULL));
    /* kernels with wgmma loop over tiles of a window's keys */
    const bool loops =
        plan->fused && (plan->family->engine > WA_ENGINE_MATRIX);
    REQUIRE(!plan->fused || loops || last->block_keys >= p->keys);
    REQUIRE(!plan->fused || plan->workspace.statistics == 0);
    REQUIRE(loops ||
            (uint64_t)plan->schedule.key_blocks * last->block_keys >= p->keys);
    REQUIRE(plan->schedule.splits >= 1);
    REQUIRE(plan->schedule.splits <= plan->schedule.windows_per_launch);
    const uint64_t bias_splits = plan->schedule.row_splits
                                     ? plan->schedule.row_splits
                                     : plan->schedule.splits;
    REQUIRE(bias_splits == 1 || p->bias == WINATTN_BIAS_NONE ||
            bias_splits * logits * 4 <= (plan->tier == WINATTN_TIER_MATRIX
                                             ? WA_MATRIX_BIAS_BYTES
                                             : WA_BACKWARD_BYTES));
    REQUIRE(plan->workspace.all ==
            plan->workspace.statistics + plan->workspace.bias +
                plan->workspace.scale + plan->workspace.bounds +
                plan->workspace.maps + 2 * plan->workspace.pad +
                plan->workspace.dense);
    REQUIRE(plan->reason[0] != 0);
    REQUIRE(plan->refusals[plan->tier][0] == 0);
    if (broken)
        fail_msg("%s, %s: not %s", device->name, what, broken);
}

/* ---- Gradients without wgmma ---- */
