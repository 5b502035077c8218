/* SPDX-License-Identifier: Apache-2.0
 * What is added to scores, bias and mask, and where that stays on the chip
 * from window to window (KEEPS_TERMS): in local memory, in registers, or as
 * the regions of rows and keys. Reads BIAS, MASK and TABLE by way of
 * problem.cl. */
#ifndef MATRIX_BIAS_CL
#define MATRIX_BIAS_CL
#include "matrix/geometry.cl"

INLINE float bias_of(const forward_args *args, const logit_terms *terms,
                     int row, int key)
{
#if BIAS
    return JOIN(load, BIAS_SUFFIX)(terms->bias,
                                   bias_at(args, terms, row, key));
#else
    return 0.0f;
#endif
}

INLINE float mask_of(const forward_args *args, const logit_terms *terms,
                     int row, int key)
{
#if MASK >= 3
    return query_region(args, terms, row) != key_region(args, terms, key)
               ? args->region_value
               : 0.0f;
#elif MASK
    return JOIN(load, MASK_SUFFIX)(terms->mask,
                                   row * (int)args->mask.row +
                                       key * (int)TERM_STEP(args->mask));
#else
    return 0.0f;
#endif
}

#if HAS_LOCAL_TERMS
#if BIAS == 1 && !MASK_IN_LOCAL
typedef storage_bits kept_term;
#else
typedef float kept_term;
#endif

INLINE kept_term term_to_keep(const forward_args *args,
                              const logit_terms *terms, int row, int key)
{
#if MASK_IN_LOCAL
    return bias_of(args, terms, row, key) + mask_of(args, terms, row, key);
#elif BIAS == 1
    return ((__global const storage_bits *)
                terms->bias)[bias_at(args, terms, row, key)];
#else
    return bias_of(args, terms, row, key);
#endif
}

/* Puts the block's terms where lanes will read them. */
INLINE void keep_terms(__local kept_term *kept, const forward_args *args,
                       const logit_terms *terms, uint first_row, int item)
{
#if FORGETS_TILES
    FORGET(item);
#endif
    /* several at a time are on their way; those of a group have rows and keys
     * in common */
    _Pragma("unroll 4") for (int i = item; i < ROW_TILES * ALL_KEY_TILES *
                                                   TERM_TILE / TERM_GROUP;
                             i += TEAM * TEAMS)
    {
        const int tile = i / (TERM_TILE / TERM_GROUP);
        const int first = i % (TERM_TILE / TERM_GROUP) / WAVE * TERM_GROUP;
        const int l = i % WAVE;
        const int down = (int)first_row + tile / ALL_KEY_TILES * UNIT_QUERIES;
        const int across = tile % ALL_KEY_TILES * UNIT_TILE;
        kept_term x[TERM_GROUP];
        /* what no query or key needs may be any of the others' */
        UNROLL_FOR (int j = 0; j < TERM_GROUP; j++)
            x[j] = OF_PAIR(term_to_keep, args, terms,
                           min(down + value_query(l, first + j), DOWN - 1),
                           min(across + value_key(l, first + j), ACROSS - 1));
        UNROLL_FOR (int j = 0; j < TERM_GROUP; j++)
            kept[i * TERM_GROUP + j] = x[j];
    }
}

INLINE float4 read_kept(__local const kept_term *kept)
{
#if BIAS == 2 || MASK_IN_LOCAL || DTYPE == 0
    return *(__local const float4 *)kept;
#elif DTYPE == 1
    return vloada_half4(0, (__local const half *)kept);
#else
    return as_float4(convert_uint4(*(__local const ushort4 *)kept) << 16u);
#endif
}
#endif

#if HAS_OWN_TERMS
/* Terms of a lane's scores of one tile. */
INLINE void load_own_terms(float *own, __local const void *kept,
                           const forward_args *args, const logit_terms *terms,
                           int row, int tile, int lane)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        own[i] =
            mask_of(args, terms, min(row + value_query(lane, i), (int)NQ - 1),
                    min(tile * UNIT_TILE + value_key(lane, i), (int)NK - 1));
#if HAS_LOCAL_TERMS
    UNROLL_FOR (int i = 0; i < VALUES; i += TERM_GROUP) {
        const float4 x =
            read_kept((__local const kept_term *)kept + tile * TERM_TILE +
                      i * WAVE + lane * TERM_GROUP);
        own[i] += x.x;
        own[i + 1] += x.y;
        own[i + 2] += x.z;
        own[i + 3] += x.w;
    }
#endif
}
#endif

#if REGIONS_APART
/* Puts the regions of the window's rows and keys where lanes will read them.
 */
INLINE void keep_regions(__local uchar *rows, __local uchar *keys,
                         const forward_args *args, const logit_terms *terms,
                         uint first_row, int lane)
{
    for (int i = lane; i < BLOCK_DOWN; i += TEAM) {
        const int row = min((int)first_row + i, DOWN - 1);
        rows[i] = (uchar)(KEYS_DOWN ? key_region(args, terms, row)
                                    : query_region(args, terms, row));
    }
    for (int i = lane; i < ACROSS; i += TEAM)
        keys[i] = (uchar)(KEYS_DOWN ? query_region(args, terms, i)
                                    : key_region(args, terms, i));
}
#endif

/* Bias and mask as a kernel has them in its parameters. */
typedef struct logit_tensors {
#if BIAS
    __global const bias_storage *bias;
#if TABLE == 2
    __global const int *table_index;
#endif
#endif
#if MASK == 3
    __global const uchar *query_regions, *key_regions;
#elif MASK && MASK != 4
    __global const mask_storage *mask;
#endif
    int unused; /* a struct needs a member */
} logit_tensors;
#if BIAS && TABLE == 2
#define BIAS_TENSORS .bias = bias, .table_index = table_index,
#elif BIAS
#define BIAS_TENSORS .bias = bias,
#else
#define BIAS_TENSORS
#endif
#if MASK == 3
#define MASK_TENSORS                                                          \
    .query_regions = query_regions, .key_regions = key_regions,
#elif MASK && MASK != 4
#define MASK_TENSORS .mask = mask,
#else
#define MASK_TENSORS
#endif

/* What is added to the logits of a unit. */
INLINE logit_terms terms_of(const logit_tensors *tensors,
                            const forward_args *args, unit u)
{
#if BIAS
    __global const bias_storage *bias = tensors->bias;
#if TABLE == 2
    __global const int *table_index = tensors->table_index;
#endif
#endif
#if MASK == 3
    __global const uchar *query_regions = tensors->query_regions;
    __global const uchar *key_regions = tensors->key_regions;
#elif MASK && MASK != 4
    __global const mask_storage *mask = tensors->mask;
#endif
    DECLARE_TERMS(terms, *args, u)
    return terms;
}

/* The same of a window whose place is known. */
INLINE logit_terms terms_at(const logit_tensors *tensors,
                            const forward_args *args, unit u,
                            const window_place *place)
{
#if MASK == 4
    const logit_terms terms = {.place = *place};
    return terms;
#else
    return terms_of(tensors, args, u);
#endif
}

/* Which regions there are: has the window of a walk more than one? And the
 * terms that keep_regions reads, of unit u in that window. */
#if MASK == 4
#define HAS_SEAMS(walk) ((walk).place.seams != 0)
#define DECLARE_REGIONS(name, args, u, walk)                                  \
    const logit_terms name = {.place = (walk).place};
#else
#define HAS_SEAMS(walk) 1 /* regions may be anything */
#define DECLARE_REGIONS(name, args, u, walk) DECLARE_TERMS(name, args, u)
#endif

/* Windows of the same kind have the same terms. */
#if MASK == 4 && KEPT_MASK
#define MASK_KIND(walk) ((walk).place.seams)
#else
#define MASK_KIND(walk) (KEPT_MASK ? (walk).kind : 0)
#endif

#endif
