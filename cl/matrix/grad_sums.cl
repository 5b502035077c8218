/* SPDX-License-Identifier: Apache-2.0
 * Gradients that windows share: sums over windows of dBias, of d_logit_scale
 * and of the padding's keys and values, and how they come to the workspace.
 *
 *   KEEPS_DBIAS  sums of dBias over windows of a tile of rows
 *                0: are added to in the workspace (WINDOWS_PER_GROUP 1)
 *                1: stay in registers, for which a wave must have the same
 *                   rows and keys always, and indices be constant
 *                2: stay in local memory, in 16 bytes for each lane
 *                (WINDOWS_PER_GROUP 1)
 */
#include "matrix/grad_pipeline.cl"

/* Sums of dBias that stay in registers must have constant indices. */
#if KEEPS_DBIAS == 1
#define GRADIENT_FOR UNROLL_FOR
#else
#define GRADIENT_FOR SUBTILE_FOR
#endif
#define DBIAS_IN_WORKSPACE (BIAS && !KEEPS_DBIAS)

/* The first launch starts partial sums, the others add to them. */
INLINE void add_partial(__global float *partial, float sum, uint flags)
{
    *partial = (flags & ARG_FIRST_LAUNCH) != 0 ? sum : *partial + sum;
}

/* ---- dBias ---- */

/* Where sums of dBias are, one of them, for keys of a step. */
typedef struct dbias_target {
    float (*sums)[ACC_PER_LANE]; /* of the wave's rows */
    __local float4 *kept;        /* the same */
    __global float *workspace;   /* of the block's rows, NK apart */
    int keys;                    /* that exist there, in the workspace */
} dbias_target;

/* What the workspace has of a tile. It is asked for long before it is needed.
 */
INLINE void read_dbias(float *earlier, const dbias_target *to, int tile,
                       const row_part *part, const q_block *here,
                       const wave *w)
{
    if (!DBIAS_IN_WORKSPACE || (here->args->forward.flags & ARG_DBIAS) == 0)
        return;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int row = value_query(w->lane, i);
        const int key = tile * TILE_N + value_key(w->lane, i);
        if (row < part->count && key < to->keys)
            earlier[i] = to->workspace[(part->rows.row + row) * NK + key];
    }
}

/* Adds a tile of dS, each row times its factor, to what is summed over
 * windows. */
INLINE void add_dbias(const dbias_target *to, const float *earlier,
                      const float *ds, const float *factor, int tile,
                      const row_part *part, const q_block *here, const wave *w)
{
    if (KEEPS_DBIAS == 1) {
        float *sums = to->sums[tile];
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            if (!HAS_KEY(tile, i))
                continue;
            uint sum = as_uint(FMA(ds[i], factor[LANE_ROW(i)], sums[i]));
            /* LLVM would add all tiles up behind the last one */
            HIDE_FROM_OPTIMIZER(sum);
            sums[i] = as_float(sum);
        }
    }
    if (KEEPS_DBIAS == 2)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 4) {
            __local float4 *at =
                to->kept + (tile * TILE_ELEMENTS + i * WAVE) / 4 + w->lane;
            float4 sums = *at;
            sums.x = FMA(ds[i], factor[LANE_ROW(i)], sums.x);
            sums.y = FMA(ds[i + 1], factor[LANE_ROW(i + 1)], sums.y);
            sums.z = FMA(ds[i + 2], factor[LANE_ROW(i + 2)], sums.z);
            sums.w = FMA(ds[i + 3], factor[LANE_ROW(i + 3)], sums.w);
            *at = sums;
        }
    if (!DBIAS_IN_WORKSPACE || (here->args->forward.flags & ARG_DBIAS) == 0)
        return;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int row = value_query(w->lane, i);
        const int key = tile * TILE_N + value_key(w->lane, i);
        if (row < part->count && key < to->keys)
            to->workspace[(part->rows.row + row) * NK + key] =
                FMA(ds[i], factor[LANE_ROW(i)], earlier[i]);
    }
}

/* Sums in the workspace start at 0: `count` of them. */
INLINE void clear_dbias(__global float *partials, int count, uint flags,
                        int item)
{
    if (!DBIAS_IN_WORKSPACE)
        return;
    if ((flags & ARG_FIRST_LAUNCH) != 0 && (flags & ARG_DBIAS) != 0)
        for (int i = item; i < count; i += TEAM * WINDOWS_PER_GROUP)
            partials[i] = 0.0f;
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* Where sums that a work-group keeps go to in the end: to the workspace, of
 * the block's rows, and of these the wave's tile of them and of keys. */
typedef struct dbias_partial {
    __global float *rows;
    int row_count;
    int tile, first_tile; /* of rows, of keys */
    int owns;             /* the wave has such tiles */
    uint flags;
} dbias_partial;

/* A tile's sums go to the workspace. */
INLINE void store_dbias_tile(const float *sums, const dbias_partial *to,
                             int row_tile, int tile, const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int r = row_tile * TILE_M + value_query(w->lane, i);
        const int key = tile * TILE_N + value_key(w->lane, i);
        if (r < to->row_count && key < NK)
            add_partial(to->rows + r * NK + key, sums[i], to->flags);
    }
}

/* The sums of all teams, team after team, of `count` tiles of keys. */
INLINE void store_dbias(float (*sums)[ACC_PER_LANE], const int count,
                        __local float *shared, const dbias_partial *to,
                        int team, const wave *w)
{
    if ((to->flags & ARG_DBIAS) == 0)
        return;
    __local float *own =
        shared + (to->tile * KEY_TILES + to->first_tile) * TILE_ELEMENTS +
        w->lane;
    for (int t = 1; t < WINDOWS_PER_GROUP; t++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (team == t && to->owns)
            UNROLL_FOR (int k = 0; k < count; k++)
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    own[(k * ACC_PER_LANE + i) * WAVE] =
                        (t == 1 ? 0.0f : own[(k * ACC_PER_LANE + i) * WAVE]) +
                        sums[k][i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (team != 0 || !to->owns)
        return;
    UNROLL_FOR (int k = 0; k < count; k++) {
        if (WINDOWS_PER_GROUP > 1)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[k][i] += own[(k * ACC_PER_LANE + i) * WAVE];
        store_dbias_tile(sums[k], to, to->tile, to->first_tile + k, w);
    }
}

/* The sums that stay in local memory: waves take tiles in turn. */
INLINE void store_kept_dbias(__local const float4 *kept,
                             const dbias_partial *to, int wave_of_team,
                             const wave *w)
{
    for (int tile = wave_of_team;
         tile < ((to->flags & ARG_DBIAS) != 0 ? ROW_TILES * ALL_KEY_TILES : 0);
         tile += WAVES_PER_WINDOW) {
        float own[ACC_PER_LANE];
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 4) {
            const float4 x =
                kept[(tile * TILE_ELEMENTS + i * WAVE) / 4 + w->lane];
            own[i] = x.x;
            own[i + 1] = x.y;
            own[i + 2] = x.z;
            own[i + 3] = x.w;
        }
        store_dbias_tile(own, to, tile / ALL_KEY_TILES, tile % ALL_KEY_TILES,
                         w);
    }
}

/* ---- The logit scale, and the padding ---- */

/* The sum of all lanes' numbers, at the first work-item of `items`. Scratch:
 * [items]. Holds barriers of the whole work-group. */
INLINE float sum_over_group(float x, __local float *scratch, int item,
                            const int items)
{
    float sum = 0.0f;
    scratch[item] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < WAVE)
        for (int i = item; i < items; i += WAVE)
            sum += scratch[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < WAVE)
        scratch[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0.0f;
    for (int i = 0; i < (item == 0 ? WAVE : 0); i++)
        sum += scratch[i];
    return sum;
}

/* What all lanes have summed for a head's d_logit_scale. Holds barriers of the
 * work-group. */
INLINE void leave_scale(float own, uint head, __global float *partial,
                        const grad_group *g, const forward_args *forward)
{
    const float all = sum_over_group(own, g->memory.lane_sums, g->me.id,
                                     TEAM * WINDOWS_PER_GROUP);
    if (g->me.id == 0 && (forward->flags & ARG_D_LOGIT_SCALE) != 0) {
        const float sum =
            scale_gradient(forward, g->tensors.logit_scale, head, all);
        add_partial(partial, sum, forward->flags);
    }
}

/* The padding's sums of all waves go to the workspace, as they were made;
 * `head_block` counts the blocks of keys of all splits and heads. Behind a
 * barrier. */
INLINE void store_pad_sums(const grad_group *g, const backward_args *args,
                           ulong head_block, int makes_k, int makes_v)
{
    const uint flags = args->forward.flags;
    for (int c = g->me.id; c < (PADDING == 1 ? HEAD_DIM : 0);
         c += TEAM * WINDOWS_PER_GROUP) {
        const ulong at = head_block * HEAD_DIM + c;
        float sum_k = 0.0f, sum_v = 0.0f;
        for (int i = 0; i < WINDOWS_PER_GROUP * WAVES_PER_WINDOW; i++) {
            sum_k += g->memory.pad_sums[i][c];
            sum_v += g->memory.pad_sums[i][DIMS + c];
        }
        if (makes_k && (flags & ARG_D_PAD_K) != 0)
            add_partial(g->tensors.workspace + args->pad_k_partials + at,
                        sum_k, flags);
        if (makes_v && (flags & ARG_D_PAD_V) != 0)
            add_partial(g->tensors.workspace + args->pad_v_partials + at,
                        sum_v, flags);
    }
}
