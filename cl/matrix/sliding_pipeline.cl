/* SPDX-License-Identifier: Apache-2.0
 * What the sliding forward kernel copies to the ring (pipeline.cl): the keys
 * and values that its rows see, BLOCK_KEYS of them a stage. */
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

/* Tokens first .. first + count of a window, in a stage. */
typedef struct stage_rows {
    const forward_args *args;
    const window_coord *coord;
    uint first;
    int count;
    int lane; /* of the copying team */
    int wide;
} stage_rows;

/* Copies them, of a plane of some tensor; zeros fill `rows`. Whole stages, as
 * most are, are asked nothing about. */
INLINE void copy_stage(__local storage_bits *to, __global const storage *plane,
                       ulong chunk, const tensor_layout *layout,
                       const int rows, const stage_rows *of)
{
    const plane_rows x = {.plane = plane,
                          .layout = layout,
                          .grid = &of->args->grid,
                          .coord = of->coord,
                          .chunk = chunk,
                          .first = of->first,
                          .count = of->count,
                          .lane = of->lane,
                          .wide = of->wide};
    if (CHUNKS && of->wide && of->count == rows)
        copy_found(to, &x, 0, 0, 1, rows);
    else
        copy_rows(to, &x, rows);
}

INLINE key_pipeline start_pipeline(__local storage_bits *ring,
                                   __global const storage *k,
                                   __global const storage *v,
                                   const forward_args *args,
                                   const work_tile *tile, uint row_end,
                                   const window_coord *coord, int lane)
{
    const uint kv_head = tile->head / args->heads_per_kv_head;
    const key_pipeline p = {.loop = loop_over_keys(args, tile->row, row_end),
                            .ring = KEEP_LOCAL(ring),
                            .k = k + plane(&args->k, coord->grid, kv_head),
                            .v = v + plane(&args->v, coord->grid, kv_head),
                            .k_chunk = chunk_of(&args->k, lane),
                            .v_chunk = chunk_of(&args->v, lane),
                            .coord = *coord,
                            .wide = (args->flags & ARG_WIDE_ACCESS) != 0};
    return p;
}

/* A step of the loop over keys: its first key, and where its stage is in the
 * ring. Each follows from the one before, as what loop_block asks for takes
 * longer than a tile leaves time for. */
typedef struct loop_step {
    uint first;
    int stage;
} loop_step;

INLINE loop_step first_step(const key_loop *loop)
{
    const loop_step s = {.first =
                             loop->sink_end > 0 ? 0 : loop->first_row.low};
    return s;
}

INLINE int is_step(const key_loop *loop, const loop_step *s)
{
    return s->first < loop->last_row.high;
}

/* The end of its keys. */
INLINE uint end_of_step(const key_loop *loop, const loop_step *s)
{
    return min(s->first + BLOCK_KEYS, s->first < loop->sink_end
                                          ? loop->sink_end
                                          : loop->last_row.high);
}

INLINE void next_step(const key_loop *loop, loop_step *s)
{
    const uint next = s->first + BLOCK_KEYS;
    const int leaves_sink =
        s->first < loop->sink_end && next >= loop->sink_end;
    s->first = leaves_sink ? loop->first_row.low : next;
    s->stage += STAGE_SIZE;
    if (s->stage == STAGES * STAGE_SIZE)
        s->stage = 0;
}

/* Starts the copies of a step, none behind the last, and goes on to the next.
 */
INLINE void start_keys(const key_pipeline *p, loop_step *s,
                       const forward_args *args, int lane)
{
    if (is_step(&p->loop, s)) {
        const int count = (int)(end_of_step(&p->loop, s) - s->first);
        const stage_rows rows = {args,  &p->coord, s->first,
                                 count, lane,      p->wide};
        __local storage_bits *to = p->ring + s->stage;
        copy_stage(to + K_OFFSET, p->k, p->k_chunk, &args->k, BLOCK_KEYS,
                   &rows);
        copy_stage(to + V_OFFSET, p->v, p->v_chunk, &args->v, BLOCK_KEYS,
                   &rows);
    }
    END_COPIES();
    next_step(&p->loop, s);
}

/* Zeros in channels past the last of rows that no ring has. */
INLINE void clear_channels(__local storage_bits *rows, const int count,
                           int lane)
{
    const int pads = DIMS - HEAD_DIM;
    for (int i = lane; pads && i < count * pads; i += TEAM)
        rows[swizzled_offset(i / pads, HEAD_DIM + i % pads, PITCH)] = 0;
}
