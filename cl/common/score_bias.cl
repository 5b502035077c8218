/* SPDX-License-Identifier: Apache-2.0
 * What is added to a logit: the bias of its query and key, or of their
 * positions in a table of biases, and the mask. problem.cl includes it, behind
 * the switches BIAS, MASK, TABLE, KEEPS_TABLE and ADJACENT_KEYS. */

/* What is added to the logits of one window-head. */
typedef struct score_bias_view {
#if BIAS
    __global const bias_storage *bias;
#if TABLE == 2
    __global const int *index;
#endif
#if KEEPS_TABLE
    __local const float *table;
    __local const int *table_positions;
#endif
#endif
#if MASK_READS_REGIONS(MASK)
    __global const uchar *query_regions, *key_regions;
#elif MASK_FOLLOWS_GRID(MASK)
    window_coord coord;
#elif MASK_READS_ARRAY(MASK)
    __global const mask_storage *mask;
#endif
    int unused; /* a struct needs a member */
} score_bias_view;

#if BIAS && TABLE == 2
#define SET_BIAS(t, args, u)                                                  \
    (t).bias = bias + plane(&(args).bias, 0, (u).head);                       \
    (t).index = table_index;
#elif BIAS
#define SET_BIAS(t, args, u)                                                  \
    (t).bias = bias + plane(&(args).bias, 0, (u).head);
#else
#define SET_BIAS(t, args, u)
#endif

#if MASK_READS_REGIONS(MASK)
#define SET_MASK(t, args, u, coord_of)                                        \
    const ulong mask_window = remainder_of((u).window, (args).mask_windows);  \
    (t).query_regions =                                                       \
        query_regions + plane(&(args).query_regions, mask_window, 0);         \
    (t).key_regions = key_regions + plane(&(args).key_regions, mask_window, 0);
#elif MASK_FOLLOWS_GRID(MASK)
#define SET_MASK(t, args, u, coord_of) (t).coord = (coord_of);
#elif MASK_READS_ARRAY(MASK)
#define SET_MASK(t, args, u, coord_of)                                        \
    (t).mask =                                                                \
        mask + plane(&(args).mask,                                            \
                     remainder_of((u).window, (args).mask_windows), 0);
#else
#define SET_MASK(t, args, u, coord_of)
#endif
/* Declares `name`: the score bias of work tile u, from the kernel's
 * parameters, for kernels that have the window's coordinates and for those
 * that have not. */
#define DECLARE_SCORE_BIAS_AT(name, args, u, coord_of)                        \
    score_bias_view name = {.unused = 0};                                     \
    SET_BIAS(name, args, u)                                                   \
    SET_MASK(name, args, u, coord_of)
#define DECLARE_SCORE_BIAS(name, args, u)                                     \
    DECLARE_SCORE_BIAS_AT(name, args, u,                                      \
                          locate_window(&(args).grid, (u).window))

#if BIAS
#if TABLE == 1
/* Positions are told apart by these multiples along each axis; TABLE_WINDOW_1
 * and _2 are the window in which a token's number is its position. */
INLINE int table_position(uint token)
{
    return (int)(token / (TABLE_WINDOW_1 * TABLE_WINDOW_2) * TABLE_STEP_0 +
                 token / TABLE_WINDOW_2 % TABLE_WINDOW_1 * TABLE_STEP_1 +
                 token % TABLE_WINDOW_2);
}
#endif

/* Where the bias of a row and a key lies, in elements from score_bias->bias.
 */
INLINE int bias_at(const forward_args *args, const score_bias_view *score_bias,
                   int row, int key)
{
#if TABLE == 1
    return (table_position(row) - table_position(key) + TABLE_CENTER) *
           (int)args->bias.row;
#elif TABLE == 2
    return score_bias->index[row * (int)NK + key] * (int)args->bias.row;
#else
    return row * (int)args->bias.row + key * (int)KEY_STRIDE(args->bias);
#endif
}

/* May a head's rows be copied 16 bytes at a time, of keys that all exist? */
INLINE int has_bias_rows(const forward_args *args,
                         const score_bias_view *score_bias)
{
    const uint chunk = 16 / sizeof(bias_storage);
    return TABLE == 0 && ADJACENT_KEYS && args->bias.row % chunk == 0 &&
           (size_t)score_bias->bias % 16 == 0;
}
#endif

#if MASK_HAS_REGIONS(MASK)
/* Regions of a row and of a key of the window; region_value is added where
 * they differ. */
INLINE uint query_region(const forward_args *args,
                         const score_bias_view *score_bias, int row)
{
#if MASK_READS_REGIONS(MASK)
    return score_bias->query_regions[row * (int)args->query_regions.row];
#else
    return shift_boundary_sides(&args->grid, &score_bias->coord, row);
#endif
}
INLINE uint key_region(const forward_args *args,
                       const score_bias_view *score_bias, int key)
{
#if MASK_READS_REGIONS(MASK)
    return score_bias->key_regions[key * (int)args->key_regions.row];
#else
    return shift_boundary_sides(&args->grid, &score_bias->coord, key);
#endif
}
#endif

/* What the mask adds to the logit of a row and a key. A kind that computes it
 * from their numbers does so here, for all tiers. */
INLINE float mask_of(const forward_args *args,
                     const score_bias_view *score_bias, int row, int key)
{
#if MASK_HAS_REGIONS(MASK)
    return query_region(args, score_bias, row) !=
                   key_region(args, score_bias, key)
               ? args->region_value
               : 0.0f;
#elif MASK_READS_ARRAY(MASK)
    return JOIN(load, MASK_SUFFIX)(score_bias->mask,
                                   row * (int)args->mask.row +
                                       key * (int)KEY_STRIDE(args->mask));
#else
    return 0.0f;
#endif
}

/* The mask of one row, for keys one after the other: of an array it is where
 * the row lies. */
typedef struct mask_row {
#if MASK_READS_ARRAY(MASK)
    __global const mask_storage *mask;
#else
    int row;
#endif
} mask_row;

INLINE mask_row find_mask_row(const forward_args *args,
                              const score_bias_view *score_bias, int row)
{
#if MASK_READS_ARRAY(MASK)
    const mask_row found = {.mask =
                                score_bias->mask + row * (int)args->mask.row};
#else
    const mask_row found = {.row = row};
#endif
    return found;
}

INLINE float mask_in_row(const forward_args *args,
                         const score_bias_view *score_bias, const mask_row *in,
                         int key)
{
#if MASK_READS_ARRAY(MASK)
    return JOIN(load, MASK_SUFFIX)(in->mask,
                                   key * (int)KEY_STRIDE(args->mask));
#else
    return mask_of(args, score_bias, in->row, key);
#endif
}
