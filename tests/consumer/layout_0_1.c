/* SPDX-License-Identifier: Apache-2.0
 * What version 0.1.0 fixed, where programs of 64 bits that were compiled with
 * it find it: sizes of the structs within others, where the others' fields
 * lie, and what names stand for. It compiles, or something has moved. */
#include <stddef.h>
#include <stdint.h>
#include <winattn.h>

#if SIZE_MAX == UINT64_MAX
#define IS(name, number) ((name) == (number))
#define SIZE(type, number) IS(sizeof(type), number)
#define DESC(field, place) IS(offsetof(winattn_desc, field), place)
#define FORWARD(field, place) IS(offsetof(winattn_forward, field), place)
#define BACKWARD(field, place) IS(offsetof(winattn_backward, field), place)

_Static_assert(SIZE(winattn_strides, 56) && SIZE(winattn_grid, 64) &&
                   SIZE(winattn_table, 40) && SIZE(winattn_tensor, 16),
               "a struct is of another size");
_Static_assert(
    DESC(struct_size, 0) && DESC(variant, 8) && DESC(dtype, 12) &&
        DESC(tier, 16) && DESC(allow_tf32, 20) && DESC(windows, 24) &&
        DESC(heads, 32) && DESC(kv_heads, 36) && DESC(queries, 40) &&
        DESC(keys, 44) && DESC(head_dim, 48) && DESC(scale, 52) &&
        DESC(q, 56) && DESC(k, 112) && DESC(v, 168) && DESC(o, 224) &&
        DESC(lse, 280) && DESC(grid, 336) && DESC(bias, 400) &&
        DESC(bias_dtype, 404) && DESC(bias_strides, 408) && DESC(table, 464) &&
        DESC(mask, 504) && DESC(mask_dtype, 508) && DESC(mask_windows, 512) &&
        DESC(mask_strides, 520) && DESC(query_region_strides, 576) &&
        DESC(key_region_strides, 632) && DESC(has_region_value, 688) &&
        DESC(region_value, 692) && DESC(block, 696) &&
        DESC(first_block, 700) && DESC(window_blocks, 704) &&
        DESC(sink, 708) && DESC(sink_in_window, 712) &&
        DESC(query_offset, 716) && DESC(passes, 720) && DESC(d_o, 728) &&
        DESC(d_lse, 784) && DESC(dq, 840) && DESC(dk, 896) && DESC(dv, 952) &&
        DESC(dbias_strides, 1008) && DESC(pad_k, 1064) && DESC(pad_v, 1120) &&
        DESC(d_pad_k, 1176) && DESC(d_pad_v, 1232) &&
        DESC(build_options, 1288),
    "a field of winattn_desc has moved");
_Static_assert(FORWARD(struct_size, 0) && FORWARD(q, 8) && FORWARD(k, 24) &&
                   FORWARD(v, 40) && FORWARD(bias, 56) && FORWARD(mask, 72) &&
                   FORWARD(query_regions, 88) && FORWARD(key_regions, 104) &&
                   FORWARD(logit_scale, 120) && FORWARD(pad_k, 136) &&
                   FORWARD(pad_v, 152) && FORWARD(o, 168) &&
                   FORWARD(lse, 184) && FORWARD(workspace, 200),
               "a field of winattn_forward has moved");
_Static_assert(BACKWARD(struct_size, 0) && BACKWARD(q, 8) && BACKWARD(k, 24) &&
                   BACKWARD(v, 40) && BACKWARD(bias, 56) &&
                   BACKWARD(mask, 72) && BACKWARD(query_regions, 88) &&
                   BACKWARD(key_regions, 104) && BACKWARD(logit_scale, 120) &&
                   BACKWARD(pad_k, 136) && BACKWARD(pad_v, 152) &&
                   BACKWARD(o, 168) && BACKWARD(lse, 184) &&
                   BACKWARD(d_o, 200) && BACKWARD(d_lse, 216) &&
                   BACKWARD(dq, 232) && BACKWARD(dk, 248) &&
                   BACKWARD(dv, 264) && BACKWARD(dbias, 280) &&
                   BACKWARD(d_logit_scale, 296) && BACKWARD(d_pad_k, 312) &&
                   BACKWARD(d_pad_v, 328) && BACKWARD(accumulate, 344) &&
                   BACKWARD(workspace, 352),
               "a field of winattn_backward has moved");
_Static_assert(
    IS(WINATTN_DOT, 0) && IS(WINATTN_COSINE, 1) && IS(WINATTN_SLIDING, 2) &&
        IS(WINATTN_FP32, 0) && IS(WINATTN_FP16, 1) && IS(WINATTN_BF16, 2) &&
        IS(WINATTN_TERM_SAME, 0) && IS(WINATTN_TERM_FP32, 1) &&
        IS(WINATTN_BIAS_NONE, 0) && IS(WINATTN_BIAS_FULL, 1) &&
        IS(WINATTN_BIAS_TABLE, 2) && IS(WINATTN_MASK_NONE, 0) &&
        IS(WINATTN_MASK_ADDITIVE, 1) && IS(WINATTN_MASK_REGIONS, 2) &&
        IS(WINATTN_MASK_SHIFT, 3) && IS(WINATTN_TIER_AUTO, 0) &&
        IS(WINATTN_TIER_CPU, 1) && IS(WINATTN_TIER_LOCAL, 2) &&
        IS(WINATTN_TIER_MATRIX, 3) && IS(WINATTN_PADDING_VALUES, 0) &&
        IS(WINATTN_PADDING_HIDDEN, 1) && IS(WINATTN_PASS_FORWARD, 1) &&
        IS(WINATTN_PASS_BACKWARD, 2) && IS(WINATTN_AXES, 3) &&
        IS(WINATTN_DQ, 1) && IS(WINATTN_DK, 2) && IS(WINATTN_DV, 4) &&
        IS(WINATTN_DBIAS, 8) && IS(WINATTN_D_LOGIT_SCALE, 16) &&
        IS(WINATTN_D_PAD_K, 32) && IS(WINATTN_D_PAD_V, 64) &&
        IS(WINATTN_INVALID_ARGUMENT, -3000) &&
        IS(WINATTN_INVALID_LAYOUT, -3001) &&
        IS(WINATTN_INVALID_BUFFER, -3002) &&
        IS(WINATTN_BUFFER_TOO_SMALL, -3003) &&
        IS(WINATTN_INVALID_QUEUE, -3004) &&
        IS(WINATTN_UNSUPPORTED_PROBLEM, -3010) &&
        IS(WINATTN_UNSUPPORTED_DEVICE, -3020) &&
        IS(WINATTN_WORKSPACE_TOO_SMALL, -3030) &&
        IS(WINATTN_INVALID_BLOB, -3040),
    "a name stands for something else");
#endif
