/* SPDX-License-Identifier: Apache-2.0
 * Makes what an unfused model needs: kernels, plans of its linear layers and
 * norms, buffers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "device/buffer.h"
#include "models/levels.h"
#include "models/options.h"
#include "models/swin_rules.h"
#include "plan/defines.h"
#include "program/program.h"
#include "program/source.h"
#include "program/sources.h"
#include "unfused/internal.h"

/* ---- What is added to S, for all positions of a window and windows of a map
 * ---- */

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
    WA_THEN(status, unfused_new_buffer(u, s->depth * one * sizeof *bias, bias,
                                       &s->bias));
    WA_THEN(status, unfused_new_buffer(
                        u, (uint64_t)s->depth * s->heads * sizeof *factors,
                        factors, &s->factors));
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
    WA_TRY_MEMORY(mask);
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

/* The files of this room; NULL: it has no such file. */
const char *unfused_source(const char *name);

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- Kernels ---- */

static const char *find_source(const char *name)
{
    const char *own = unfused_source(name);
    return own ? own : wa_source(name);
}

static void write_options(const unfused *u, char *text, size_t size)
{
    const wa_device *device = wa_session_device(u->model->session);
    const winattn_dtype dtype = u->model->desc.dtype;
    text[0] = 0;
    wa_append(text, size, "-cl-std=CL1.2 -cl-denorms-are-zero -DON_CPU=%d ",
              u->on_cpu);
    wa_append_option(text, size, WA_OPTION(DTYPE), dtype);
    wa_append_option(text, size, WA_OPTION(HAS_FMA), device->has_fma);
    wa_append_option(text, size, WA_OPTION(LANES), u->lanes);
    wa_append_half_vectors(device, dtype, text, size);
    /* models/linear.cl is there for its GELU */
    wa_append_option(text, size, WA_OPTION(HAS_BIAS), 0);
    wa_append_option(text, size, WA_OPTION(HAS_RESIDUAL), 0);
    wa_append_option(text, size, WA_OPTION(ACTIVATION), 1);
    if (device->miscompiles_barriers && !u->on_cpu)
        wa_append(text, size, "-cl-opt-disable ");
    wa_append(text, size, "%s", u->build_options);
}

static winattn_status create_kernels(unfused *u, cl_program program)
{
    static const char *const names[UNFUSED_KERNELS] = {
        [UNFUSED_MOVE] = "move",
        [UNFUSED_MOVE_ELEMENTS] = "move_elements",
        [UNFUSED_GELU] = "gelu_all",
        [UNFUSED_ADD] = "add_all",
        [UNFUSED_MEAN] = "mean",
        [UNFUSED_NORMALISE] = "normalise",
        [UNFUSED_TERMS] = "add_terms",
        [UNFUSED_SOFTMAX] = "softmax",
        [UNFUSED_SCORES] = "scores",
        [UNFUSED_VALUES] = "values"};
    for (int i = 0; i < UNFUSED_KERNELS; i++) {
        cl_int error;
        u->kernels[i] = clCreateKernel(program, names[i], &error);
        WA_TRY(wa_cl_status(error, "clCreateKernel"));
    }
    return WINATTN_SUCCESS;
}

static winattn_status build(unfused *u)
{
    const cl_context context = wa_session_context(u->model->session);
    const cl_device_id device = wa_session_device_id(u->model->session);
    const size_t size = strlen(u->build_options) + 512;
    char *options = malloc(size), *text = NULL;
    wa_program_source source;
    cl_program program;
    WA_TRY_MEMORY(options);
    write_options(u, options, size);
    winattn_status status =
        wa_source_of_file(find_source, "unfused.cl", &text);
    if (status == WINATTN_SUCCESS && !text)
        status =
            WA_UNSUPPORTED("unfused.cl includes a file that there is not");
    WA_THEN(status, wa_program_source_of_text(device, "unfused", text, options,
                                              &source));
    free(text);
    free(options);
    WA_TRY(status);
    status = wa_build_program(context, device, &source, &program);
    wa_program_source_free(&source);
    WA_TRY(status);
    status = create_kernels(u, program);
    clReleaseProgram(program);
    return status;
}

/* ---- Plans ---- */

static winattn_status make_plans(unfused *u, uint32_t number)
{
    unfused_stage *s = &u->stages[number];
    const winattn_model *model = u->model;
    const char *options = u->build_options;
    const uint32_t c = s->channels;
    WA_TRY(wa_model_make_rows(model, options, WA_ROW_NORM, c, &s->norm));
    WA_TRY(wa_model_make_linear(model, options, c, 3 * c, true, &s->qkv));
    WA_TRY(wa_model_make_linear(model, options, c, c, true, &s->proj));
    WA_TRY(wa_model_make_linear(model, options, c, s->hidden, true, &s->fc1));
    WA_TRY(wa_model_make_linear(model, options, s->hidden, c, true, &s->fc2));
    return number + 1 == model->config.stages
               ? wa_model_make_rows(model, options, WA_ROW_NORM, c,
                                    &u->last_norm)
               : WINATTN_SUCCESS;
}

/* ---- Shapes and buffers ---- */

/* Kernels count in 32 bits what work-items there are. */
static winattn_status set_shape(unfused *u, uint32_t number)
{
    const winattn_model *model = u->model;
    const wa_swin_config *config = &model->config;
    const wa_model_stage *from = &model->stages[number];
    unfused_stage *s = &u->stages[number];
    const uint32_t size[2] = {from->height, from->width};
    s->depth = from->depth;
    uint64_t windows = model->desc.batch;
    wa_swin_shift(config, number, size, s->shift);
    for (int a = 0; a < 2; a++) {
        s->size[a] = size[a];
        s->window[a] = config->window[number][a];
        s->windows[a] = (size[a] + s->window[a] - 1) / s->window[a];
        windows = wa_product(windows, s->windows[a]);
        if (s->shift[a] && s->depth > 1 &&
            (s->windows[a] == 1 || (s->windows[a] * s->window[a] != size[a] &&
                                    wa_swin_rules_of(config)->rolls_first)))
            return WA_UNSUPPORTED(
                "stage %u: unfused, maps are padded before they are rolled, "
                "and not shifted where one window covers them",
                number);
    }
    s->channels = from->channels;
    s->heads = config->heads[number];
    s->hidden = config->hidden[number];
    s->tokens = s->window[0] * s->window[1];
    const uint64_t padded = wa_product(windows, s->tokens);
    const uint64_t widest =
        larger(3ull * s->channels, larger(s->hidden, s->tokens));
    if (wa_product(padded, widest) > UINT32_MAX ||
        wa_product(padded, 2ull * s->heads) > UINT32_MAX ||
        wa_product(from->tokens, widest) > UINT32_MAX)
        return WA_UNSUPPORTED("a step of stage %u has 2^32 numbers or more",
                              number);
    s->all_windows = (uint32_t)windows;
    s->all_tokens = (uint32_t)from->tokens;
    return WINATTN_SUCCESS;
}

static winattn_status make_buffers(unfused *u)
{
    const wa_swin_config *config = &u->model->config;
    uint64_t most[UNFUSED_BUFFERS] = {0};
    most[UNFUSED_LARGE] = u->model->stages[0].tokens * config->in_channels *
                          config->patch[0] * config->patch[1];
    for (uint32_t i = 0; i < config->stages; i++) {
        const unfused_stage *s = &u->stages[i];
        const uint64_t tokens = s->all_tokens;
        const uint64_t padded = (uint64_t)s->all_windows * s->tokens;
        const uint64_t merged =
            i + 1 < config->stages
                ? (uint64_t)u->stages[i + 1].all_tokens * 4 * s->channels
                : 0;
        const uint64_t now[UNFUSED_BUFFERS] = {
            [UNFUSED_EVEN] = i % 2 == 0 ? tokens * s->channels : 0,
            [UNFUSED_ODD] = i % 2 == 1 ? tokens * s->channels : 0,
            [UNFUSED_NARROW] = tokens * s->channels,
            [UNFUSED_WINDOWS] = padded * s->channels,
            [UNFUSED_LARGE] = larger(padded * 3 * s->channels,
                                     larger(tokens * s->hidden, merged)),
            [UNFUSED_LOGITS] = padded * s->heads * s->tokens};
        for (int b = 0; b < UNFUSED_BUFFERS; b++)
            most[b] = larger(most[b], now[b]);
    }
    for (int b = 0; b < UNFUSED_BUFFERS; b++)
        if (most[b])
            WA_TRY(unfused_new_buffer(u, most[b] * u->element_size, NULL,
                                      &u->buffers[b]));
    return WINATTN_SUCCESS;
}

/* ---- All of it ---- */

static winattn_status make(unfused *u, const winattn_swin_weights *weights)
{
    const winattn_model *model = u->model;
    const wa_device *device = wa_session_device(model->session);
    u->on_cpu = wa_row_on_cpu(model->session, model->desc.tier);
    u->lanes = u->on_cpu && device->vector_lanes >= 16 ? 16 : 8;
    u->element_size = wa_element_size(model->desc.dtype);
    if (!model->head)
        return WA_UNSUPPORTED("the model has no head");
    if (!u->on_cpu && device->max_work_group < 256)
        return WA_BAD_DEVICE(
            "work-groups of 256 are too large for the device");
    static const wa_stage_norms norms[WA_SWIN_STAGES];
    WA_TRY(wa_model_weights_make(model->session, weights, &model->desc, norms,
                                 &u->weights));
    for (uint32_t i = 0; i < model->config.stages; i++)
        WA_TRY(set_shape(u, i));
    WA_TRY(build(u));
    for (uint32_t i = 0; i < model->config.stages; i++) {
        WA_TRY(make_plans(u, i));
        WA_TRY(unfused_make_tables(u, weights, i));
    }
    return make_buffers(u);
}

winattn_status unfused_create(const winattn_model *model,
                              const winattn_swin_weights *weights,
                              const char *build_options, unfused **made)
{
    unfused *u = calloc(1, sizeof *u);
    *made = NULL;
    WA_TRY_MEMORY(u);
    u->model = model;
    u->build_options = build_options ? build_options : "";
    const winattn_status status = make(u, weights);
    u->build_options = NULL; /* the caller's memory */
    if (status == WINATTN_SUCCESS)
        *made = u;
    else
        unfused_destroy(u);
    return status;
}

void unfused_destroy(unfused *u)
{
    if (!u)
        return;
    for (int i = 0; i < UNFUSED_KERNELS; i++)
        if (u->kernels[i])
            clReleaseKernel(u->kernels[i]);
    for (int i = 0; i < UNFUSED_BUFFERS; i++)
        wa_release_buffer(u->buffers[i]);
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        unfused_stage *s = &u->stages[i];
        wa_row_plan_release(&s->norm);
        winattn_linear_plan_destroy(s->qkv);
        winattn_linear_plan_destroy(s->proj);
        winattn_linear_plan_destroy(s->fc1);
        winattn_linear_plan_destroy(s->fc2);
        wa_release_buffer(s->bias);
        wa_release_buffer(s->factors);
        wa_release_buffer(s->mask);
    }
    wa_row_plan_release(&u->last_norm);
    wa_model_weights_release(&u->weights);
    free(u);
}

cl_ulong unfused_bytes(const unfused *u) { return u->bytes; }
