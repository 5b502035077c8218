/* SPDX-License-Identifier: Apache-2.0
 * Which windows a work-group computes, and what all of it knows. */
#include "common/problem.cl"
#include "hopper/exact_rows.cl"
#include "hopper/window_ring.cl"

#include "matrix/persistent.cl"

/* Rows of a head, and which windows of the launch a team has of them: one of
 * each of the rounds. */
typedef stretch window_run;

/* What all of a work-group knows. */
typedef struct window_call {
    const forward_args *args;
    const tensors *all;
    const score_bias_tensors *score_bias;
#if VARIANT == COSINE
    __global const float *logit_scale;
#endif
    window_ring ring; /* of the work-item's team */
    uint bias_cache;  /* address */
    uint team;
} window_call;

INLINE uint head_of(const window_call *call, const window_run *run)
{
    return run->head_block / call->args->row_blocks;
}
INLINE uint first_row_of(const window_call *call, const window_run *run)
{
    return run->head_block % call->args->row_blocks * BLOCK_ROWS;
}

/* Run `number` of a work-group; false behind the last. */
INLINE int find_run(window_run *run, const forward_args *args, uint number)
{
    return find_stretch(
        run, args, CEIL_DIV((uint)args->windows, WINDOWS_PER_GROUP), number);
}

/* Windows of the run that the team has: behind the last there is none. */
INLINE uint windows_of_run(const window_call *call, const window_run *run)
{
    const uint first = run->first * WINDOWS_PER_GROUP + call->team;
    const uint all = (uint)call->args->windows;
    return first < all
               ? min(run->rounds, CEIL_DIV(all - first, WINDOWS_PER_GROUP))
               : 0;
}

/* Window n of the run. */
INLINE work_tile find_window(const window_call *call, const window_run *run,
                             uint n)
{
    const work_tile tile = {.window = call->args->first_window +
                                      (run->first + n) * WINDOWS_PER_GROUP +
                                      call->team,
                            .head = head_of(call, run)};
    return tile;
}
