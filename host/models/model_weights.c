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

/* The tensors of a part, which share a buffer. */
typedef struct part {
    wa_session *session;
    winattn_dtype dtype;
    wa_model_weights *w;
    upload all[WA_BLOCK_TENSORS];
    size_t count;
} part;

static winattn_dtype type_of(const part *p, const upload *u)
{
    return u->is_fp32 ? WINATTN_FP32 : p->dtype;
}

/* Rounds the tensors of the part into a buffer, and begins the next one. */
static winattn_status send(part *p)
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
    }
    cl_mem buffer;
    const winattn_status status =
        wa_make_buffer(wa_session_context(p->session), CL_MEM_READ_ONLY, bytes,
                       content, &buffer);
    free(content);
    WA_TRY(status);
    for (size_t i = 0; i < p->count; i++)
        p->all[i].to->buffer = buffer;
    p->count = 0;
    w->buffers[w->count++] = buffer;
    w->bytes += bytes;
    return WINATTN_SUCCESS;
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
    if (t->index == 0)
        WA_TRY(send(p));
    p->all[p->count++] =
        (upload){*values, t->count, is_fp32, array_of(p->w, t) + t->index};
    return WINATTN_SUCCESS;
}

winattn_status wa_model_weights_make(wa_session *session,
                                     const winattn_swin_weights *from,
                                     winattn_dtype dtype, wa_model_weights *w)
{
    const wa_swin_config *config = &from->config;
    part p = {.session = session, .dtype = dtype, .w = w};
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
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++)
        free(w->stages[i].blocks);
    memset(w, 0, sizeof *w);
}
