/* SPDX-License-Identifier: Apache-2.0
 * The part that blocks and modules of window attention share: projection to
 * q, k and v, attention, projection of its result. */
#ifndef WINATTN_MODELS_ATTENTION_H
#define WINATTN_MODELS_ATTENTION_H

#include "launch/chain.h"
#include "models/levels.h"

/* What descriptors of either have in common. On a map, tokens are where it has
 * them; else they are cut into windows. */
typedef struct wa_attention_desc {
    winattn_dtype dtype;
    winattn_tier tier;
    bool allow_tf32;
    winattn_variant variant;
    uint32_t channels, heads;
    uint32_t window[2];
    winattn_term_dtype table_dtype;
    bool adds;                      /* the result is added to a residual */
    unsigned qkv_norms, proj_norms; /* of the layers, as wa_layer has them */
    bool on_map;
    uint32_t batch, size[2], shift[2]; /* of maps */
    cl_bitfield grid_options;
    uint64_t windows, mask_windows; /* of windows */
    winattn_term_dtype mask_dtype;
    const char *build_options;
} wa_attention_desc;

typedef struct wa_attention {
    winattn_linear_plan *qkv, *proj;
    winattn_plan *core;
    uint64_t rows;  /* tokens of all maps or windows */
    bool is_padded; /* maps are */
    uint32_t channels, element_size;
    size_t core_bytes;   /* of the core's workspace */
    uint64_t core_moves; /* bytes of its tensors */
} wa_attention;

/* Sizes in range, and their products in 64 bits? */
winattn_status wa_attention_check(const wa_attention_desc *desc);

/* The layers that it is to have. */
void wa_attention_layers(const wa_attention_desc *desc, wa_layer *qkv,
                         wa_layer *proj);

/* Makes the plans; to be released also after a failure. */
winattn_status wa_attention_make(wa_session *session,
                                 const wa_attention_desc *desc,
                                 wa_attention *attention);
void wa_attention_release(wa_attention *attention);

typedef struct wa_attention_call {
    winattn_tensor x; /* rows */
    winattn_tensor qkv_weight, qkv_bias, proj_weight, proj_bias;
    winattn_tensor table, logit_scale, mask;
    winattn_tensor residual; /* where it adds */
    winattn_tensor qkv;      /* room for 3 channels of each row */
    winattn_tensor o;        /* room for the rows; may be x */
    winattn_tensor y;        /* may be qkv or residual; x, if that is not o */
    winattn_tensor workspace;
    /* as wa_layer_call has them, of layers with norms */
    winattn_tensor qkv_terms; /* in place of the bias, where it takes some */
    winattn_tensor norm_weight, norm_bias; /* of proj */
    wa_linear_norms qkv_norms, proj_norms;
} wa_attention_call;

/* Appends the launches; the caller has checked all tensors. */
winattn_status wa_attention_append(const wa_attention *attention,
                                   const wa_attention_call *call,
                                   wa_kernel_chain *chain);

/* Bytes that a call moves between its launches and memory, each launch's
 * tensors once. */
uint64_t wa_attention_bytes(const wa_attention *attention);

/* What the plans say of themselves. */
winattn_status wa_attention_describe(const wa_attention *attention, char *text,
                                     size_t size);

#endif
