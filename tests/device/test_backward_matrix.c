/* SPDX-License-Identifier: Apache-2.0
 * The backward pass of the tier `matrix` on each matrix unit, the device's own
 * as in test_matrix.c, in shapes that the planner may
 * choose for some device, whatever it chooses for this one.
 *
 *   test_backward_matrix UNIT fixed          the table
 *   test_backward_matrix UNIT small          its small cases, for slow
 *                                            simulators
 *   test_backward_matrix UNIT few            each sixth row of these, other
 *                                            ones for the next unit
 *   test_backward_matrix UNIT small FIRST N  those of some rows
 *   test_backward_matrix UNIT rows FIRST N   some of the table's rows
 *   test_backward_matrix UNIT random SEED N  N random shapes; of even seeds
 *                                            those of two kernels */
#include <string.h>

#include "kit/planned.h"
#include "kit/runner.h"

/* A shape of "" is the planner's. Tiles of matrix units differ, so rows, keys
 * and subtiles count tiles, where 0 (of keys ALL) is all of them, and a team
 * has as many more waves as its rows need. Shapes of two kernels have eight
 * numbers more: keys, and for the kernel of keys rows, keys, waves of a team,
 * teams, stages, tiles of a subtile, bias cache. */
#define ALL "999"
static const struct {
    const char *text, *shape;
    bool small;
} table[] = {
    /* one tile, filled and not */
    {"queries=16 keys=16 dim=16 windows=1 heads=1", "", true},
    {"queries=3 keys=5 dim=7 windows=1 heads=1 bias=fp32 d_lse=1", "", true},
    /* ---- All rows and keys at once ---- */
    /* teams add up their sums of dbias; some have no window at last */
    {"queries=9 keys=20 dim=8 windows=5 heads=1 bias=same accumulate=31",
     "0:1:2:2:0:1:1", true},
    {"queries=40 keys=20 dim=16 windows=7 heads=2 bias=fp32", "0:1:3:1:0:0:1",
     false},
    /* sums of dbias in the workspace */
    {"queries=20 keys=18 dim=24 windows=3 heads=2 bias=fp32 mask=same "
     "mask_windows=2 d_lse=1",
     "0:1:1:1:0:1:0", true},
    /* more waves than tiles of rows, and than tiles of keys */
    {"queries=16 keys=60 dim=16 windows=2 heads=1 bias=fp32", "0:3:1:1:0:1:1",
     false},
    {"queries=14 keys=10 dim=40 windows=2 heads=1 bias=same mask=fp32 "
     "mask_windows=2 data=masked",
     "0:3:1:2:0:0:1", true},
    /* regions compared */
    {"queries=33 keys=30 dim=16 windows=3 heads=1 mask=regions "
     "mask_windows=2 region_value=-inf",
     "0:1:2:1:0:3:0", true},
    {"queries=40 keys=52 dim=32 windows=5 heads=1 bias=same mask=regions "
     "mask_windows=3 layout=padded",
     "0:1:1:2:0:3:1", false},
    /* the forward pass's o and lse */
    {"given=1 queries=20 dim=16 windows=3 heads=1 bias=same d_lse=1",
     "0:1:2:1:0:0:1", true},
    {"given=1 queries=30 keys=20 dim=8 windows=2 heads=1 mask=same "
     "mask_windows=2 data=masked d_lse=1",
     "0:1:2:2:0:1:0", false},
    /* ---- Keys in passes ---- */
    {"queries=20 keys=50 dim=16 windows=3 heads=1 bias=same mask=regions "
     "mask_windows=1",
     "0:1:1:2:1:0:0", true},
    {"given=1 queries=20 keys=70 dim=24 windows=2 heads=1 bias=fp32 "
     "mask=same mask_windows=2 data=masked",
     "0:1:1:1:2:1:0", false},
    {"queries=18 keys=65 dim=32 windows=3 heads=1 mask=regions mask_windows=2 "
     "layout=strided",
     "0:1:2:2:1:3:0", false},
    /* ... and delta from o */
    {"given=1 queries=40 keys=50 dim=32 windows=3 heads=1 bias=same "
     "mask=regions mask_windows=2 d_lse=1",
     "0:1:2:2:1:1:1", true},
    {"given=1 queries=40 keys=33 dim=20 windows=3 heads=2 kv_heads=1 "
     "bias=fp32 layout=strided",
     "1:1:1:2:1:0:0", false},
    {"given=1 variant=cosine logit_scale=2 queries=20 keys=50 dim=40 "
     "windows=3 heads=1 bias=same accumulate=31",
     "0:1:1:1:1:1:1", false},
    {"given=1 grid=2 size=5x7 window=3x6 shift=1x2 mask=shift pads=3 heads=1 "
     "dim=8 bias=table_same d_lse=1 batch=2",
     "0:1:2:2:1:3:1", false},
    {"given=1 queries=70 keys=60 dim=16 windows=2 heads=1 data=rising",
     "1:1:1:2:1:0:0", false},
    {"given=1 variant=cosine queries=20 keys=33 dim=32 windows=2 heads=1 "
     "data=zero",
     "0:1:1:1:1:0:0", false},
    {"given=1 queries=20 keys=33 dim=32 windows=3 heads=2 bias=same data=nan",
     "0:1:1:2:1:0:1", false},
    {"given=1 queries=20 keys=40 dim=48 windows=3 heads=1 scale=-2 data=tiny",
     "0:1:2:1:1:0:0", false},
    /* tiles of one row, some of which have a delta near 0 */
    {"given=1 queries=17 keys=17 dim=16 windows=90 heads=2", "0:1:1:1:1:0:0",
     false},
    /* tiles of rows have different powers of two */
    {"queries=70 keys=33 dim=16 windows=2 heads=1 data=rising",
     "0:1:1:1:0:0:0", false},
    /* ---- Several q blocks: rows in blocks, heads that share keys ---- */
    {"queries=40 keys=20 dim=16 windows=3 heads=1 d_lse=1", "1:1:2:1:0:0:0",
     true},
    {"queries=40 keys=33 dim=20 windows=2 heads=2 kv_heads=1 bias=fp32 "
     "mask=fp32 mask_windows=2 data=masked",
     "1:2:1:2:1:0:0", true},
    {"queries=20 keys=20 dim=16 windows=3 heads=4 kv_heads=2 bias=same "
     "accumulate=31",
     "0:1:1:1:0:0:0", false},
    {"given=1 queries=70 keys=20 dim=40 windows=3 heads=3 kv_heads=1 "
     "mask=regions mask_windows=2 layout=aligned",
     "2:1:2:2:0:0:0", false},
    /* ---- Cosine ---- */
    {"variant=cosine logit_scale=1 queries=20 keys=35 dim=20 windows=3 "
     "heads=2 bias=fp32 d_lse=1",
     "0:1:2:1:0:1:1", true},
    {"variant=cosine logit_scale=3 queries=40 keys=35 dim=40 windows=2 "
     "heads=2 kv_heads=1 bias=same accumulate=31",
     "1:1:1:2:1:0:0", false},
    {"variant=cosine logit_scale=5 given=1 queries=20 keys=30 dim=16 "
     "windows=3 heads=1",
     "0:1:2:2:1:0:0", false},
    {"variant=cosine queries=20 dim=32 windows=2 heads=1 data=zero", "",
     false},
    {"variant=cosine logit_scale=7 queries=20 dim=8 windows=2 heads=1 "
     "bias=same",
     "", false},
    /* ---- What users have ---- */
    {"queries=49 dim=32 windows=3 heads=1 bias=same mask=regions "
     "mask_windows=2",
     "", false},
    {"queries=49 dim=32 windows=2 heads=2 bias=same mask=same mask_windows=2 "
     "data=masked d_lse=1",
     "", false},
    {"variant=cosine logit_scale=2 queries=64 dim=32 windows=2 heads=1 "
     "bias=same layout=packed",
     "", false},
    {"queries=30 dim=80 windows=2 heads=1 layout=strided bias=same", "",
     false},
    {"queries=20 dim=256 windows=2 heads=1 bias=same", "", false},
    {"queries=49 dim=32 windows=2 heads=1 mask=same mask_windows=1 "
     "data=lowest",
     "", false},
    /* one window of a head is without NaN */
    {"queries=20 dim=32 windows=3 heads=2 bias=same data=nan", "", false},
    {"queries=20 dim=32 windows=2 heads=1 scale=-2 data=tiny", "", false},
    {"queries=20 dim=32 windows=3 heads=2 layout=broadcast bias=same", "",
     false},
    /* some outputs only */
    {"outputs=1 queries=20 dim=16 heads=1 bias=same", "0:1:1:1:0:1:1", false},
    {"outputs=6 queries=20 dim=16 heads=1 bias=same", "0:1:1:1:0:0:0", false},
    {"outputs=8 queries=20 dim=16 windows=5 heads=1 bias=fp32",
     "0:1:2:1:0:1:1", true},
    {"outputs=16 variant=cosine logit_scale=1 queries=20 dim=16 heads=1", "",
     false},
    /* ---- Grids: padding, regions and tables of each kind ---- */
    {"grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
     "pads=3 heads=1 dim=16 d_lse=1",
     "0:1:2:2:0:3:1", false},
    {"grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_fp32 "
     "padding=hidden heads=1 dim=16 batch=9 layout=packed",
     "0:1:2:1:0:0:1", true},
    {"grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_same "
     "pads=1 heads=1 dim=16 batch=9",
     "0:1:2:2:0:1:1", true},
    {"grid=3 size=3x6x7 window=2x3x4 shift=1x1x2 mask=shift bias=table_same "
     "pads=2 variant=cosine logit_scale=2 heads=2 kv_heads=1 dim=8",
     "1:1:1:2:1:0:0", false},
    {"grid=1 size=50 window=20 shift=7 mask=shift region_value=-inf heads=1 "
     "dim=10 layout=strided padding=hidden",
     "0:1:2:1:0:3:0", false},
    {"grid=2 size=7x9 window=4x4 mask=same mask_windows=3 bias=fp32 heads=1 "
     "dim=16 batch=3",
     "0:1:1:1:0:1:1", false},
    {"grid=2 size=5x7 window=3x4 shift=1x2 mask=shift pads=3 heads=2 "
     "kv_heads=1 dim=8 accumulate=127 d_lse=1",
     "1:1:2:1:0:0:0", true},
    {"given=1 grid=2 size=5x7 window=3x4 pads=1 heads=1 dim=20 "
     "bias=table_same entries=9",
     "", false},
    /* ---- Rows and keys in kernels of their own ---- */
    {"queries=20 keys=18 dim=16 windows=3 heads=1",
     "0:1:1:1:0:0:0:" ALL ":0:0:1:1:1:0:0", true},
    {"queries=20 keys=35 dim=16 windows=5 heads=2 bias=same mask=regions "
     "mask_windows=2",
     "0:1:2:2:0:3:1:" ALL ":0:0:1:2:2:1:3", true},
    {"given=1 queries=40 keys=35 dim=20 windows=3 heads=1 bias=same d_lse=1",
     "1:1:1:2:1:1:2:1:1:1:1:1:2:1:1", true},
    {"given=1 variant=cosine logit_scale=2 queries=33 keys=40 dim=24 "
     "windows=3 heads=2 bias=fp32 mask=regions mask_windows=2",
     "0:1:1:1:1:3:2:" ALL ":1:2:1:2:1:1:3", true},
    {"variant=cosine logit_scale=3 queries=40 keys=70 dim=16 windows=3 "
     "heads=2 bias=same accumulate=31 d_lse=1",
     "2:1:1:2:1:1:0:2:2:1:1:1:2:2:1", true},
    {"queries=70 keys=33 dim=40 windows=4 heads=4 kv_heads=2 bias=fp32 "
     "mask=fp32 mask_windows=2 data=masked",
     "1:1:1:1:2:1:2:1:1:0:1:1:2:1:0", false},
    {"given=1 queries=50 keys=20 dim=32 windows=3 heads=3 kv_heads=1 "
     "mask=regions mask_windows=2 layout=strided",
     "0:1:2:2:1:3:0:" ALL ":0:1:1:1:1:0:3", false},
    {"given=1 queries=20 keys=70 dim=24 windows=2 heads=1 mask=same "
     "mask_windows=2 data=masked d_lse=1",
     "0:1:2:2:1:1:0:1:0:2:1:1:2:1:1", false},
    {"queries=49 dim=32 windows=3 heads=1 mask=same mask_windows=1 "
     "data=lowest bias=same",
     "2:1:1:1:2:0:0:" ALL ":2:2:1:1:1:1:0", false},
    {"variant=cosine queries=20 dim=32 windows=2 heads=1 data=zero",
     "0:1:1:1:1:0:0:1:0:1:1:1:1:1:0", false},
    {"given=1 variant=cosine queries=20 dim=32 windows=2 heads=1 data=zero",
     "0:1:1:1:1:0:0:1:0:1:1:1:1:1:0", false},
    {"queries=20 dim=32 windows=3 heads=2 bias=same data=nan",
     "0:1:1:1:1:0:0:1:1:1:1:1:1:1:0", false},
    {"given=1 queries=20 dim=32 windows=2 heads=1 scale=-2 data=tiny",
     "0:1:1:1:1:0:0:" ALL ":1:1:1:1:1:1:0", false},
    {"given=1 queries=20 dim=80 windows=2 heads=1 bias=same layout=broadcast",
     "0:1:1:1:1:1:2:1:1:0:1:1:1:1:1", false},
    /* each q block's bound of dS is larger than the last one's */
    {"given=1 queries=70 keys=60 dim=16 windows=2 heads=1 data=rising",
     "1:1:1:1:1:0:0:1:1:1:1:1:1:1:0", true},
    {"variant=cosine queries=70 keys=60 dim=16 windows=2 heads=1 data=rising",
     "1:1:1:1:1:0:0:1:1:1:1:1:1:1:0", false},
    {"outputs=9 given=1 queries=40 dim=16 heads=1 bias=same",
     "1:1:1:1:1:0:0:" ALL ":1:1:1:1:1:1:0", false},
    {"outputs=6 given=1 queries=20 dim=16 heads=1 bias=same",
     "0:1:1:1:1:1:1:" ALL ":1:1:1:1:1:1:1", true},
    {"outputs=16 variant=cosine logit_scale=1 queries=40 dim=16 heads=2",
     "1:1:1:1:1:0:0:1:1:1:1:1:1:1:0", false},
    /* waves that share rows */
    {"given=1 queries=20 keys=64 dim=24 windows=3 heads=1 bias=same "
     "mask=regions mask_windows=2",
     "1:2:1:2:1:3:2:" ALL ":1:2:1:1:1:1:0", true},
    {"variant=cosine logit_scale=2 queries=30 keys=128 dim=16 windows=5 "
     "heads=1 bias=fp32 accumulate=31",
     "1:2:2:1:1:1:1:" ALL ":2:2:1:1:1:1:0", false},
    {"given=1 variant=cosine logit_scale=2 queries=16 keys=128 dim=40 "
     "windows=3 heads=1 bias=same",
     "1:2:1:2:1:0:0:2:1:2:1:1:1:1:0", false},
    {"grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
     "pads=3 heads=2 kv_heads=1 dim=16 d_lse=1 accumulate=127",
     "1:1:1:2:1:3:2:1:1:1:1:1:2:1:0", false},
    {"given=1 grid=2 size=4x5 window=3x3 shift=1x1 mask=shift "
     "bias=table_fp32 padding=hidden heads=1 dim=16 batch=9 layout=packed",
     "0:1:2:2:1:1:1:" ALL ":0:0:1:2:2:1:1", true},
    {"grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
     "padding=hidden heads=1 dim=16",
     "1:1:1:1:1:3:2:1:1:1:1:2:1:1:3", false},
    {"given=1 grid=2 size=5x7 window=3x4 pads=1 heads=1 dim=20 "
     "bias=table_same entries=9 mask=same mask_windows=2",
     "0:1:1:1:1:1:2:" ALL ":0:0:1:1:1:0:1", false},
    /* so many windows that they come sorted by their regions */
    {"queries=20 keys=35 dim=16 windows=9 heads=1 bias=same mask=regions "
     "mask_windows=2",
     "0:1:2:2:0:3:1:" ALL ":0:0:1:2:2:1:3", false},
    {"queries=18 dim=16 windows=12 heads=1 kv_heads=1 mask=regions "
     "mask_windows=3",
     "0:1:2:2:0:3:0", true},
    {"given=1 queries=4 keys=4 dim=4 windows=1500 heads=1 bias=same",
     "0:1:3:1:1:1:1:" ALL ":0:0:1:3:2:1:1", false},
    {"queries=60 dim=256 windows=2 heads=1 bias=same",
     "0:1:1:1:1:0:0:" ALL ":1:0:1:1:1:1:0", false},
    /* ---- Gradients of few terms, whose roundings do not even out ---- */
    {"queries=4 keys=4 dim=4 windows=1500 heads=1 bias=same", "", false},
    {"queries=4 keys=4 dim=4 windows=1500 heads=1", "", false},
    /* ---- Several windows for each work-group, whatever the device ---- */
    /* a team alone; with two stages k and v of the next are on their way early
     */
    {"given=1 queries=18 keys=33 dim=12 windows=300 heads=1 bias=same",
     "0:1:1:2:1:0:1", false},
    {"queries=18 keys=20 dim=16 windows=300 heads=1 bias=same",
     "0:1:1:1:0:1:1", false},
    {"given=1 grid=2 size=10x13 window=4x5 shift=1x2 mask=shift "
     "bias=table_same pads=3 heads=1 dim=16 batch=16",
     "0:1:1:2:1:0:1", false},
    /* a wave makes one gradient; tiles of keys are even in number, or odd */
    {"queries=20 keys=56 dim=16 windows=300 heads=1", "0:2:2:2:0:0:0", false},
    {"queries=20 keys=33 dim=16 windows=300 heads=1", "0:2:2:2:0:0:0", false},
    /* grids without padding, of several places for each work-group: tables of
     * where tokens are come one after the other */
    {"grid=2 size=6x12 window=3x6 shift=1x2 mask=shift bias=table_same "
     "heads=1 dim=16 batch=5",
     "0:2:2:2:0:1:1", true},
    {"given=1 grid=3 size=4x6x6 window=2x3x3 shift=1x1x1 mask=shift "
     "bias=table_fp32 heads=1 dim=16 batch=48 layout=packed",
     "0:2:2:1:0:1:1", false},
    /* ---- What gradients cancel: delta from o is a little off, and mended;
       where it is small, or lse large, that shows ---- */
    {"given=2 queries=40 keys=50 dim=32 windows=3 heads=1 bias=same d_lse=1 "
     "data=common",
     "0:1:2:2:1:1:1", true},
    {"given=2 queries=40 keys=50 dim=32 windows=3 heads=1 bias=fp32 "
     "data=common accumulate=31",
     "0:1:1:2:1:0:0", false},
    {"given=2 variant=cosine logit_scale=2.3 queries=33 keys=50 dim=40 "
     "windows=2 heads=1 bias=same data=dominant",
     "0:1:1:1:1:1:1", false},
    {"given=2 queries=40 keys=50 dim=32 windows=2 heads=1 data=steep",
     "0:1:1:1:2:0:0", false},
    {"given=2 queries=40 keys=35 dim=20 windows=2 heads=1 data=steep", "",
     false},
    {"given=2 queries=40 keys=50 dim=20 windows=2 heads=1 data=dominant "
     "bias=same",
     "0:1:1:1:2:0:1", false},
    /* ... keys all at once in a kernel of rows, and block by block */
    {"given=2 queries=40 keys=35 dim=20 windows=3 heads=1 bias=same d_lse=1 "
     "data=common",
     "0:1:2:2:1:1:1:" ALL ":1:2:1:2:1:1:1", true},
    {"given=2 queries=40 keys=40 dim=20 windows=3 heads=1 bias=same d_lse=1 "
     "data=common",
     "1:1:1:2:1:1:2:1:1:1:1:1:2:1:1", true},
    {"given=2 queries=40 keys=50 dim=32 windows=3 heads=1 bias=fp32 "
     "data=dominant accumulate=31",
     "1:1:1:1:1:0:0:1:1:1:1:1:1:1:0", false},
    {"given=2 variant=cosine logit_scale=2.3 queries=33 keys=50 dim=24 "
     "windows=2 heads=1 bias=same data=common",
     "1:1:1:2:1:1:2:1:1:1:1:1:2:1:1", false},
    {"given=2 queries=40 keys=50 dim=32 windows=2 heads=1 data=steep",
     "1:1:1:2:1:0:0:1:1:1:1:1:1:1:0", false},
    /* ... waves that share rows, likewise */
    {"given=2 variant=cosine logit_scale=2 queries=20 keys=128 dim=40 "
     "windows=3 heads=1 bias=same data=common",
     "1:2:1:2:1:0:0:2:1:2:1:1:1:1:0", false},
    {"given=2 queries=20 keys=64 dim=24 windows=3 heads=1 bias=same "
     "data=common mask=regions mask_windows=2",
     "1:2:1:2:1:3:2:" ALL ":1:2:1:1:1:1:0", true},
    /* ---- Sliding: turns of a wave instead of tiles of rows or keys ---- */
    {"variant=sliding queries=40 keys=40 dim=16 windows=2 heads=2 kv_heads=1 "
     "block=16 window_blocks=2 d_lse=1",
     "1:1:1:1:1:0:0:1:1:1:1:1:1:1:0", true},
    {"given=1 variant=sliding queries=75 keys=75 dim=24 windows=1 heads=2 "
     "kv_heads=1 block=20 first_block=7 window_blocks=2 sink=9 d_lse=1",
     "2:1:1:2:1:0:0:2:2:1:2:1:2:1:0", true},
    {"given=2 variant=sliding queries=30 keys=90 dim=40 windows=2 heads=3 "
     "kv_heads=3 block=20 window_blocks=3 query_offset=60 sink=5 scale=-0.3 "
     "data=common",
     "1:2:1:2:2:0:0:2:1:1:1:1:2:1:0", false},
    {"variant=sliding queries=70 keys=90 dim=33 windows=2 heads=1 kv_heads=1 "
     "block=5 window_blocks=65 query_offset=20 sink=30 sink_in_window=1 "
     "accumulate=7",
     "1:2:1:1:2:0:0:2:2:2:1:1:1:2:0", false},
    {"given=2 variant=sliding queries=50 keys=50 dim=64 windows=1 heads=2 "
     "kv_heads=2 block=10 layout=strided data=dominant",
     "2:1:1:2:1:0:0:1:1:2:1:1:2:1:0", true},
    {"variant=sliding queries=64 keys=64 dim=20 windows=1 heads=1 kv_heads=1 "
     "block=64 window_blocks=1 scale=0 layout=packed",
     "", false},
    {"given=1 variant=sliding queries=60 keys=90 dim=16 windows=1 heads=1 "
     "kv_heads=1 block=30 query_offset=30 data=steep d_lse=1",
     "1:1:1:2:1:0:0:1:1:1:1:1:1:1:0", true},
    {"variant=sliding queries=33 keys=33 dim=200 windows=1 heads=1 "
     "kv_heads=1 block=8 window_blocks=2 sink=3",
     "", false},
    {"variant=sliding queries=50 keys=50 dim=32 windows=1 heads=4 "
     "kv_heads=2 block=10 data=nan outputs=5",
     "", false},
    /* ---- Windows that Hopper computes by wgmma ---- */
    {"given=2 variant=cosine logit_scale=2.3 queries=256 dim=32 windows=2 "
     "heads=1 bias=same data=common d_lse=1",
     "", false},
    {"queries=225 keys=241 dim=32 windows=2 heads=1 bias=same data=lowest "
     "accumulate=15",
     "", false},
};
#define ROWS (sizeof table / sizeof *table)

static void run(const test_case *c, const wa_matrix_gradient_shape *shape,
                unsigned windows)
{
    const demanded_backward demand = {.matrix_unit = chosen.matrix_unit,
                                      .matrix = shape,
                                      .windows = windows};
    case_result result;
    char text[512], shape_text[128] = "";
    case_print(c, text, sizeof text);
    if (shape)
        matrix_gradient_shape_print(shape, shape_text, sizeof shape_text);
    announce("{\"%s\", \"%s\"}, %u windows to a launch\n", text, shape_text,
             windows);
    if (planned_backward(&device, device.queue, c, &demand, &result))
        return;
    /* a kernel may need the registers of more work-items than it has */
    if (shape && is_excused(&result))
        return;
    fail_msg("%s {\"%s\", \"%s\"}, %u windows to a launch\n%s",
             chosen.matrix_unit->name, text, shape_text, windows,
             result.failure);
}

/* The same of a sliding one, which has turns instead. */
static void fit_sliding_shape(wa_matrix_gradient_shape *s)
{
    const wa_matrix_unit *unit = chosen.matrix_unit;
    wa_matrix_shape *k = &s->keys;
    s->block_rows *= s->waves_per_window * unit->queries;
    s->block_keys *= unit->tile;
    s->subtile_keys *= unit->tile;
    k->block_rows *= unit->tile;
    k->block_keys *= k->waves_per_window * unit->queries;
    k->subtile_keys *= unit->tile;
}

/* Turns tiles of a shape into rows and keys, and raises its waves. */
static void fit_shape(wa_matrix_gradient_shape *s, const test_case *c)
{
    if (c->variant == WINATTN_SLIDING) {
        fit_sliding_shape(s);
        return;
    }
    const wa_matrix_unit *unit = chosen.matrix_unit;
    const uint32_t waves = s->waves_per_window;
    s->block_rows = matrix_tiles(s->block_rows, unit->queries, c->queries);
    const uint32_t row_tiles = wa_ceil_div(s->block_rows, unit->queries);
    if (s->waves_per_window < row_tiles)
        s->waves_per_window = row_tiles;
    if (s->subtile_keys == 0)
        s->subtile_keys = wa_ceil_div((uint32_t)c->keys, unit->tile);
    s->subtile_keys *= unit->tile;
    if (s->block_keys == 0)
        return;
    wa_matrix_shape *k = &s->keys;
    s->block_keys = matrix_tiles(s->block_keys, unit->tile, c->keys);
    if (s->block_keys == (uint32_t)c->keys && s->keeps_dbias != 1)
        s->waves_per_window = waves;
    k->block_rows = matrix_tiles(k->block_rows, unit->tile, c->queries);
    k->block_keys = matrix_tiles(k->block_keys, unit->queries, c->keys);
    const uint32_t key_tiles = wa_ceil_div(k->block_keys, unit->queries);
    if (k->waves_per_window < key_tiles)
        k->waves_per_window = key_tiles;
    if (k->subtile_keys == 0)
        k->subtile_keys = wa_ceil_div(k->block_rows, unit->tile);
    k->subtile_keys *= unit->tile;
}

static void run_table(void **state)
{
    (void)state;
    const bool few = part_is("few"), small = few || part_is("small");
    for (size_t i = 0; i < ROWS; i++) {
        wa_matrix_gradient_shape shape;
        const bool planned = !table[i].shape[0];
        if ((small && !table[i].small) || !row_is_chosen(i) ||
            (few &&
             (i + (size_t)(chosen.matrix_unit - wa_matrix_units)) % 6 != 0))
            continue;
        test_case c = parsed(table[i].text);
        c.tier = WINATTN_TIER_MATRIX;
        c.pass = PASS_BACKWARD;
        c.seed = (int)i + 1;
        c.dtype = i % 2 ? WINATTN_BF16 : WINATTN_FP16;
        if (!planned) {
            assert_true(matrix_gradient_shape_parse(table[i].shape, &shape));
            fit_shape(&shape, &c);
        }
        run(&c, planned ? NULL : &shape, i % 3 == 0 ? 2 : 0);
    }
}

/* A random shape that fits a random case; tries until one is legal. */
static void random_shape(random_state *r, test_case *c, bool pairs,
                         wa_matrix_gradient_shape *s)
{
    for (;;) {
        wa_device roomy;
        wa_problem problem;
        wa_plan plan;
        *c = case_random_matrix(r, PASS_BACKWARD, WINATTN_FP16);
        s->block_rows = random_between(r, 0, 3);
        s->waves_per_window = random_between(r, 1, 4);
        s->windows_per_group = random_between(r, 1, 3);
        s->stages = random_between(r, 1, 2);
        s->subtile_keys = random_between(r, 0, 3);
        s->bias_cache = random_between(r, 0, 3);
        s->keeps_dbias = random_between(r, 0, 2);
        s->block_keys = pairs ? random_between(r, 1, 6) : 0;
        s->keys =
            (wa_matrix_shape){.block_rows = random_between(r, 0, 3),
                              .block_keys = random_between(r, 0, 3),
                              .waves_per_window = random_between(r, 1, 4),
                              .windows_per_group = random_between(r, 1, 3),
                              .stages = random_between(r, 1, 2),
                              .subtile_keys = random_between(r, 0, 3),
                              .bias_cache = random_between(r, 0, 3)};
        if (c->variant == WINATTN_SLIDING) {
            const uint32_t tiles = 1u << random_between(r, 0, 2);
            s->windows_per_group = s->keys.windows_per_group = 1;
            s->bias_cache = s->keys.bias_cache = s->keeps_dbias = 0;
            s->block_rows = random_between(r, 1, 2);
            s->block_keys = s->subtile_keys = tiles;
            s->keys.block_rows = s->keys.subtile_keys = tiles;
            s->keys.block_keys = random_between(r, 1, 2);
        }
        fit_shape(s, c);
        memset(&roomy, 0, sizeof roomy);
        roomy.max_work_group = 256;
        roomy.local_bytes = 60 * 1024;
        roomy.matrix_unit = chosen.matrix_unit;
        wa_plan_begin(WA_BACKWARD, &plan);
        const winattn_desc desc = case_desc(c);
        if (wa_problem_read(&desc, &problem) == WINATTN_SUCCESS &&
            wa_plan_matrix_gradient_shape(&problem, &roomy, s, &plan))
            return;
    }
}

static void run_random(void **state)
{
    (void)state;
    for (int i = 0; i < chosen.count; i++) {
        const int seed = chosen.first + i;
        random_state r = random_seeded((unsigned long long)seed);
        test_case c;
        wa_matrix_gradient_shape shape;
        random_shape(&r, &c, seed % 2 == 0, &shape);
        c.seed = seed;
        run(&c, &shape, random_between(&r, 0, 3));
    }
}

static const struct CMUnitTest fixed_tests[] = {cmocka_unit_test(run_table)};
static const struct CMUnitTest random_tests[] = {cmocka_unit_test(run_random)};

static const test_group groups[] = {TEST_GROUP("random", random_tests),
                                    TEST_GROUP(NULL, fixed_tests)};

int main(int count, char **arguments)
{
    const test_program program = {
        .words = {WORD_UNIT, WORD_PART, WORD_FIRST, WORD_COUNT},
        .part = "fixed",
        TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
