/* SPDX-License-Identifier: Apache-2.0
 * Random cases and shapes; what does not fit is drawn again. */
#include "random_programs.h"

#include <string.h>

/* ---- Tier matrix, in tiles; see demand_fit ---- */

static wa_matrix_shape draw_forward(random_state *r, const test_case *c)
{
    wa_matrix_shape s = {.block_rows = random_between(r, 0, 3),
                         .block_keys = random_between(r, 0, 3),
                         .waves_per_window = random_between(r, 1, 4),
                         .windows_per_group = random_between(r, 1, 3),
                         .stages = random_between(r, 1, 3),
                         .subtile_keys = random_between(r, 1, 4),
                         .bias_cache = random_between(r, 0, 3)};
    if (c->variant == WINATTN_SLIDING) {
        s.block_rows = s.waves_per_window * random_between(r, 1, 2);
        s.block_keys = random_between(r, 1, 4);
        s.windows_per_group = 1;
        s.bias_cache = 0;
    }
    return s;
}

static wa_matrix_gradient_shape draw_backward(random_state *r,
                                              const test_case *c, bool split)
{
    wa_matrix_gradient_shape s = {
        .rows = {.block_rows = random_between(r, 0, 3),
                 .block_keys = split ? random_between(r, 1, 6) : 0,
                 .waves_per_window = random_between(r, 1, 4),
                 .windows_per_group = random_between(r, 1, 3),
                 .stages = random_between(r, 1, 2),
                 .subtile_keys = random_between(r, 0, 3),
                 .bias_cache = random_between(r, 0, 3)},
        .keeps_dbias = random_between(r, 0, 2),
        .keys = {.block_rows = random_between(r, 0, 3),
                 .block_keys = random_between(r, 0, 3),
                 .waves_per_window = random_between(r, 1, 4),
                 .windows_per_group = random_between(r, 1, 3),
                 .stages = random_between(r, 1, 2),
                 .subtile_keys = random_between(r, 0, 3),
                 .bias_cache = random_between(r, 0, 3)}};
    if (!split)
        s.rows.block_rows = 0; /* a block is a window */
    if (c->variant == WINATTN_SLIDING) {
        const uint32_t tiles = 1u << random_between(r, 0, 2);
        s.rows.windows_per_group = s.keys.windows_per_group = 1;
        s.rows.bias_cache = s.keys.bias_cache = s.keeps_dbias = 0;
        s.rows.block_rows = random_between(r, 1, 2);
        s.rows.block_keys = s.rows.subtile_keys = tiles;
        s.keys.block_rows = s.keys.subtile_keys = tiles;
        s.keys.block_keys = random_between(r, 1, 2);
    }
    return s;
}

static bool draw_matrix(random_state *r, int pass, test_case *c, demand *d)
{
    const bool has_tf32 = pass == PASS_FORWARD && d->unit->has_tf32;
    *c = case_random_small(r, WINATTN_TIER_MATRIX, pass,
                           has_tf32 ? WINATTN_FP32 : WINATTN_FP16);
    if (pass == PASS_FORWARD) {
        const wa_tuned_shape s = {.matrix_forward = draw_forward(r, c)};
        wa_tuned_shape_print(WA_MATRIX_FORWARD, &s, d->shape, sizeof d->shape);
        d->groups = random_int(r, 0, 5);
    } else {
        const wa_tuned_shape s = {
            .matrix_backward = draw_backward(r, c, random_int(r, 0, 1))};
        wa_tuned_shape_print(WA_MATRIX_BACKWARD, &s, d->shape,
                             sizeof d->shape);
    }
    d->launch = random_int(r, 0, 3);
    return demand_fit(c, d);
}

/* ---- Tier local ---- */

static wa_local_shape draw_local_forward(random_state *r, const test_case *c)
{
    wa_local_shape s = {
        .block_rows = random_between(r, 1, (uint32_t)c->queries),
        .block_keys = random_int(r, 0, 1) && c->variant != WINATTN_SLIDING
                          ? (uint32_t)c->keys
                          : 4 * random_between(r, 1, 12),
        .team = 32 * random_between(r, 1, 4),
        .teams = random_int(r, 0, 2) ? 1 : random_between(r, 2, 3),
        .stage_dims = 4 * random_between(r, 1, ((uint32_t)c->dim + 3) / 4),
        .score_rows = random_between(r, 1, 8),
        .score_cols = random_between(r, 1, 8),
        .out_rows = random_between(r, 1, 12),
        .row_items = 1u << random_int(r, 0, 4)};
    s.stage_keys =
        random_int(r, 0, 1) ? s.block_keys : 4 * random_between(r, 1, 12);
    return s;
}

static wa_gradient_shape draw_gradient(random_state *r, const test_case *c,
                                       bool whole)
{
    const wa_gradient_shape shape = {
        .block_rows = random_between(r, 1, (uint32_t)c->queries),
        .block_keys = whole ? (uint32_t)c->keys : random_between(r, 1, 48),
        .team = 32 * random_between(r, 1, 4),
        .stage_dims = 4 * random_between(r, 1, ((uint32_t)c->dim + 3) / 4),
        .score_rows = random_between(r, 1, 8),
        .score_cols = random_between(r, 1, 8),
        .out_rows = random_between(r, 1, 12),
        .key_quads = random_between(r, 1, 2),
        .keeps_tiles = random_int(r, 0, 1) != 0};
    return shape;
}

static void draw_local(random_state *r, int pass, test_case *c, demand *d)
{
    *c = case_random_small(r, WINATTN_TIER_LOCAL, pass, WINATTN_FP32);
    if (pass == PASS_FORWARD) {
        const wa_tuned_shape s = {.local_forward = draw_local_forward(r, c)};
        wa_tuned_shape_print(WA_LOCAL_FORWARD, &s, d->shape, sizeof d->shape);
        return;
    }
    const bool whole = c->variant != WINATTN_SLIDING && random_int(r, 0, 1);
    const wa_tuned_shape rows = {
        .local_backward = {draw_gradient(r, c, false), 0}};
    const wa_tuned_shape keys = {
        .local_backward = {draw_gradient(r, c, whole), 0}};
    wa_tuned_shape_print(WA_LOCAL_BACKWARD, &keys, d->shape, sizeof d->shape);
    if (!whole)
        wa_tuned_shape_print(WA_LOCAL_BACKWARD, &rows, d->rows,
                             sizeof d->rows);
    d->registers = random_int(r, 0, 1) ? 255 : 64;
    d->launch = random_int(r, 1, 3);
}

/* ---- Any ---- */

void random_program(int seed, int pass, int tier, test_case *c, demand *d)
{
    const wa_device roomy = {.max_work_group = 256,
                             .local_bytes =
                                 (tier == WINATTN_TIER_LOCAL ? 30 : 60) * 1024,
                             .registers = 255,
                             .matrix_unit = d->unit};
    const demand none = *d;
    random_state r = random_seeded((unsigned long long)seed);
    do {
        *d = none;
        if (tier == WINATTN_TIER_MATRIX) {
            if (!draw_matrix(&r, pass, c, d))
                continue;
        } else if (tier == WINATTN_TIER_LOCAL) {
            draw_local(&r, pass, c, d);
        } else if (tier == WINATTN_TIER_AUTO) {
            *c = case_random_wgmma(seed, pass);
        } else if (random_int(&r, 0, 2) == 0) {
            *c = case_random_grid(seed, tier, pass);
        } else {
            *c = pass == PASS_FORWARD ? case_random(seed, tier)
                                      : case_random_backward(seed, tier);
        }
        c->seed = seed;
    } while (!demand_is_legal(c, d, &roomy));
}
