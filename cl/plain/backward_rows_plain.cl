/* SPDX-License-Identifier: Apache-2.0
 * dq, and what backward_keys_plain.cl must know of rows: a work-item has one.
 */
#include "plain/plain_gradients.cl"

__kernel __attribute__((reqd_work_group_size(BLOCK_ROWS, 1, 1))) void
backward_rows_plain(BACKWARD_PARAMETERS)
{
    const forward_args *forward = &args.forward;
    const work_tile u = find_work_tile(forward, get_group_id(0));
    const uint row = u.row + get_local_id(0);
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const window_head head =
        find_head(forward, u, &tensors, q, k, v,
                  HEAD_SCALE(forward, logit_scale, u.head));
    float8 own[EIGHTS], own_d_o[EIGHTS], sums[EIGHTS];
    float max = -INFINITY, sum = 0.0f, delta = 0.0f;
    if (row >= forward->queries)
        return;
    __global const storage *own_q =
        head.q + offset_of(forward, &head.coord, &forward->q, row);
    load_own(own, own_q);
    clear(own_d_o);
    add(own_d_o, 1.0f,
        d_o + plane(&args.d_o, head.coord.grid, u.head) +
            offset_of(forward, &head.coord, &args.d_o, row));
    clear(sums);
    /* the first time round for max, sum and delta */
    for (int is_last = 0; is_last < 2; is_last++)
        for (uint key = 0; key < forward->keys; key++) {
            __global const storage *other =
                head.k + offset_of(forward, &head.coord, &forward->k, key);
            const float x = logit(forward, &head, own, other, row, key);
            if (x == -INFINITY)
                continue;
            const float dp =
                keep(multiply(own_d_o, head.v + offset_of(forward, &head.coord,
                                                          &forward->v, key)),
                     forward, u, row, key);
            if (is_last) {
                const float ds =
                    exponential(x, max) / sum * (dp - delta / sum);
                add(sums, ds * head.scale * inverse_length(other), other);
                continue;
            }
            const float factor = x > max ? exponential(max, x) : 1.0f;
            max = fmax(x, max);
            sum = sum * factor + exponential(x, max);
            delta = delta * factor + exponential(x, max) * dp;
        }
    __global float *numbers = row_numbers(&args, workspace, u, row);
    numbers[ROW_MAX] = max;
    numbers[ROW_DELTA] = sum == 0.0f ? 0.0f : delta / sum;
    numbers[ROW_FACTOR] = sum == 0.0f ? 0.0f : 1.0f / sum;
    numbers[ROW_ALONG] = divide_by_length(sums, own, own_q);
    if ((forward->flags & ARG_DQ) != 0)
        store(sums, 1.0f,
              dq + plane(&args.dq, head.coord.grid, u.head) +
                  offset_of(forward, &head.coord, &args.dq, row));
}
