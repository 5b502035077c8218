/* SPDX-License-Identifier: Apache-2.0
 * Programs with wgmma, as tier auto takes them on a Hopper. Their windows are
 * large, so that each has some cases of its own alone; `groups` is for
 * work-groups that go from window to window. */
#include "programs.h"

#define WINDOW " only=1 kernel=window_forward_wgmma "
#define SLIDING " only=1 kernel=sliding_forward_wgmma "
static const char *const forward[] = {
    "queries=256 dim=64 bias=same" WINDOW
    "| windows=3 layout=packed groups=1 | data=nan heads=2 | data=lowest "
    "| scale=-2 data=tiny lse=0 | windows=1 layout=misaligned",
    "queries=400 keys=259 dim=32" WINDOW
    "| windows=1 heads=2 data=steep | data=nan layout=tokens | lse=0 "
    "| layout=aligned scale=9",
    "queries=256 dim=32 bias=same mask=regions mask_windows=2" WINDOW
    "| region_value=-inf | windows=3 mask_windows=3 data=lowest "
    "| windows=5 groups=2 mask_windows=1 data=swinging lse=0",
    "queries=169 dim=32 bias=same" WINDOW
    "| windows=5 heads=1 groups=2 | windows=3 heads=2 data=steep | "
    "layout=packed",
    "queries=196 dim=32 bias=same" WINDOW
    "| heads=2 data=steep | windows=5 data=rising lse=0",
    "queries=392 dim=32 bias=same windows=1" WINDOW "| windows=5",
    "variant=cosine logit_scale=2 queries=300 keys=259 dim=32" WINDOW
    "| logit_scale=5 heads=2 | data=zero | data=huge windows=1",
    "variant=cosine logit_scale=4 queries=576 dim=32 bias=same "
    "windows=1" WINDOW "| data=zero logit_scale=3",
    "variant=cosine logit_scale=3 queries=192 dim=32 bias=same mask=regions "
    "mask_windows=2" WINDOW "| windows=5 mask_windows=5 region_value=-inf",
    "variant=cosine logit_scale=3 queries=121 dim=32 bias=same" WINDOW
    "| windows=5 heads=2 lse=0 | layout=packed data=zero",
    "variant=cosine logit_scale=4 grid=2 size=32x32 window=16x16 shift=5x8 "
    "mask=shift dim=32 bias=table_same layout=packed" WINDOW
    "| map=121 roll=370 batch=2 layout=tokens | map=211 region_value=-inf",
    "grid=2 size=40x20 window=20x20 shift=7x0 mask=shift dim=32 "
    "bias=same" WINDOW "| data=nan layout=aligned",
    "grid=2 size=32x32 window=16x16 dim=32" WINDOW
    "| map=211 batch=2 layout=packed heads=2 | map=121 data=rising",
    "queries=256 dim=32 bias=table_same entries=77" WINDOW
    "| windows=3 heads=2 layout=tokens",
    "variant=sliding queries=200 dim=64 block=64" SLIDING
    "| queries=300 block=64 window_blocks=3 heads=2 windows=1 groups=1 "
    "| queries=130 keys=300 block=50 first_block=20 sink=70 "
    "query_offset=170 window_blocks=2 heads=2 kv_heads=1 windows=1 "
    "| queries=200 block=30 data=steep windows=1 "
    "| queries=150 block=30 data=nan layout=packed windows=1 "
    /* a step of decoding, and the last one */
    "| queries=64 keys=192 block=64 window_blocks=2 query_offset=128 heads=4 "
    "kv_heads=2 | queries=8 keys=200 block=64 window_blocks=2 "
    "query_offset=192 heads=4 kv_heads=2",
    "variant=sliding queries=200 dim=128 block=64" SLIDING
    "| queries=130 block=50 window_blocks=2 sink=10 sink_in_window=1 "
    "heads=2 windows=1 groups=1 layout=tokens | queries=70 keys=200 block=64 "
    "query_offset=130 heads=4 kv_heads=2 windows=1 "
    "| queries=30 block=100 first_block=30 window_blocks=2 sink=70 heads=4 "
    "kv_heads=2 windows=1 | queries=100 keys=330 block=100 first_block=30 "
    "window_blocks=2 sink=70 query_offset=230 heads=4 kv_heads=2",
    /* two windows at a time, in warpgroups of three tiles */
    "queries=270 dim=32 bias=same" WINDOW "| windows=5 heads=2 lse=0",
};

#define WHOLE " only=1 kernel=window_gradients_wgmma "
#define KEYS " only=1 kernel=window_keys_wgmma "
#define SLIDING_KEYS " only=1 kernel=sliding_keys_wgmma "
static const char *const backward[] = {
    "queries=144 dim=32 bias=same given=1" WHOLE
    "| windows=3 heads=2 groups=2 d_lse=1 | data=common accumulate=7 "
    "| layout=misaligned outputs=7 | data=nan heads=2",
    "queries=144 dim=32 bias=same mask=regions mask_windows=2" WHOLE
    "| windows=3 data=common given=1 | region_value=-2 outputs=7 windows=3",
    "grid=2 size=24x36 window=12x12 shift=5x8 mask=shift dim=32 "
    "bias=table_same layout=packed given=1" WHOLE
    "| map=121 roll=650 d_lse=1 | map=211 batch=2 accumulate=31 | data=common",
    "grid=3 size=4x6x12 window=2x6x12 dim=32 bias=same" WHOLE
    "| map=121 batch=2 heads=2 layout=tokens accumulate=31",
    "queries=144 dim=32 bias=table_same entries=77" WHOLE
    "| heads=2 data=rising",
    "variant=cosine logit_scale=3 queries=256 dim=32 bias=same given=1" KEYS
    "| windows=3 d_lse=1 | data=zero accumulate=31 windows=1",
    "queries=256 dim=32 bias=same given=1" KEYS
    "| data=common outputs=7 windows=3 groups=1 | heads=2 d_lse=1 windows=1 "
    "layout=packed",
    "queries=256 dim=32 bias=same mask=regions mask_windows=2" KEYS
    "| region_value=-2 d_lse=1 outputs=7",
    "variant=cosine logit_scale=3 queries=196 keys=225 dim=32 bias=same "
    /* the last: an lse far below 0, which rows behind it must not have */
    "mask=regions mask_windows=2" KEYS "| heads=2 windows=1 d_lse=1 "
    "| logit_scale=4.6 heads=3 data=common",
    "variant=cosine logit_scale=4 grid=2 size=32x32 window=16x16 shift=5x8 "
    "mask=shift dim=32 bias=table_same layout=packed given=1" KEYS
    "| map=121 roll=390 d_lse=1 accumulate=31",
    "variant=sliding queries=200 dim=64 block=64" SLIDING_KEYS
    "more=2 | queries=300 block=64 window_blocks=3 heads=2 windows=1 groups=1 "
    "| queries=130 keys=200 block=50 first_block=20 sink=70 "
    "query_offset=70 d_lse=1 accumulate=7 heads=2 kv_heads=1 windows=1",
    "variant=sliding queries=130 dim=64 block=50 given=1" SLIDING_KEYS
    "more=2 | windows=2 heads=2 groups=2 window_blocks=2 layout=misaligned",
    "variant=sliding queries=200 dim=128 block=64 windows=1 "
    "given=1" SLIDING_KEYS
    "| d_lse=1 | queries=130 block=50 window_blocks=2 sink=10 heads=2 "
    "accumulate=5",
};

const program_table hopper_programs[] = {
    {"forward", "auto", "wgmma", PROGRAMS(forward)},
    {"backward", "auto", "wgmma", PROGRAMS(backward)},
    {.rows = NULL},
};
