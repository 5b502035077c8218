/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of the forward pass rely on. */
#include "plan/family.h"
#include "plan_legal.h"

#include <string.h>

#include "plan_made.h"

static bool power_of_two(uint32_t x) { return x != 0 && (x & (x - 1)) == 0; }

/* NULL if the shape is one that cl/matrix/sliding_forward_matrix.cl computes
 * right. */
static const char *broken_sliding(const wa_problem *p, const wa_device *device,
                                  const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape *s = &plan->shape.matrix;
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    REQUIRE(s->windows_per_group == 1 && s->bias_cache == WA_BIAS_CACHE_NONE);
    REQUIRE(s->waves_per_window * unit->wave == step->work_group);
    REQUIRE(s->block_rows % (s->waves_per_window * unit->queries) == 0);
    REQUIRE(s->block_keys % unit->tile == 0);
    REQUIRE(step->local_bytes >
            (s->block_rows + s->stages * 2 * s->block_keys) * p->head_dim *
                (p->dtype == WINATTN_FP32 ? 4 : 2));
    REQUIRE(plan->schedule.groups == 0);
    return broken;
}

/* The same of cl/matrix/forward_matrix.cl. */
static const char *broken_windows(const wa_problem *p, const wa_device *device,
                                  const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape *s = &plan->shape.matrix;
    const uint32_t waves = s->waves_per_window * s->windows_per_group;
    REQUIRE(waves * unit->wave == plan->step[WA_STEP_FORWARD].work_group);
    REQUIRE(s->block_rows == p->queries || s->block_rows % unit->queries == 0);
    REQUIRE(s->block_keys == p->keys || s->block_keys % unit->tile == 0);
    REQUIRE(s->block_keys <= p->keys && s->block_rows <= p->queries);
    REQUIRE(s->windows_per_group <= 15);
    REQUIRE(!s->bias_cache || p->bias != WINATTN_BIAS_NONE ||
            p->mask != MASK_NONE);
    /* the ring alone */
    REQUIRE(plan->step[WA_STEP_FORWARD].local_bytes >=
            s->windows_per_group * s->stages *
                (s->block_rows + 2 * s->block_keys) * p->head_dim *
                (p->dtype == WINATTN_FP32 ? 4 : 2));
    REQUIRE(plan->schedule.resident >= 1);
    REQUIRE(plan->schedule.groups >= 1);
    REQUIRE(plan->schedule.groups < 65536 ||
            plan->schedule.groups == plan->schedule.row_blocks * p->heads);
    REQUIRE((uint64_t)plan->schedule.groups *
                plan->step[WA_STEP_FORWARD].work_group <=
            2147483647u);
    /* every round of a launch but the last gives each team a window */
    REQUIRE(plan->schedule.windows_per_launch >= 1);
    REQUIRE(plan->schedule.windows_per_launch % s->windows_per_group == 0);
    return broken;
}

static const char *broken_matrix(const wa_problem *p, const wa_device *device,
                                 const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape *s = &plan->shape.matrix;
    const bool slides = p->variant == WINATTN_SLIDING;
    const char *kernel = plan->step[WA_STEP_FORWARD].kernel;
    const char *name = slides ? "sliding_forward_matrix_" : "forward_matrix_";
    REQUIRE(suits_matrix(p, device, WA_FORWARD) &&
            p->tier != WINATTN_TIER_LOCAL);
    REQUIRE(unit->proven || p->tier == WINATTN_TIER_MATRIX);
    REQUIRE(strstr(kernel, name) == kernel);
    REQUIRE(strcmp(kernel + strlen(name), unit->name) == 0);
    REQUIRE(plan->schedule.work_tiles_per_group == s->windows_per_group);
    REQUIRE(plan->step[WA_STEP_FORWARD].block_rows == s->block_rows);
    REQUIRE(plan->step[WA_STEP_FORWARD].block_keys == s->block_keys);
    REQUIRE(s->subtile_keys >= 1 && s->subtile_keys % unit->tile == 0);
    REQUIRE(s->stages >= 1 && (s->stages == 1 || unit->copies_async));
    if (broken)
        return broken;
    return (slides ? broken_sliding : broken_windows)(p, device, plan);
}

static const char *broken_sliding_wgmma(const wa_problem *p,
                                        const wa_plan *plan)
{
    const char *broken = NULL;
    REQUIRE(p->head_dim % 16 == 0 && p->head_dim <= 128);
    REQUIRE(plan->step[WA_STEP_FORWARD].work_group ==
            2 * plan->step[WA_STEP_FORWARD].block_rows + 128);
    REQUIRE(plan->schedule.sharing_groups >= 1);
    REQUIRE(plan->schedule.groups == 0);
    return broken;
}

/* Four warpgroups have 64 rows each at most, of one window, of two or of four,
 * for which two warpgroups fetch and measure; or three have all rows of one,
 * six those of two. */
static const char *broken_window_wgmma(const wa_problem *p,
                                       const wa_device *device,
                                       const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const uint32_t windows = plan->shape.matrix.windows_per_group;
    REQUIRE(p->mask == MASK_NONE || p->bias != WINATTN_BIAS_NONE);
    REQUIRE(p->mask == MASK_NONE || p->mask == MASK_REGIONS ||
            p->mask == MASK_SHIFT);
    REQUIRE(!p->grid.used || !p->grid.is_padded);
    REQUIRE(p->head_dim == 32 || p->head_dim == 64);
    const uint32_t fetching =
        windows == 4 && p->variant == WINATTN_COSINE ? 2 : 1;
    const uint32_t warpgroups = windows * ((step->block_rows + 63) / 64);
    const uint32_t keys = step->block_keys;
    REQUIRE(windows == 1 || windows == 2 || windows == 4);
    REQUIRE(step->work_group == (warpgroups + fetching) * 128);
    REQUIRE(warpgroups == 4 || (step->block_rows == p->queries &&
                                (warpgroups == 3 || warpgroups == 6)));
    REQUIRE(keys == 48 || (keys == 64 && warpgroups != 6) ||
            (keys == 80 && warpgroups == 4) ||
            (keys == 96 && warpgroups == 3));
    REQUIRE(plan->shape.matrix.stages >= 3 && plan->shape.matrix.stages <= 8);
    REQUIRE(plan->schedule.work_tiles_per_group == windows);
    REQUIRE(plan->schedule.groups >= 1 &&
            plan->schedule.groups <= device->compute_units);
    REQUIRE(plan->schedule.persistent_multi_block ||
            plan->schedule.groups % (plan->schedule.row_blocks * p->heads) ==
                0);
    REQUIRE(plan->schedule.sharing_groups == 0);
    return broken;
}

static const char *broken_wgmma(const wa_problem *p, const wa_device *device,
                                const wa_plan *plan)
{
    const char *broken = NULL;
    REQUIRE(device->compute_capability == 90);
    REQUIRE(p->dtype != WINATTN_FP32);
    REQUIRE(plan->refusals[WA_ENGINE_SPECIAL][0] == 0);
    if (broken)
        return broken;
    return p->variant == WINATTN_SLIDING
               ? broken_sliding_wgmma(p, plan)
               : broken_window_wgmma(p, device, plan);
}

void assert_legal(const wa_problem *p, const wa_device *device,
                  const wa_plan *plan, const char *what)
{
    const char *broken = NULL;
    REQUIRE(plan->step[WA_STEP_FORWARD].work_group >= 1);
    REQUIRE(plan->step[WA_STEP_FORWARD].work_group <= device->max_work_group);
    REQUIRE(plan->step[WA_STEP_FORWARD].local_bytes <= device->local_bytes);
    REQUIRE(plan->step[WA_STEP_FORWARD].block_rows >= 1);
    REQUIRE(plan->schedule.row_blocks *
                (uint64_t)plan->step[WA_STEP_FORWARD].block_rows >=
            p->queries);
    REQUIRE((plan->schedule.row_blocks - 1) *
                (uint64_t)plan->step[WA_STEP_FORWARD].block_rows <
            p->queries);
    REQUIRE(plan->schedule.work_tiles_per_launch >= 1);
    REQUIRE(plan->reason[0] != 0);
    REQUIRE(strlen(plan->step[WA_STEP_FORWARD].defines) + 1 <
            sizeof plan->step[WA_STEP_FORWARD].defines);
    REQUIRE(plan->refusals[plan->tier][0] == 0);
    if (plan->tier == WINATTN_TIER_CPU) {
        const wa_cpu_shape *s = &plan->shape.cpu;
        REQUIRE(s->lanes == 4 || s->lanes == 8 || s->lanes == 16);
        REQUIRE(plan->step[WA_STEP_FORWARD].block_keys %
                    (s->lanes * s->tile_vecs) ==
                0);
        REQUIRE(s->out_vecs >= 1 && s->tile_rows >= 1);
        REQUIRE(plan->step[WA_STEP_FORWARD].work_group == 1 &&
                plan->step[WA_STEP_FORWARD].local_bytes == 0);
        REQUIRE(plan->schedule.groups == 0);
    } else if (plan->family->engine > WA_ENGINE_MATRIX) {
        const char *of_wgmma = broken_wgmma(p, device, plan);
        broken = of_wgmma ? of_wgmma : broken;
    } else if (plan->tier == WINATTN_TIER_MATRIX) {
        const char *of_matrix = broken_matrix(p, device, plan);
        broken = of_matrix ? of_matrix : broken;
    } else {
        const wa_local_shape *s = &plan->shape.local;
        REQUIRE(s->team * s->teams == plan->step[WA_STEP_FORWARD].work_group);
        REQUIRE(s->stage_dims % 4 == 0);
        REQUIRE(s->stage_keys % 4 == 0 ||
                s->stage_keys == plan->step[WA_STEP_FORWARD].block_keys);
        REQUIRE(s->stage_keys <= plan->step[WA_STEP_FORWARD].block_keys);
        REQUIRE(power_of_two(s->row_items) && s->team % s->row_items == 0);
        REQUIRE(
            wa_ceil_div(plan->step[WA_STEP_FORWARD].block_rows, s->out_rows) *
                (s->stage_dims / 4) <=
            s->team);
        REQUIRE(s->teams == 1 || p->variant != WINATTN_SLIDING);
        REQUIRE(plan->step[WA_STEP_FORWARD].local_bytes >
                plan->step[WA_STEP_FORWARD].block_rows *
                    plan->step[WA_STEP_FORWARD].block_keys * 4);
        REQUIRE(plan->schedule.groups == 0);
    }
    if (broken)
        fail_msg("%s on %s: not %s\n%s", what, device->name, broken,
                 plan->step[WA_STEP_FORWARD].defines);
}
