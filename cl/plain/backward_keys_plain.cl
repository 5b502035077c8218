/* SPDX-License-Identifier: Apache-2.0
 * dk, dv, and sums of dS over windows: a work-item has a key. */
#include "plain/plain_gradients.cl"

/* A split's partial sums: [head][query][key], and [head]. */
typedef struct partial_sums {
    __global float *bias, *scale;
    int start; /* the window is the first */
} partial_sums;

/* A work-item's key, and what rows add to its gradients. */
typedef struct key_sums {
    uint key;
    __global const storage *stored_k;
    float8 k[EIGHTS], v[EIGHTS], dk[EIGHTS], dv[EIGHTS];
} key_sums;

INLINE void add_rows(const backward_args *args, const window_head *head,
                     work_tile u, __global const storage *d_o,
                     __global float *workspace, const partial_sums *partials,
                     key_sums *own)
{
    const forward_args *forward = &args->forward;
    d_o += plane(&args->d_o, head->coord.grid, u.head);
    for (uint row = 0; row < forward->queries; row++) {
        __global const float *numbers = row_numbers(args, workspace, u, row);
        __global const storage *other =
            head->q + offset_of(forward, &head->coord, &forward->q, row);
        __global const storage *of_o =
            d_o + offset_of(forward, &head->coord, &args->d_o, row);
        const float x = logit(forward, head, own->k, other, row, own->key);
        const float p = exponential(x, numbers[ROW_MAX]) * numbers[ROW_FACTOR];
        float ds = 0.0f;
        if (p != 0.0f) {
            const float dp =
                keep(multiply(own->v, of_o), forward, u, row, own->key);
            ds = p * (dp - numbers[ROW_DELTA]);
            add(own->dv, keep(p, forward, u, row, own->key), of_o);
            add(own->dk, ds * head->scale * inverse_length(other), other);
        }
        if ((forward->flags & ARG_DBIAS) != 0) {
            __global float *sum =
                partials->bias +
                ((ulong)u.head * forward->queries + row) * forward->keys +
                own->key;
            *sum = partials->start ? ds : *sum + ds;
        }
    }
}

INLINE float sum_along(const backward_args *args, __global float *workspace,
                       work_tile u)
{
    float sum = 0.0f;
    for (uint row = 0; row < args->forward.queries; row++)
        sum += row_numbers(args, workspace, u, row)[ROW_ALONG];
    return sum;
}

__kernel __attribute__((reqd_work_group_size(BLOCK_KEYS, 1, 1))) void
backward_keys_plain(BACKWARD_PARAMETERS)
{
    const forward_args *forward = &args.forward;
    const uint group = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / group;
    const uint blocks = get_group_id(0) / args.key_blocks;
    const uint kv_head = blocks % kv_heads, split = blocks / kv_heads;
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    partial_sums partials = {
        workspace + args.bias_partials +
            (ulong)split * forward->heads * forward->queries * forward->keys,
        workspace + args.scale_partials + (ulong)split * forward->heads, 0};
    key_sums own = {get_group_id(0) % args.key_blocks * BLOCK_KEYS +
                    get_local_id(0)};
    if (own.key >= forward->keys)
        return;
    for (ulong w = split; w < forward->windows; w += forward->splits) {
        work_tile u = {.window = forward->first_window + w,
                       .head = kv_head * group};
        const window_coord coord = locate_window(&forward->grid, u.window);
        partials.start =
            w == split && (forward->flags & ARG_FIRST_LAUNCH) != 0;
        own.stored_k = k + plane(&forward->k, coord.grid, kv_head) +
                       offset_of(forward, &coord, &forward->k, own.key);
        load_own(own.k, own.stored_k);
        clear(own.v);
        add(own.v, 1.0f,
            v + plane(&forward->v, coord.grid, kv_head) +
                offset_of(forward, &coord, &forward->v, own.key));
        clear(own.dk);
        clear(own.dv);
        for (; u.head < (kv_head + 1) * group; u.head++) {
            const window_head head =
                find_head(forward, u, &tensors, q, k, v,
                          HEAD_SCALE(forward, logit_scale, u.head));
            add_rows(&args, &head, u, d_o, workspace, &partials, &own);
            if (VARIANT == COSINE && own.key == 0 &&
                (forward->flags & ARG_D_LOGIT_SCALE) != 0) {
                const float sum =
                    scale_gradient(forward, LOGIT_SCALE, u.head,
                                   sum_along(&args, workspace, u));
                __global float *to = partials.scale + u.head;
                *to = partials.start ? sum : *to + sum;
            }
        }
        (void)divide_by_length(own.dk, own.k, own.stored_k);
        if ((forward->flags & ARG_DK) != 0)
            store(own.dk, 1.0f,
                  dk + plane(&args.dk, coord.grid, kv_head) +
                      offset_of(forward, &coord, &args.dk, own.key));
        if ((forward->flags & ARG_DV) != 0)
            store(own.dv, 1.0f,
                  dv + plane(&args.dv, coord.grid, kv_head) +
                      offset_of(forward, &coord, &args.dv, own.key));
    }
}
