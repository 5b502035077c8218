/* SPDX-License-Identifier: Apache-2.0
 * What backward_rows_matrix.cl does with a wave's tile of rows and a KV
 * block's keys: statistics, dQ and dBias, and how waves that share a tile add
 * up. */
#include "matrix/delta_errors.cl"
#include "matrix/grad_epilogue.cl"
#include "matrix/grad_sums.cl"

/* Waves that share a tile of rows, and what each has of a KV block. */
#define SPLITS (WAVES_PER_WINDOW / ROW_TILES)
#define SHARE_TILES (KEY_TILES / SPLITS)
/* Sums of dQ of a tile of rows, of all waves that share it but the first. */
#define SPLIT_SIZE ((SPLITS - 1) * DIM_TILES * TILE_ELEMENTS)
/* Is delta taken from o in this kernel, where the caller has it? Keys come
 * again for all teams of a work-group, if at all. */
#define O_SERVES (TAKES_O && !(STREAMING && WINDOWS_PER_GROUP > 1))
/* Bounds that a team finds of a KV block's keys: the largest |v|; cosine: also
 * of |v| / |k| and of 1 / |k|. */
#define KEY_BOUNDS 3

/* ---- Keys of a KV block ---- */

/* 1 / |k|, as it goes to products, and with `wants_bounds` the bounds. The
 * team's waves take tiles in turn. */
INLINE void measure_keys(__local float *inverses, __local uint *bounds,
                         const q_block *here, const int wants_bounds,
                         int wave_of_team, const wave *w)
{
    __local const ushort *k = here->k, *v = here->v;
    const int tiles = CEIL_DIV(BLOCK_KEYS, TILE_M);
    MEASURE_FOR (int done = 0; done < tiles; done += WAVES_PER_WINDOW) {
        const int key = (done + wave_of_team) * TILE_M;
        float square[LANE_ROWS], inverse[LANE_ROWS];
        int row_index[LANE_ROWS];
        UNROLL_FOR (int i = 0; i < LANE_ROWS; i++)
            inverse[i] = 1.0f;
        if (VARIANT == COSINE) {
            dot_rows(square, row_index, k, k, key, BLOCK_KEYS, w);
            UNROLL_FOR (int i = 0; i < LANE_ROWS; i++)
                if (row_index[i] < BLOCK_KEYS) {
                    inverse[i] = quick_inverse_norm(square[i]);
                    inverses[row_index[i]] = inverse[i];
                }
        }
        if (!RESCALES || !wants_bounds)
            continue;
        dot_rows(square, row_index, v, v, key, BLOCK_KEYS, w);
        UNROLL_FOR (int i = 0; i < LANE_ROWS; i++)
            if (row_index[i] < BLOCK_KEYS) {
                const float norm = sqrt(square[i]);
                atomic_max(&bounds[0], as_uint(norm));
                if (VARIANT == COSINE) {
                    atomic_max(&bounds[1], as_uint(norm * inverse[i]));
                    atomic_max(&bounds[2], as_uint(inverse[i]));
                }
            }
    }
}

/* ---- Rows ---- */

/* What a wave knows of a tile of rows, of which it sums dQ. */
typedef struct row_state {
    row_statistics statistics;
    float length[LANE_ROWS];   /* |dO| */
    float ds_scale[LANE_ROWS]; /* a power of two that dS is multiplied by for
                                  dQ */
    int large;                 /* some lse is; the same at all lanes */
    int takes_lse;     /* the same at all lanes, in a loop for statistics
                        */
    row_errors errors; /* of dS as it goes to dQ */
} row_state;

/* A wave's tile of rows in a KV block, and its share of the block's keys: as
 * if that were the block, in `share`, and of the rows what belongs to it, in
 * `own`. */
typedef struct row_work {
    row_state *state;
    __private float (*dq)[ACC_PER_LANE]; /* [DIM_TILES] */
    int tile;
    int split;    /* the wave's number among those that share the tile */
    int computes; /* the tile exists */
    row_part *part, *own;
    q_block *share;
    dbias_target dbias;
} row_work;

/* Statistics from o and lse. */
INLINE void take_statistics(row_state *s, const row_part *part,
                            const q_block *here, const wave *w)
{
    start_statistics(&s->statistics, 1, part->lse);
    take_delta(&s->statistics, part, here, here->q + (O_OFFSET - Q_OFFSET), w);
    if (RESCALES) {
        float dots[LANE_ROWS];
        multiply_rows(dots, here->d_o, here->d_o, part, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            s->length[r] = KEPT_SCALE(&here->args->forward) * sqrt(dots[r]);
    }
}

/* The largest of what the tile's rows have, at all lanes. */
INLINE float largest_of_rows(const float *values, const q_block *here,
                             const wave *w)
{
    __local float *scratch = (__local float *)here->out;
    float largest = 0.0f;
    WAVE_SYNC();
    if (value_key(w->lane, 0) == 0)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            scratch[lane_query(w->lane, r)] = values[r];
    WAVE_SYNC();
    UNROLL_FOR (int i = 0; i < TILE_M; i++)
        largest = fmax(largest, scratch[i]);
    WAVE_SYNC();
    return largest;
}

/* Is the lse of a row so large that shift_scores must care? */
INLINE void find_large(row_state *s, const q_block *here, const wave *w)
{
    float size[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const float lse = s->statistics.top[r];
        size[r] = lse == INFINITY ? 0.0f : fabs(lse);
    }
    s->large = largest_of_rows(size, here, w) > LARGE_LOGIT;
}

/* |dP| is at most |dO| |v|, which saves a loop for statistics. */
INLINE void bound_dp(row_state *s, __local const uint *bounds)
{
    row_statistics *all = &s->statistics;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        all->dp_bound[r] =
            fmax(all->dp_bound[r], s->length[r] * as_float(bounds[0]));
        if (VARIANT == COSINE) {
            all->key_dp_bound[r] =
                fmax(all->key_dp_bound[r], s->length[r] * as_float(bounds[1]));
            all->key_inverse[r] =
                fmax(all->key_inverse[r], as_float(bounds[2]));
        }
    }
}

/* Before a loop for statistics. */
INLINE void bound_inverses(row_statistics *s, const q_block *here,
                           const wave *w)
{
    const float inverse = largest_inverse(here, (__local uint *)here->out, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->key_inverse[r] = fmax(s->key_inverse[r], inverse);
}

/* After one: lanes still have bounds of their own keys' |dP|. */
INLINE void join_bounds(row_statistics *s, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(s->dp_bound[r], fmax);
        if (VARIANT == COSINE)
            s->key_dp_bound[r] = s->dp_bound[r] * s->key_inverse[r];
    }
}

/* The power of two of row r of dS, as it goes to dQ. */
INLINE float ds_scale_of(const row_statistics *s, int r)
{
    if (!RESCALES)
        return 1.0f;
    if (VARIANT == COSINE)
        return ds_scale_for(s->key_dp_bound[r] +
                            fabs(s->delta[r]) * s->key_inverse[r]);
    return ds_scale_for(s->dp_bound[r] + fabs(s->delta[r]));
}

/* What is known of the rows' dS decides its scale; sums of earlier keys, which
 * may have had another, follow. */
INLINE void choose_ds_scales(row_state *s,
                             __private float (*sums)[ACC_PER_LANE],
                             const int is_first)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const float earlier = s->ds_scale[r];
        s->ds_scale[r] = ds_scale_of(&s->statistics, r);
        if (!is_first)
            s->ds_scale[r] = fmin(s->ds_scale[r], earlier);
        const float rescale = s->ds_scale[r] * inverse_ds_scale(earlier);
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                if (LANE_ROW(i) == r && (is_first || RESCALES))
                    sums[d][i] = is_first ? 0.0f : sums[d][i] * rescale;
        if (O_SERVES && (is_first || RESCALES)) {
            s->errors.sum[r] = is_first ? 0.0f : s->errors.sum[r] * rescale;
            s->errors.squares[r] =
                is_first ? 0.0f : s->errors.squares[r] * rescale * rescale;
            if (is_first)
                s->errors.weights[r] = 0.0f;
        }
    }
}

/* dQ += dS K, dBias += dS, of the tile of rows and the wave's share of a KV
 * block's keys; or, `mends`, what takes an error of delta out of them. */
INLINE void differentiate_rows(row_work *work, const int may_be_large,
                               int mends, const wave *w)
{
    const row_part *part = work->own;
    const q_block *here = work->share;
    row_state *state = work->state;
    const row_statistics *s = &state->statistics;
    const dp_rows d_o = read_dp_rows(&part->rows, here, w);
    float factor[LANE_ROWS], shift[LANE_ROWS];
    float to_dbias[LANE_ROWS], to_dq[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        factor[r] = mends ? 0.0f : state->ds_scale[r] / P_SCALE;
        shift[r] =
            mends ? -state->errors.sum[r] / P_SCALE : -s->delta[r] * factor[r];
        to_dbias[r] = inverse_ds_scale(state->ds_scale[r]);
        to_dq[r] = 1.0f;
    }
    GRADIENT_FOR (int first = 0; first < SHARE_TILES;
                  first += TILES_PER_SUBTILE) {
        float p[TILES_PER_SUBTILE][ACC_PER_LANE];
        if (mends) /* compilers are not to mix subtiles, for registers */
            WAVE_SYNC();
        score_subtile(p, first, here, &part->rows, w);
        make_p(p, first, s->top, may_be_large);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            const int tile = first + t;
            if (!IS_TILE(tile))
                continue;
            query_tile operands[WEIGHT_PARTS];
            float ds[ACC_PER_LANE], earlier[ACC_PER_LANE];
            read_dbias(earlier, &work->dbias, tile, part, here, w);
            clear_tiles(&ds, 1);
            if (!mends)
                multiply_dp(ds, &d_o, tile, here, w);
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
                const int r = LANE_ROW(i);
                const float change = FMA(ds[i], factor[r], shift[r]);
                ds[i] = HAS_KEY(tile, i) ? p[t][i] * change : 0.0f;
            }
            if (O_SERVES && !SUMS_OPERANDS && !mends)
                add_errors(&state->errors, ds, p[t], 0, tile, w);
            add_dbias(&work->dbias, earlier, ds, to_dbias, tile, part, here,
                      w);
            scale_keys(ds, to_dq, tile, here, w);
            make_operand_parts(operands, ds, w);
            if (O_SERVES && SUMS_OPERANDS && !mends)
                add_errors(&state->errors, ds, p[t], operands, tile, w);
            add_values(work->dq, DIM_TILES, operands, here->k, tile, 0, w);
        }
    }
}

/* ---- Waves that share a tile ---- */

/* Among a wave's output staging, behind what join_errors has there. */
#define SCRATCH_OF_ERRORS(out) ((__local float *)(out) + 3 * TILE_M)

/* Errors of a tile of rows become the sums of all splits'. They go through the
 * waves' output staging later, of which `shared` are those of the tile's
 * first wave. Holds the team's barrier. */
INLINE void join_errors(row_errors *e,
                        __local uint4 (*shared)[OUT_STAGING_CHUNKS], int split,
                        int team, const wave *w)
{
    __local float *own = (__local float *)shared[split * ROW_TILES];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(e->squares[r], ADD);
        REDUCE(e->weights[r], ADD);
    }
    if (value_key(w->lane, 0) == 0)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            own[lane_query(w->lane, r)] = e->sum[r];
            own[TILE_M + lane_query(w->lane, r)] = e->squares[r];
            own[2 * TILE_M + lane_query(w->lane, r)] = e->weights[r];
        }
    TEAM_SYNC(team);
    clear_errors(e);
    for (int other = 0; other < SPLITS; other++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            __local const float *row =
                (__local const float *)shared[other * ROW_TILES] +
                lane_query(w->lane, r);
            e->sum[r] += row[0];
            e->squares[r] += row[TILE_M] / LANES_OF_ROW;
            e->weights[r] += row[2 * TILE_M] / LANES_OF_ROW;
        }
}

/* Sums of dQ of the splits but the first go to it: [SPLITS - 1][DIM_TILES]
 * [ACC_PER_LANE][WAVE] of each tile. Holds the team's barrier. */
INLINE void add_splits(float (*sums)[ACC_PER_LANE], __local float *shared,
                       int split, int team, const wave *w)
{
    const int size = DIM_TILES * TILE_ELEMENTS;
    int lane = w->lane;
    HIDE_FROM_OPTIMIZER(lane);
    __local float *all = shared + lane;
    __local float *own = all + max(split - 1, 0) * size;
    if (split > 0)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                own[(d * ACC_PER_LANE + i) * WAVE] = sums[d][i];
    TEAM_SYNC(team);
    if (split == 0)
        UNROLL_FOR (int other = 0; other < SPLITS - 1; other++)
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    sums[d][i] +=
                        all[other * size + (d * ACC_PER_LANE + i) * WAVE];
}

/* ---- What leaves ---- */

/* dQ of the tile of rows leaves. Adds q^ . dq^ of the lane's own rows to
 * *scale_sum. */
INLINE void store_dq(const row_state *s, __private float (*sums)[ACC_PER_LANE],
                     __global storage *dq, float *scale_sum,
                     const row_part *part, const q_block *here, const wave *w)
{
    const row_target to = dq_target(dq, part, here);
    float from_dq[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        from_dq[r] = here->scale * inverse_ds_scale(s->ds_scale[r]);
    if (VARIANT == COSINE)
        l2norm_backward_rows(sums, from_dq, scale_sum, part, here, w);
    if ((here->args->forward.flags & ARG_DQ) != 0)
        UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES)
            store_channels(sums + first, from_dq, first, OUT_TILES, here->out,
                           OUT_PITCH, &to, w);
}

/* A bound of row r's |dS|, as it goes to dK; P is at most 1. Of a lane's own
 * keys, if that is what s->dp_bound is of. */
INLINE float bound_of(const row_statistics *s, const row_part *part, int r,
                      const q_block *here, const wave *w)
{
    float bound = s->dp_bound[r] + fabs(s->delta[r]);
    if (VARIANT == COSINE)
        bound *= part->inverse[r] * fabs(here->scale);
    return row_exists(part, r, w) ? bound : 0.0f;
}

/* What the other kernel must know goes to the workspace; `to`: of the tile's
 * first row. */
INLINE void store_statistics(const row_state *s, __global float *to,
                             const row_part *part, const q_block *here,
                             const wave *w)
{
    float bound = 0.0f;
    if (RESCALES) {
        float own_bound[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            own_bound[r] = bound_of(&s->statistics, part, r, here, w);
        bound = largest_of_rows(own_bound, here, w);
        WAVE_SYNC();
    }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const int row = lane_query(w->lane, r);
        if (value_key(w->lane, 0) != 0 || row >= part->count)
            continue;
        __global float *own = to + row * ROW_NUMBERS;
        own[0] = s->statistics.top[r];
        own[1] = s->statistics.delta[r];
        own[2] = s->large ? -bound : bound;
        if (VARIANT == COSINE)
            own[3] = part->inverse[r] * here->scale;
    }
}
