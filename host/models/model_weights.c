/* SPDX-License-Identifier: Apache-2.0
 * A model's weights on the device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/status.h"
#include "device/buffer.h"
#include "models/levels.h"
#include "models/linear_plan.h"
#include "models/model.h"

winattn_term_dtype wa_model_table_dtype(const wa_swin_config *config,
                                        winattn_dtype dtype)
{
    return config->generation == 2 && dtype != WINATTN_FP32
               ? WINATTN_TERM_FP32
               : WINATTN_TERM_SAME;
}

/* A tensor, where it comes from and where it goes. */
typedef struct upload {
    const float *from;
    uint64_t count;
    bool is_fp32; /* whatever the dtype */
    bool as_tf32; /* which has its last 13 bits 0 */
    winattn_tensor *to;
} upload;

/* Layers of a block that take a norm's weights. */
#define FOLDED 2

/* A norm that is in a layer: the first of its tensors in the part, and of the
 * layer's, which are weights and bias; W has all of the norm's weights; where
 * terms go. */
typedef struct folding {
    int norm, layer;
    bool has_bias, in_weights;
    winattn_tensor *terms;
} folding;

/* The tensors of a part, which share a buffer. */
typedef struct part {
    wa_session *session;
    winattn_dtype dtype;
    bool cuts_matrices;
    const wa_stage_norms *norms; /* of each stage */
    wa_model_weights *w;
    upload all[WA_BLOCK_TENSORS + FOLDED];
    size_t count;
    folding folds[FOLDED]; /* of a part whose norms are in its layers */
    size_t fold_count;
    float *made[3 * FOLDED]; /* numbers that were made for the part */
} part;

static winattn_dtype type_of(const part *p, const upload *u)
{
    return u->is_fp32 ? WINATTN_FP32 : p->dtype;
}

static float as_stored(winattn_dtype dtype, float x)
{
    const bool is_fp16 = dtype == WINATTN_FP16;
    return dtype == WINATTN_FP32
               ? x
               : wa_half_value(is_fp16, wa_half_of(is_fp16, x));
}

/* Do linear layers cut W off where TF32 ends, which makes all of it smaller
 * (cl/hopper/linear_wgmma.cl)? Then it is rounded before. */
static bool cuts_matrices(const wa_session *session,
                          const winattn_model_desc *desc)
{
    const wa_linear_problem layer = {.dtype = desc->dtype,
                                     .allow_tf32 = desc->allow_tf32,
                                     .in = 16,
                                     .out = 16};
    return desc->dtype == WINATTN_FP32 &&
           (desc->tier == WINATTN_TIER_AUTO ||
            desc->tier == WINATTN_TIER_MATRIX) &&
           !wa_linear_wgmma_refusal(&layer, wa_session_device(session));
}

static void round_to_tf32(unsigned char *numbers, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i * sizeof bits, sizeof bits);
        if ((bits & 0x7f800000) != 0x7f800000)
            bits = wa_round_shift(bits, 13) << 13;
        memcpy(numbers + i * sizeof bits, &bits, sizeof bits);
    }
}

/* A power of two that no norm's weight is above. */
static float largest_scale(const float *scale, size_t count)
{
    float most = 1;
    for (size_t i = 0; i < count; i++)
        while (most < fabsf(scale[i]) && isfinite(scale[i]))
            most *= 2;
    return most;
}

/* A layer's norm, of its rows on the way (cl/models/row_origin.cl): its
 * weights become at most 1, for x times these to be in range, and W larger in
 * turn; or W has all of them, which rounds it once more. */
static winattn_status fold_norm(part *p, const folding *f, float **made)
{
    upload *norm = &p->all[f->norm], *layer = &p->all[f->layer];
    const float *scale = norm[0].from, *shift = norm[1].from;
    const float *weight = layer[0].from;
    const float *bias = f->has_bias ? layer[1].from : NULL;
    const size_t in = (size_t)norm->count;
    const size_t out = (size_t)layer->count / in;
    const float most = largest_scale(scale, in);
    float *folded = made[0] = calloc(in * out, sizeof *folded);
    float *terms = made[1] = calloc(2 * out, sizeof *terms);
    float *left = made[2] = calloc(in, sizeof *left);
    if (!folded || !terms || !left)
        return wa_fail_memory();
    for (size_t k = 0; k < in; k++)
        left[k] = f->in_weights ? 1 : as_stored(p->dtype, scale[k] / most);
    for (size_t o = 0; o < out; o++) {
        double sum = 0, added = bias ? bias[o] : 0;
        for (size_t i = o * in, k = 0; k < in; i++, k++) {
            const float factor = f->in_weights ? scale[k] : most;
            folded[i] = as_stored(p->dtype, weight[i] * factor);
            if (isinf(folded[i]) && isfinite(weight[i]) && isfinite(factor))
                return WA_UNSUPPORTED(
                    "with the norm before it a layer has a weight %g, more "
                    "than fp16 has: take bf16, or another tier than matrix",
                    (double)weight[i] * factor);
            sum += (double)folded[i] * left[k];
            added += (double)weight[i] * shift[k];
        }
        terms[2 * o] = (float)sum;
        terms[2 * o + 1] = (float)added;
    }
    norm->from = left;
    layer->from = folded;
    p->all[p->count++] = (upload){
        .from = terms, .count = 2 * out, .is_fp32 = true, .to = f->terms};
    return WINATTN_SUCCESS;
}

/* What the part begins with says what it is of. */
static void find_folds(part *p, const wa_swin_tensor *t)
{
    struct wa_stage_tensors *w = &p->w->stages[t->stage];
    const wa_stage_norms norms = p->norms[t->stage];
    if (t->group == WA_SWIN_BLOCK && w->folds) {
        wa_block_fold *fold = &w->folds[t->block];
        p->folds[p->fold_count++] =
            (folding){WA_BLOCK_NORM1_WEIGHT, WA_BLOCK_QKV_WEIGHT, true,
                      norms.blocks == WA_NORMS_IN_WEIGHTS, &fold->qkv_terms};
        p->folds[p->fold_count++] =
            (folding){WA_BLOCK_NORM2_WEIGHT, WA_BLOCK_FC1_WEIGHT, true,
                      norms.blocks >= WA_NORMS_IN_MLP, &fold->fc1_terms};
    }
    if (t->group == WA_SWIN_MERGE && norms.merger != WA_NORMS_ALONE)
        p->folds[p->fold_count++] =
            (folding){0, 2, false, false, &w->merge_terms};
}

static void drop_made(part *p)
{
    for (size_t i = 0; i < sizeof p->made / sizeof *p->made; i++)
        free(p->made[i]);
    memset(p->made, 0, sizeof p->made);
}

/* Rounds the tensors of the part into a buffer. */
static winattn_status upload_part(part *p)
{
    wa_model_weights *w = p->w;
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->count; i++) {
        upload u = p->all[i];
        u.to->offset = bytes;
        bytes += wa_part_bytes(u.count * wa_element_size(type_of(p, &u)));
    }
    if (bytes == 0)
        return WINATTN_SUCCESS;
    unsigned char *content =
        bytes <= SIZE_MAX ? calloc((size_t)bytes, 1) : NULL;
    WA_TRY_MEMORY(content);
    for (size_t i = 0; i < p->count; i++) {
        const upload *u = &p->all[i];
        wa_store_numbers(type_of(p, u), u->from, (size_t)u->count,
                         content + u->to->offset);
        if (u->as_tf32)
            round_to_tf32(content + u->to->offset, u->count);
    }
    cl_mem buffer;
    const winattn_status status =
        wa_make_buffer(wa_session_context(p->session), CL_MEM_READ_ONLY, bytes,
                       content, &buffer);
    free(content);
    WA_TRY(status);
    for (size_t i = 0; i < p->count; i++)
        p->all[i].to->buffer = buffer;
    w->buffers[w->count++] = buffer;
    w->bytes += bytes;
    return WINATTN_SUCCESS;
}

/* The same, with norms in layers, and begins the next part. */
static winattn_status send(part *p)
{
    winattn_status status = WINATTN_SUCCESS;
    for (size_t i = 0; i < p->fold_count; i++)
        WA_THEN(status, fold_norm(p, &p->folds[i], p->made + 3 * i));
    WA_THEN(status, upload_part(p));
    drop_made(p);
    p->count = p->fold_count = 0;
    return status;
}

/* Where the group's lie one behind the other. */
static winattn_tensor *array_of(wa_model_weights *w, const wa_swin_tensor *t)
{
    switch (t->group) {
    case WA_SWIN_START:
        return &w->patch_weight;
    case WA_SWIN_BLOCK:
        return &w->stages[t->stage].blocks[t->block].norm1_weight;
    case WA_SWIN_MERGE:
        return &w->stages[t->stage].merge_norm_weight;
    default:
        return &w->norm_weight;
    }
}

static winattn_status add(void *data, const wa_swin_tensor *t,
                          const float **values)
{
    part *p = data;
    const bool is_fp32 =
        t->group == WA_SWIN_BLOCK &&
        (t->index == WA_BLOCK_LOGIT_SCALE ||
         (t->index == WA_BLOCK_TABLE &&
          wa_model_table_dtype(t->config, p->dtype) == WINATTN_TERM_FP32));
    if (t->index == 0) {
        WA_TRY(send(p));
        find_folds(p, t);
    }
    const bool is_matrix = t->axes > 1 && (t->group != WA_SWIN_BLOCK ||
                                           t->index < WA_BLOCK_TABLE);
    p->all[p->count++] =
        (upload){*values, t->count, is_fp32, p->cuts_matrices && is_matrix,
                 array_of(p->w, t) + t->index};
    return WINATTN_SUCCESS;
}

winattn_status wa_model_weights_make(wa_session *session,
                                     const winattn_swin_weights *from,
                                     const winattn_model_desc *desc,
                                     const wa_stage_norms norms[],
                                     wa_model_weights *w)
{
    const wa_swin_config *config = &from->config;
    part p = {.session = session,
              .dtype = desc->dtype,
              .cuts_matrices = cuts_matrices(session, desc),
              .norms = norms,
              .w = w};
    memset(w, 0, sizeof *w);
    w->most = 2; /* what comes before stages and after them */
    for (uint32_t i = 0; i < config->stages; i++)
        w->most += (size_t)config->depths[i] + 1;
    w->buffers = calloc(w->most, sizeof(cl_mem));
    WA_TRY_MEMORY(w->buffers);
    for (uint32_t i = 0; i < config->stages; i++) {
        w->stages[i].blocks =
            calloc(config->depths[i], sizeof *w->stages[i].blocks);
        WA_TRY_MEMORY(w->stages[i].blocks);
        if (norms[i].blocks == WA_NORMS_ALONE)
            continue;
        w->stages[i].folds =
            calloc(config->depths[i], sizeof *w->stages[i].folds);
        WA_TRY_MEMORY(w->stages[i].folds);
        w->stages[i].folds[0].is_first = true;
    }
    /* which it leaves as they are */
    WA_TRY(wa_swin_visit((winattn_swin_weights *)(uintptr_t)from, add, &p));
    return send(&p);
}

void wa_model_weights_release(wa_model_weights *w)
{
    for (size_t i = 0; i < w->count; i++)
        clReleaseMemObject(w->buffers[i]);
    free((void *)w->buffers);
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        free(w->stages[i].blocks);
        free(w->stages[i].folds);
    }
    memset(w, 0, sizeof *w);
}
