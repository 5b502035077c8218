/* SPDX-License-Identifier: Apache-2.0
 * What a work-group has that makes gradients of windows, its tensors and its
 * teams' local memory, and what it copies to the ring (pipeline.cl): rows of
 * q, dO, k and v, and what else is known of rows. */
#include "matrix/grad_tiles.cl"
#include "matrix/pipeline.cl"
#include "matrix/waves.cl"

/* ---- What a work-group has ---- */

/* Tensors, as kernels have them in their parameters. */
typedef struct grad_tensors {
    __global const storage *q, *k, *v, *o, *d_o;
    __global const float *lse, *d_lse, *logit_scale;
    __global storage *dq, *dk, *dv;
    __global float *workspace;
    score_bias_tensors score_bias;
} grad_tensors;

/* A kernel of keys alone has no use for norms across tiles, and sums no
 * scales. Who makes gradients of keys makes those of the padding. */
#define SUMS_SCALES (VARIANT == COSINE && !S_TRANSPOSED)
#define SUMS_PADS (PADDING == 1 && (FUSED_GRADIENTS || S_TRANSPOSED))

/* Local memory, of all teams: a pointer to what one team has of an array would
 * keep a register. What is not used has one element. */
typedef struct grad_memory {
    __local cached_bias *bias_cache;
    /* 1 / norm of rows that run down tiles, and across them */
    __local float (*inverses_m)[ROOM(VARIANT == COSINE, BLOCK_M)];
    __local float (*inverses_n)[ROOM(SUMS_SCALES, KEY_ROWS)];
    __local float *lane_sums;
    /* regions of tokens, down and across */
    __local uchar (*regions_m)[ROOM(COMPARES_REGIONS, BLOCK_M)];
    __local uchar (*regions_n)[ROOM(COMPARES_REGIONS, SEQ_N)];
    /* of each wave: dK and dV of the padding */
    __local float (*pad_sums)[ROOM(SUMS_PADS, 2 * DIMS)];
    __local const storage_bits *pad_k, *pad_v; /* NULL: zeros */
} grad_memory;

#define DECLARE_GRAD_MEMORY                                                   \
    __local float inverses_m[ROOM(VARIANT == COSINE, WINDOWS_PER_GROUP)]      \
                            [ROOM(VARIANT == COSINE, BLOCK_M)];               \
    __local float inverses_n[ROOM(SUMS_SCALES, WINDOWS_PER_GROUP)]            \
                            [ROOM(SUMS_SCALES, KEY_ROWS)];                    \
    __local float lane_sums[ROOM(SUMS_SCALES, TEAM * WINDOWS_PER_GROUP)];     \
    __local uchar regions_m[ROOM(COMPARES_REGIONS, WINDOWS_PER_GROUP)]        \
                           [ROOM(COMPARES_REGIONS, BLOCK_M)];                 \
    __local uchar regions_n[ROOM(COMPARES_REGIONS, WINDOWS_PER_GROUP)]        \
                           [ROOM(COMPARES_REGIONS, SEQ_N)];                   \
    __local float                                                             \
        pad_sums[ROOM(SUMS_PADS, WINDOWS_PER_GROUP * WAVES_PER_WINDOW)]       \
                [ROOM(SUMS_PADS, 2 * DIMS)];                                  \
    DECLARE_PADS(pads)
#define GRAD_MEMORY                                                           \
    {                                                                         \
        .bias_cache = BIAS_CACHE_OR_NULL, .inverses_m = inverses_m,           \
        .inverses_n = inverses_n, .lane_sums = lane_sums,                     \
        .regions_m = regions_m, .regions_n = regions_n, .pad_sums = pad_sums, \
        .pad_k = KEPT_PAD(pads, 0), .pad_v = KEPT_PAD(pads, 1)                \
    }

/* Copies that are under way. */
typedef struct grad_pipeline {
    tile_scheduler next; /* its window is the next one to be copied */
    uint steps;
    __local ushort *ring;
    int wide; /* rows are copied in chunks */
} grad_pipeline;

/* A work-group, as one of its work-items knows it. */
typedef struct grad_group {
    work_item me;
    grad_tensors tensors;
    grad_memory memory;
    grad_pipeline copies;
} grad_group;
/* What a kernel knows from its parameters and local memory. */
#define GRAD_GROUP                                                            \
    {                                                                         \
        .me = this_work_item(),                                               \
        .tensors = {q,                                                        \
                    k,                                                        \
                    v,                                                        \
                    o,                                                        \
                    d_o,                                                      \
                    lse,                                                      \
                    d_lse,                                                    \
                    LOGIT_SCALE_OR_NULL,                                      \
                    dq,                                                       \
                    dk,                                                       \
                    dv,                                                       \
                    workspace,                                                \
                    SCORE_BIAS_TENSORS},                                      \
        .memory = GRAD_MEMORY                                                 \
    }

/* The padding's channels of a head of keys come to local memory, from a
 * kernel's parameters. */
#if PADDING == 1
#define START_PADS(group, args, kv_head)                                      \
    keep_pads(pads, PAD_ROW(args, pad_k, ARG_PAD_K, kv_head),                 \
              PAD_ROW(args, pad_v, ARG_PAD_V, kv_head), &(args),              \
              (group).me.id);
#else
#define START_PADS(group, args, kv_head)
#endif

/* Sums of gradients of the padding start at 0. */
INLINE void clear_pad_sums(const grad_group *g, const wave *w)
{
    if (SUMS_PADS)
        for (int i = w->lane; i < 2 * DIMS; i += WAVE)
            g->memory.pad_sums[g->me.id / WAVE][i] = 0.0f;
}

/* A q block, whose rows and keys are at these places of the ring: what is left
 * are its numbers. Fills what the caller has, see place_tile. */
INLINE void place_block(q_block *v, int rows, int keys, const grad_group *g,
                        const backward_args *args, const tile_scheduler *at)
{
    const grad_memory *memory = &g->memory;
    __local const ushort *ring = g->copies.ring;
    const int team = g->me.team;
    v->args = args;
    v->at = at;
    v->first_key = 0;
    v->fast_store = v->has_shift_boundary = 0;
    v->scale = args->forward.scale;
    v->ds_scale = 1.0f;
    v->q = ring + rows + Q_OFFSET;
    v->d_o = ring + rows + D_O_OFFSET;
    v->k = ring + keys + K_OFFSET;
    v->v = ring + keys + V_OFFSET;
    v->q_inverses = memory->inverses_m[team];
    v->k_inverses =
        S_TRANSPOSED ? memory->inverses_m[team] : memory->inverses_n[team];
    v->bias_cache = memory->bias_cache;
    v->regions_m = memory->regions_m[team];
    v->regions_n = memory->regions_n[team];
}

/* ---- Copies ---- */

/* Rows first .. first + count of a head, of the window that `at` is at, which
 * a lane of the team helps to copy. */
typedef struct copied_rows {
    const backward_args *args;
    const tile_scheduler *at;
    uint head, first;
    int count;
    int lane;
} copied_rows;

/* Copies rows of a tensor. Of the four tensors of a stage, q, dO, k and v,
 * `number` is one; each may have a wave of its own. */
INLINE void copy_plane(const int number, __local storage_bits *to,
                       __global const storage *tensor,
                       const tensor_layout *layout, const int wide,
                       const copied_rows *c, const grad_group *g)
{
    const int own = ONE_WAVE_PER_TENSOR ? c->lane & (WAVE - 1) : c->lane;
    const plane_rows x = {.plane = tensor +
                                   plane(layout, c->at->coord.grid, c->head),
                          .layout = layout,
                          .grid = &c->args->forward.grid,
                          .coord = &c->at->coord,
                          .pad = number == 2   ? g->memory.pad_k
                                 : number == 3 ? g->memory.pad_v
                                               : 0,
                          .chunk = chunk_of(layout, own),
                          .first = c->first,
                          .count = c->count,
                          .lane = own,
                          .wide = wide};
    if (!ONE_WAVE_PER_TENSOR || c->lane / COPIERS == number)
        copy_rows(to, &x, number < 2 ? BLOCK_ROWS : BLOCK_KEYS);
}

INLINE void copy_keys(__local storage_bits *to, const int wide,
                      const copied_rows *c, const grad_group *g)
{
    const forward_args *forward = &c->args->forward;
    copy_plane(2, to + K_OFFSET, g->tensors.k, &forward->k, wide, c, g);
    copy_plane(3, to + V_OFFSET, g->tensors.v, &forward->v, wide, c, g);
}

INLINE void copy_queries(__local storage_bits *to, const int wide,
                         const copied_rows *c, const grad_group *g)
{
    copy_plane(0, to + Q_OFFSET, g->tensors.q, &c->args->forward.q, wide, c,
               g);
    copy_plane(1, to + D_O_OFFSET, g->tensors.d_o, &c->args->d_o, wide, c, g);
}

/* lse of the rows. */
INLINE void copy_lse(__local float *to, const copied_rows *c,
                     const grad_group *g)
{
    const forward_args *forward = &c->args->forward;
    __global const float *from =
        g->tensors.lse + plane(&forward->lse, c->at->coord.grid, c->head);
    UNROLL_FOR (int done = 0; done < BLOCK_M; done += TEAM) {
        const int i = done + c->lane;
        ulong at;
        if (i >= c->count)
            continue;
        if (find_row(&at, &forward->lse, &forward->grid, &c->at->coord,
                     c->first + i))
            copy_4(to + i, from + at, 1);
        else
            to[i] = -INFINITY;
    }
}
