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
#include "matrix/grad_pipeline.cl"
#include "matrix/grad_sums.cl"
#include "matrix/waves.cl"

REQUIRE(SPLIT_DK_DV)

/* What a wave sums: dV and dK, or one of them. */
#define GRADIENTS (SPLIT_DK_DV ? 1 : 2)

/* What is known of a row. */
INLINE float4 row_numbers(__local const float *rows, int row)
{
    return *(__local const float4 *)(rows + row * ROW_NUMBERS);
}

/* Of the rows of a q block: the largest bound of |dS|, and whether an lse is
 * large. */
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
                               int count, float ds_scale, int large,
                               const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int column = tile * TILE_N + value_key(w->lane, i);
        const float4 row = row_numbers(
            numbers, IS_FULL_TILE(tile) ? column : min(column, count - 1));
#if VARIANT == COSINE
        const float factor = row.w * (ds_scale / P_SCALE);
#else
        const float factor = ds_scale / P_SCALE;
#endif
        if (large) /* see shift_scores */
            scores[i] = EXP2(FMA(scores[i] - row.x, LOG2E, P_EXPONENT));
        else
            scores[i] =
                EXP2(FMA(scores[i], LOG2E, FMA(-row.x, LOG2E, P_EXPONENT)));
        dp[i] = scores[i] * FMA(dp[i], factor, -row.y * factor);
    }
}

/* Adds what a q block's rows bring to dV (the first sums) and dK (the last) of
 * a wave's keys, as it is to make them. `numbers`: those of the rows. */
INLINE void differentiate_keys(float sums[GRADIENTS][DIM_TILES][ACC_PER_LANE],
                               int makes_v, int makes_k, const int large,
                               __local const float *numbers,
                               const tile_rows *keys, const q_block *here,
                               const score_bias_view *score_bias,
                               const wave *w)
{
    const dp_rows values = read_dp_rows(keys, here->v, w);
    SUBTILE_FOR (int first = 0; first < KEY_TILES;
                 first += TILES_PER_SUBTILE) {
        float scores[TILES_PER_SUBTILE][ACC_PER_LANE];
        multiply_subtile(scores, 0, here->k, keys->row, keys->last_row,
                         here->q, first, w);
        finish_subtile(scores, numbers + 3, first, (int)here->first_row,
                       here->row_count, &here->args->forward, score_bias, keys,
                       w);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            if (!IS_TILE(first + t))
                continue;
            query_tile operands[WEIGHT_PARTS];
            float dp[ACC_PER_LANE];
            clear_tiles(&dp, 1);
            if (makes_k)
                multiply_dp(dp, &values, here->v, here->d_o, first + t, w);
            differentiate_tile(scores[t], dp, numbers, first + t,
                               here->row_count, here->ds_scale, large, w);
            if (makes_v) {
                make_operand_parts(operands, scores[t], w);
                add_values(sums[0], DIM_TILES, operands, here->d_o, first + t,
                           0, w);
            }
            if (makes_k) {
                make_operand_parts(operands, dp, w);
                add_values(sums[GRADIENTS - 1], DIM_TILES, operands, here->q,
                           first + t, 0, w);
            }
        }
    }
}

/* ---- What a work-group owns ---- */

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

/* Starts the copies of a q block, and of what is known of its rows, of which
 * `all_numbers` are in the workspace; after the last of a window, goes to the
 * next. */
INLINE void start_q_block(grad_pipeline *p, uint step,
                          __local float4 (*numbers)[BLOCK_ROWS],
                          __global const float *all_numbers,
                          const kv_block *block, const backward_args *args,
                          int team, int lane)
{
    if (step < p->steps) {
        const copied_q_block v = find_q_block(step, p, block, lane);
        if (p->next.exists) {
            if (p->wide)
                copy_q_block(&v, 1, p, block, args);
            else
                copy_q_block(&v, 0, p, block, args);
            copy_numbers(
                (__local float *)numbers[step % STAGES],
                all_numbers +
                    (((ulong)p->next.window * args->forward.heads + v.head) *
                         NQ +
                     v.first) *
                        ROW_NUMBERS,
                v.count * ROW_NUMBERS, v.lane);
        }
        if (v.number + 1 == block->q_blocks)
            next_window(&p->next, &args->forward, team);
    }
    END_COPIES();
}

/* ---- A wave's keys ---- */

/* What a wave has of keys, and sums of their gradients from q block to q
 * block. */
typedef struct wave_keys {
    int makes_v, makes_k;
    float ds_scale; /* a power of two that sums of dK are multiplied by */
    __global storage *dk, *dv;
    __local float *pads; /* sums of the padding, [2][DIMS] */
} wave_keys;

/* What all of a team have in local memory. */
typedef struct keys_memory {
    __local cached_bias *bias_cache;
#if VARIANT == COSINE
    __local float *k_inverses;
#endif
#if COMPARES_REGIONS
    __local uchar *key_regions, *row_regions;
#endif
} keys_memory;

/* The wave's tile of keys, in a q block to block `block` of rows. */
INLINE tile_rows find_keys(const q_block *here, uint block,
                           int has_shift_boundary, const keys_memory *memory,
                           int wave_of_team, const wave *w)
{
    const int tile = min(wave_of_team, ROW_TILES - 1); /* one at least */
    tile_rows keys = {.row = tile * TILE_M,
                      .last_row = here->key_count - 1,
                      .first_row = (int)here->first_key,
                      .coord = here->at->coord};
#if HAS_LOCAL_BIAS_CACHE
    keys.local_score_bias =
        memory->bias_cache +
        (tile * ALL_KEY_TILES + block * KEY_TILES) * TILE_ELEMENTS;
#endif
#if COMPARES_REGIONS
    keys.key_regions =
        has_shift_boundary ? memory->row_regions + here->first_row : 0;
#endif
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const int own =
            min(keys.row + lane_query(w->lane, r), here->key_count - 1);
        keys.scale[r] = here->scale;
#if VARIANT == COSINE
        keys.scale[r] = memory->k_inverses[own];
#endif
#if COMPARES_REGIONS
        keys.region[r] = memory->key_regions[own];
#endif
    }
    return keys;
}

/* Takes a q block into account; after the last of a window, dV and dK are
 * stored. */
INLINE void add_q_block(wave_keys *own,
                        float sums[GRADIENTS][DIM_TILES][ACC_PER_LANE],
                        q_block *now, const tile_rows *keys, int is_first,
                        int count, uint kv_head, __local const float *numbers,
                        const score_bias_view *score_bias, const wave *w)
{
    int large;
    const float earlier = own->ds_scale;
    const float bound = bound_of_rows(numbers, now->row_count, &large);
    own->ds_scale = RESCALES ? ds_scale_for(bound) : 1.0f;
    if (is_first) {
        UNROLL_FOR (int g = 0; g < GRADIENTS; g++)
            clear_tiles(sums[g], DIM_TILES);
    } else if (RESCALES && own->makes_k) {
        own->ds_scale = fmin(own->ds_scale, earlier);
        const float rescale = own->ds_scale * inverse_ds_scale(earlier);
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[GRADIENTS - 1][d][i] *= rescale;
    }
    now->ds_scale = own->ds_scale;
    if (large)
        differentiate_keys(sums, own->makes_v, own->makes_k, 1, numbers, keys,
                           now, score_bias, w);
    else
        differentiate_keys(sums, own->makes_v, own->makes_k, 0, numbers, keys,
                           now, score_bias, w);
    if (now->is_last && own->makes_v)
        store_dv(sums[0], DIM_TILES, keys->row, count, 0, own->dv, kv_head,
                 own->pads, now, w);
    if (now->is_last && own->makes_k)
        store_dk(sums[GRADIENTS - 1], DIM_TILES, keys->row, count, 0, own->dk,
                 kv_head, own->pads, now, w);
}

/* What a team computes with: a step of the ring. */
INLINE q_block q_block_of(uint step, const kv_block *block,
                          const backward_args *args, const tile_scheduler *at,
                          __local const ushort *ring)
{
    const uint number = step % block->q_blocks;
    __local const ushort *stage = ring + step % STAGES * STAGE_SIZE;
    __local const ushort *key_stage =
        ring + step / block->q_blocks % STAGES * STAGE_SIZE;
    q_block v = {.args = args,
                 .at = at,
                 .head =
                     block->kv_head * block->heads_each + number / KEY_BLOCKS,
                 .first_row = number % KEY_BLOCKS * BLOCK_ROWS,
                 .first_key = block->first_key,
                 .key_count = block->key_count,
                 .is_last = number + 1 == block->q_blocks,
                 .scale = args->forward.scale,
                 .q = stage + Q_OFFSET,
                 .d_o = stage + D_O_OFFSET,
                 .k = key_stage + K_OFFSET,
                 .v = key_stage + V_OFFSET};
    v.row_count = min(BLOCK_ROWS, (int)NQ - (int)v.first_row);
    return v;
}

/* What a q block has to be measured or found before it is computed with. Has
 * the window several regions? */
INLINE int prepare_q_block(const q_block *now, uint number, uint *kept_regions,
                           const keys_memory *memory,
                           const score_bias_tensors *tensors, work_tile of,
                           const work_item *me, const wave *w)
{
    int has_shift_boundary = 0;
#if VARIANT == COSINE
    if (number == 0) { /* each wave its own keys' */
        const measured_rows measured = {memory->k_inverses, now->k, BLOCK_KEYS,
                                        1.0f};
        measure_rows(&measured, 1, me->wave, w);
        WAVE_SYNC();
    }
#endif
#if COMPARES_REGIONS
    has_shift_boundary = HAS_SHIFT_BOUNDARY(*now->at);
    const int has_new = number == 0 && has_shift_boundary &&
                        has_new_regions(now->at, kept_regions);
    if (has_new) {
        const forward_args *forward = &now->args->forward;
        const score_bias_view regions =
            score_bias_at(tensors, forward, of, &now->at->coord);
        keep_regions(memory->key_regions, memory->row_regions, forward,
                     &regions, now->first_key, me->lane);
    }
    if (TEAMS_SYNC_TOGETHER || has_new)
        TEAM_SYNC(me->team);
#endif
    return has_shift_boundary;
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_keys_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if VARIANT == COSINE
    __local float k_inverses[WINDOWS_PER_GROUP][BLOCK_KEYS];
#endif
#if COMPARES_REGIONS
    __local uchar kept_key_regions[WINDOWS_PER_GROUP][BLOCK_KEYS];
    __local uchar kept_row_regions[WINDOWS_PER_GROUP][NQ];
#endif
    __local float4 all_numbers[WINDOWS_PER_GROUP][STAGES][BLOCK_ROWS];
#if PADDING == 1
    __local float pad_sums[WINDOWS_PER_GROUP * WAVES_PER_WINDOW][2 * DIMS];
#endif
    DECLARE_PADS(pads)
    const forward_args *kernel_forward = &args.forward;
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const keys_memory memory = {
        .bias_cache = BIAS_CACHE_OR_NULL(bias_cache),
#if VARIANT == COSINE
        .k_inverses = k_inverses[me.team],
#endif
#if COMPARES_REGIONS
        .key_regions = kept_key_regions[me.team],
        .row_regions = kept_row_regions[me.team],
#endif
    };

    /* what this work-group owns */
    const uint kv_heads =
        kernel_forward->heads / kernel_forward->heads_per_kv_head;
    const uint head_blocks = kv_heads * args.key_blocks;
    const uint group = (uint)get_group_id(0) / (SPLIT_DK_DV ? 2 : 1);
    const uint split = group / head_blocks;
    const kv_block block = find_block(group % head_blocks, &args);
    wave_keys own = {.makes_v = !SPLIT_DK_DV || get_group_id(0) % 2 == 0,
                     .ds_scale = 1.0f,
                     .dk = dk,
                     .dv = dv};
    own.makes_k = !SPLIT_DK_DV || !own.makes_v;
    tile_scheduler here = start_split(kernel_forward, split, me.team);
    grad_pipeline pipeline = {
        .next = here,
        .steps = here.rounds * block.q_blocks,
        .ring = (__local ushort *)rings[me.team],
        .pad_k = KEPT_PAD(pads, 0),
        .pad_v = KEPT_PAD(pads, 1),
        .from = {.q = q, .k = k, .v = v, .d_o = d_o},
        .wide = (kernel_forward->flags & ARG_WIDE_ACCESS) != 0};
#if PADDING == 1
    keep_pads(pads, PAD_ROW(*kernel_forward, pad_k, ARG_PAD_K, block.kv_head),
              PAD_ROW(*kernel_forward, pad_v, ARG_PAD_V, block.kv_head),
              kernel_forward, me.id);
#endif
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_q_block(&pipeline, ahead, all_numbers[me.team],
                      workspace + args.workspace, &block, &args, me.team,
                      me.lane);
    clear_pads(pipeline.ring, me.lane);
#if HAS_LOCAL_BIAS_CACHE
    cache_head_score_bias(bias_cache, &tensors, kernel_forward, block.kv_head,
                          block.first_key, me.id);
#endif
#if PADDING == 1
    for (int i = w.lane; i < 2 * DIMS; i += WAVE)
        pad_sums[me.id / WAVE][i] = 0.0f;
    own.pads = pad_sums[me.id / WAVE];
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    float sums[GRADIENTS][DIM_TILES][ACC_PER_LANE];
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    for (uint step = 0; step < pipeline.steps; step++) {
        HIDE_LANE(me.lane);
        RELOAD_ARGS(backward_args, now_args, &args)
        HIDE_LANE(w.lane);
        const forward_args *forward = &now_args->forward;
        const uint number = step % block.q_blocks;
        __local const float *numbers =
            (__local const float *)all_numbers[me.team][step % STAGES];
        q_block now = q_block_of(step, &block, now_args, &here, pipeline.ring);
        now.out = (__local ushort *)out_staging[me.id / WAVE];
#if VARIANT == COSINE
        now.k_inverses = memory.k_inverses;
#endif
        const work_tile work_tile_here = {.window = window_of(&here, forward),
                                          .head = now.head,
                                          .row = now.first_row};
        const score_bias_view score_bias = block_score_bias(
            &cached_mask_class, memory.bias_cache, &tensors, &here,
            work_tile_here, forward, block.first_key, me.id);
        await_stage(me.team);
        start_q_block(&pipeline, step + AHEAD, all_numbers[me.team],
                      workspace + now_args->workspace, &block, now_args,
                      me.team, me.lane);
        await_copies(me.team);
        const int has_shift_boundary =
            prepare_q_block(&now, number, &kept_regions, &memory, &tensors,
                            work_tile_here, &me, &w);
        const int count = here.exists ? block.key_count - me.wave * TILE_M : 0;
        if (count > 0) {
            const tile_rows keys =
                find_keys(&now, number % KEY_BLOCKS, has_shift_boundary,
                          &memory, me.wave, &w);
            add_q_block(&own, sums, &now, &keys, number == 0, count,
                        block.kv_head, numbers, &score_bias, &w);
        }
        if (now.is_last)
            next_window(&here, forward, me.team);
    }
#if PADDING == 1
    barrier(CLK_LOCAL_MEM_FENCE);
    store_pad_sums(
        pad_sums, workspace, &args,
        ((ulong)split * args.key_blocks + block.first_key / BLOCK_KEYS) *
                kv_heads +
            block.kv_head,
        own.makes_k, own.makes_v, me.id);
#endif
}
