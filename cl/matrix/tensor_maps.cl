/* SPDX-License-Identifier: Apache-2.0
 * Tensor maps, by which the copy engine of NVIDIA's Hopper fetches boxes of a
 * tensor (PTX ISA, "tensor-map"): 128 bytes each, which CUDA makes on the host
 * from a device address. OpenCL's host knows no such address, so work-items of
 * a kernel leave them in the workspace for the kernels behind it. No document
 * says what the bytes mean; this is what cuTensorMapEncodeTiled writes for
 * tensors [window][head][row][channel] and boxes of MAP_ROWS rows and
 * MAP_CHANNELS channels, in local memory swizzled in 128 bytes. The self-test
 * tells whether a device reads it so. */
#include "common/problem.cl"

REQUIRE(TENSOR_MAPS)

#define MAP_WORDS (TENSOR_MAP_BYTES / 8)
#define MAP_ROWS 64
#define MAP_CHANNELS 64
/* Which tensor a map is of. */
#define MAP_Q 0
#define MAP_K 1
#define MAP_V 2
#define MAP_D_O 3

/* Map `n` in the workspace, at a multiple of its size. */
INLINE __global ulong *tensor_map(__global float *workspace,
                                  const backward_args *args, uint n)
{
    __global uchar *room = (__global uchar *)(workspace + args->maps);
    const uint past = (uint)(size_t)room % TENSOR_MAP_BYTES;
    return (__global ulong *)(room +
                              (TENSOR_MAP_BYTES - past) % TENSOR_MAP_BYTES) +
           n * MAP_WORDS;
}

/* What a map knows of a tensor. */
typedef struct mapped_tensor {
    __global const storage *first; /* of the launch's windows */
    tensor_layout layout;
    ulong windows;
    uint heads, rows;
} mapped_tensor;

/* Strides, and where tensors start, are multiples of 16 bytes. */
#define MAP_UNIT (16 / sizeof(storage))

INLINE void write_tensor_map(__global ulong *map, const mapped_tensor *t)
{
    /* enumerations of cuTensorMapEncodeTiled, but for bf16: 9 there */
    const ulong type = DTYPE == 1 ? 6 : 10, swizzle = 3, promotion = 2;
    const ulong dimensions = 4;
    const ulong row = t->layout.row / MAP_UNIT;
    map[0] = (ulong)(size_t)t->first;
    map[1] = (dimensions - 1) << 4 | type << 7 | swizzle << 13 |
             promotion << 17 | row << 32;
    map[2] = t->layout.head / MAP_UNIT | t->layout.window / MAP_UNIT << 32;
    map[3] = 0;
    map[4] = (HEAD_DIM - 1) | (ulong)(t->rows - 1) << 32;
    map[5] = (t->heads - 1) | (t->windows - 1) << 32;
    map[6] = (ulong)(MAP_CHANNELS - 1) << 56;
    map[7] = MAP_ROWS - 1;
    map[8] = MAP_ROWS * MAP_CHANNELS * sizeof(storage);
    map[9] = 0x400;
    for (uint i = 10; i < MAP_WORDS; i++)
        map[i] = 0;
}

/* Those of a launch, by the first work-items of its first work-group; tensors
 * as kernels have them. */
INLINE void leave_tensor_maps(__global const storage *q,
                              __global const storage *k,
                              __global const storage *v,
                              __global const storage *d_o,
                              __global float *workspace,
                              const backward_args *args, uint item)
{
    const forward_args *forward = &args->forward;
    if (!TENSOR_MAPS || get_group_id(0) != 0 || item >= SLIDING_MAPS)
        return;
    const int of_keys = item == MAP_K || item == MAP_V;
    mapped_tensor t = {.layout = item == MAP_Q   ? forward->q
                                 : item == MAP_K ? forward->k
                                 : item == MAP_V ? forward->v
                                                 : args->d_o,
                       .windows = forward->windows};
    __global const storage *tensor = item == MAP_Q   ? q
                                     : item == MAP_K ? k
                                     : item == MAP_V ? v
                                                     : d_o;
    t.first = tensor + plane(&t.layout, forward->first_window, 0);
    t.heads = forward->heads / (of_keys ? forward->heads_per_kv_head : 1);
    t.rows = of_keys ? forward->keys : forward->queries;
    write_tensor_map(tensor_map(workspace, args, item), &t);
}
