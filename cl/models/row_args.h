/* SPDX-License-Identifier: Apache-2.0
 * The argument blocks of the kernels that models have between their linear
 * layers, shared by host and device: numbers that may change from call to call
 * without a rebuild. Where a tensor starts is counted in its elements. */
#ifndef ROW_ARGS_H
#define ROW_ARGS_H

/* Set in flags: addresses are multiples of what a work-item takes at once. */
#define ROW_ALIGNED 1u

/* norm_rows: rows [rows][ROW_SIZE], of `from` `stride` elements apart;
 * pool_rows: [rows][tokens][ROW_SIZE] to [rows][ROW_SIZE]. */
typedef struct norm_args {
    arg_u64 rows;   /* of the result */
    arg_u64 tokens; /* pool_rows: of an image */
    arg_u64 from, other, to;
    arg_u64 weight, bias;
    arg_u32 group_rows;    /* of a work-group */
    arg_u32 height, width; /* NEIGHBOURS: of the maps that rows come from */
    arg_f32 eps;
    arg_u32 flags;
    arg_u32 stride;
} norm_args;

/* merge_patches: maps [batch][height][width][ROW_SIZE / 4]. */
typedef struct merge_args {
    arg_u64 rows;
    arg_u64 from, to;
    arg_u32 height, width;
    arg_u32 flags;
    arg_u32 padding;
} merge_args;

/* embed_patches: pictures of height x width pixels; their channel c becomes
 * pixel * factor[c] + shift[c]. */
typedef struct embed_args {
    arg_u64 items; /* patches times the lines that one has of all channels */
    arg_u64 from, to;
    arg_u32 height, width;
    arg_u32 down, across; /* patches of a picture */
    arg_u32 flags;
    arg_u32 padding;
    arg_f32 factor[4], shift[4];
} embed_args;

#endif
