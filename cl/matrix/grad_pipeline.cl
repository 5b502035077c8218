/* SPDX-License-Identifier: Apache-2.0
 * What a gradient kernel's START_COPIES copies to the ring (pipeline.cl): rows
 * of q, dO, k and v, and what else is known of rows. */
#ifndef GRAD_PIPELINE_CL
#define GRAD_PIPELINE_CL
#include "matrix/grad_tiles.cl"
#include "matrix/pipeline.cl"

/* What is known of rows, `count` numbers. */
INLINE void copy_numbers(__local float *to, __global const float *from,
                         int count, int lane)
{
    for (int i = lane; i < count; i += TEAM)
        copy_4(to + i, from + i, 1);
}

/* Tensors that rows are copied of, as kernels have them in their parameters.
 */
typedef struct copied_tensors {
    __global const storage *q, *k, *v, *o, *d_o;
    __global const float *lse;
} copied_tensors;

/* Copies that are under way. */
typedef struct grad_pipeline {
    tile_scheduler next; /* its window is the next one to be copied */
    uint steps;
    __local ushort *ring;
    __local const storage_bits *pad_k, *pad_v; /* NULL: zeros */
    copied_tensors from;
    int wide; /* rows are copied in chunks */
} grad_pipeline;

/* Copies rows first .. first + count of a tensor's head to `rows` rows, of the
 * window that p->next is at. Of the four tensors of a stage, `number` is one;
 * each may have a wave of its own. */
INLINE void copy_plane(const int number, __local storage_bits *to,
                       __global const storage *tensor,
                       const tensor_layout *layout, uint head,
                       __local const storage_bits *pad, uint first, int count,
                       const int rows, const int wide, const grad_pipeline *p,
                       const forward_args *forward, int lane)
{
    const int own = ONE_WAVE_PER_TENSOR ? lane & (WAVE - 1) : lane;
    if (!ONE_WAVE_PER_TENSOR || lane / COPIERS == number)
        copy_rows(to, tensor + plane(layout, p->next.coord.grid, head),
                  chunk_of(layout, own), layout, &forward->grid,
                  &p->next.coord, pad, first, count, rows, own, wide);
}

/* Copies `count` keys of a head of keys, from `first` on. */
INLINE void copy_keys(__local storage_bits *to, uint kv_head, uint first,
                      int count, const int wide, const grad_pipeline *p,
                      const forward_args *forward, int lane)
{
    copy_plane(2, to + K_OFFSET, p->from.k, &forward->k, kv_head, p->pad_k,
               first, count, BLOCK_KEYS, wide, p, forward, lane);
    copy_plane(3, to + V_OFFSET, p->from.v, &forward->v, kv_head, p->pad_v,
               first, count, BLOCK_KEYS, wide, p, forward, lane);
}

/* Copies `count` rows of q and dO of a head, from `first` on. */
INLINE void copy_queries(__local storage_bits *to, uint head, uint first,
                         int count, const int wide, const grad_pipeline *p,
                         const backward_args *args, int lane)
{
    copy_plane(0, to + Q_OFFSET, p->from.q, &args->forward.q, head, 0, first,
               count, BLOCK_ROWS, wide, p, &args->forward, lane);
    copy_plane(1, to + D_O_OFFSET, p->from.d_o, &args->d_o, head, 0, first,
               count, BLOCK_ROWS, wide, p, &args->forward, lane);
}

/* ---- Visits ---- */

/* The keys of a head of keys that a work-group has, which the blocks of rows
 * of heads_each heads go through. */
typedef struct kv_block {
    uint kv_head, heads_each;
    uint first_key; /* of a window */
    int key_count;
    uint q_blocks; /* of a window */
} kv_block;

/* A q block that is to be copied: a block of rows of one head. */
typedef struct copied_q_block {
    uint number; /* in the window */
    uint head, kv_head;
    uint first; /* row of the window */
    int count;
    int lane; /* of the copying team */
    __local ushort *to, *keys_to;
} copied_q_block;

INLINE copied_q_block find_q_block(uint step, const grad_pipeline *p,
                                   const kv_block *block, int lane)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    copied_q_block v;
    v.number = step % block->q_blocks;
    v.first = v.number % row_blocks * BLOCK_ROWS;
    v.count = (int)min((uint)BLOCK_ROWS, (uint)NQ - v.first);
    v.to = p->ring + step % STAGES * STAGE_SIZE;
    v.keys_to = p->ring + KEY_STAGE(step / block->q_blocks % STAGES);
    /* where things lie is found anew each time: registers are worth more */
    v.lane = lane;
    v.kv_head = block->kv_head;
    HIDE_FROM_OPTIMIZER(v.lane);
    HIDE_FROM_OPTIMIZER(v.kv_head);
    v.head = v.kv_head * block->heads_each + v.number / row_blocks;
    return v;
}

/* Copies a q block's rows and, before the first of a window, its keys, unless
 * these come late. */
INLINE void copy_q_block(const copied_q_block *v, const int wide,
                         const grad_pipeline *p, const kv_block *block,
                         const backward_args *args)
{
    copy_queries(v->to, v->head, v->first, v->count, wide, p, args, v->lane);
    if (!LATE_KEYS && v->number == 0)
        copy_keys(v->keys_to, v->kv_head, block->first_key, block->key_count,
                  wide, p, &args->forward, v->lane);
}

/* lse of rows first .. first + count of a window. */
INLINE void copy_lse(__local float *to, __global const float *plane,
                     const tensor_layout *layout, const grid_layout *grid,
                     const window_coord *coord, uint first, int count,
                     int lane)
{
    UNROLL_FOR (int done = 0; done < BLOCK_M; done += TEAM) {
        const int i = done + lane;
        ulong at;
        if (i >= count)
            continue;
        if (find_row(&at, layout, grid, coord, first + i))
            copy_4(to + i, plane + at, 1);
        else
            to[i] = -INFINITY;
    }
}

#endif
