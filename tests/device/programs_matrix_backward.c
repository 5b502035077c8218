/* SPDX-License-Identifier: Apache-2.0
 * Programs of gradients of tier matrix, in shapes that the planner may choose
 * for some device, whatever it chooses for this one. Rows, keys and subtiles
 * of shapes count tiles, 0 (of keys ALL) is all of them, and a team has as
 * many more waves as its rows need. Shapes of two kernels have eight numbers
 * more: keys, and for the kernel of keys rows, keys, waves of a team, teams,
 * stages, tiles of a subtile, bias cache. */
#include "programs.h"

#define ALL "999"

static const char *const whole[] = {
    /* one tile, filled and not */
    "queries=16 dim=16",
    "queries=3 keys=5 dim=7 bias=fp32",
    /* teams add up their sums of dbias; some have no window at last */
    "queries=9 keys=20 dim=8 windows=5 bias=same shape=0:1:2:2:0:1:1",
    "queries=40 keys=20 dim=16 windows=7 bias=fp32 shape=0:1:3:1:0:0:1",
    /* sums of dbias in the workspace */
    "queries=20 keys=18 dim=24 bias=fp32 mask=same mask_windows=2 "
    "shape=0:1:1:1:0:1:0",
    /* more waves than tiles of rows, and than tiles of keys */
    "queries=16 keys=60 dim=16 bias=fp32 shape=0:3:1:1:0:1:1",
    "queries=14 keys=10 dim=40 bias=same mask=fp32 mask_windows=2 "
    "shape=0:3:1:2:0:0:1",
    /* regions compared */
    "queries=33 keys=30 dim=16 mask=regions mask_windows=2 "
    "shape=0:1:2:1:0:3:0",
    "queries=40 keys=52 dim=32 bias=same mask=regions mask_windows=3 "
    "shape=0:1:1:2:0:3:1",
    /* the forward pass's o and lse */
    "given=1 queries=20 dim=16 bias=same shape=0:1:2:1:0:0:1",
    "given=1 queries=30 keys=20 dim=8 mask=same mask_windows=2 "
    "shape=0:1:2:2:0:1:0",
    /* ---- Keys in passes ---- */
    "queries=20 keys=50 dim=16 bias=same mask=regions mask_windows=1 "
    "shape=0:1:1:2:1:0:0",
    "given=1 queries=20 keys=70 dim=24 bias=fp32 mask=same mask_windows=2 "
    "shape=0:1:1:1:2:1:0",
    "queries=18 keys=65 dim=32 mask=regions mask_windows=2 "
    "shape=0:1:2:2:1:3:0",
    /* ... and delta from o */
    "given=1 queries=40 keys=50 dim=32 bias=same mask=regions mask_windows=2 "
    "shape=0:1:2:2:1:1:1",
    "given=1 queries=40 keys=33 dim=20 heads=2 bias=fp32 shape=0:1:1:2:1:0:0",
    "given=1 variant=cosine logit_scale=2 queries=20 keys=50 dim=40 bias=same "
    "shape=0:1:1:1:1:1:1",
    "given=1 queries=70 keys=60 dim=16 shape=0:1:1:2:1:0:0",
    "given=1 variant=cosine queries=20 keys=33 dim=32 shape=0:1:1:1:1:0:0",
    "given=1 queries=20 keys=40 dim=48 shape=0:1:2:1:1:0:0",
    /* tiles of one row, some of which have a delta near 0 */
    "given=1 queries=17 dim=16 shape=0:1:1:1:1:0:0 | windows=90 heads=2",
    /* tiles of rows have different powers of two */
    "queries=70 keys=33 dim=16 shape=0:1:1:1:0:0:0",
    /* ---- Cosine ---- */
    "variant=cosine logit_scale=1 queries=20 keys=35 dim=20 bias=fp32 "
    "shape=0:1:2:1:0:1:1",
    "variant=cosine logit_scale=3 queries=40 keys=35 dim=40 heads=2 "
    "bias=same shape=0:1:1:2:1:0:0",
    "variant=cosine logit_scale=5 given=1 queries=20 keys=30 dim=16 "
    "shape=0:1:2:2:1:0:0",
    "variant=cosine queries=20 dim=32",
    "variant=cosine logit_scale=2 queries=20 dim=8 bias=same",
    /* ---- What users have ---- */
    "queries=49 dim=32 bias=same mask=regions mask_windows=2",
    "queries=49 dim=32 bias=same mask=same mask_windows=2",
    "variant=cosine logit_scale=2 queries=64 dim=32 bias=same",
    "queries=30 dim=80 bias=same",
    "queries=20 dim=256 bias=same",
    "queries=49 dim=32 mask=same mask_windows=1",
    /* ---- Gradients of few terms, whose roundings do not even out ---- */
    "queries=4 dim=4 bias=same | windows=700",
    /* ---- Teams alone; with two stages k and v of the next are on their way
       early ---- */
    "given=1 queries=18 keys=33 dim=12 bias=same shape=0:1:1:2:1:0:1",
    /* There may be more rows with an lse to copy than keys, or fewer. */
    "given=1 queries=40 keys=20 dim=16 shape=0:1:1:2:0:0:0",
    "given=1 queries=20 keys=40 dim=16 shape=0:1:1:2:0:0:0",
    "queries=18 keys=20 dim=16 bias=same shape=0:1:1:1:0:1:1",
    /* a wave makes one gradient; tiles of keys are even in number, or odd */
    "queries=20 keys=56 dim=16 shape=0:2:2:2:0:0:0",
    "queries=20 keys=33 dim=16 shape=0:2:2:2:0:0:0",
    /* so many windows that they come sorted by their regions */
    "queries=18 dim=16 mask=regions mask_windows=3 shape=0:1:2:2:0:3:0",
    /* ---- What gradients cancel: delta from the o of a forward pass is a
       little off, and mended; where it is small, or lse large, that shows ----
     */
    "given=1 queries=40 keys=50 dim=32 bias=fp32 shape=0:1:1:2:1:0:0 more=2 "
    "| given=2 data=common accumulate=31",
    "given=1 queries=40 keys=50 dim=32 shape=0:1:1:1:2:0:0 more=2 "
    "| given=2 data=steep",
    "given=1 queries=40 keys=35 dim=20 more=2 | given=2 data=steep",
    "given=1 queries=40 keys=50 dim=20 bias=same shape=0:1:1:1:2:0:1 more=2 "
    "| given=2 data=dominant",
    "given=1 variant=cosine logit_scale=2.3 queries=33 keys=50 dim=40 "
    "bias=same shape=0:1:1:1:1:1:1 more=2 | given=2 data=dominant",
};

/* Rows and keys in kernels of their own. */
static const char *const split[] = {
    "queries=20 keys=18 dim=16 shape=0:1:1:1:0:0:0:" ALL ":0:0:1:1:1:0:0",
    "queries=20 keys=35 dim=16 bias=same mask=regions mask_windows=2 "
    "shape=0:1:2:2:0:3:1:" ALL ":0:0:1:2:2:1:3",
    "given=1 queries=40 keys=35 dim=20 bias=same "
    "shape=1:1:1:2:1:1:2:1:1:1:1:1:2:1:1",
    "given=1 variant=cosine logit_scale=2 queries=33 keys=40 dim=24 bias=fp32 "
    "mask=regions mask_windows=2 shape=0:1:1:1:1:3:2:" ALL ":1:2:1:2:1:1:3",
    "variant=cosine logit_scale=3 queries=40 keys=70 dim=16 bias=same "
    "shape=2:1:1:2:1:1:0:2:2:1:1:1:2:2:1",
    "queries=70 keys=33 dim=40 heads=4 kv_heads=2 bias=fp32 mask=fp32 "
    "mask_windows=2 shape=1:1:1:1:2:1:2:1:1:0:1:1:2:1:0",
    "given=1 queries=50 keys=20 dim=32 heads=3 kv_heads=1 mask=regions "
    "mask_windows=2 shape=0:1:2:2:1:3:0:" ALL ":0:1:1:1:1:0:3",
    "given=1 queries=20 keys=70 dim=24 mask=same mask_windows=2 "
    "shape=0:1:2:2:1:1:0:1:0:2:1:1:2:1:1",
    "queries=49 dim=32 mask=same mask_windows=1 bias=same "
    "shape=2:1:1:1:2:0:0:" ALL ":2:2:1:1:1:1:0",
    "variant=cosine queries=20 dim=32 shape=0:1:1:1:1:0:0:1:0:1:1:1:1:1:0",
    "given=1 variant=cosine queries=20 dim=32 "
    "shape=0:1:1:1:1:0:0:1:0:1:1:1:1:1:0",
    "queries=20 dim=32 bias=same shape=0:1:1:1:1:0:0:1:1:1:1:1:1:1:0",
    "given=1 queries=20 dim=32 shape=0:1:1:1:1:0:0:" ALL ":1:1:1:1:1:1:0",
    "given=1 queries=20 dim=80 bias=same shape=0:1:1:1:1:1:2:1:1:0:1:1:1:1:1",
    /* each q block's bound of dS is larger than the last one's */
    "given=1 queries=70 keys=60 dim=16 shape=1:1:1:1:1:0:0:1:1:1:1:1:1:1:0",
    "variant=cosine queries=70 keys=60 dim=16 "
    "shape=1:1:1:1:1:0:0:1:1:1:1:1:1:1:0",
    "given=1 queries=40 dim=16 bias=same shape=1:1:1:1:1:0:0:" ALL
    ":1:1:1:1:1:1:0 | outputs=9",
    "given=1 queries=20 dim=16 bias=same shape=0:1:1:1:1:1:1:" ALL
    ":1:1:1:1:1:1:1",
    /* waves that share rows */
    "given=1 queries=20 keys=64 dim=24 bias=same mask=regions mask_windows=2 "
    "shape=1:2:1:2:1:3:2:" ALL ":1:2:1:1:1:1:0",
    "variant=cosine logit_scale=2 queries=30 keys=128 dim=16 bias=fp32 "
    "shape=1:2:2:1:1:1:1:" ALL ":2:2:1:1:1:1:0",
    "given=1 variant=cosine logit_scale=2 queries=16 keys=128 dim=40 "
    "bias=same shape=1:2:1:2:1:0:0:2:1:2:1:1:1:1:0",
    /* so many windows that they come sorted by their regions */
    "queries=20 keys=35 dim=16 windows=9 bias=same mask=regions "
    "mask_windows=2 shape=0:1:2:2:0:3:1:" ALL ":0:0:1:2:2:1:3",
    "given=1 queries=4 dim=4 bias=same shape=0:1:3:1:1:1:1:" ALL
    ":0:0:1:3:2:1:1 | windows=700",
    "queries=60 dim=256 bias=same shape=0:1:1:1:1:0:0:" ALL ":1:0:1:1:1:1:0",
    /* delta from o: keys all at once in a kernel of rows, block by block */
    "given=1 queries=40 keys=35 dim=20 bias=same shape=0:1:2:2:1:1:1:" ALL
    ":1:2:1:2:1:1:1 more=2 | given=2 data=common d_lse=1",
    "given=1 queries=40 keys=40 dim=20 bias=same "
    "shape=1:1:1:2:1:1:2:1:1:1:1:1:2:1:1 more=2 "
    "| given=2 data=common d_lse=1 windows=3",
    "given=1 queries=40 keys=50 dim=32 bias=fp32 "
    "shape=1:1:1:1:1:0:0:1:1:1:1:1:1:1:0 more=2 "
    "| given=2 data=dominant accumulate=31 windows=3",
    "given=1 variant=cosine logit_scale=2.3 queries=33 keys=50 dim=24 "
    "bias=same shape=1:1:1:2:1:1:2:1:1:1:1:1:2:1:1 more=2 "
    "| given=2 data=common",
    "given=1 queries=40 keys=50 dim=32 shape=1:1:1:2:1:0:0:1:1:1:1:1:1:1:0 "
    "more=2 | given=2 data=steep",
    /* ... waves that share rows, likewise */
    "given=1 variant=cosine logit_scale=2 queries=20 keys=128 dim=40 "
    "bias=same shape=1:2:1:2:1:0:0:2:1:2:1:1:1:1:0 more=3 "
    "| given=2 data=common windows=3",
};

/* Padding, regions and tables of each kind. */
static const char *const grids[] = {
    "grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same pads=3 "
    "dim=16 shape=0:1:2:2:0:3:1",
    "grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_fp32 "
    "padding=hidden dim=16 shape=0:1:2:1:0:0:1",
    "grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_same pads=1 "
    "dim=16 shape=0:1:2:2:0:1:1",
    "grid=3 size=3x6x7 window=2x3x4 shift=1x1x2 mask=shift bias=table_same "
    "pads=2 variant=cosine logit_scale=2 heads=2 dim=12 shape=0:1:1:2:1:0:0",
    "grid=1 size=50 window=20 shift=7 mask=shift dim=10 padding=hidden "
    "shape=0:1:2:1:0:3:0",
    "grid=2 size=7x9 window=4x4 mask=same mask_windows=3 bias=fp32 dim=16 "
    "shape=0:1:1:1:0:1:1",
    "grid=2 size=5x7 window=3x4 shift=1x2 mask=shift pads=3 heads=2 dim=8 "
    "shape=0:1:2:1:0:0:0",
    "given=1 grid=2 size=5x7 window=3x4 pads=1 dim=20 bias=table_same "
    "entries=9",
    "given=1 grid=2 size=5x7 window=3x6 shift=1x2 mask=shift pads=3 dim=8 "
    "bias=table_same shape=0:1:2:2:1:3:1",
    "given=1 grid=2 size=10x13 window=4x5 shift=1x2 mask=shift "
    "bias=table_same pads=3 dim=16 shape=0:1:1:2:1:0:1",
    /* without padding, of several places for each work-group: tables of where
     * tokens are come one after the other */
    "grid=2 size=6x12 window=3x6 shift=1x2 mask=shift bias=table_same dim=16 "
    "shape=0:2:2:2:0:1:1",
    "given=1 grid=3 size=4x6x6 window=2x3x3 shift=1x1x1 mask=shift "
    "bias=table_fp32 dim=16 shape=0:2:2:1:0:1:1",
    /* of two kernels */
    "grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
    "pads=3 heads=2 kv_heads=1 dim=16 shape=1:1:1:2:1:3:2:1:1:1:1:1:2:1:0",
    "given=1 grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_fp32 "
    "padding=hidden dim=16 shape=0:1:2:2:1:1:1:" ALL ":0:0:1:2:2:1:1",
    "grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
    "padding=hidden dim=16 shape=1:1:1:1:1:3:2:1:1:1:1:2:1:1:3",
    "given=1 grid=2 size=5x7 window=3x4 pads=1 dim=20 bias=table_same "
    "entries=9 mask=same mask_windows=2 shape=0:1:1:1:1:1:2:" ALL
    ":0:0:1:1:1:0:1",
};

/* Turns of a wave instead of tiles of rows or keys. */
static const char *const sliding[] = {
    "variant=sliding dim=16 block=16 shape=1:1:1:1:1:0:0:1:1:1:1:1:1:1:0",
    "given=1 variant=sliding dim=24 block=16 "
    "shape=2:1:1:2:1:0:0:2:2:1:2:1:2:1:0 "
    /* rows that see nothing, of which no dQ follows from d_lse */
    "| queries=64 keys=24 block=8 window_blocks=2 d_lse=1",
    "given=1 variant=sliding dim=40 block=16 "
    "shape=1:2:1:2:2:0:0:2:1:1:1:1:2:1:0 more=2 "
    "| queries=30 keys=90 block=20 window_blocks=3 query_offset=60 sink=5 "
    "scale=-0.3 data=common given=2",
    "variant=sliding dim=33 block=16 shape=1:2:1:1:2:0:0:2:2:2:1:1:1:2:0",
    "given=1 variant=sliding dim=64 block=16 "
    "shape=2:1:1:2:1:0:0:1:1:2:1:1:2:1:0 more=2 "
    "| queries=50 block=10 windows=1 heads=2 layout=strided data=dominant "
    "given=2",
    "variant=sliding dim=20 block=16",
    "given=1 variant=sliding dim=16 block=16 "
    "shape=1:1:1:2:1:0:0:1:1:1:1:1:1:1:0 "
    "| queries=60 keys=90 block=30 query_offset=30 data=steep d_lse=1",
    "variant=sliding dim=200 block=16",
    /* a delta from o that is off by more than dq may be */
    "given=1 variant=sliding dim=20 block=16 more=2 "
    "| queries=150 block=50 data=dominant windows=1 heads=2",
};

const program_table matrix_gradients[] = {
    {"backward", "matrix", "whole", PROGRAMS(whole)},
    {"backward", "matrix", "split", PROGRAMS(split)},
    {"backward", "matrix", "grids", PROGRAMS(grids)},
    {"backward", "matrix", "sliding", PROGRAMS(sliding)},
    {.rows = NULL},
};
