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
