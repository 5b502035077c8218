/* SPDX-License-Identifier: Apache-2.0
 * The first half of backward_matrix.cl: a wave's tile of rows, of which dQ is
 * stored, dBias is summed, and P and dS go to local memory. */
#include "matrix/delta_errors.cl"
#include "matrix/fused_tile.cl"
#include "matrix/grad_epilogue.cl"
#include "matrix/grad_sums.cl"

/* Starts copies of rows of o to the wave's output staging; zeros fill the
 * tile. */
INLINE void copy_o(__local ushort *to, __global const storage *o,
                   const copied_rows *rows, int wide, const wave *w)
{
    const forward_args *args = &rows->args->forward;
    const tensor_layout *layout = &args->o;
    const window_coord *coord = &rows->at->coord;
    const uint row = rows->first;
    const int count = rows->count;
    __global const storage *plane_of_o =
        o + plane(layout, coord->grid, rows->head);
    for (int i = w->lane; i < TILE_M * (DIMS - HEAD_DIM); i += WAVE)
        to[swizzled_offset(i % TILE_M, HEAD_DIM + i / TILE_M, PITCH)] = 0;
#if CHUNKS
    if (wide) {
        UNROLL_FOR (int turn = 0; turn < STORE_TURNS(HEAD_DIM); turn++) {
            const int i = turn * WAVE + w->lane;
            const int r = i / CHUNKS;
            const plane_offset at =
                find_chunk(layout, &args->grid, coord, row, CHUNKS, i);
            const int exists = (r < count) & !IS_PADDED(at);
            copy_16(to + swizzled_offset(r, i % CHUNKS * CHUNK, PITCH),
                    plane_of_o + (IS_PADDED(at) ? 0 : at), exists,
                    i < TILE_M * CHUNKS);
        }
        return;
    }
#endif
    NO_UNROLL_FOR (int i = w->lane; i < TILE_M * HEAD_DIM; i += WAVE) {
        const int r = i / HEAD_DIM, c = i % HEAD_DIM;
        ulong at;
        const int exists =
            r < count && find_row(&at, layout, &args->grid, coord, row + r);
        to[swizzled_offset(r, c, PITCH)] =
            exists ? ((__global const storage_bits *)
                          plane_of_o)[at + (ulong)c * layout->column]
                   : (storage_bits)0;
    }
}

/* What dS of a row is multiplied by for dK: no less than this. */
#define LEAST_FACTOR 0x1p-60f
INLINE void find_row_factors(float *factor, const row_part *part,
                             const q_block *here)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        factor[r] = 1.0f;
        if (VARIANT != COSINE)
            continue;
        /* rows of length 0 add nothing to dK, but have a dS */
        const int is_zero = DROPS_ZEROS && part->inverse[r] == 0.0f;
        factor[r] = here->scale * (is_zero ? 1.0f : part->inverse[r]);
        if (!(fabs(factor[r]) > LEAST_FACTOR))
            factor[r] = LEAST_FACTOR;
    }
}

/* The power of two for dS of the wave's rows, which are multiplied by `factor`
 * too; P is at most 1. */
INLINE float find_ds_scale(const row_statistics *s, const float *factor,
                           const row_part *part, __local uint *scratch,
                           const wave *w)
{
    float bound = 0.0f;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        if (row_exists(part, r, w))
            bound = fmax(bound, (s->dp_bound[r] + fabs(s->delta[r])) *
                                    fabs(factor[r]));
    return ds_scale_for(as_float(
        LARGEST_OF_WAVE(as_uint(part->count > 0 ? bound : 0.0f), scratch, w)));
}

/* The largest |v|^2 of a step's keys goes to *largest, by all waves of the
 * team. */
INLINE void measure_values(__local uint *largest, __local const ushort *v,
                           int wave_of_team, __local uint *scratch,
                           const wave *w)
{
    const int tiles = CEIL_DIV(BLOCK_KEYS, TILE_M);
    float most = 0.0f;
    MEASURE_FOR (int done = 0; done < tiles; done += WAVES_PER_WINDOW) {
        float square[LANE_ROWS];
        int row_index[LANE_ROWS];
        dot_rows(square, row_index, v, v, (done + wave_of_team) * TILE_M,
                 BLOCK_KEYS, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            most = fmax(most, square[r]);
    }
    const uint bits = LARGEST_OF_WAVE(as_uint(most), scratch, w);
    if (w->lane == 0)
        atomic_max(largest, bits);
}

/* ---- dS ---- */

/* Is delta taken from o in this kernel, where the caller has it? */
#define O_SERVES (LATE_COPIES && TAKES_O)
/* Does the rounding of operands leave what counts? Not where they come in
 * parts. */
#define MEASURES_ROUNDING (ROUNDING_SHOWS && WEIGHT_PARTS == 1)
#define MEASURES_SUMS (O_SERVES || MEASURES_ROUNDING)

/* What a tile of dS, by rows, is multiplied by. */
typedef struct ds_factors {
    float factor[LANE_ROWS]; /* from P_SCALE P to what dK wants */
    float shift[LANE_ROWS];  /* that of -delta */
    float to_dbias[LANE_ROWS], to_dq[LANE_ROWS]; /* from there to others */
    float from_dq[LANE_ROWS];                    /* and of dQ at the end */
} ds_factors;

/* A wave's tile of rows. */
typedef struct row_work {
    row_part part;
    row_statistics s;
    ds_factors f;
    row_errors errors;      /* with MEASURES_SUMS */
    float of_dq[LANE_ROWS]; /* what they are of dQ */
    dbias_target dbias;
    row_weights weights;
} row_work;

/* scratch: for the power of two of dS. */
INLINE void find_factors(row_work *rows, const q_block *here,
                         __local uint *scratch, const wave *w)
{
    ds_factors *f = &rows->f;
    const row_statistics *s = &rows->s;
    float ds_scale = 1.0f; /* of dS */
    float inverse = 1.0f;
    find_row_factors(f->factor, &rows->part, here);
    if (RESCALES) {
        if (VARIANT == COSINE)
            inverse = largest_inverse(here, scratch, w);
        ds_scale = find_ds_scale(s, f->factor, &rows->part, scratch, w);
        if (w->lane == 0)
            *scratch = as_uint(ds_scale);
    }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        f->to_dq[r] = 1.0f;
        f->to_dbias[r] = inverse_ds_scale(ds_scale);
        if (VARIANT == COSINE)
            f->to_dbias[r] *= RECIPROCAL(f->factor[r]);
        f->from_dq[r] = here->scale * f->to_dbias[r];
        if (RESCALES && VARIANT == COSINE) {
            /* lengths of q and of k may differ much: rows have powers of their
             * own */
            float bound = s->dp_bound[r];
            REDUCE(bound, fmax);
            const float own =
                ds_scale_for((bound + fabs(s->delta[r])) * inverse);
            f->to_dq[r] = own * f->to_dbias[r];
            f->from_dq[r] = here->scale * inverse_ds_scale(own);
        }
        f->factor[r] *= ds_scale / P_SCALE;
        f->shift[r] = -s->delta[r] * f->factor[r];
    }
}

/* ds = p (dp - delta), of a tile, as it goes to dK. */
INLINE void make_ds(float *ds, const float *p, const float *dp, int tile,
                    const ds_factors *f)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int r = LANE_ROW(i);
        const float change = FMA(dp[i], f->factor[r], f->shift[r]);
        ds[i] = HAS_KEY(tile, i) ? p[i] * change : 0.0f;
    }
}

/* A tile of P and dS goes where it is summed: dBias, by way of local memory dV
 * and dK, and as operands dQ. Changes ds. */
INLINE void leave_ds(row_work *rows, query_tile *operands, float *ds,
                     const float *p, const float *earlier, int tile,
                     const q_block *here, const wave *w)
{
    const row_weights *weights = &rows->weights;
    add_dbias(&rows->dbias, earlier, ds, rows->f.to_dbias, tile, &rows->part,
              here, w);
    share_weights(p, weights->p, rows->part.rows.row, tile * TILE_N, w);
    share_weights(ds, weights->ds, rows->part.rows.row, tile * TILE_N, w);
    scale_keys(ds, rows->f.to_dq, tile, here, w);
    make_operand_parts(operands, ds, w);
    if (O_SERVES && SUMS_OPERANDS)
        add_errors(&rows->errors, ds, p, operands, tile, w);
    else if (MEASURES_ROUNDING)
        add_weights(rows->errors.sum, operands, ds, w);
}

/* P and dS of the tile of rows go to local memory, and dQ += dS K. `p` and
 * kept_dp are what add_statistics has left, of one subtile P_SCALE P, and dP;
 * operands: dS of one subtile. */
INLINE void
differentiate_rows(float sums[ROW_SUM_TILES][ACC_PER_LANE],
                   query_tile operands[TILES_PER_SUBTILE][WEIGHT_PARTS],
                   float p[TILES_PER_SUBTILE][ACC_PER_LANE],
                   float kept_dp[TILES_PER_SUBTILE][ACC_PER_LANE],
                   row_work *rows, const q_block *here, const wave *w)
{
    const dp_rows d_o = read_dp_rows(&rows->part.rows, here, w);
    clear_tiles(sums, ROW_SUM_TILES);
    clear_errors(&rows->errors);
    GRADIENT_FOR (int first = 0; first < KEY_TILES;
                  first += TILES_PER_SUBTILE) {
        float dp[ACC_PER_LANE];
        if (SUBTILES > 1) {
            score_subtile(p, first, here, &rows->part.rows, w);
            make_p(p, first, rows->s.top, 1);
        }
        if (PIPELINE_DP)
            multiply_dp(dp, &d_o, first, here, w);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            const int tile = first + t;
            if (!IS_TILE(tile))
                continue;
            float ds[ACC_PER_LANE], earlier[ACC_PER_LANE];
            read_dbias(earlier, &rows->dbias, tile, &rows->part, here, w);
            if (KEEPS_DP(t))
                copy_tile(dp, kept_dp[t]);
            else if (!PIPELINE_DP)
                multiply_dp(dp, &d_o, tile, here, w);
            make_ds(ds, p[t], dp, tile, &rows->f);
            if (O_SERVES && !SUMS_OPERANDS)
                add_errors(&rows->errors, ds, p[t], 0, tile, w);
            if (PIPELINE_DP && t + 1 < TILES_PER_SUBTILE && IS_TILE(tile + 1))
                multiply_dp(dp, &d_o, tile + 1, here, w);
            leave_ds(rows, operands[t], ds, p[t], earlier, tile, here, w);
            if (ROW_SUM_TILES == DIM_TILES)
                add_values(sums, ROW_SUM_TILES, operands[t], here->k, tile, 0,
                           w);
        }
    }
}

/* ---- Errors ---- */

/* What sums of dS over keys are off by, and what that is of dQ. */
INLINE void measure_errors(row_work *rows, const wave *w)
{
    float expected[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        expected[r] = rows->part.d_lse[r] * rows->f.factor[r] * P_SCALE;
    reduce_errors(&rows->errors, w);
    find_errors(&rows->errors, &rows->s, expected);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        rows->of_dq[r] = rows->errors.sum[r] * rows->f.to_dq[r];
}

/* Takes an error of delta out of what a tile of rows has left, given what it
 * makes of the sum over keys of dS, as that goes to dK. */
INLINE void mend_rows(float sums[ROW_SUM_TILES][ACC_PER_LANE],
                      const row_work *rows, const q_block *here, const wave *w)
{
    const row_weights *weights = &rows->weights;
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = -rows->errors.sum[r] / P_SCALE;
    GRADIENT_FOR (int tile = 0; tile < KEY_TILES; tile++) {
        WAVE_SYNC();
        const int key = tile * TILE_N;
        int row = rows->part.rows.row;
        wave own = *w;
        HIDE_FROM_OPTIMIZER(row);

        float ds[ACC_PER_LANE], p[ACC_PER_LANE], earlier[ACC_PER_LANE];
        query_tile operands[WEIGHT_PARTS];
        load_tile(p, weights->p, WEIGHT_PITCH, row, key, &own);
        load_tile(ds, weights->ds, WEIGHT_PITCH, row, key, &own);
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            p[i] *= factor[LANE_ROW(i)];
            ds[i] += p[i];
        }
        share_weights(ds, weights->ds, row, key, &own);
        read_dbias(earlier, &rows->dbias, tile, &rows->part, here, &own);
        add_dbias(&rows->dbias, earlier, p, rows->f.to_dbias, tile,
                  &rows->part, here, &own);
        scale_keys(p, rows->f.to_dq, tile, here, &own);
        make_operand_parts(operands, p, &own);
        add_values(sums, ROW_SUM_TILES, operands, here->k, tile, 0, &own);
    }
}

/* Takes out of dQ what rounding leaves, the mean key; or where only a part of
 * the channels is summed, leaves operands for that. Where delta is from o and
 * sums of dS over keys tell that it is off by what shows, all of the error
 * goes. */
INLINE void mend_errors(float sums[ROW_SUM_TILES][ACC_PER_LANE],
                        query_tile mean[WEIGHT_PARTS], row_work *rows,
                        int has_o_lse, const q_block *here, const wave *w)
{
    if (!MEASURES_SUMS)
        return;
    measure_errors(rows, w);
    if (ROW_SUM_TILES == DIM_TILES)
        take_mean_key(sums, rows->of_dq, here, w);
    else
        weigh_mean_key(mean, rows->of_dq, here, w);
    if (O_SERVES && has_o_lse &&
        errors_count(&rows->errors, (__local float *)here->out, w)) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            rows->of_dq[r] = -rows->of_dq[r];
        take_mean_key(sums, rows->of_dq, here, w);
        mend_rows(sums, rows, here, w);
    }
}

/* dQ of the tile of rows leaves: `sums`, or where they are of a part of the
 * channels, products of `operands`, dS of all keys, less the mean key by
 * `mean`. Adds q^ . dq^ of the lane's own rows to *scale_sum. */
INLINE void store_dq(float sums[ROW_SUM_TILES][ACC_PER_LANE],
                     query_tile operands[TILES_PER_SUBTILE][WEIGHT_PARTS],
                     const query_tile *mean, row_work *rows,
                     __global storage *dq, float *scale_sum,
                     const q_block *here, const wave *w)
{
    const uint flags = here->args->forward.flags;
    const row_target to = dq_target(dq, &rows->part, here);
    if (VARIANT == COSINE)
        l2norm_backward_rows(sums, rows->f.from_dq, scale_sum, &rows->part,
                             here, w);
    if (!here->fast_store && (flags & ARG_DQ) == 0)
        return;
    CHANNEL_FOR(int first = 0; first < DIM_TILES; first += OUT_TILES)
    {
        if (ROW_SUM_TILES != DIM_TILES) {
            clear_tiles(sums, ROW_SUM_TILES);
            UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
                if (IS_TILE(t))
                    add_values(sums, ROW_SUM_TILES, operands[t], here->k, t,
                               first, w);
            if (MEASURES_SUMS)
                add_values(sums, ROW_SUM_TILES, mean, here->k, 0, first, w);
        }
        store_epilogue(sums + (ROW_SUM_TILES == DIM_TILES ? first : 0),
                       rows->f.from_dq, first, &to, here, w);
    }
}
