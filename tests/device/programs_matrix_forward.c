/* SPDX-License-Identifier: Apache-2.0
 * Forward programs of tier matrix: every way to cut a problem, several passes
 * and blocks of keys, several waves to a window, several windows at a time,
 * rings of one to three stages. Tiles of units differ, so rows, keys and
 * subtiles of shapes count tiles: 0 is all of them. */
#include "programs.h"

static const char *const windows[] = {
    /* one tile, filled and not */
    "queries=16 dim=16",
    "queries=3 keys=5 dim=7 bias=fp32",
    /* several windows for a work-group, the last of a team repeated */
    "queries=9 keys=20 dim=8 bias=same shape=0:0:1:2:2:1:1",
    "queries=20 keys=18 dim=24 bias=fp32 mask=same mask_windows=2 "
    "shape=0:0:2:1:2:1:2",
    /* a ring of three stages, keys in blocks, rows in blocks */
    "queries=40 keys=70 dim=16 bias=same mask=regions mask_windows=1 "
    "shape=1:1:1:1:3:1:1",
    "queries=40 keys=50 dim=16 bias=same shape=2:2:1:2:2:2:0",
    "variant=cosine logit_scale=1 queries=20 keys=35 dim=20 bias=fp32 "
    "shape=0:0:2:1:1:1:2",
    "variant=cosine logit_scale=5 queries=20 keys=35 dim=40 bias=same "
    "shape=1:1:1:2:2:1:0",
    /* a bias whose rows are copied, but where these are not whole chunks */
    "queries=20 keys=32 dim=32 bias=same shape=1:0:1:2:2:1:1",
    "queries=32 dim=32 bias=same mask=regions mask_windows=2 "
    "shape=0:0:2:1:3:1:3",
    /* in passes and in blocks */
    "queries=20 keys=70 dim=16 shape=0:0:1:1:1:1:0",
    "queries=20 keys=70 dim=16 shape=0:1:1:1:2:1:0",
    /* what users have */
    "queries=49 dim=32 bias=same mask=regions mask_windows=2",
    "queries=49 dim=32 bias=same mask=same mask_windows=2",
    "variant=cosine logit_scale=2 queries=64 dim=32 bias=same",
    "queries=30 dim=80 | heads=1 layout=strided",
    "queries=20 dim=256 bias=same",
    "queries=60 dim=32 bias=fp32 shape=0:0:4:1:2:2:1",
    "queries=40 keys=52 dim=32 bias=same mask=regions mask_windows=3 "
    "shape=2:2:1:2:2:1:3",
    "variant=cosine queries=33 dim=16 mask=regions mask_windows=2 "
    "shape=0:0:2:1:2:1:3",
    "queries=18 dim=16 mask=regions mask_windows=2 shape=0:0:2:1:2:1:3",
    /* rows that are words and no chunks: as many as a wave's lanes share, more
     * than it has lanes */
    "queries=20 keys=18 dim=30 bias=same shape=0:0:2:2:2:1:1",
    "queries=20 keys=37 dim=100 shape=1:1:1:2:2:1:0",
    "queries=20 keys=18 dim=30 shape=0:0:2:1:2:1:0",
    /* what rows carry from window to window: folded into bias and mask or
     * not, in a subtile or several, and where it does not serve */
    "queries=18 dim=8 bias=same shape=0:0:2:1:2:2:2",
    "queries=36 dim=32 bias=same shape=0:0:3:1:2:3:2",
    "variant=cosine queries=20 keys=36 dim=16 bias=fp32 "
    "shape=0:0:2:2:1:1:1",
    "queries=20 dim=32 bias=same mask=regions mask_windows=2 "
    "shape=0:0:2:1:2:2:2",
    "variant=cosine logit_scale=4 queries=36 dim=16 bias=same "
    "shape=0:0:3:1:1:1:1",
    "queries=18 keys=40 dim=16 shape=0:1:2:1:2:1:0",
    "queries=34 keys=40 dim=16 bias=same mask=same mask_windows=3 "
    "shape=0:0:3:1:2:1:1",
    "queries=36 dim=16 mask=regions mask_windows=1 shape=0:0:3:1:2:1:1",
    "queries=20 keys=60 dim=16 bias=fp32 mask=regions mask_windows=1 "
    "shape=0:1:2:1:2:1:3",
    "queries=49 dim=32 mask=fp32 mask_windows=1",
};

/* Bias and mask in registers, regions compared, bias and mask kept by window,
 * padding of each kind; many grids, so that windows come sorted. */
static const char *const grids[] = {
    "grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
    "pads=3 dim=16 shape=0:0:2:2:2:2:2",
    "grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_fp32 "
    "padding=hidden dim=16 shape=0:0:1:2:2:1:2",
    "grid=3 size=3x6x7 window=2x3x4 shift=1x1x2 mask=shift bias=table_same "
    "pads=2 variant=cosine logit_scale=2 dim=8 shape=1:1:1:2:2:1:3",
    "grid=1 size=50 window=20 shift=7 mask=shift dim=10 padding=hidden "
    "shape=0:0:2:1:1:2:0",
    "grid=2 size=7x9 window=4x4 mask=same mask_windows=3 bias=fp32 dim=16 "
    "shape=0:0:1:2:1:1:1",
    "grid=2 size=8x9 window=4x4 shift=1x2 mask=shift pads=1 dim=80 "
    "shape=0:0:1:2:2:2:3 | heads=2 kv_heads=1 batch=5",
    "grid=2 size=5x7 window=3x4 shift=1x2 mask=shift pads=3 dim=30 "
    "shape=0:0:1:2:2:1:3",
    "grid=2 size=8x12 window=4x4 shift=1x2 mask=shift bias=table_same "
    "dim=16 shape=0:0:1:1:2:1:2",
    "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift bias=table_same "
    "roll_first=1 pads=3 dim=16 more=1",
    "grid=2 size=9x10 window=3x5 bias=table_same entries=7 pads=3 dim=8",
    "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 bias=table_same "
    "pads=3 dim=8",
};

static const char *const sliding[] = {
    "variant=sliding dim=16 block=16 shape=1:1:1:1:1:1:0",
    "variant=sliding dim=24 block=16 shape=2:2:2:1:2:1:0",
    "variant=sliding dim=40 block=16 shape=2:2:1:1:3:2:0",
    "variant=sliding dim=33 block=16 shape=4:4:2:1:2:2:0",
    "variant=sliding dim=64 block=16 shape=2:1:2:1:2:1:0",
    "variant=sliding dim=20 block=16",
    "variant=sliding dim=16 block=16 shape=2:1:2:1:3:1:0",
    "variant=sliding dim=200 block=16",
};

/* So many work-groups, which the device holds at once, go on from one block of
 * rows and one head to others. */
static const char *const shared[] = {
    "queries=20 keys=18 dim=8 windows=5 heads=3 bias=same groups=4 "
    "shape=1:0:1:2:2:1:1",
    "queries=20 keys=32 dim=32 windows=5 heads=3 bias=same groups=4 "
    "shape=1:0:1:2:2:1:1",
    /* more work-groups than a launch has rounds */
    "queries=20 dim=10 windows=5 heads=2 kv_heads=1 bias=same groups=7 "
    "shape=1:0:1:1:2:1:1",
    "queries=40 keys=20 dim=24 windows=5 heads=5 kv_heads=1 bias=fp32 "
    "groups=6 shape=1:1:1:2:3:1:1",
    /* of a mask and a bias the sum: in local memory, in registers */
    "queries=20 keys=18 dim=16 windows=5 heads=3 kv_heads=1 bias=same "
    "mask=same mask_windows=2 groups=4 shape=1:0:1:1:1:2:1",
    "queries=20 keys=18 dim=16 windows=14 heads=5 bias=fp32 mask=regions "
    "mask_windows=2 groups=3 shape=0:0:2:1:2:1:2",
    /* a head's scale; regions */
    "variant=cosine logit_scale=2 queries=20 keys=35 dim=20 windows=5 "
    "heads=4 kv_heads=2 bias=same mask=regions mask_windows=2 groups=5 "
    "shape=1:0:1:2:2:1:3",
    /* a key head's channels of the padding */
    "grid=2 size=7x8 window=4x4 shift=1x2 mask=shift bias=table_same pads=3 "
    "heads=3 dim=8 batch=5 groups=2 shape=0:0:1:2:2:1:3",
    "grid=2 size=6x10 window=4x4 shift=1x1 mask=shift bias=table_fp32 "
    "padding=hidden heads=5 dim=16 batch=9 groups=2 shape=0:0:1:2:2:1:2",
};

const program_table matrix_programs[] = {
    {"forward", "matrix", "windows", PROGRAMS(windows)},
    {"forward", "matrix", "grids", PROGRAMS(grids)},
    {"forward", "matrix", "sliding", PROGRAMS(sliding)},
    {"forward", "matrix", "shared", PROGRAMS(shared)},
    {.rows = NULL},
};
