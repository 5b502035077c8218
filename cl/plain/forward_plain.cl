/* SPDX-License-Identifier: Apache-2.0
 * o = softmax(logits) v, lse = log(sum exp(logits)): a work-item has a row. */
#include "plain/plain_logits.cl"

__kernel __attribute__((reqd_work_group_size(BLOCK_ROWS, 1, 1))) void
forward_plain(FORWARD_PARAMETERS)
{
    const work_tile u = find_work_tile(&args, get_group_id(0));
    const uint row = u.row + get_local_id(0);
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const window_head head = find_head(&args, u, &tensors, q, k, v,
                                       HEAD_SCALE(&args, logit_scale, u.head));
    float8 own[EIGHTS], out[EIGHTS];
    float sum = 0.0f, max = -INFINITY;
    if (row >= args.queries)
        return;
    load_own(own, head.q + offset_of(&args, &head.coord, &args.q, row));
    clear(out);
    for (uint key = 0; key < args.keys; key++) {
        const float x = logit(
            &args, &head, own,
            head.k + offset_of(&args, &head.coord, &args.k, key), row, key);
        if (x == -INFINITY)
            continue;
        const float top = fmax(max, x), factor = exponential(max, top);
        const float p = exponential(x, top);
        sum = sum * factor + p;
        UNROLL_FOR (int i = 0; i < EIGHTS; i++)
            out[i] *= factor;
        max = top;
        add(out, keep(p, &args, u, row, key),
            head.v + offset_of(&args, &head.coord, &args.v, key));
    }
    store(out, sum == 0.0f ? 0.0f : 1.0f / sum,
          o + plane(&args.o, head.coord.grid, u.head) +
              offset_of(&args, &head.coord, &args.o, row));
    if ((args.flags & ARG_LSE) != 0)
        lse[plane(&args.lse, head.coord.grid, u.head) +
            offset_of(&args, &head.coord, &args.lse, row)] = max + log(sum);
}
