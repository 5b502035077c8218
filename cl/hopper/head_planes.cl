/* SPDX-License-Identifier: Apache-2.0
 * Where the rows of a head are. They are found where they are used: addresses
 * that wait in registers through the loop over keys are too many. */
#include "common/problem.cl"

typedef struct tensors {
    __global const storage *q, *k, *v;
    __global storage *o;
    __global float *lse;
} tensors;

typedef struct row_plane {
    __global const storage *rows;
    uint pitch; /* elements from row to row */
    uint last;  /* row */
} row_plane;

typedef struct head_planes {
    row_plane q, k, v;
    __global storage *o;
    __global float *lse;
} head_planes;

INLINE head_planes find_planes(const tensors *all, const forward_args *args,
                               work_tile of)
{
    const uint kv_head = of.head / args->heads_per_kv_head;
    const head_planes head = {{all->q + plane(&args->q, of.window, of.head),
                               args->q.row, args->queries - 1},
                              {all->k + plane(&args->k, of.window, kv_head),
                               args->k.row, args->keys - 1},
                              {all->v + plane(&args->v, of.window, kv_head),
                               args->v.row, args->keys - 1},
                              all->o + plane(&args->o, of.window, of.head),
                              all->lse +
                                  plane(&args->lse, of.window, of.head)};
    return head;
}
