/* SPDX-License-Identifier: Apache-2.0
 * The table of workloads. Windows count those of all images of a batch; a
 * trailing bN names the batch. */
#include "workloads.h"

const workload_row workload_rows[] = {
    {"swin-t-224-s1-b64", "windows=4096 heads=3 queries=49 dim=32 bias=same "
                          "mask=regions mask_windows=64"},
    {"swin-t-224-s3-b64", "windows=256 heads=12 queries=49 dim=32 bias=same "
                          "mask=regions mask_windows=4"},
    {"swin-b-384-s1-b16", "windows=1024 heads=4 queries=144 dim=32 bias=same "
                          "mask=regions mask_windows=64"},
    {"swin-c24-256-b64", "windows=4096 heads=4 queries=64 dim=24 bias=same "
                         "mask=regions mask_windows=64"},
    {"swin-s3-w14-b64", "windows=64 heads=12 queries=196 dim=32 bias=same"},
    {"swinv2-t-w8-b64", "variant=cosine logit_scale=2.3 windows=4096 heads=3 "
                        "queries=64 dim=32 bias=same mask=regions "
                        "mask_windows=64"},
    {"swinv2-b-w16-b32", "variant=cosine logit_scale=2.3 windows=512 heads=4 "
                         "queries=256 dim=32 bias=same mask=regions "
                         "mask_windows=16"},
    {"swinv2-b-w24-b8", "variant=cosine logit_scale=2.3 windows=128 heads=4 "
                        "queries=576 dim=32 bias=same mask=regions "
                        "mask_windows=16"},
    {"swinir-light-b32", "windows=2048 heads=6 queries=64 dim=10 bias=same "
                         "mask=regions mask_windows=64"},
    {"swinir-720p", "windows=14651 heads=6 queries=64 dim=30 bias=same "
                    "mask=regions mask_windows=14651"},
    {"hat-hab", "windows=64 heads=6 queries=256 dim=30 bias=same "
                "mask=regions mask_windows=16"},
    {"hat-ocab", "windows=64 heads=6 queries=256 keys=576 dim=30 bias=same"},
    {"video-swin-t-k400", "windows=128 heads=3 queries=392 dim=32 bias=same "
                          "mask=regions mask_windows=128"},
    {"fwa1-bench", "windows=4096 heads=4 queries=64 dim=64 bias=same"},
    {"fwa2-bench", "variant=cosine logit_scale=2.3 windows=256 heads=6 "
                   "queries=256 dim=32 bias=same mask=same mask_windows=16"},
    {"swba-bench", "variant=sliding windows=1 heads=12 queries=16384 dim=64 "
                   "block=256 window_blocks=16"},
    {"swba-narrow", "variant=sliding windows=4 heads=12 queries=4096 dim=64 "
                    "block=256 window_blocks=4"},
    {"self-forcing-train", "variant=sliding windows=1 heads=12 queries=32760 "
                           "dim=128 block=4680 window_blocks=7"},
    {"self-forcing-decode", "variant=sliding windows=1 heads=12 queries=4680 "
                            "keys=32760 dim=128 block=4680 window_blocks=7 "
                            "query_offset=28080"},
    {"magi-like", "variant=sliding windows=1 heads=24 kv_heads=8 "
                  "queries=48600 dim=128 block=12150 window_blocks=4"},
};
const size_t workload_count = sizeof workload_rows / sizeof *workload_rows;

/* Two costs show between rows:
 *   swin-t-map-b64 : swin-t-map-full   the table, over the bias it stands for
 *   swin-t-map-b64 : swin-t-map-open   the computed mask, over none
 * and swin-t-map-plain has no shift either. */
#define SWIN_T_MAP                                                            \
    "grid=2 size=56x56 window=7x7 batch=64 heads=3 dim=32 layout=packed "
const workload_row map_rows[] = {
    {"swin-t-map-b64", SWIN_T_MAP "shift=3x3 mask=shift bias=table_same"},
    {"swin-t-map-full", SWIN_T_MAP "shift=3x3 mask=shift bias=same"},
    {"swin-t-map-open", SWIN_T_MAP "shift=3x3 bias=table_same"},
    {"swin-t-map-plain", SWIN_T_MAP "bias=table_same"},
    {"swin-30x45-b64", "grid=2 size=30x45 window=7x7 shift=3x3 mask=shift "
                       "bias=table_same pads=3 batch=64 heads=3 dim=32 "
                       "layout=packed"},
    {"video-swin-map", "grid=3 size=8x56x56 window=8x7x7 shift=4x3x3 "
                       "mask=shift bias=table_same batch=2 heads=3 dim=32 "
                       "layout=packed"},
    {"swinv2-t-map-b64", "variant=cosine logit_scale=2.3 grid=2 size=64x64 "
                         "window=8x8 shift=4x4 mask=shift bias=table_same "
                         "batch=64 heads=3 dim=32 layout=packed"},
};
const size_t map_count = sizeof map_rows / sizeof *map_rows;
