/* SPDX-License-Identifier: Apache-2.0
 * Backward pass on a matrix unit, behind backward_rows_matrix.cl: what
 * concerns keys. Tiles are the other way round (S_TRANSPOSED of geometry.cl).
 *
 *                     rows, BLOCK_ROWS at a time
 *                +-----------+
 *     K  Q^T ->  |    P^T    |  a wave's tile  ->  dV += P^T dO
 *     V  dO^T -> |    dP^T   |  of keys            dK += scale dS^T Q
 *                |    dS^T   |
 *                +-----------+
 *
 * A work-group owns one block of keys of one key head and iterates over
 * windows; each wave has one tile of keys, whose dK and dV it sums in
 * registers. P^T and dS^T go from registers to products. A step of the ring is
 * a q block: a block of rows of a query head of the group, and what
 * backward_rows_matrix.cl left of each in the workspace; the first of a window
 * brings the keys.
 *
 *   SPLIT_DK_DV  1: dV and dK are so many sums that a work-group makes only
 *             one of them, and another the other
 *
 * Whose rows of dK and dV nobody stores (padding) may be anything. */
#define BACKWARD 1
#define S_TRANSPOSED 1
#define RECOMPUTE_SCORES (SUBTILES > 1)
#define KEEPS_DBIAS 0
#include "matrix/grad_epilogue.cl"
#include "matrix/grad_sums.cl"

REQUIRE(SPLIT_DK_DV)

/* What a wave sums: dV and dK, or one of them. */
#define GRADIENTS (SPLIT_DK_DV ? 1 : 2)

/* ---- What a work-group owns ---- */

/* The keys of a head of keys that a work-group has, which the blocks of rows
 * of heads_each heads go through. */
typedef struct kv_block {
    uint kv_head, heads_each;
    uint first_key; /* of a window */
    int key_count;
    uint q_blocks; /* of a window */
} kv_block;

/* A block of keys of a head, for the windows of a split; and a wave's sums of
 * their gradients, from q block to q block. */
typedef struct keys_group {
    grad_group group;
    kv_block block;
    __local float4 (*numbers)[STAGES][BLOCK_ROWS]; /* what is known of rows */
    int makes_v, makes_k;
    __private float (*sums)[DIM_TILES][ACC_PER_LANE]; /* [GRADIENTS] */
    float ds_scale; /* a power of two that sums of dK are multiplied by */
} keys_group;

/* The keys of a head block. */
INLINE kv_block find_block(uint head_block, const backward_args *args)
{
    const uint key_block =
        BLOCK_KEYS >= NK ? 0 : head_block % args->key_blocks;
    kv_block b = {.kv_head = head_block / args->key_blocks,
                  .heads_each = args->forward.heads_per_kv_head,
                  .first_key = key_block * BLOCK_KEYS};
    b.key_count = (int)min((uint)BLOCK_KEYS, (uint)NK - b.first_key);
    b.q_blocks = b.heads_each * KEY_BLOCKS;
    return b;
}

/* ---- Copies ---- */

/* A q block that is to be copied: a block of rows of one head, and keys. */
typedef struct copied_q_block {
    uint number; /* in the window */
    copied_rows rows, keys;
    __local ushort *to, *keys_to;
    __local float *numbers; /* to which those of its rows go */
} copied_q_block;

INLINE void find_q_block(copied_q_block *v, uint step, const keys_group *g,
                         const backward_args *args)
{
    const kv_block *block = &g->block;
    __local ushort *ring = g->group.copies.ring;
    v->number = step % block->q_blocks;
    v->to = ring + step % STAGES * STAGE_SIZE;
    v->keys_to = ring + step / block->q_blocks % STAGES * STAGE_SIZE;
    v->numbers = (__local float *)g->numbers[g->group.me.team][step % STAGES];
    const copied_rows keys = {args,
                              &g->group.copies.next,
                              block->kv_head,
                              block->first_key,
                              block->key_count,
                              g->group.me.lane};
    v->keys = keys;
    /* where things lie is found anew each time: registers are worth more */
    HIDE_FROM_OPTIMIZER(v->keys.lane);
    HIDE_FROM_OPTIMIZER(v->keys.head);
    v->rows = v->keys;
    v->rows.head = v->keys.head * block->heads_each + v->number / KEY_BLOCKS;
    v->rows.first = v->number % KEY_BLOCKS * BLOCK_ROWS;
    v->rows.count = (int)min((uint)BLOCK_ROWS, (uint)NQ - v->rows.first);
}

/* Copies a q block's rows and, before the first of a window, its keys. */
INLINE void copy_q_block(const copied_q_block *v, const int wide,
                         const grad_group *g)
{
    copy_queries(v->to, wide, &v->rows, g);
    if (v->number == 0)
        copy_keys(v->keys_to, wide, &v->keys, g);
}

/* Copies what is known of a q block's rows. */
INLINE void copy_numbers(const copied_q_block *v, const grad_group *group)
{
    const backward_args *args = v->rows.args;
    const ulong head =
        (ulong)group->copies.next.window * args->forward.heads + v->rows.head;
    __global const float *from = group->tensors.workspace + args->workspace +
                                 (head * NQ + v->rows.first) * ROW_NUMBERS;
    for (int i = v->rows.lane; i < v->rows.count * ROW_NUMBERS; i += TEAM)
        copy_4(v->numbers + i, from + i, 1);
}

/* Starts the copies of a q block; after the last of a window, goes to the
 * next. */
INLINE void start_q_block(keys_group *g, uint step, const backward_args *args)
{
    grad_pipeline *p = &g->group.copies;
    if (step < p->steps) {
        copied_q_block v;
        find_q_block(&v, step, g, args);
        if (p->next.exists) {
            if (p->wide)
                copy_q_block(&v, 1, &g->group);
            else
                copy_q_block(&v, 0, &g->group);
            copy_numbers(&v, &g->group);
        }
        if (v.number + 1 == g->block.q_blocks)
            next_window(&p->next, &args->forward, g->group.me.team);
    }
    END_COPIES();
}

/* ---- A q block ---- */

/* The largest bound of |dS| of a q block's rows. Is an lse of them large? */
INLINE float bound_of_rows(__local const float *rows, int count, int *large)
{
    float bound = 0.0f;
    *large = 0;
    for (int i = 0; i < count; i += TILE_M) { /* the same in a tile */
        const float own = rows[i * ROW_NUMBERS + 2];
        bound = fmax(bound, fabs(own));
        *large |= (int)(as_uint(own) >> 31);
    }
    return bound;
}

/* A tile's scores become P^T times P_SCALE, and its dP^T becomes dS^T as it
 * goes to dK, times `ds_scale`. */
INLINE void differentiate_tile(float *scores, float *dp,
                               __local const float *numbers, int tile,
                               int large, const q_block *here, const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int column = tile * TILE_N + value_key(w->lane, i);
        const int own =
            IS_FULL_TILE(tile) ? column : min(column, here->row_count - 1);
        const float4 row =
            *(__local const float4 *)(numbers + own * ROW_NUMBERS);
        float factor = here->ds_scale / P_SCALE;
        if (VARIANT == COSINE)
            factor = row.w * factor;
        if (large) /* see shift_scores */
            scores[i] = WEIGHT_SHIFTED(scores[i] - row.x, P_EXPONENT);
        else
            scores[i] =
                WEIGHT_SHIFTED(scores[i], FMA(-row.x, LOG2E, P_EXPONENT));
        dp[i] = scores[i] * FMA(dp[i], factor, -row.y * factor);
    }
}

/* Adds what a q block's rows bring to dV (the first sums) and dK (the last) of
 * a wave's keys: dV += P^T dO, dK += dS^T Q. */
INLINE void differentiate_keys(const keys_group *g, const int large,
                               __local const float *numbers,
                               const tile_rows *keys, const q_block *here,
                               const wave *w)
{
    const dp_rows values = read_dp_rows(keys, here, w);
    const score_keys rows = {(int)here->first_row, here->row_count,
                             numbers + 3, &here->score_bias,
                             &here->args->forward};
    SUBTILE_FOR (int first = 0; first < KEY_TILES;
                 first += TILES_PER_SUBTILE) {
        float p[TILES_PER_SUBTILE][ACC_PER_LANE];
        multiply_subtile(p, 0, here->k, keys->row, keys->last_row, here->q,
                         first, w);
        finish_subtile(p, first, &rows, keys, w);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            if (!IS_TILE(first + t))
                continue;
            query_tile operands[WEIGHT_PARTS];
            float ds[ACC_PER_LANE];
            clear_tiles(&ds, 1);
            if (g->makes_k)
                multiply_dp(ds, &values, first + t, here, w);
            differentiate_tile(p[t], ds, numbers, first + t, large, here, w);
            if (g->makes_v) {
                weight_place at;
                place_weights(&at, keys->row, first + t, here);
                keep_tile(p[t], 1.0f, &at, w);
                make_operand_parts(operands, p[t], w);
                add_values(g->sums[0], DIM_TILES, operands, here->d_o,
                           first + t, 0, w);
            }
            if (g->makes_k) {
                make_operand_parts(operands, ds, w);
                add_values(g->sums[GRADIENTS - 1], DIM_TILES, operands,
                           here->q, first + t, 0, w);
            }
        }
    }
}

/* Sums start at 0 with a window's first q block; then those of dK follow the
 * power of two. */
INLINE void start_sums(keys_group *g, float bound, int is_first)
{
    const float earlier = g->ds_scale;
    g->ds_scale = RESCALES ? ds_scale_for(bound) : 1.0f;
    if (is_first) {
        UNROLL_FOR (int i = 0; i < GRADIENTS; i++)
            clear_tiles(g->sums[i], DIM_TILES);
    } else if (RESCALES && g->makes_k) {
        g->ds_scale = fmin(g->ds_scale, earlier);
        const float rescale = g->ds_scale * inverse_ds_scale(earlier);
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                g->sums[GRADIENTS - 1][d][i] *= rescale;
    }
}

/* Takes a q block into account, the window's `number`-th; after the last, dV
 * and dK of the wave's keys, of which `count` exist, are stored. */
INLINE void add_q_block(keys_group *g, q_block *here, uint number, int count,
                        __local const float *numbers, const wave *w)
{
    const int tile = min(g->group.me.wave, ROW_TILES - 1); /* one at least */
    int large;
    tile_rows keys = {.row = tile * TILE_M,
                      .last_row = here->key_count - 1,
                      .first_row = (int)here->first_key,
                      .coord = here->at->coord};
    const stored_keys stored = {.group = &g->group,
                                .kv_head = g->block.kv_head,
                                .key = keys.row,
                                .count = count};
    place_tile(&keys, tile, number % KEY_BLOCKS, here, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        keys.scale[r] =
            VARIANT == COSINE
                ? here->k_inverses[min(keys.row + lane_query(w->lane, r),
                                       keys.last_row)]
                : here->scale;
    const float bound = bound_of_rows(numbers, here->row_count, &large);
    start_sums(g, bound, number == 0);
    here->ds_scale = g->ds_scale;
    if (large)
        differentiate_keys(g, 1, numbers, &keys, here, w);
    else
        differentiate_keys(g, 0, numbers, &keys, here, w);
    if (here->is_last && g->makes_v)
        store_dv(g->sums[0], DIM_TILES, &stored, here, w);
    if (here->is_last && g->makes_k)
        store_dk(g->sums[GRADIENTS - 1], DIM_TILES, &stored, here, w);
}

/* What a team computes with: a step of the ring. */
INLINE void find_step(q_block *v, uint step, const keys_group *g,
                      const backward_args *args, const tile_scheduler *at)
{
    const kv_block *block = &g->block;
    const uint number = step % block->q_blocks;
    place_block(v, step % STAGES * STAGE_SIZE,
                step / block->q_blocks % STAGES * STAGE_SIZE, &g->group, args,
                at);
    v->head = block->kv_head * block->heads_each + number / KEY_BLOCKS;
    v->first_row = number % KEY_BLOCKS * BLOCK_ROWS;
    v->row_count = min(BLOCK_ROWS, (int)NQ - (int)v->first_row);
    v->first_key = block->first_key;
    v->key_count = block->key_count;
    v->is_last = number + 1 == block->q_blocks;
}

/* What a q block has to be measured or found before it is computed with. */
INLINE void prepare_q_block(q_block *here, uint number, uint *kept_regions,
                            const keys_group *g, const wave *w)
{
    const work_item *me = &g->group.me;
    if (VARIANT == COSINE && number == 0) { /* each wave its own keys' */
        const measured_rows measured = {g->group.memory.inverses_m[me->team],
                                        here->k, BLOCK_KEYS, 1.0f};
        measure_rows(&measured, 1, me->wave, w);
        WAVE_SYNC();
    }
    const int has_new = find_regions(here, kept_regions, number == 0,
                                     &g->group.tensors.score_bias, me->lane);
    if (COMPARES_REGIONS && (TEAMS_SYNC_TOGETHER || has_new))
        TEAM_SYNC(me->team);
}

/* dK and dV of the windows of a tile scheduler. */
INLINE void differentiate_windows(tile_scheduler at, keys_group *g,
                                  __local uint4 (*out)[OUT_STAGING_CHUNKS],
                                  const backward_args *kernel_args, wave *w)
{
    work_item *me = &g->group.me;
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    for (uint step = 0; step < g->group.copies.steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, args, kernel_args)
        HIDE_LANE(w->lane);
        const uint number = step % g->block.q_blocks;
        __local const float *numbers =
            (__local const float *)g->numbers[me->team][step % STAGES];
        q_block here;
        find_step(&here, step, g, args, &at);
        here.out = (__local ushort *)out[me->id / WAVE];
        find_score_bias(&here, &cached_mask_class,
                        &g->group.tensors.score_bias, me->id);
        await_stage(me->team);
        start_q_block(g, step + AHEAD, args);
        await_copies(me->team);
        prepare_q_block(&here, number, &kept_regions, g, w);
        const int count =
            at.exists ? g->block.key_count - me->wave * TILE_M : 0;
        if (count > 0)
            add_q_block(g, &here, number, count, numbers, w);
        if (here.is_last)
            next_window(&at, &args->forward, me->team);
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_keys_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
    DECLARE_GRAD_MEMORY
    __local float4 all_numbers[WINDOWS_PER_GROUP][STAGES][BLOCK_ROWS];
    float sums[GRADIENTS][DIM_TILES][ACC_PER_LANE];
    const forward_args *forward = &args.forward;
    keys_group own = {.group = GRAD_GROUP,
                      .numbers = all_numbers,
                      .sums = sums,
                      .ds_scale = 1.0f};
    const work_item *me = &own.group.me;
    wave w = {.lane = me->id % WAVE};

    /* what this work-group owns */
    const uint kv_heads = forward->heads / forward->heads_per_kv_head;
    const uint head_blocks = kv_heads * args.key_blocks;
    const uint group = (uint)get_group_id(0) / (SPLIT_DK_DV ? 2 : 1);
    const uint split = group / head_blocks;
    own.block = find_block(group % head_blocks, &args);
    own.makes_v = !SPLIT_DK_DV || get_group_id(0) % 2 == 0;
    own.makes_k = !SPLIT_DK_DV || !own.makes_v;
    const tile_scheduler at = start_split(forward, split, me->team);
    own.group.copies.next = at;
    own.group.copies.steps = at.rounds * own.block.q_blocks;
    own.group.copies.ring = (__local ushort *)rings[me->team];
    own.group.copies.wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    START_PADS(own.group, *forward, own.block.kv_head)
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_q_block(&own, ahead, &args);
    clear_pads(own.group.copies.ring, me->lane);
    cache_head_score_bias(own.group.memory.bias_cache,
                          &own.group.tensors.score_bias, forward,
                          own.block.kv_head, own.block.first_key, me->id);
    clear_pad_sums(&own.group, &w);
    barrier(CLK_LOCAL_MEM_FENCE);
    differentiate_windows(at, &own, out_staging, &args, &w);
    if (PADDING == 1) {
        const uint key_block = own.block.first_key / BLOCK_KEYS;
        barrier(CLK_LOCAL_MEM_FENCE);
        store_pad_sums(&own.group, &args,
                       ((ulong)split * args.key_blocks + key_block) *
                               kv_heads +
                           own.block.kv_head,
                       own.makes_k, own.makes_v);
    }
}
