/* SPDX-License-Identifier: Apache-2.0
 * Names of tensors. */
#include "tensor_id.h"

const char *const tensor_names[TENSORS] = {[T_Q] = "q",
                                           [T_K] = "k",
                                           [T_V] = "v",
                                           [T_BIAS] = "bias",
                                           [T_MASK] = "mask",
                                           [T_QUERY_REGIONS] = "query_regions",
                                           [T_KEY_REGIONS] = "key_regions",
                                           [T_LOGIT_SCALE] = "logit_scale",
                                           [T_PAD_K] = "pad_k",
                                           [T_PAD_V] = "pad_v",
                                           [T_O] = "o",
                                           [T_LSE] = "lse",
                                           [T_D_O] = "d_o",
                                           [T_D_LSE] = "d_lse",
                                           [T_DQ] = "dq",
                                           [T_DK] = "dk",
                                           [T_DV] = "dv",
                                           [T_DBIAS] = "dbias",
                                           [T_D_LOGIT_SCALE] = "d_logit_scale",
                                           [T_D_PAD_K] = "d_pad_k",
                                           [T_D_PAD_V] = "d_pad_v"};
