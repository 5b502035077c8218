/* SPDX-License-Identifier: Apache-2.0
 * What the sliding forward kernel copies to the ring (pipeline.cl): the keys
 * and values that its rows see, BLOCK_KEYS of them a stage. */
#ifndef SLIDING_PIPELINE_CL
#define SLIDING_PIPELINE_CL
#include "matrix/pipeline.cl"
#include "matrix/sliding_rows.cl"

/* Copies that are under way. */
typedef struct key_pipeline {
    key_loop loop;
    __local storage_bits *ring;
    __global const storage *k, *v; /* of the head */
    ulong k_chunk, v_chunk;        /* see chunk_of */
    window_coord coord;
    int wide;
} key_pipeline;

/* Copies rows first .. first + count of k or v. Whole stages, as most are, are
 * asked nothing about. */
INLINE void copy_stage(__local storage_bits *to, __global const storage *plane,
                       ulong chunk, const tensor_layout *layout,
                       const key_pipeline *p, const forward_args *args,
                       key_range range, int lane)
{
    const int count = (int)range.count;
#if CHUNKS
    if (p->wide && count == BLOCK_KEYS) {
        copy_found(to, plane + element(layout, range.first, 0) + chunk, 0,
                   (ulong)ROWS_AT_ONCE * layout->row, 0, 0, count, 1,
                   BLOCK_KEYS, lane);
        return;
    }
#endif
    copy_rows(to, plane, chunk, layout, &args->grid, &p->coord, 0, range.first,
              count, BLOCK_KEYS, lane, p->wide);
}

/* Starts the copies of block b of the loop over keys; none, behind the last.
 */
INLINE void start_keys(const key_pipeline *p, uint b, const forward_args *args,
                       int lane)
{
    if (b < p->loop.blocks) {
        const key_range range = loop_block(args, &p->loop, b);
        __local storage_bits *to = p->ring + b % STAGES * STAGE_SIZE;
        copy_stage(to + K_OFFSET, p->k, p->k_chunk, &args->k, p, args, range,
                   lane);
        copy_stage(to + V_OFFSET, p->v, p->v_chunk, &args->v, p, args, range,
                   lane);
    }
    END_COPIES();
}

/* Zeros in channels past the last of rows that no ring has. */
INLINE void clear_channels(__local storage_bits *rows, const int count,
                           int lane)
{
#if DIMS != HEAD_DIM
    const int pads = DIMS - HEAD_DIM;
    for (int i = lane; i < count * pads; i += TEAM)
        rows[swizzled_offset(i / pads, HEAD_DIM + i % pads, PITCH)] = 0;
#endif
}

#endif
