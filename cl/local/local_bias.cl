/* SPDX-License-Identifier: Apache-2.0
 * Bias and mask of a work-item's tile of logits. It reads the switches BIAS,
 * TABLE, KEEPS_TABLE and MASK. */
#include "local/staging.cl"

#if MASK_HAS_REGIONS(MASK)
#if MASK_FOLLOWS_GRID(MASK) && LISTS_TOKENS
/* A kept token tells its region. */
#define REGION_OF(find, args, score_bias, tokens, row)                        \
    recall_sides(kept_of(tokens, row))
#else
#define REGION_OF(find, args, score_bias, tokens, row)                        \
    find(args, score_bias, row)
#endif
/* sums[i][j] += region_value where rows[i] and keys[j] differ in region. */
INLINE void
add_regions(float sums[SCORE_ROWS][SCORE_COLS], const forward_args *args,
            const score_bias_view *score_bias, const token_list *row_tokens,
            const token_list *key_tokens, const int *rows, const int *keys)
{
    uint there[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        there[j] =
            REGION_OF(key_region, args, score_bias, key_tokens, keys[j]);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint here =
            REGION_OF(query_region, args, score_bias, row_tokens, rows[i]);
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (here != there[j])
                sums[i][j] += args->region_value;
    }
}
#endif

/* sums[i][j] += the score bias of rows[i], keys[j]. */
INLINE void
add_score_bias(float sums[SCORE_ROWS][SCORE_COLS], const forward_args *args,
               const score_bias_view *score_bias, const token_list *row_tokens,
               const token_list *key_tokens, const int *rows, const int *keys)
{
#if KEEPS_TABLE
    int positions[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        positions[j] = TABLE_CENTER - score_bias->table_positions[keys[j]];
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int position = score_bias->table_positions[rows[i]];
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += score_bias->table[position + positions[j]];
    }
#elif BIAS && TABLE == 1
    uint positions[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        positions[j] =
            (uint)(TABLE_CENTER - table_position(keys[j])) * args->bias.row;
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint position = (uint)table_position(rows[i]) * args->bias.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(score_bias->bias,
                                                  position + positions[j]);
    }
#elif BIAS && TABLE
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(
                score_bias->bias, bias_at(args, score_bias, rows[i], keys[j]));
#elif BIAS
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        __global const bias_storage *bias =
            score_bias->bias + rows[i] * (int)args->bias.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(
                bias, keys[j] * (int)KEY_STRIDE(args->bias));
    }
#endif
#if MASK_FOLLOWS_GRID(MASK)
    if (score_bias->coord.shift_boundaries !=
        0) /* else it all lies in one region */
        add_regions(sums, args, score_bias, row_tokens, key_tokens, rows,
                    keys);
#elif MASK_HAS_REGIONS(MASK)
    add_regions(sums, args, score_bias, row_tokens, key_tokens, rows, keys);
#elif MASK
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const mask_row row = find_mask_row(args, score_bias, rows[i]);
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += mask_in_row(args, score_bias, &row, keys[j]);
    }
#endif
}
