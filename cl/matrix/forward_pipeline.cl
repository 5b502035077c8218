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

#if KEEPS_COPIES
typedef struct copy_offsets {
    plane_offset q[COPY_TURNS(BLOCK_ROWS)];
    plane_offset k[COPY_TURNS(BLOCK_KEYS)], v[COPY_TURNS(BLOCK_KEYS)];
} copy_offsets;
#endif

/* Copies that are under way. */
typedef struct forward_pipeline {
    tile_scheduler next; /* its window is the next one to be copied */
    uint steps;
    __local storage_bits *ring;
    __local const storage_bits *pad_k, *pad_v; /* NULL: zeros */
    ulong q_chunk, k_chunk, v_chunk;           /* see chunk_of */
#if KEEPS_COPIES
    copy_offsets *offsets;
    int has_padding;
#endif
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
#if KEEPS_COPIES
    const grid_layout *grid = &args->grid;
    const window_coord *coord = &p->next.coord;
    find_copies(p->offsets->q, &args->q, grid, coord, block->first_row,
                BLOCK_ROWS, lane);
    find_copies(p->offsets->k, &args->k, grid, coord, 0, BLOCK_KEYS, lane);
    find_copies(p->offsets->v, &args->v, grid, coord, 0, BLOCK_KEYS, lane);
    p->has_padding = holds_padding(grid, coord);
#endif
}

/* Copies rows first .. first + count of a tensor, of the window that p->next
 * is at; `offsets` are what find_offsets has found. */
INLINE void copy_tensor(__local storage_bits *to,
                        __global const storage *planes, ulong chunk,
                        const tensor_layout *layout,
                        const plane_offset *offsets, const int how,
                        __local const storage_bits *pad, uint first, int count,
                        const int rows, const forward_pipeline *p,
                        const forward_args *args, int lane)
{
    __global const storage *from =
        planes + plane_of(&p->next) * layout->window;
#if KEEPS_COPIES
    if (how != COPY_NARROW) {
        copy_found(to, from, offsets, 0, how == COPY_PADDED, pad, count, 0,
                   rows, lane);
        return;
    }
#endif
    copy_rows(to, from, chunk, layout, &args->grid, &p->next.coord, pad, first,
              count, rows, lane, how != COPY_NARROW);
}

/* Copies `count` keys from `first` on, and before a window's first its q. */
INLINE void copy_kv_block(__local storage_bits *q_to, __local storage_bits *to,
                          int first, int count, const int how,
                          const forward_pipeline *p, const row_block *block,
                          const forward_args *args, int lane)
{
#if KEEPS_COPIES
    const copy_offsets *at = p->offsets;
    const plane_offset *q_at = at->q, *k_at = at->k, *v_at = at->v;
#else
    const plane_offset *q_at = 0, *k_at = 0, *v_at = 0;
#endif
    if (first == 0)
        copy_tensor(q_to, block->q, p->q_chunk, &args->q, q_at, how, 0,
                    block->first_row, block->row_count, BLOCK_ROWS, p, args,
                    lane);
    copy_tensor(to + K_OFFSET, block->k, p->k_chunk, &args->k, k_at, how,
                p->pad_k, first, count, BLOCK_KEYS, p, args, lane);
    copy_tensor(to + V_OFFSET, block->v, p->v_chunk, &args->v, v_at, how,
                p->pad_v, first, count, BLOCK_KEYS, p, args, lane);
}

/* Starts the copies of a KV block; after a window's last, goes to the next. */
INLINE void start_kv_block(forward_pipeline *p, uint step,
                           const row_block *block, const forward_args *args,
                           int team, int lane)
{
    if (step < p->steps) {
        const int first = (int)(step % KEY_BLOCKS) * BLOCK_KEYS;
        const int count = min(BLOCK_KEYS, (int)NK - first);
        __local storage_bits *to = p->ring + step % STAGES * STAGE_SIZE;
        __local storage_bits *q_to =
            p->ring + step / KEY_BLOCKS % STAGES * STAGE_SIZE;
#if KEEPS_COPIES
        const int has_padding = p->has_padding;
#else
        const int has_padding = 0;
#endif
        if (p->next.exists) {
            if (!block->wide)
                copy_kv_block(q_to, to, first, count, COPY_NARROW, p, block,
                              args, lane);
            else if (has_padding)
                copy_kv_block(q_to, to, first, count, COPY_PADDED, p, block,
                              args, lane);
            else
                copy_kv_block(q_to, to, first, count, COPY_WIDE, p, block,
                              args, lane);
        }
        if ((KEY_BLOCKS == 1 || first + BLOCK_KEYS >= NK) &&
            !next_window(&p->next, args, team))
            find_offsets(p, block, args, lane);
    }
    END_COPIES();
}

/* ---- The bias of the block's rows ---- */

/* It may go ahead of the first windows: loads behind these wait for those of
 * all compute units. Its rows come as they lie to the ring's last stage, which
 * the first windows leave free, where that has room for them and no zeros to
 * keep (clear_pads). */
#if HAS_LOCAL_BIAS_CACHE && !MASK_IN_LOCAL && BIAS == 1 && TABLE == 0
#define COPIES_BIAS_ROWS                                                      \
    (ASYNC_COPIES && STAGES > 1 && ADJACENT_KEYS && NK % CHUNK == 0 &&        \
     BLOCK_ROWS * NK <= STAGE_SIZE && KEY_ROWS == BLOCK_N &&                  \
     DIMS == HEAD_DIM)
#else
#define COPIES_BIAS_ROWS 0
#endif

#if COPIES_BIAS_ROWS
/* Starts the copies; ring: the first team's. NULL: they cannot be copied. */
INLINE __local const cached_bias *
copy_bias_rows(__local storage_bits *ring, const score_bias_view *score_bias,
               const row_block *block, const forward_args *args, int item)
{
    __local storage_bits *to = ring + (STAGES - 1) * STAGE_SIZE;
    const int chunks = NK / CHUNK; /* of a row */
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
    return to;
}
#endif
