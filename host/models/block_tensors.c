/* SPDX-License-Identifier: Apache-2.0 */
#include "models/block_tensors.h"

#include <string.h>

const char *const wa_block_tensor_names[WA_BLOCK_TENSORS] = {
    "norm1_weight", "norm1_bias",   "qkv_weight", "qkv_bias",   "proj_weight",
    "proj_bias",    "norm2_weight", "norm2_bias", "fc1_weight", "fc1_bias",
    "fc2_weight",   "fc2_bias",     "table",      "logit_scale"};

void wa_block_extents(const wa_block_shape *s,
                      uint64_t extent[WA_BLOCK_TENSORS][2])
{
    const uint64_t c = s->channels, h = s->hidden;
    const uint64_t entries =
        (2ull * s->window[0] - 1) * (2ull * s->window[1] - 1);
    const uint64_t all[WA_BLOCK_TENSORS][2] = {
        [WA_BLOCK_NORM1_WEIGHT] = {c, 1},
        [WA_BLOCK_NORM1_BIAS] = {c, 1},
        [WA_BLOCK_QKV_WEIGHT] = {3 * c, c},
        [WA_BLOCK_QKV_BIAS] = {3 * c, 1},
        [WA_BLOCK_PROJ_WEIGHT] = {c, c},
        [WA_BLOCK_PROJ_BIAS] = {c, 1},
        [WA_BLOCK_NORM2_WEIGHT] = {c, 1},
        [WA_BLOCK_NORM2_BIAS] = {c, 1},
        [WA_BLOCK_FC1_WEIGHT] = {h, c},
        [WA_BLOCK_FC1_BIAS] = {h, 1},
        [WA_BLOCK_FC2_WEIGHT] = {c, h},
        [WA_BLOCK_FC2_BIAS] = {c, 1},
        [WA_BLOCK_TABLE] = {entries, s->heads},
        [WA_BLOCK_LOGIT_SCALE] = {s->is_cosine ? s->heads : 0, 1}};
    memcpy(extent, all, sizeof all);
}
