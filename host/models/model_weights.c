/* SPDX-License-Identifier: Apache-2.0
 * A model's weights on the device. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/buffer.h"
#include "models/levels.h"
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
    winattn_tensor *to;
} upload;

#define MOST_UPLOADS 16u

/* The tensors of a part. */
typedef struct part {
    winattn_dtype dtype;
    upload all[MOST_UPLOADS];
    size_t count;
} part;

/* One that the model does not have is NULL. */
static void add(part *p, const float *from, uint64_t count, winattn_tensor *to)
{
    if (from)
        p->all[p->count++] = (upload){from, count, false, to};
}

static winattn_dtype type_of(const part *p, const upload *u)
{
    return u->is_fp32 ? WINATTN_FP32 : p->dtype;
}

/* Rounds the tensors of the part into a buffer of its own. */
static winattn_status send(wa_session *session, const part *p,
                           wa_model_weights *w)
{
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
    }
    cl_mem buffer;
    const winattn_status status =
        wa_make_buffer(wa_session_context(session), CL_MEM_READ_ONLY, bytes,
                       content, &buffer);
    free(content);
    WA_TRY(status);
    for (size_t i = 0; i < p->count; i++)
        p->all[i].to->buffer = buffer;
    w->buffers[w->count++] = buffer;
    w->bytes += bytes;
    return WINATTN_SUCCESS;
}

static winattn_status
send_block(wa_session *session, const wa_swin_config *config, uint32_t stage,
           winattn_dtype dtype, const wa_swin_block_weights *from,
           winattn_block_weights *to, wa_model_weights *w)
{
    const bool has_fp32_table =
        wa_model_table_dtype(config, dtype) == WINATTN_TERM_FP32;
    winattn_tensor *all = &to->norm1_weight;
    uint64_t extent[WA_BLOCK_TENSORS][2];
    part p = {.dtype = dtype};
    wa_swin_block_extents(config, stage, extent);
    for (int i = 0; i < WA_BLOCK_TENSORS; i++) {
        if (!from->all[i])
            continue;
        p.all[p.count] = (upload){from->all[i], extent[i][0] * extent[i][1],
                                  i == WA_BLOCK_LOGIT_SCALE ||
                                      (i == WA_BLOCK_TABLE && has_fp32_table),
                                  &all[i]};
        p.count++;
    }
    return send(session, &p, w);
}

static winattn_status send_stage(wa_session *session,
                                 const winattn_swin_weights *from,
                                 uint32_t stage, winattn_dtype dtype,
                                 wa_model_weights *w)
{
    const wa_swin_config *config = &from->config;
    const wa_swin_stage_weights *s = &from->stages[stage];
    const uint64_t c = wa_swin_channels(config, stage);
    const uint64_t norm = config->generation == 2 ? 2 * c : 4 * c;
    struct wa_stage_tensors *to = &w->stages[stage];
    to->blocks = calloc(config->depths[stage], sizeof *to->blocks);
    WA_TRY_MEMORY(to->blocks);
    for (uint32_t i = 0; i < config->depths[stage]; i++)
        WA_TRY(send_block(session, config, stage, dtype, &s->blocks[i],
                          &to->blocks[i], w));
    part p = {.dtype = dtype};
    add(&p, s->merge_norm_weight, norm, &to->merge_norm_weight);
    add(&p, s->merge_norm_bias, norm, &to->merge_norm_bias);
    add(&p, s->merge_weight, 8 * c * c, &to->merge_weight);
    return send(session, &p, w);
}

winattn_status wa_model_weights_make(wa_session *session,
                                     const winattn_swin_weights *from,
                                     winattn_dtype dtype, wa_model_weights *w)
{
    const wa_swin_config *config = &from->config;
    const uint64_t c = config->channels;
    const uint64_t last = wa_swin_channels(config, config->stages - 1);
    memset(w, 0, sizeof *w);
    w->most = 2; /* what comes before stages and after them */
    for (uint32_t i = 0; i < config->stages; i++)
        w->most += (size_t)config->depths[i] + 1;
    w->buffers = calloc(w->most, sizeof(cl_mem));
    WA_TRY_MEMORY(w->buffers);
    part patch = {.dtype = dtype}, end = patch;
    add(&patch, from->patch_weight,
        c * config->in_channels * config->patch[0] * config->patch[1],
        &w->patch_weight);
    add(&patch, from->patch_bias, c, &w->patch_bias);
    add(&patch, from->patch_norm_weight, c, &w->patch_norm_weight);
    add(&patch, from->patch_norm_bias, c, &w->patch_norm_bias);
    WA_TRY(send(session, &patch, w));
    for (uint32_t i = 0; i < config->stages; i++)
        WA_TRY(send_stage(session, from, i, dtype, w));
    if (!from->config.no_norm) {
        add(&end, from->norm_weight, last, &w->norm_weight);
        add(&end, from->norm_bias, last, &w->norm_bias);
    }
    if (config->classes) {
        add(&end, from->head_weight, config->classes * last, &w->head_weight);
        add(&end, from->head_bias, config->classes, &w->head_bias);
    }
    return send(session, &end, w);
}

void wa_model_weights_release(wa_model_weights *w)
{
    for (size_t i = 0; i < w->count; i++)
        clReleaseMemObject(w->buffers[i]);
    free((void *)w->buffers);
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++)
        free(w->stages[i].blocks);
    memset(w, 0, sizeof *w);
}
