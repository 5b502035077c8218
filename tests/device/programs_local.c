/* SPDX-License-Identifier: Apache-2.0
 * Programs of tier local: every way to cut a problem, and what planners
 * choose. */
#include "programs.h"

/* Several stages of keys and channels, several work-items to a row, several
 * teams to a work-group, blocks of keys that stream, sizes that divide
 * nothing. */
static const char *const forward[] = {
    /* whole matrix, one stage */
    "queries=12 dim=8 bias=fp32 shape=12:12:32:1:12:8:4:4:1:2",
    /* tiles that divide neither rows nor keys */
    "queries=13 keys=11 dim=6 bias=same mask=same mask_windows=2 "
    "shape=13:11:32:1:11:8:4:8:1:2",
    /* stages of keys, the last one shorter */
    "queries=10 keys=22 dim=8 mask=regions mask_windows=1 "
    "shape=10:22:32:1:8:8:2:4:1:2",
    /* stages of channels, the last one shorter */
    "queries=9 dim=20 bias=fp32 shape=9:9:32:1:9:8:4:4:1:2",
    /* both, for the cosine variant */
    "variant=cosine logit_scale=1 queries=9 keys=14 dim=20 bias=fp32 "
    "shape=9:14:32:1:8:8:4:4:1:2",
    /* teams, of which the last has no unit */
    "windows=3 queries=8 dim=8 shape=8:8:32:2:8:8:2:4:1:4",
    "windows=3 variant=cosine queries=8 dim=8 shape=4:8:32:4:8:8:2:4:1:8",
    /* rows in blocks, work-items of a row in eights */
    "queries=14 keys=18 dim=4 shape=4:18:32:1:18:4:2:2:1:8",
    /* streaming */
    "queries=9 keys=20 dim=8 bias=same shape=5:8:32:1:8:8:4:4:1:4",
    "queries=9 keys=20 dim=12 bias=same shape=5:8:32:1:4:8:4:4:1:4",
    "variant=sliding block=6 dim=8 shape=8:8:32:1:8:8:4:4:1:4",
    "variant=sliding block=3 dim=10 shape=8:8:32:1:4:4:4:4:1:4",
    /* several work-items' rows in turn */
    "queries=40 keys=16 dim=8 shape=40:16:32:1:16:8:8:4:5:1",
    "queries=100 keys=50 dim=8 bias=fp32 shape=100:50:64:1:50:8:7:7:4:1",
    /* shapes that GPUs get */
    "queries=49 bias=fp32 mask=regions mask_windows=1 "
    "shape=49:49:64:1:49:32:7:7:7:1",
    "queries=64 dim=64 bias=fp32 shape=64:64:128:1:64:64:4:8:8:2",
    "variant=sliding block=64 dim=64 shape=64:128:128:1:128:64:8:8:8:2",
    "variant=sliding block=64 dim=200 shape=16:64:128:1:32:100:4:8:4:8",
    /* what planners choose: odd sizes, kinds of masks, heads that share */
    "queries=1 dim=1",
    "queries=49 dim=49 bias=same mask=regions mask_windows=2",
    "queries=1 keys=100 dim=10 bias=fp32",
    "queries=30 keys=24 dim=30 mask=fp32 mask_windows=2",
    "variant=cosine logit_scale=1 queries=30 dim=100",
    "queries=17 keys=300 dim=64 mask=fp32 mask_windows=1",
};

/* Padding, regions and tables of each kind. */
static const char *const grids[] = {
    "grid=2 size=5x7 window=3x4 shift=1x2 dim=8 mask=shift bias=table_same "
    "pads=3 shape=12:12:32:1:12:8:4:4:1:2",
    "grid=2 size=7x5 window=4x3 shift=2x1 padding=hidden dim=20 mask=shift "
    "bias=table_fp32 shape=12:12:32:2:8:8:4:4:2:1",
    "variant=cosine logit_scale=1 grid=3 size=3x4x5 window=2x3x2 "
    "shift=1x1x1 dim=12 mask=shift bias=table_fp32 entries=5 pads=2 "
    "shape=6:12:32:1:12:8:2:4:1:4",
    "grid=1 size=30 window=20 shift=6 padding=hidden dim=8 mask=shift "
    "shape=5:8:32:1:8:8:4:4:1:4",
    "grid=1 size=30 window=20 shift=6 dim=6 bias=fp32 pads=3 "
    "shape=5:8:32:1:4:8:4:4:1:4",
    "grid=2 size=14x21 window=7x7 shift=3x3 mask=shift bias=table_same",
    "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 bias=table_same "
    "pads=3 dim=8",
    "grid=2 size=9x12 window=4x6 shift=1x4 mask=shift bias=table_fp32 "
    "roll_first=1 padding=hidden variant=cosine logit_scale=2 dim=16 more=1",
    "grid=2 size=9x8 window=4x4 mask=same mask_windows=6 pads=3 dim=16",
    "grid=2 size=9x8 window=4x4 mask=regions mask_windows=6 pads=3 dim=16",
    "queries=20 keys=30 table=6x6 sliced=1 bias=table_fp32 dim=16",
};

/* Registers: enough for every shape here, so that sums of dBias stay in them
 * where a kernel can do that. Fewer: they do not. */
#define MANY "registers=255 "
#define FEW "registers=64 "

static const char *const backward[] = {
    /* ---- One kernel, one q block ---- */
    MANY "queries=12 dim=8 bias=fp32 shape=12:12:32:8:4:4:1:1:1",
    FEW "queries=12 dim=8 bias=fp32 shape=12:12:32:8:4:4:1:1:1",
    /* the forward pass's lse */
    FEW "given=1 queries=12 dim=8 bias=same mask=same mask_windows=2 "
        "shape=12:12:32:8:4:4:1:1:1",
    /* tiles that divide neither rows nor keys nor channels; rows of none */
    MANY "queries=13 keys=11 dim=6 bias=same mask=same mask_windows=2 "
         "shape=13:11:32:8:2:4:1:2:1",
    /* Q and dO take turns, and K and V */
    MANY "queries=12 keys=10 dim=8 bias=fp32 shape=12:10:32:8:4:4:1:1:0",
    MANY "given=1 queries=9 keys=14 dim=8 shape=9:14:32:8:2:4:1:2:0",
    /* stages of channels, the last one shorter */
    MANY "queries=10 keys=9 dim=20 bias=same mask=regions mask_windows=1 "
         "shape=10:9:32:8:4:4:1:1:0",
    "registers=130 given=1 queries=7 keys=9 dim=30 bias=fp32 "
    "shape=7:9:32:8:4:2:1:1:0",
    /* ---- One kernel, several q blocks ---- */
    MANY "heads=4 kv_heads=2 queries=8 keys=9 dim=8 bias=fp32 "
         "shape=8:9:32:8:4:2:1:1:1",
    MANY "heads=2 kv_heads=1 queries=13 keys=10 dim=12 bias=same "
         "shape=5:10:32:12:2:4:1:1:1",
    MANY "given=1 queries=13 keys=10 dim=20 bias=same mask=fp32 "
         "mask_windows=2 shape=6:10:32:12:2:4:2:1:0",
    MANY "heads=2 kv_heads=1 queries=9 keys=12 dim=20 "
         "shape=5:12:32:8:2:4:1:1:0",
    /* ---- One kernel, cosine ---- */
    MANY "variant=cosine logit_scale=2 queries=12 dim=8 bias=same "
         "shape=12:12:32:8:4:4:1:1:0",
    MANY "variant=cosine logit_scale=1 heads=2 kv_heads=1 queries=11 keys=9 "
         "dim=20 bias=fp32 shape=6:9:32:8:2:4:1:1:0",
    MANY "given=1 variant=cosine logit_scale=5 queries=9 keys=10 dim=12 "
         "shape=9:10:32:12:4:4:1:1:0",
    /* ---- Rows and keys in kernels of their own ---- */
    MANY "queries=11 keys=20 dim=8 bias=fp32 rows=6:8:32:8:2:4:1:1:1 "
         "shape=5:8:32:8:2:4:1:1:1",
    MANY "heads=2 kv_heads=1 queries=9 keys=14 dim=20 bias=same mask=same "
         "mask_windows=2 rows=4:6:32:8:2:2:1:1:0 shape=5:7:32:12:2:4:1:2:0",
    MANY "given=1 queries=11 keys=18 dim=20 rows=11:8:32:12:4:4:2:1:0 "
         "shape=8:8:32:12:4:4:2:1:0",
    MANY "given=1 queries=11 keys=18 dim=8 bias=same rows=4:8:32:8:4:4:1:1:1 "
         "shape=8:8:32:8:4:4:1:1:1",
    MANY "variant=cosine logit_scale=2 heads=2 kv_heads=1 queries=10 keys=14 "
         "dim=8 bias=fp32 rows=6:8:32:8:2:4:1:1:0 shape=5:8:32:8:2:4:1:1:0",
    MANY "given=1 variant=cosine logit_scale=1 queries=9 keys=12 dim=20 "
         "mask=regions mask_windows=2 rows=9:6:32:8:4:4:1:1:0 "
         "shape=4:6:32:12:4:4:1:1:0",
    /* ---- Sliding ---- */
    MANY "variant=sliding block=6 dim=8 rows=8:8:32:8:4:4:1:1:1 "
         "shape=8:8:32:8:4:4:1:1:1",
    MANY "variant=sliding block=5 dim=10 rows=6:8:32:12:2:4:1:1:1 "
         "shape=5:9:32:12:2:4:1:1:1",
    MANY "given=1 variant=sliding block=3 dim=20 rows=8:8:32:8:4:4:1:1:0 "
         "shape=4:8:32:8:4:4:1:1:0",
    MANY "variant=sliding block=4 dim=8 rows=8:8:32:8:4:4:1:1:1 "
         "shape=6:4:32:8:4:4:1:1:0",
    /* q blocks that no sum of d_logit_scale parts */
    MANY "variant=cosine heads=2 kv_heads=1 queries=11 keys=9 dim=12 "
         "shape=6:9:32:12:2:4:1:1:0",
    /* ---- Shapes that GPUs get ---- */
    MANY "queries=49 bias=fp32 shape=49:49:128:32:7:4:4:1:1",
    "registers=140 queries=49 bias=same shape=49:49:64:32:7:7:7:2:0",
    MANY "queries=64 dim=64 bias=fp32 shape=64:64:256:64:4:4:4:1:1",
    MANY "variant=cosine logit_scale=2 queries=64 bias=fp32 "
         "shape=64:64:128:32:8:4:4:1:0",
    MANY "variant=sliding block=32 dim=64 rows=64:64:128:64:8:4:8:2:1 "
         "shape=64:64:256:64:4:4:4:1:1",
    /* ---- What planners choose ---- */
    "queries=1 dim=1",
    "queries=49 dim=49 bias=same mask=regions mask_windows=2",
    "queries=1 keys=100 dim=10 bias=fp32",
    "queries=24 keys=30 dim=24 mask=fp32 mask_windows=2 bias=fp32",
    /* a delta from o that is off by more than dk may be */
    "given=1 variant=sliding dtype=fp16 dim=20 block=16 "
    "| queries=150 block=50 data=dominant windows=1 heads=2",
};

static const char *const grid_gradients[] = {
    MANY "grid=2 size=5x7 window=3x4 shift=1x2 dim=8 mask=shift "
         "bias=table_same pads=3 shape=12:12:32:8:4:4:1:1:1",
    MANY "variant=cosine logit_scale=1 heads=2 kv_heads=1 grid=2 size=5x7 "
         "window=3x4 shift=1x2 dim=20 bias=table_fp32 pads=3 "
         "shape=6:12:32:8:2:4:1:1:0",
    MANY "given=1 grid=2 size=5x7 window=3x4 shift=1x2 dim=8 mask=shift "
         "pads=1 rows=6:8:32:8:2:4:1:1:1 shape=5:8:32:8:2:4:1:1:1",
    MANY "grid=1 size=17 window=12 shift=4 padding=hidden dim=20 mask=shift "
         "bias=table_fp32 entries=9 rows=12:8:32:12:4:4:2:1:0 "
         "shape=8:8:32:12:4:4:2:1:0",
    FEW "given=1 grid=2 size=5x7 window=3x4 shift=1x2 padding=hidden dim=10 "
        "mask=shift bias=same shape=12:12:32:8:4:4:1:1:0",
    "grid=2 size=8x12 window=4x6 shift=2x3 mask=shift bias=table_same dim=16",
    "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 bias=table_same "
    "pads=3 dim=8",
    "grid=2 size=9x12 window=4x6 shift=1x4 mask=shift bias=table_fp32 "
    "roll_first=1 padding=hidden variant=cosine logit_scale=2 dim=16 more=1",
    "grid=2 size=9x8 window=4x4 mask=same mask_windows=6 pads=3 dim=16",
};

const program_table local_programs[] = {
    {"forward", "local", "windows", PROGRAMS(forward)},
    {"forward", "local", "grids", PROGRAMS(grids)},
    {"backward", "local", "windows", PROGRAMS(backward)},
    {"backward", "local", "grids", PROGRAMS(grid_gradients)},
    {.rows = NULL},
};
