/* SPDX-License-Identifier: Apache-2.0
 * How a product of a query and a key becomes a weight, for all tiers (`keep`
 * is asked by all but hopper/):
 *
 *   logit    x = scale q k + bias + mask     added_to_logit: what is added
 *   hidden   x = -infinity                   visibility.cl: who sees whom
 *   weight   p = exp(x - base)               WEIGHT, WEIGHT_SHIFTED
 *   product  o += keep(p) v                  keep: what of it is multiplied
 *
 * problem.cl includes it, behind the switches VARIANT, BIAS, MASK, TABLE,
 * KEEPS_TABLE, ADJACENT_KEYS and PADDING. */
#include "common/visibility.cl"

/* ---- The scale ---- */

/* ln 100, the largest logit scale of Swin V2 (Liu et al. 2022, section 3.2),
 * as fp32 has it: a little more, so that a parameter that was clamped there is
 * behind the clamp. */
#define MAX_LOGIT_SCALE 4.6051702f
#define NORM_EPSILON 1e-12f

INLINE float cosine_scale(const forward_args *args,
                          __global const float *logit_scale, uint head)
{
    if ((args->flags & ARG_LOGIT_SCALE) == 0)
        return args->scale;
    const float x = logit_scale[args->logit_scale_offset + head];
    return x >= MAX_LOGIT_SCALE ? 100.0f : exp(x);
}

/* Its gradient, given what it would be without the clamp, behind which the
 * scale stands still. */
INLINE float scale_gradient(const forward_args *args,
                            __global const float *logit_scale, uint head,
                            float sum)
{
    return logit_scale[args->logit_scale_offset + head] >= MAX_LOGIT_SCALE
               ? 0.0f
               : sum;
}

INLINE float inverse_norm(float sum_of_squares)
{
    return 1.0f / fmax(sqrt(sum_of_squares), NORM_EPSILON);
}

/* ---- What is added ---- */

/* Bias and mask as a kernel has them in its parameters. */
typedef struct score_bias_tensors {
    __global const bias_storage *bias;
    __global const int *table_index;
    __global const uchar *query_regions, *key_regions;
    __global const mask_storage *mask;
} score_bias_tensors;
#define SCORE_BIAS_TENSORS                                                    \
    {                                                                         \
        BIAS_TENSORS MASK_TENSORS                                             \
    }

/* What is added to the logits of one window-head. */
typedef struct score_bias_view {
    __global const bias_storage *bias;
    __global const int *index;
    __local const float *table; /* with KEEPS_TABLE; not set here */
    __local const int *table_positions;
    __global const uchar *query_regions, *key_regions;
    __global const mask_storage *mask;
    window_coord coord; /* where MASK_FOLLOWS_GRID */
} score_bias_view;

INLINE score_bias_view score_bias_at(const score_bias_tensors *tensors,
                                     const forward_args *args, work_tile of,
                                     const window_coord *coord)
{
    score_bias_view view = {.bias = 0};
    const ulong mask_window =
        MASK_READS_REGIONS(MASK) || MASK_READS_ARRAY(MASK)
            ? remainder_of(of.window, args->mask_windows)
            : 0;
    if (BIAS) {
        view.bias = tensors->bias + plane(&args->bias, 0, of.head);
        view.index = tensors->table_index;
    }
    if (MASK_READS_REGIONS(MASK)) {
        view.query_regions = tensors->query_regions +
                             plane(&args->query_regions, mask_window, 0);
        view.key_regions =
            tensors->key_regions + plane(&args->key_regions, mask_window, 0);
    }
    if (MASK_READS_ARRAY(MASK))
        view.mask = tensors->mask + plane(&args->mask, mask_window, 0);
    if (MASK_FOLLOWS_GRID(MASK))
        view.coord = *coord;
    return view;
}

/* The same where the window's coordinates are not at hand. */
INLINE score_bias_view score_bias_of(const score_bias_tensors *tensors,
                                     const forward_args *args, work_tile of)
{
    const window_coord coord = locate_window(&args->grid, of.window);
    return score_bias_at(tensors, args, of, &coord);
}

/* Positions are told apart by these multiples along each axis; TABLE_WINDOW_1
 * and _2 are the window in which a token's number is its position. */
INLINE int table_position(uint token)
{
    return (int)(token / (TABLE_WINDOW_1 * TABLE_WINDOW_2) * TABLE_STEP_0 +
                 token / TABLE_WINDOW_2 % TABLE_WINDOW_1 * TABLE_STEP_1 +
                 token % TABLE_WINDOW_2);
}

/* Where the bias of a row and a key lies, in elements from score_bias->bias.
 */
INLINE int bias_at(const forward_args *args, const score_bias_view *score_bias,
                   int row, int key)
{
    if (TABLE == 1)
        return (table_position(row) - table_position(key) + TABLE_CENTER) *
               (int)args->bias.row;
    if (TABLE == 2)
        return score_bias->index[row * (int)KEY_COUNT(args) + key] *
               (int)args->bias.row;
    return row * (int)args->bias.row + key * (int)KEY_STRIDE(args->bias);
}

/* May a head's rows be copied 16 bytes at a time, of keys that all exist? */
INLINE int has_bias_rows(const forward_args *args,
                         const score_bias_view *score_bias)
{
    const uint chunk = 16 / sizeof(bias_storage);
    return TABLE == 0 && ADJACENT_KEYS && args->bias.row % chunk == 0 &&
           (size_t)score_bias->bias % 16 == 0;
}

/* The bias of a query and a key. */
INLINE float bias_of(const forward_args *args,
                     const score_bias_view *score_bias, int row, int key)
{
    return BIAS ? JOIN(load, BIAS_SUFFIX)(score_bias->bias,
                                          bias_at(args, score_bias, row, key))
                : 0.0f;
}

/* Regions of a row and of a key of the window; region_value is added where
 * they differ. */
INLINE uint query_region(const forward_args *args,
                         const score_bias_view *score_bias, int row)
{
    return MASK_READS_REGIONS(MASK)
               ? score_bias->query_regions[row * (int)args->query_regions.row]
               : shift_boundary_sides(&args->grid, &score_bias->coord, row);
}
INLINE uint key_region(const forward_args *args,
                       const score_bias_view *score_bias, int key)
{
    return MASK_READS_REGIONS(MASK)
               ? score_bias->key_regions[key * (int)args->key_regions.row]
               : shift_boundary_sides(&args->grid, &score_bias->coord, key);
}

/* What the mask adds to the logit of a row and a key. A kind that computes it
 * from their numbers does so here, for all tiers. */
INLINE float mask_of(const forward_args *args,
                     const score_bias_view *score_bias, int row, int key)
{
    if (MASK_HAS_REGIONS(MASK))
        return query_region(args, score_bias, row) !=
                       key_region(args, score_bias, key)
                   ? args->region_value
                   : 0.0f;
    if (MASK_READS_ARRAY(MASK))
        return JOIN(load, MASK_SUFFIX)(score_bias->mask,
                                       row * (int)args->mask.row +
                                           key * (int)KEY_STRIDE(args->mask));
    return 0.0f;
}

/* The mask of one row, for keys one after the other: of an array it is where
 * the row lies. */
typedef struct mask_row {
    __global const mask_storage *mask;
    int row;
} mask_row;

INLINE mask_row find_mask_row(const forward_args *args,
                              const score_bias_view *score_bias, int row)
{
    mask_row found = {.row = row};
    if (MASK_READS_ARRAY(MASK))
        found.mask = score_bias->mask + row * (int)args->mask.row;
    return found;
}

INLINE float mask_in_row(const forward_args *args,
                         const score_bias_view *score_bias, const mask_row *in,
                         int key)
{
    return MASK_READS_ARRAY(MASK)
               ? JOIN(load, MASK_SUFFIX)(in->mask,
                                         key * (int)KEY_STRIDE(args->mask))
               : mask_of(args, score_bias, in->row, key);
}

/* What is added to the scaled product of a row and a key. */
INLINE float added_to_logit(const forward_args *args,
                            const score_bias_view *score_bias, int row,
                            int key)
{
    return bias_of(args, score_bias, row, key) +
           mask_of(args, score_bias, row, key);
}

/* ---- Weights ---- */

/* The exponential of a logit less a base, usually the largest of its row;
 * and the same by one operation less, where shift = -base LOG2E need not be
 * exact. Of numbers or of vectors: EXP2 is the tier's, for what it computes
 * with. */
#define WEIGHT(logit, base) EXP2(((logit) - (base)) * LOG2E)
#define WEIGHT_SHIFTED(logit, shift) EXP2(FMA(logit, LOG2E, shift))

/* Are there weights that are not kept? Where there are none, some kernels need
 * not store them once more. */
#define DROPS_WEIGHTS 0
/* What o, dV and dP are larger by, of the weights that are kept. */
#define KEPT_SCALE(args) 1.0f

/* Does a weight of window and head `of` go to products? All do. Dropout would
 * say so of some, by a generator that counts windows, heads, queries and keys,
 * and o, dV and dP would be made larger for it. Forward, P is asked for as it
 * goes to the product with V, and not as it is summed; backward, as it goes to
 * dV, and dP, which is multiplied by what P was. */
INLINE int is_kept(const forward_args *args, work_tile of, uint query,
                   uint key)
{
    return 1;
}

/* A weight, or a number of dP, as it goes on. */
INLINE float keep(float weight, const forward_args *args, work_tile of,
                  uint query, uint key)
{
    return is_kept(args, of, query, key) ? weight * KEPT_SCALE(args) : 0.0f;
}

/* Those of four neighbouring keys. */
INLINE float4 keep4(float4 weights, const forward_args *args, work_tile of,
                    uint query, uint key)
{
    return (float4)(keep(weights.x, args, of, query, key),
                    keep(weights.y, args, of, query, key + 1),
                    keep(weights.z, args, of, query, key + 2),
                    keep(weights.w, args, of, query, key + 3));
}
