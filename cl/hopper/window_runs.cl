/* SPDX-License-Identifier: Apache-2.0
 * Which windows a work-group computes, and what all of it knows. */
#ifndef WINDOW_RUNS_CL
#define WINDOW_RUNS_CL
#include "common/problem.cl"
#include "hopper/window_exact.cl"
#include "hopper/window_ring.cl"

#include "matrix/persistent.cl"

/* Rows of a head, and which windows of the launch a team has of them: one of
 * each of `rounds` rounds. */
typedef struct window_run {
    uint head_block, first, rounds;
} window_run;

/* What all of a work-group knows. */
typedef struct window_call {
    const forward_args *args;
    const window_tensors *all;
    const score_bias_tensors *score_bias;
#if VARIANT == COSINE
    __global const float *logit_scale;
#endif
    window_ring ring; /* of the work-item's team */
    uint bias_cache;  /* address */
    uint bias_ranges; /* of each wave that computes */
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

INLINE uint round_count(const forward_args *args)
{
    return CEIL_DIV((uint)args->windows, WINDOWS_PER_GROUP);
}

/* Run `number` of a work-group; false behind the last. */
INLINE int find_run(window_run *run, const forward_args *args, uint number)
{
    const uint group = (uint)get_group_id(0), rounds = round_count(args);
    const head_block_round from = first_round(args, rounds, group);
    const head_block_round to = first_round(args, rounds, group + 1);
#if PERSISTENT_MULTI_BLOCK
    const uint runs = to.head_block - from.head_block + 1;
    if (number > runs || (number == runs && runs > 1))
        return 0;
    const stretch part = stretch_of(args, rounds, group, number);
    run->head_block = part.head_block;
    run->first = part.first;
    run->rounds = part.rounds;
    return 1;
#else
    run->head_block = from.head_block;
    run->first = from.round;
    run->rounds =
        (to.head_block - from.head_block) * rounds + to.round - from.round;
    return number == 0;
#endif
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

#endif
