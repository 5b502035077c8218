/* SPDX-License-Identifier: Apache-2.0
 * What of weights goes to products (`keep` of weights.h), of tiles that are
 * operands already and of tiles of numbers. */
#include "matrix/geometry.cl"

/* Which weights a tile has: of a window's head, from that query and key on. */
typedef struct weight_place {
    const forward_args *args;
    work_tile of;
    uint query, key;
} weight_place;

/* Those of a tile's weights that are not kept become 0; `transposed`: its rows
 * are keys. */
INLINE void keep_weights(query_tile *weights, const weight_place *at,
                         const int transposed, const wave *w)
{
    UNROLL_FOR (int i = 0; i < STEPS * QUERY_ELEMENTS; i++) {
        const int e = i % QUERY_ELEMENTS;
        const uint row = query_row(w->lane, e);
        const uint column =
            i / QUERY_ELEMENTS * MMA_K + SLOT_KEY(query_step(w->lane, e));
        if (!is_kept(at->args, at->of, at->query + (transposed ? column : row),
                     at->key + (transposed ? row : column)))
            clear_operand(weights->x, i);
    }
}

/* Numbers of a tile that are not kept become 0, others are multiplied: P on
 * its way to dV, whose sums are multiplied later, or dP, by KEPT_SCALE.
 * S_TRANSPOSED says how tiles lie. */
INLINE void keep_tile(float *tile, float scale, const weight_place *at,
                      const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const uint row = value_query(w->lane, i);
        const uint column = value_key(w->lane, i);
        tile[i] = is_kept(at->args, at->of,
                          at->query + (S_TRANSPOSED ? column : row),
                          at->key + (S_TRANSPOSED ? row : column))
                      ? tile[i] * scale
                      : 0.0f;
    }
}
