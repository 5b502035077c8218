/* SPDX-License-Identifier: Apache-2.0
 * All tensors of a call, in the order of the structs of winattn.h, and of the
 * library's wa_tensor_id. */
#ifndef KIT_TENSOR_ID_H
#define KIT_TENSOR_ID_H

#include <stddef.h>

#include "winattn.h"

typedef enum tensor_id {
    T_Q,
    T_K,
    T_V,
    T_BIAS,
    T_MASK,
    T_QUERY_REGIONS,
    T_KEY_REGIONS,
    T_LOGIT_SCALE,
    T_PAD_K,
    T_PAD_V,
    T_O,
    T_LSE,
    T_D_O,
    T_D_LSE,
    T_DQ,
    T_DK,
    T_DV,
    T_DBIAS,
    T_D_LOGIT_SCALE,
    T_D_PAD_K,
    T_D_PAD_V,
    TENSORS
} tensor_id;

extern const char *const tensor_names[TENSORS];

/* Where it is in winattn_backward, and up to lse in winattn_forward. */
static inline size_t tensor_place(tensor_id id)
{
    return offsetof(winattn_backward, q) + (size_t)id * sizeof(winattn_tensor);
}

#endif
