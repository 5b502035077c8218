/* SPDX-License-Identifier: Apache-2.0
 * Bias and mask of a work-item's tile of logits. It reads the switches BIAS,
 * TABLE, KEEPS_TABLE and MASK. */
#include "local/staging.cl"

/* Does a kept token tell its region? */
#define KEEPS_REGIONS (MASK_FOLLOWS_GRID(MASK) && LISTS_TOKENS)

/* sums[i][j] += region_value where rows[i] and keys[j] differ in region. */
INLINE void
add_regions(float sums[SCORE_ROWS][SCORE_COLS], const forward_args *args,
            const score_bias_view *score_bias, const token_list *row_tokens,
            const token_list *key_tokens, const int *rows, const int *keys)
{
    uint there[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        there[j] = KEEPS_REGIONS ? recall_sides(kept_of(key_tokens, keys[j]))
                                 : key_region(args, score_bias, keys[j]);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint here = KEEPS_REGIONS
                              ? recall_sides(kept_of(row_tokens, rows[i]))
                              : query_region(args, score_bias, rows[i]);
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (here != there[j])
                sums[i][j] += args->region_value;
    }
}

/* sums[i][j] += the bias of rows[i], keys[j]. */
INLINE void add_bias(float sums[SCORE_ROWS][SCORE_COLS],
                     const forward_args *args,
                     const score_bias_view *score_bias, const int *rows,
                     const int *keys)
{
    /* A table's place for row and key is a sum, whose parts are found once. */
    const uint step = KEEPS_TABLE ? 1 : args->bias.row;
    uint places[SCORE_COLS];
    UNROLL_FOR (int j = 0; TABLE == 1 && j < SCORE_COLS; j++)
        places[j] =
            step * (uint)(TABLE_CENTER -
                          (KEEPS_TABLE ? score_bias->table_positions[keys[j]]
                                       : table_position(keys[j])));
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint place = TABLE != 1 ? 0
                           : KEEPS_TABLE
                               ? (uint)score_bias->table_positions[rows[i]]
                               : (uint)table_position(rows[i]) * step;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (KEEPS_TABLE)
                sums[i][j] += score_bias->table[place + places[j]];
            else if (TABLE == 1)
                sums[i][j] += JOIN(load, BIAS_SUFFIX)(score_bias->bias,
                                                      place + places[j]);
            else
                sums[i][j] += bias_of(args, score_bias, rows[i], keys[j]);
    }
}

/* sums[i][j] += the score bias of rows[i], keys[j]. */
INLINE void
add_score_bias(float sums[SCORE_ROWS][SCORE_COLS], const forward_args *args,
               const score_bias_view *score_bias, const token_list *row_tokens,
               const token_list *key_tokens, const int *rows, const int *keys)
{
    if (BIAS)
        add_bias(sums, args, score_bias, rows, keys);
    if (MASK_HAS_REGIONS(MASK)) {
        /* in most windows of a grid all lies in one region */
        if (!MASK_FOLLOWS_GRID(MASK) ||
            score_bias->coord.shift_boundaries != 0)
            add_regions(sums, args, score_bias, row_tokens, key_tokens, rows,
                        keys);
        return;
    }
    UNROLL_FOR (int i = 0; MASK && i < SCORE_ROWS; i++) {
        const mask_row row = find_mask_row(args, score_bias, rows[i]);
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += mask_in_row(args, score_bias, &row, keys[j]);
    }
}
