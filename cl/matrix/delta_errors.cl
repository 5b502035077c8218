/* SPDX-License-Identifier: Apache-2.0
 * What dS of a row sums over keys and should not: how far a delta that was
 * taken from a stored, rounded o is off, and whether that counts; and what
 * rounding leaves. */
#include "matrix/grad_softmax.cl"

/* What dS of a row sums over keys; and of a lane's own keys its squares, of
 * one tile among so many, as an estimate does for these, and those of
 * P_SCALE P. */
typedef struct row_errors {
    float sum[LANE_ROWS], squares[LANE_ROWS], weights[LANE_ROWS];
} row_errors;
#define LANES_OF_ROW (WAVE * LANE_ROWS / TILE_M)
#define SAMPLED (CEIL_DIV(2, TILES_PER_SUBTILE) * TILES_PER_SUBTILE)

INLINE void clear_errors(row_errors *e)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        e->sum[r] = e->squares[r] = e->weights[r] = 0.0f;
}

/* Adds a tile of dS and of P_SCALE P. */
INLINE void add_errors(row_errors *e, const float *ds, const float *p,
                       const query_tile *operands, int tile, const wave *w)
{
    if (SUMS_OPERANDS)
        add_weights(e->sum, operands, ds, w);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        if (!HAS_KEY(tile, i))
            continue;
        const int r = LANE_ROW(i);
        if (!SUMS_OPERANDS)
            e->sum[r] += ds[i];
        if (tile % SAMPLED == 0)
            e->squares[r] = FMA(ds[i], ds[i], e->squares[r]);
        e->weights[r] = FMA(p[i], p[i], e->weights[r]);
    }
}

/* An error of delta is in dQ times the row's mean key, weighted by P, and what
 * rounding leaves nearly so. What all keys have in common is taken out by the
 * plain mean of some, the first tile from here->k on, times these operands. */
INLINE void weigh_mean_key(query_tile *operands, const float *error,
                           const q_block *here, const wave *w)
{
    float x[ACC_PER_LANE];
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int key = value_key(w->lane, i);
        x[i] = key < here->key_count ? error[LANE_ROW(i)] * (-1.0f / TILE_N)
                                     : 0.0f;
        if (VARIANT == COSINE)
            x[i] *= fmin(here->k_inverses[min(key, here->key_count - 1)],
                         MOST_INVERSE);
    }
    make_operand_parts(operands, x, w);
}

INLINE void take_mean_key(float sums[][ACC_PER_LANE], const float *error,
                          const q_block *here, const wave *w)
{
    query_tile operands[WEIGHT_PARTS];
    weigh_mean_key(operands, error, here, w);
    add_values(sums, DIM_TILES, operands, here->k, 0, 0, w);
}

/* Lanes that share rows share their sums; squares stay a lane's own. */
INLINE void reduce_errors(row_errors *e, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        if (!SUMS_OPERANDS || SUMS_ARE_PARTS) {
            REDUCE(e->sum[r], ADD);
        }
    }
}

/* Sums of dS over all keys, expected[r] of which would be right, become their
 * errors. */
INLINE void find_errors(row_errors *e, const row_statistics *s,
                        const float *expected)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        /* a row that sees nothing, or does not exist, has no error */
        e->sum[r] = s->top[r] == INFINITY ? 0.0f : e->sum[r] - expected[r];
}

/* Do errors show in dQ? What is left of a row's is its error times the mean
 * key by P, less the plain mean of TILE_N keys. But for what these have in
 * common, which that takes out, squares are a key's times what P^2 sums to and
 * 1 / TILE_N; that of the row of dQ is a key's times what dS^2 sums to. All
 * rows of the tile count together. The same at all lanes; `scratch`: of the
 * wave. */
INLINE int errors_count(const row_errors *e, __local float *scratch,
                        const wave *w)
{
    const float allowed = SAMPLED * DQ_TOLERANCE * DQ_TOLERANCE;
    float excess = 0.0f;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const float left = FMA(e->weights[r], 1.0f / (P_SCALE * P_SCALE),
                               1.0f / (TILE_N * LANES_OF_ROW));
        excess = FMA(e->sum[r] * e->sum[r], left, excess);
        excess = FMA(-allowed, e->squares[r], excess);
    }
    SUM_OF_WAVE(excess, scratch, w);
    return ANY_OF_WAVE(excess > 0.0f);
}
