/* SPDX-License-Identifier: Apache-2.0
 * Sums of dBias over a work-group's windows, on their way to the workspace. */
#include "hopper/gradient_windows.cl"

/* Stores those of a wave's 16 rows, number `wave` of the work-group's. */
INLINE void store_bias_sums(const float *d_bias, const window_call *call,
                            uint wave, int lane)
{
    const backward_args *args = call->args;
    const window_job *job = call->job;
    const int adds = (args->forward.flags & ARG_FIRST_LAUNCH) == 0;
    __global float *partial =
        call->workspace + args->bias_partials +
        ((ulong)job->split * args->forward.heads + job->head) * NQ * (ulong)NK;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = job->first + wave * 16 + lane / 4 + 8 * r;
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
