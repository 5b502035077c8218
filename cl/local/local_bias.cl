/* SPDX-License-Identifier: Apache-2.0
 * Bias and mask of a work-item's tile of logits. It reads the switches BIAS,
 * TABLE, KEEPS_TABLE and MASK. */
#include "local/staging.cl"

#if MASK >= 3
#if MASK == 4 && LISTS_TOKENS
/* A kept token tells its region. */
#define REGION_OF(find, args, terms, tokens, row)                             \
    recall_sides(kept_of(tokens, row))
#else
#define REGION_OF(find, args, terms, tokens, row) find(args, terms, row)
#endif
/* sums[i][j] += region_value where rows[i] and keys[j] differ in region. */
INLINE void add_regions(float sums[SCORE_ROWS][SCORE_COLS],
                        const forward_args *args, const logit_terms *terms,
                        const token_list *row_tokens,
                        const token_list *key_tokens, const int *rows,
                        const int *keys)
{
    uint there[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        there[j] = REGION_OF(key_region, args, terms, key_tokens, keys[j]);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint here =
            REGION_OF(query_region, args, terms, row_tokens, rows[i]);
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (here != there[j])
                sums[i][j] += args->region_value;
    }
}
#endif

/* sums[i][j] += the terms of rows[i], keys[j]. */
INLINE void add_terms(float sums[SCORE_ROWS][SCORE_COLS],
                      const forward_args *args, const logit_terms *terms,
                      const token_list *row_tokens,
                      const token_list *key_tokens, const int *rows,
                      const int *keys)
{
#if KEEPS_TABLE
    int places[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        places[j] = TABLE_CENTER - terms->table_places[keys[j]];
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int place = terms->table_places[rows[i]];
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += terms->table[place + places[j]];
    }
#elif BIAS && TABLE == 1
    uint places[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        places[j] =
            (uint)(TABLE_CENTER - table_place(keys[j])) * args->bias.row;
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint place = (uint)table_place(rows[i]) * args->bias.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] +=
                JOIN(load, BIAS_SUFFIX)(terms->bias, place + places[j]);
    }
#elif BIAS && TABLE
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(
                terms->bias, bias_at(args, terms, rows[i], keys[j]));
#elif BIAS
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        __global const bias_storage *bias =
            terms->bias + rows[i] * (int)args->bias.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(
                bias, keys[j] * (int)TERM_STEP(args->bias));
    }
#endif
#if MASK == 4
    if (terms->place.seams != 0) /* else it all lies in one region */
        add_regions(sums, args, terms, row_tokens, key_tokens, rows, keys);
#elif MASK == 3
    add_regions(sums, args, terms, row_tokens, key_tokens, rows, keys);
#elif MASK
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        __global const mask_storage *mask =
            terms->mask + rows[i] * (int)args->mask.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, MASK_SUFFIX)(
                mask, keys[j] * (int)TERM_STEP(args->mask));
    }
#endif
}
