/* SPDX-License-Identifier: Apache-2.0
 * Values of keys that some rows of a tile do not see, as keys to come in a
 * cache that nobody has filled: what is no number there must not reach those
 * rows, even times a weight of 0. It is left out of the product, and added
 * where a row sees the key. */
#include "matrix/sliding_rows.cl"

#define IS_NO_NUMBER(bits) (((bits)&EXPONENT) == EXPONENT)

/* What a subtile is computed from. */
typedef struct sliding_keys {
    __local const storage_bits *q, *k,
        *v;              /* rows of the block, of the stage */
    uint first, end;     /* the stage's keys */
    float scale;         /* never 0 */
    __local uint *found; /* see LARGEST_OF_WAVE */
    const forward_args *args;
    const wave_rows *rows;
    work_tile of;
} sliding_keys;

/* Operands that are infinite or NaN become 0; were there any? */
INLINE uint leave_numbers(key_tile *v)
{
    uint any = 0;
    UNROLL_FOR (int i = 0; i < (int)(sizeof v->x / sizeof *v->x); i++) {
        const uint low = DTYPE == 0 ? ~0u : 0xffffu;
        const uint lost = (IS_NO_NUMBER(v->x[i]) ? low : 0u) |
                          (IS_NO_NUMBER(v->x[i] >> 16) ? ~low : 0u);
        any |= lost;
        v->x[i] &= ~lost;
    }
    return any != 0;
}

/* Adds what was left out of a stage's key `key` to a tile of o, of channels
 * `channel` and on, where its row sees the key: any weight times infinity. */
INLINE void add_unlike_numbers(float *out, int key, int channel, int turn,
                               const sliding_keys *here, const wave *w)
{
    const wave_rows *rows = here->rows;
    const uint at = here->first + key;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const span seen =
            rows->spans[rows->row + turn * TILE_M + value_query(w->lane, i)];
        const storage_bits bits = here->v[swizzled_offset(
            key, channel + value_key(w->lane, i), PITCH)];
        if (IS_NO_NUMBER(bits) && at < here->end && sees(here->args, seen, at))
            out[i] += number_of(bits);
    }
}
