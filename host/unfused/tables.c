/* SPDX-License-Identifier: Apache-2.0
 * What is added to S, for all positions of a window and windows of a map. */
#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "device/buffer.h"
#include "unfused/internal.h"

#define HIDDEN (-100.0f)
#define MOST_SCALE 4.6051702f /* ln 100 */

winattn_status unfused_new_buffer(unfused *u, uint64_t bytes,
                                  const void *content, cl_mem *made)
{
    WA_TRY(wa_make_buffer(wa_session_context(u->model->session),
                          CL_MEM_READ_WRITE, bytes, content, made));
    u->bytes += bytes;
    return WINATTN_SUCCESS;
}

/* An entry of the table for each pair of tokens. */
static void expand_table(const unfused_stage *s, const float *table,
                         float *bias)
{
    const uint32_t n = s->tokens, across = s->window[1];
    for (uint32_t h = 0; h < s->heads; h++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n; j++) {
                const uint32_t y = i / across + s->window[0] - 1 - j / across;
                const uint32_t x = i % across + across - 1 - j % across;
                *bias++ =
                    table[(size_t)(y * (2 * across - 1) + x) * s->heads + h];
            }
}

static winattn_status make_biases(unfused *u, unfused_stage *s,
                                  const wa_swin_block_weights *blocks)
{
    const size_t one = (size_t)s->heads * s->tokens * s->tokens;
    float *bias = malloc(s->depth * one * sizeof *bias);
    float *factors = malloc((size_t)s->depth * s->heads * sizeof *factors);
    winattn_status status =
        bias && factors ? WINATTN_SUCCESS : wa_fail_memory();
    for (uint32_t i = 0; status == WINATTN_SUCCESS && i < s->depth; i++) {
        expand_table(s, blocks[i].table, bias + i * one);
        for (uint32_t h = 0; h < s->heads; h++)
            factors[i * s->heads + h] =
                blocks[i].logit_scale
                    ? expf(fminf(blocks[i].logit_scale[h], MOST_SCALE))
                    : 1.0f / sqrtf((float)(s->channels / s->heads));
    }
    if (status == WINATTN_SUCCESS)
        status = unfused_new_buffer(u, s->depth * one * sizeof *bias, bias,
                                    &s->bias);
    if (status == WINATTN_SUCCESS)
        status = unfused_new_buffer(
            u, (uint64_t)s->depth * s->heads * sizeof *factors, factors,
            &s->factors);
    free(bias);
    free(factors);
    return status;
}

/* Which part of an axis a token of a rolled map is from: 0 in the windows
 * before the last, in that 1 before the shift boundary and 2 behind it. */
static uint32_t part_of(const unfused_stage *s, int axis, uint32_t at)
{
    const uint32_t end = s->windows[axis] * s->window[axis];
    if (s->shift[axis] == 0 || at < end - s->window[axis])
        return 0;
    return at < end - s->shift[axis] ? 1 : 2;
}

static uint32_t region_of(const unfused_stage *s, uint32_t window,
                          uint32_t token)
{
    const uint32_t y =
        window / s->windows[1] * s->window[0] + token / s->window[1];
    const uint32_t x =
        window % s->windows[1] * s->window[1] + token % s->window[1];
    return 3 * part_of(s, 0, y) + part_of(s, 1, x);
}

static winattn_status make_mask(unfused *u, unfused_stage *s)
{
    const uint32_t windows = s->windows[0] * s->windows[1], n = s->tokens;
    const size_t count = (size_t)windows * n * n;
    float *mask = malloc(count * sizeof *mask);
    float *at = mask;
    if (!mask)
        return wa_fail_memory();
    for (uint32_t w = 0; w < windows; w++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n; j++)
                *at++ = region_of(s, w, i) == region_of(s, w, j) ? 0 : HIDDEN;
    const winattn_status status =
        unfused_new_buffer(u, count * sizeof *mask, mask, &s->mask);
    free(mask);
    return status;
}

winattn_status unfused_make_tables(unfused *u,
                                   const winattn_swin_weights *weights,
                                   uint32_t number)
{
    unfused_stage *s = &u->stages[number];
    WA_TRY(make_biases(u, s, weights->stages[number].blocks));
    return s->depth > 1 && (s->shift[0] || s->shift[1]) ? make_mask(u, s)
                                                        : WINATTN_SUCCESS;
}
