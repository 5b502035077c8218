/* SPDX-License-Identifier: Apache-2.0
 * What the forward kernel copies to the ring (pipeline.cl): of the block of
 * rows that a work-group has, the q of each window, and its keys and values,
 * a KV block of BLOCK_KEYS at a time.
 *
 * Where what a lane copies and stores lies in its plane is found anew only
 * where the next window lies otherwise (KEEPS_OFFSETS of the unit, on grids).
 */
#include "matrix/matrix_bias.cl"
#include "matrix/pipeline.cl"
#include "matrix/tile_scheduler.cl"

#define FOLLOWS_GRID (GRID && CHUNKS && KEEPS_OFFSETS)
#define KEEPS_COPIES (FOLLOWS_GRID && KEY_BLOCKS == 1)
#define KEEPS_STORES                                                          \
    (FOLLOWS_GRID && WAVE_TURNS == 1 && DIM_TILES <= OUT_TILES)

/* A block of rows of a head, and the planes of its tensors (see plane_of). */
typedef struct row_block {
    uint head, kv_head;
    uint first_row; /* of a window */
    int row_count;
    float scale;
    int wide; /* rows are read and stored in whole chunks */
    __global const storage *q, *k, *v;
    __global storage *o;
    __global float *lse;
} row_block;

/* The block of rows of a head block (persistent.cl), but for its planes. */
INLINE row_block find_block(uint head_block, const forward_args *args)
{
    row_block b;
    b.head = head_block / args->row_blocks;
    b.first_row = BLOCK_ROWS >= NQ
                      ? 0
                      : head_block % args->row_blocks * args->block_rows;
    b.row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - b.first_row);
    b.kv_head = b.head / args->heads_per_kv_head;
    b.wide = (args->flags & ARG_WIDE_ACCESS) != 0;
    b.scale = args->scale;
    return b;
}

INLINE void find_planes(row_block *b, __global const storage *q,
                        __global const storage *k, __global const storage *v,
                        __global storage *o, __global float *lse,
                        const forward_args *args)
{
    const ulong first = GRID ? 0 : args->first_window;
    b->q = q + plane(&args->q, first, b->head);
    b->k = k + plane(&args->k, first, b->kv_head);
    b->v = v + plane(&args->v, first, b->kv_head);
    b->o = o + plane(&args->o, first, b->head);
    b->lse = lse + plane(&args->lse, first, b->head);
}

/* See find_offsets. */
typedef struct copy_offsets {
    plane_offset q[COPY_TURNS(BLOCK_ROWS)];
    plane_offset k[COPY_TURNS(BLOCK_KEYS)], v[COPY_TURNS(BLOCK_KEYS)];
} copy_offsets;

/* Copies that are under way. */
typedef struct forward_pipeline {
    tile_scheduler next; /* its window is the next one to be copied */
    uint steps;
    __local storage_bits *ring;
    __local const storage_bits *pad_k, *pad_v; /* NULL: zeros */
    ulong q_chunk, k_chunk, v_chunk;           /* see chunk_of */
    copy_offsets *offsets;                     /* with KEEPS_COPIES */
    int has_padding;
} forward_pipeline;

INLINE forward_pipeline start_pipeline(tile_scheduler first,
                                       __local storage_bits *ring,
                                       const forward_args *args, int lane)
{
    forward_pipeline p;
    p.next = first;
    p.steps = first.rounds * KEY_BLOCKS;
    p.ring = ring;
    p.q_chunk = chunk_of(&args->q, lane);
    p.k_chunk = chunk_of(&args->k, lane);
    p.v_chunk = chunk_of(&args->v, lane);
    return p;
}

/* How a tensor's rows are copied: an element at a time, in chunks, or in
 * chunks of which some are of the padding. */
#define COPY_NARROW 0
#define COPY_WIDE 1
#define COPY_PADDED 2

INLINE void find_offsets(forward_pipeline *p, const row_block *block,
                         const forward_args *args, int lane)
{
    if (!KEEPS_COPIES)
        return;
    const grid_layout *grid = &args->grid;
    const window_coord *coord = &p->next.coord;
    find_copies(p->offsets->q, &args->q, grid, coord, block->first_row,
                BLOCK_ROWS, lane);
    find_copies(p->offsets->k, &args->k, grid, coord, 0, BLOCK_KEYS, lane);
    find_copies(p->offsets->v, &args->v, grid, coord, 0, BLOCK_KEYS, lane);
    p->has_padding = holds_padding(grid, coord);
}

/* A tensor's planes, the lane's chunk (chunk_of) and what find_offsets has
 * found; and which rows of the window that p->next is at are copied, `rows`
 * with those that are zeros. */
typedef struct tensor_rows {
    __global const storage *planes;
    const tensor_layout *layout;
    ulong chunk;
    const plane_offset *offsets;
    __local const storage_bits *pad;
    uint first;
    int count;
} tensor_rows;

INLINE void copy_tensor(__local storage_bits *to, const tensor_rows *t,
                        const int rows, const int how,
                        const forward_pipeline *p, const forward_args *args,
                        int lane)
{
    const plane_rows x = {.plane = t->planes +
                                   plane_of(&p->next) * t->layout->window,
                          .layout = t->layout,
                          .grid = &args->grid,
                          .coord = &p->next.coord,
                          .pad = t->pad,
                          .chunk = t->chunk,
                          .first = t->first,
                          .count = t->count,
                          .lane = lane,
                          .wide = how != COPY_NARROW};
    if (KEEPS_COPIES && how != COPY_NARROW)
        copy_found(to, &x, t->offsets, how == COPY_PADDED, 0, rows);
    else
        copy_rows(to, &x, rows);
}

/* A step: a KV block's keys, and where q and they go to. */
typedef struct copied_step {
    int first, count;
    __local storage_bits *q, *stage;
} copied_step;

/* Copies the keys of a step, and before a window's first its q. */
INLINE void copy_kv_block(const copied_step *to, const int how,
                          const forward_pipeline *p, const row_block *block,
                          const forward_args *args, int lane)
{
    const tensor_rows q = {block->q,        &args->q, p->q_chunk,
                           p->offsets->q,   0,        block->first_row,
                           block->row_count};
    const tensor_rows k = {block->k, &args->k,  p->k_chunk, p->offsets->k,
                           p->pad_k, to->first, to->count};
    const tensor_rows v = {block->v, &args->v,  p->v_chunk, p->offsets->v,
                           p->pad_v, to->first, to->count};
    if (to->first == 0)
        copy_tensor(to->q, &q, BLOCK_ROWS, how, p, args, lane);
    copy_tensor(to->stage + K_OFFSET, &k, BLOCK_KEYS, how, p, args, lane);
    copy_tensor(to->stage + V_OFFSET, &v, BLOCK_KEYS, how, p, args, lane);
}

/* Starts the copies of a KV block; after a window's last, goes to the next. */
INLINE void start_kv_block(forward_pipeline *p, uint step,
                           const row_block *block, const forward_args *args,
                           int team, int lane)
{
    if (step < p->steps) {
        const int first = (int)(step % KEY_BLOCKS) * BLOCK_KEYS;
        const copied_step to = {.first = first,
                                .count = min(BLOCK_KEYS, (int)NK - first),
                                .q = p->ring +
                                     step / KEY_BLOCKS % STAGES * STAGE_SIZE,
                                .stage = p->ring + step % STAGES * STAGE_SIZE};
        if (p->next.exists) {
            if (!block->wide)
                copy_kv_block(&to, COPY_NARROW, p, block, args, lane);
            else if (KEEPS_COPIES && p->has_padding)
                copy_kv_block(&to, COPY_PADDED, p, block, args, lane);
            else
                copy_kv_block(&to, COPY_WIDE, p, block, args, lane);
        }
        if ((KEY_BLOCKS == 1 || first + BLOCK_KEYS >= NK) &&
            step + 1 < p->steps && !next_window(&p->next, args, team))
            find_offsets(p, block, args, lane);
    }
    END_COPIES();
}

/* ---- The bias of the block's rows ---- */

/* It stays in local memory, as the caller has it, for all windows. */
#define KEEPS_HEAD_BIAS (HAS_LOCAL_BIAS_CACHE && !MASK_IN_LOCAL)
typedef struct head_bias {
    int is_new;                      /* not the head block's before */
    __local const cached_bias *rows; /* NULL: where the caller has them */
} head_bias;

/* Made where it is used: NVIDIA's compiler keeps a struct within another in
 * memory. */
INLINE score_bias_view score_bias_of_head(const score_bias_tensors *tensors,
                                          const row_block *block,
                                          const forward_args *args)
{
    const work_tile of_head = {.window = args->first_window,
                               .head = block->head};
    return score_bias_of(tensors, args, of_head);
}

/* It may go ahead of the first windows: loads behind these wait for those of
 * all compute units. Its rows come as they lie to the ring's last stage, which
 * the first windows leave free, where that has room for them and no zeros to
 * keep (clear_pads). */
#define COPIES_BIAS_ROWS                                                      \
    (KEEPS_HEAD_BIAS && BIAS == 1 && TABLE == 0 && ASYNC_COPIES &&            \
     STAGES > 1 && ADJACENT_KEYS && NK % CHUNK == 0 &&                        \
     BLOCK_ROWS * NK <= STAGE_SIZE && KEY_ROWS == BLOCK_N &&                  \
     DIMS == HEAD_DIM)

/* Starts the copies; ring: the first team's. NULL: they cannot be copied. */
INLINE __local const cached_bias *
copy_bias_rows(__local storage_bits *ring, const score_bias_view *score_bias,
               const row_block *block, const forward_args *args, int item)
{
    __local storage_bits *to = ring + (STAGES - 1) * STAGE_SIZE;
    const int chunks = NK < CHUNK ? 1 : NK / CHUNK; /* of a row */
    if (!has_bias_rows(args, score_bias))
        return 0;
    NO_UNROLL_FOR (int i = item; i < block->row_count * chunks;
                   i += TEAM * WINDOWS_PER_GROUP)
        copy_16(to + i * CHUNK,
                score_bias->bias + bias_at(args, score_bias,
                                           (int)block->first_row + i / chunks,
                                           i % chunks * CHUNK),
                1, 1);
    END_COPIES();
    return (__local const cached_bias *)to;
}

INLINE head_bias start_head_bias(int is_new, const score_bias_tensors *tensors,
                                 __local storage_bits *ring,
                                 const row_block *block,
                                 const forward_args *args, int item)
{
    head_bias b = {.is_new = KEEPS_HEAD_BIAS && is_new};
    if (COPIES_BIAS_ROWS && is_new) {
        const score_bias_view score_bias =
            score_bias_of_head(tensors, block, args);
        b.rows = copy_bias_rows(ring, &score_bias, block, args, item);
    }
    return b;
}

/* Behind the copies of AHEAD steps. */
INLINE void finish_head_bias(__local cached_bias *bias_cache,
                             const head_bias *b,
                             const score_bias_tensors *tensors,
                             const row_block *block, const forward_args *args,
                             int item)
{
    if (COPIES_BIAS_ROWS) {
        AWAIT_COPIES(AHEAD);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (b->is_new) {
        const score_bias_view score_bias =
            score_bias_of_head(tensors, block, args);
        cache_score_bias(bias_cache, args, &score_bias,
                         COPIES_BIAS_ROWS ? b->rows : 0, block->first_row,
                         item);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
