/* SPDX-License-Identifier: Apache-2.0
 * The rows of linear layers that the library comes with. */
#include "plan/tuning.h"

#include <stddef.h>

/* As wa_built_in_rows (tuning.c): each beats the model by 4% or more. Measured
 * on one H200, driver 580.159.04, November 2026, in fp16, as layers of Swin-T
 * at batch 64 (bench/decisions/short-layers-keep-their-weights.md). Blocks are
 * not much larger than the model's, so that smaller batches keep as many
 * work-groups. */
const char *const wa_built_in_linear_rows[] = {
    "linear-matrix NVIDIA 90 half many plain 96 288 128:96:96:2:4:2:1:1",
    "linear-matrix NVIDIA 90 half many residual 96 96 64:96:96:2:4:1:1:1",
    "linear-matrix NVIDIA 90 half many gelu 96 384 64:192:96:2:2:4:1:1",
    "linear-matrix NVIDIA 90 half many plain 192 576 128:144:64:3:4:3:1:1",
    "linear-matrix NVIDIA 90 half many residual 192 192 64:96:64:3:4:2:1:1",
    "linear-matrix NVIDIA 90 half many residual 1536 384 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 half many plain 768 2304 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 half many gelu 768 3072 96:96:96:2:2:2:1",
    "linear-matrix NVIDIA 90 half many residual 3072 768 96:96:96:2:2:2:1",
    NULL};
