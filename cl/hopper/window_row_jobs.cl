/* SPDX-License-Identifier: Apache-2.0
 * What kernels of windows' gradients that own rows do besides computing: which
 * windows a work-group has, what is fetched of them, and what leaves once
 * all windows are done. */
#include "hopper/gradient_windows.cl"

/* ---- The producer ---- */

typedef struct row_tensors {
    __global const storage *q, *k, *v, *d_o;
    score_bias_tensors score_bias;
} row_tensors;

INLINE void fetch_window(const window_ring *ring, uint stage,
                         const row_tensors *from, const backward_args *args,
                         ulong window, uint head, uint first_row, uint item,
                         int wide)
{
    const forward_args *forward = &args->forward;
    const window_place place = find_place(forward, window);
    const uint count = min((uint)OWN_ROWS, NQ - first_row);
    fetch_window_rows(window_rows(ring, stage, OWN_FIRST), from->q,
                      &forward->q, &place, head, first_row, count, OWN_ROWS,
                      item, wide);
    fetch_window_rows(window_rows(ring, stage, OTHER_FIRST), from->k,
                      &forward->k, &place, head, 0, NK, NK, item, wide);
    fetch_window_rows(window_rows(ring, stage, OWN_SECOND), from->d_o,
                      &args->d_o, &place, head, first_row, count, OWN_ROWS,
                      item, wide);
    fetch_window_rows(window_rows(ring, stage, OTHER_SECOND), from->v,
                      &forward->v, &place, head, 0, NK, NK, item, wide);
    arrive_filled(window_filled(ring, stage), wide);
    END_COPIES();
}

/* ---- What a work-group has ---- */

/* Rows of a head in some windows. */
typedef struct row_job {
    uint head, split, row_block;
    uint first_row;
    window_split windows;
    float scale;        /* of the head's logits */
    int has_lse, has_o; /* is lse given, and o with it that is read? */
} row_job;

INLINE row_job find_job(const forward_args *args)
{
    const uint head_blocks = args->heads * args->row_blocks;
    const uint head_block = (uint)get_group_id(0) % head_blocks;
    row_job job = {.head = head_block / args->row_blocks,
                   .split = (uint)get_group_id(0) / head_blocks,
                   .row_block = head_block % args->row_blocks,
                   .scale = args->scale,
                   .has_lse = (args->flags & ARG_LSE) != 0,
                   .has_o = READS_O && (args->flags & ARG_LSE) != 0 &&
                            (args->flags & ARG_O) != 0};
    job.first_row = job.row_block * BLOCK_ROWS;
    job.windows = find_split(args, job.split);
    return job;
}

/* ---- What leaves at the end ---- */

/* Sums of dBias go to the workspace, of rows from `first` on; adds: to what
 * is there. */
INLINE void store_d_bias(const float *d_bias, __global float *partial,
                         uint first, int lane, int adds)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = first + lane / 4 + 8 * r;
        const uint column = 2 * (lane % 4);
        __global float *to = partial + (ulong)row * NK + column;
        if (row >= NQ)
            continue;
        UNROLL_FOR (uint j = 0; j < OTHER_ROWS / 8; j++)
            UNROLL_FOR (uint i = 0; i < 2; i++) {
                const uint key = 8 * j + i;
                if (OTHER_ROWS == NK || key + column < NK) {
                    if (adds)
                        to[key] += d_bias[SCORE(j, r, i)];
                    else
                        to[key] = d_bias[SCORE(j, r, i)];
                }
            }
    }
}

/* The work-group's sums of dBias go to the workspace. */
INLINE void store_bias_sums(const float *d_bias, const row_job *job,
                            __global float *workspace,
                            const backward_args *args, uint wave, int lane)
{
    __global float *to =
        workspace + args->bias_partials +
        ((ulong)job->split * args->forward.heads + job->head) * NQ * (ulong)NK;
    store_d_bias(d_bias, to, job->first_row + first_of_wave(wave), lane,
                 (args->forward.flags & ARG_FIRST_LAUNCH) == 0);
}
