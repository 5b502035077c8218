/* SPDX-License-Identifier: Apache-2.0
 * Programs of tier cpu, whose shapes are the planner's: sizes that vectors
 * divide and others, kinds of biases, masks, paddings and tables. */
#include "programs.h"

static const char *const forward[] = {
    "queries=1 dim=1",
    "queries=3 dim=3 bias=same",
    "queries=24 keys=30 dim=24 bias=fp32",
    "queries=30 keys=24 dim=30 mask=same mask_windows=2",
    "queries=49 dim=49 bias=same mask=regions mask_windows=2",
    "queries=30 dim=80 bias=fp32 mask=fp32 mask_windows=3",
    "queries=20 keys=1 dim=100",
    "queries=1 keys=100 dim=10 bias=fp32",
    "queries=64 keys=100 dim=32 bias=same mask=same mask_windows=2",
    "queries=4 dim=4 bias=same mask=regions mask_windows=2 "
    "| windows=40000 mask_windows=1000",
    "queries=30 dim=256",
    "queries=17 keys=900 dim=64 mask=fp32 mask_windows=1",
    "variant=cosine queries=30 keys=64 dim=100",
    "variant=cosine logit_scale=2.3 queries=49 dim=32 bias=same mask=regions "
    "mask_windows=2",
    "variant=cosine logit_scale=1 queries=20 dim=10 bias=fp32",
    "variant=sliding block=16 dim=32",
    "variant=sliding block=16 dim=128",
    "variant=sliding block=16 dim=200",
};

#define GRIDS                                                                 \
    "grid=1 size=40 window=16 shift=5 mask=shift pads=3 dim=10",              \
        "grid=2 size=14x14 window=7x7 shift=3x3 mask=shift bias=table_same "  \
        "dim=16",                                                             \
        "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift dim=20 "            \
        "padding=hidden bias=table_fp32",                                     \
        "grid=3 size=5x9x6 window=2x4x3 shift=1x2x1 mask=shift "              \
        "bias=table_same pads=3 dim=16",                                      \
        "grid=2 size=6x3 window=1x1 dim=8 bias=table_same", /* one token */   \
        "grid=2 size=9x10 window=4x4 pads=2 variant=cosine logit_scale=1 "    \
        "bias=same dim=8",                                                    \
        "grid=2 size=9x8 window=4x4 shift=1x1 mask=fp32 mask_windows=6 "      \
        "padding=hidden bias=table_same dim=16",                              \
        "grid=2 size=9x8 window=4x4 mask=regions mask_windows=6 pads=3 "      \
        "dim=16", /* tables of other windows, by the caller's index */        \
        "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 "                \
        "bias=table_same pads=3 dim=8",                                       \
        "grid=2 size=9x10 window=3x5 bias=table_fp32 entries=1000 pads=3 "    \
        "dim=8",                                                              \
        "queries=20 keys=30 table=6x6 sliced=1 bias=table_fp32 dim=16",       \
        "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift bias=table_same "  \
        "roll_first=1 pads=3 dim=16 more=1",                                  \
        "grid=2 size=9x12 window=4x6 shift=1x4 mask=shift bias=table_fp32 "   \
        "roll_first=1 padding=hidden variant=cosine logit_scale=2 dim=16 "    \
        "more=1"
static const char *const grids[] = {GRIDS};

static const char *const backward[] = {
    "queries=1 dim=1",
    "queries=3 dim=3 bias=same",
    "queries=24 keys=30 dim=24 bias=fp32",
    "queries=49 dim=49 bias=same mask=regions mask_windows=2",
    "queries=20 keys=30 dim=32 mask=same mask_windows=2",
    "queries=30 dim=80 bias=fp32 mask=fp32 mask_windows=3",
    "queries=20 keys=1 dim=100",
    "queries=1 keys=100 dim=10 bias=fp32",
    "queries=20 keys=64 dim=256",
    /* keys that one kernel does not hold */
    "queries=9 keys=900 dim=256 bias=fp32",
    "queries=9 keys=830 dim=250 bias=same variant=cosine logit_scale=1",
    "given=1 queries=30 dim=32 bias=same",
    "given=1 queries=9 keys=500 dim=100 bias=fp32 mask=same mask_windows=2",
    "given=1 variant=cosine logit_scale=1 queries=30 keys=40 dim=32",
    "queries=4 dim=4 bias=same | windows=700",
    /* a zero row's P is below the normal fp32 numbers */
    "variant=cosine logit_scale=2 queries=32 dim=1 "
    "| logit_scale=6.8 data=zero",
    "variant=cosine logit_scale=2.3 queries=30 dim=32 bias=same mask=regions "
    "mask_windows=2",
    "variant=sliding block=16 dim=32",
    "given=1 variant=sliding block=16 dim=64",
    "variant=sliding block=16 dim=128",
};

#define BY_POSITION " pairs=1 only=1 | launch=1"
static const char *const grid_gradients[] = {
    GRIDS,
    "given=1 grid=2 size=9x7 window=4x4 padding=hidden shift=1x2 mask=shift "
    "bias=table_fp32 dim=16",
    /* keys that one kernel does not hold */
    "grid=2 size=27x30 window=28x30 pads=3 dim=250 bias=table_fp32 only=1",
    /* more partial sums than one kernel adds up (TABLE_PARTIALS) */
    "windows=2 heads=4 queries=384 keys=384 table=16x24 bias=table_same dim=8 "
    "only=1",
    /* pairs of a table that are found by position, as where a window is large:
     * of one token, of one row, of a part of a window, of tables for larger
     * windows */
    "grid=2 size=6x3 window=1x1 bias=table_same pads=3 dim=4" BY_POSITION,
    "grid=1 size=9 window=5 bias=table_fp32 pads=3 dim=4" BY_POSITION,
    "grid=2 size=7x5 window=4x1 bias=table_same pads=3 dim=4" BY_POSITION,
    "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_fp32 pads=3 "
    "batch=2 dim=4" BY_POSITION,
    "grid=3 size=5x6x7 window=2x3x4 bias=table_same pads=3 dim=4" BY_POSITION,
    "grid=3 size=5x9x7 window=2x4x3 table=4x6x3 bias=table_fp32 pads=3 "
    "dim=4" BY_POSITION,
    "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 bias=table_same "
    "pads=3 dim=4" BY_POSITION,
    "windows=5 queries=20 keys=31 table=6x6 sliced=1 bias=table_fp32 "
    "dim=4" BY_POSITION,
    "windows=3 queries=31 keys=2 table=3x4x3 sliced=1 bias=table_fp32 "
    "dim=4" BY_POSITION,
    "windows=2 heads=4 queries=384 keys=384 table=16x24 bias=table_same "
    "dim=4" BY_POSITION,
    /* many windows */
    "grid=2 size=8x8 window=2x2 shift=1x1 mask=shift bias=table_fp32 dim=4 "
    "| size=60x98 batch=2",
};

const program_table cpu_programs[] = {
    {"forward", "cpu", "windows", PROGRAMS(forward)},
    {"forward", "cpu", "grids", PROGRAMS(grids)},
    {"backward", "cpu", "windows", PROGRAMS(backward)},
    {"backward", "cpu", "grids", PROGRAMS(grid_gradients)},
    {.rows = NULL},
};
