/* SPDX-License-Identifier: Apache-2.0
 * What version 0.1.0 fixed: sizes of the structs within others, where the
 * others' fields lie, and what names stand for. Compiled once with its header
 * and once with today's; LAYOUT is the table's name. */
#include "layout.h"

#include <stddef.h>
#include <winattn.h>

#define SIZE(type)                                                            \
    {                                                                         \
        "sizeof " #type, sizeof(type)                                         \
    }
#define DESC(field)                                                           \
    {                                                                         \
        "desc." #field, offsetof(winattn_desc, field)                         \
    }
#define FORWARD(field)                                                        \
    {                                                                         \
        "forward." #field, offsetof(winattn_forward, field)                   \
    }
#define BACKWARD(field)                                                       \
    {                                                                         \
        "backward." #field, offsetof(winattn_backward, field)                 \
    }
#define VALUE(name)                                                           \
    {                                                                         \
#name, (unsigned long long)(name)                                     \
    }
#define STATUS(name, number, cause) VALUE(name),

const layout_entry LAYOUT[] = {SIZE(winattn_strides),
                               SIZE(winattn_grid),
                               SIZE(winattn_table),
                               SIZE(winattn_tensor),

                               DESC(struct_size),
                               DESC(variant),
                               DESC(dtype),
                               DESC(tier),
                               DESC(allow_tf32),
                               DESC(windows),
                               DESC(heads),
                               DESC(kv_heads),
                               DESC(queries),
                               DESC(keys),
                               DESC(head_dim),
                               DESC(scale),
                               DESC(q),
                               DESC(k),
                               DESC(v),
                               DESC(o),
                               DESC(lse),
                               DESC(grid),
                               DESC(bias),
                               DESC(bias_dtype),
                               DESC(bias_strides),
                               DESC(table),
                               DESC(mask),
                               DESC(mask_dtype),
                               DESC(mask_windows),
                               DESC(mask_strides),
                               DESC(query_region_strides),
                               DESC(key_region_strides),
                               DESC(has_region_value),
                               DESC(region_value),
                               DESC(block),
                               DESC(first_block),
                               DESC(window_blocks),
                               DESC(sink),
                               DESC(sink_in_window),
                               DESC(query_offset),
                               DESC(passes),
                               DESC(d_o),
                               DESC(d_lse),
                               DESC(dq),
                               DESC(dk),
                               DESC(dv),
                               DESC(dbias_strides),
                               DESC(pad_k),
                               DESC(pad_v),
                               DESC(d_pad_k),
                               DESC(d_pad_v),
                               DESC(build_options),

                               FORWARD(struct_size),
                               FORWARD(q),
                               FORWARD(k),
                               FORWARD(v),
                               FORWARD(bias),
                               FORWARD(mask),
                               FORWARD(query_regions),
                               FORWARD(key_regions),
                               FORWARD(logit_scale),
                               FORWARD(pad_k),
                               FORWARD(pad_v),
                               FORWARD(o),
                               FORWARD(lse),
                               FORWARD(workspace),

                               BACKWARD(struct_size),
                               BACKWARD(q),
                               BACKWARD(k),
                               BACKWARD(v),
                               BACKWARD(bias),
                               BACKWARD(mask),
                               BACKWARD(query_regions),
                               BACKWARD(key_regions),
                               BACKWARD(logit_scale),
                               BACKWARD(pad_k),
                               BACKWARD(pad_v),
                               BACKWARD(o),
                               BACKWARD(lse),
                               BACKWARD(d_o),
                               BACKWARD(d_lse),
                               BACKWARD(dq),
                               BACKWARD(dk),
                               BACKWARD(dv),
                               BACKWARD(dbias),
                               BACKWARD(d_logit_scale),
                               BACKWARD(d_pad_k),
                               BACKWARD(d_pad_v),
                               BACKWARD(accumulate),
                               BACKWARD(workspace),

                               VALUE(WINATTN_DOT),
                               VALUE(WINATTN_COSINE),
                               VALUE(WINATTN_SLIDING),
                               VALUE(WINATTN_FP32),
                               VALUE(WINATTN_FP16),
                               VALUE(WINATTN_BF16),
                               VALUE(WINATTN_TERM_SAME),
                               VALUE(WINATTN_TERM_FP32),
                               VALUE(WINATTN_BIAS_NONE),
                               VALUE(WINATTN_BIAS_FULL),
                               VALUE(WINATTN_BIAS_TABLE),
                               VALUE(WINATTN_MASK_NONE),
                               VALUE(WINATTN_MASK_ADDITIVE),
                               VALUE(WINATTN_MASK_REGIONS),
                               VALUE(WINATTN_MASK_SHIFT),
                               VALUE(WINATTN_TIER_AUTO),
                               VALUE(WINATTN_TIER_CPU),
                               VALUE(WINATTN_TIER_LOCAL),
                               VALUE(WINATTN_TIER_MATRIX),
                               VALUE(WINATTN_PADDING_VALUES),
                               VALUE(WINATTN_PADDING_HIDDEN),
                               VALUE(WINATTN_PASS_FORWARD),
                               VALUE(WINATTN_PASS_BACKWARD),
                               VALUE(WINATTN_AXES),
                               VALUE(WINATTN_DQ),
                               VALUE(WINATTN_DK),
                               VALUE(WINATTN_DV),
                               VALUE(WINATTN_DBIAS),
                               VALUE(WINATTN_D_LOGIT_SCALE),
                               VALUE(WINATTN_D_PAD_K),
                               VALUE(WINATTN_D_PAD_V),

                               WINATTN_STATUS_LIST(STATUS){NULL, 0}};
