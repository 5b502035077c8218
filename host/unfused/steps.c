/* SPDX-License-Identifier: Apache-2.0
 * The steps of a call, one launch each. */
#include "base/status.h"
#include "models/levels.h"
#include "unfused/internal.h"

#define FLAT_GROUP 64u /* work-items of a group that shares nothing */
#define WIDE 8u        /* elements of a work-item that has some of a row */
/* What work-groups have on a GPU, as unfused.cl says. */
#define PLANE_GROUP 256u
#define SOFTMAX_GROUP 128u
#define SOFTMAX_ROWS 4u
#define PRODUCT_GROUP 256u
#define TILE 64u

typedef struct run {
    const unfused *u;
    const winattn_model_call *call;
    wa_kernel_chain *chain;
} run;

static uint64_t blocks(uint64_t all, uint32_t block)
{
    return (all + block - 1) / block;
}

static winattn_tensor whole(cl_mem buffer)
{
    const winattn_tensor tensor = {.buffer = buffer};
    return tensor;
}

static winattn_status launch(const run *r, unfused_kernel id, const void *args,
                             size_t size, const cl_mem *buffers, cl_uint count,
                             uint64_t items, size_t group)
{
    const cl_kernel kernel = r->u->kernels[id];
    WA_TRY(wa_set_arg(kernel, 0, size, args));
    for (cl_uint i = 0; i < count; i++)
        WA_TRY(wa_set_arg(kernel, i + 1, sizeof buffers[i], &buffers[i]));
    return wa_chain_append(r->chain, kernel, items, group);
}

/* ---- Rows ---- */

static winattn_status linear(const run *r, const winattn_linear_plan *plan,
                             uint64_t rows, cl_mem x, winattn_tensor weight,
                             winattn_tensor bias, winattn_tensor y)
{
    const wa_layer_call layer = {
        .rows = rows, .x = whole(x), .weight = weight, .bias = bias, .y = y};
    return wa_chain_append_linear(r->chain, plan, &layer);
}

static winattn_status norm(const run *r, float eps, const wa_row_plan *plan,
                           uint64_t rows, cl_mem from, winattn_tensor weight,
                           winattn_tensor bias, cl_mem to)
{
    const wa_row_call call = {.rows = rows,
                              .from = whole(from),
                              .weight = weight,
                              .bias = bias,
                              .to = whole(to),
                              .eps = eps};
    return wa_row_append(plan, &call, r->chain);
}

static winattn_status add(const run *r, cl_mem x, cl_mem y, uint32_t elements)
{
    const flat_args args = {.elements = elements};
    const cl_mem buffers[] = {x, y};
    return launch(r, UNFUSED_ADD, &args, sizeof args, buffers, 2,
                  blocks(elements, WIDE), FLAT_GROUP);
}

static winattn_status gelu(const run *r, cl_mem x, uint32_t elements)
{
    const flat_args args = {.elements = elements};
    return launch(r, UNFUSED_GELU, &args, sizeof args, &x, 1,
                  blocks(elements, WIDE), FLAT_GROUP);
}

/* ---- Attention ---- */

/* Cuts a map into windows, or joins it again. */
static winattn_status move(const run *r, const unfused_stage *s, bool shifted,
                           bool reverses, cl_mem windows, cl_mem map)
{
    const uint32_t chunk = 16 / r->u->element_size;
    const bool wide = s->channels % chunk == 0;
    move_args args = {.units = wide ? s->channels / chunk : s->channels,
                      .reverses = reverses};
    const cl_mem buffers[] = {windows, map};
    args.count = s->all_windows * s->tokens * args.units;
    for (int a = 0; a < 2; a++) {
        args.size[a] = s->size[a];
        args.window[a] = s->window[a];
        args.windows[a] = s->windows[a];
        args.shift[a] = shifted ? s->shift[a] : 0;
    }
    return launch(r, wide ? UNFUSED_MOVE : UNFUSED_MOVE_ELEMENTS, &args,
                  sizeof args, buffers, 2, args.count, FLAT_GROUP);
}

static winattn_status product(const run *r, unfused_kernel id,
                              const product_args *args, cl_mem a, cl_mem b,
                              cl_mem c, cl_mem factors)
{
    const cl_mem buffers[] = {a, b, c, factors};
    const uint32_t width = id == UNFUSED_SCORES ? TILE : TILE / 2;
    const uint64_t items = r->u->on_cpu ? blocks(args->columns, r->u->lanes)
                                        : blocks(args->rows, TILE) *
                                              blocks(args->columns, width) *
                                              PRODUCT_GROUP;
    return launch(r, id, args, sizeof *args, buffers, 4, args->count * items,
                  r->u->on_cpu ? 1 : PRODUCT_GROUP);
}

/* S = factor Q K^T */
static winattn_status scores(const run *r, const unfused_stage *s,
                             uint32_t block)
{
    const uint32_t dim = s->channels / s->heads, n = s->tokens;
    const cl_mem qkv = r->u->buffers[UNFUSED_LARGE];
    const product_args args = {.a_window = 3ull * n * s->channels,
                               .b_window = 3ull * n * s->channels,
                               .c_window = (uint64_t)s->heads * n * n,
                               .b = s->channels,
                               .factor = block * s->heads,
                               .a_head = dim,
                               .b_head = dim,
                               .c_head = n * n,
                               .a_row = 3 * s->channels,
                               .b_row = 3 * s->channels,
                               .c_row = n,
                               .rows = n,
                               .columns = n,
                               .dims = dim,
                               .count = s->all_windows * s->heads,
                               .heads = s->heads};
    return product(r, UNFUSED_SCORES, &args, qkv, qkv,
                   r->u->buffers[UNFUSED_LOGITS], s->factors);
}

/* O = P V */
static winattn_status values(const run *r, const unfused_stage *s)
{
    const uint32_t dim = s->channels / s->heads, n = s->tokens;
    const product_args args = {.a_window = (uint64_t)s->heads * n * n,
                               .b_window = 3ull * n * s->channels,
                               .c_window = (uint64_t)n * s->channels,
                               .b = 2 * s->channels,
                               .a_head = n * n,
                               .b_head = dim,
                               .c_head = dim,
                               .a_row = n,
                               .b_row = 3 * s->channels,
                               .c_row = s->channels,
                               .rows = n,
                               .columns = dim,
                               .dims = n,
                               .count = s->all_windows * s->heads,
                               .heads = s->heads};
    return product(r, UNFUSED_VALUES, &args, r->u->buffers[UNFUSED_LOGITS],
                   r->u->buffers[UNFUSED_LARGE],
                   r->u->buffers[UNFUSED_WINDOWS], s->factors);
}

static winattn_status normalise(const run *r, const unfused_stage *s)
{
    const flat_args args = {.count = s->all_windows * s->tokens * 2 * s->heads,
                            .elements = s->channels / s->heads,
                            .heads = s->heads};
    const cl_mem qkv = r->u->buffers[UNFUSED_LARGE];
    return launch(r, UNFUSED_NORMALISE, &args, sizeof args, &qkv, 1,
                  args.count, FLAT_GROUP);
}

static winattn_status weigh(const run *r, const unfused_stage *s,
                            uint32_t block, bool shifted)
{
    const bool masked = shifted && s->mask;
    const cl_mem p = r->u->buffers[UNFUSED_LOGITS];
    const cl_mem buffers[] = {p, s->bias, masked ? s->mask : s->bias};
    score_args args = {
        .bias = (uint64_t)block * s->heads * s->tokens * s->tokens,
        .count = s->all_windows * s->heads,
        .tokens = s->tokens,
        .heads = s->heads,
        .mask_windows = masked ? s->windows[0] * s->windows[1] : 0};
    const size_t group = r->u->on_cpu ? 1 : PLANE_GROUP;
    WA_TRY(launch(r, UNFUSED_TERMS, &args, sizeof args, buffers, 3,
                  (uint64_t)args.count * group, group));
    args.count *= s->tokens;
    return r->u->on_cpu
               ? launch(r, UNFUSED_SOFTMAX, &args, sizeof args, &p, 1,
                        args.count, 1)
               : launch(r, UNFUSED_SOFTMAX, &args, sizeof args, &p, 1,
                        blocks(args.count, SOFTMAX_ROWS) * SOFTMAX_GROUP,
                        SOFTMAX_GROUP);
}

/* From a map to what is added to it, in its place or elsewhere. */
static winattn_status attention(const run *r, const unfused_stage *s,
                                const winattn_block_weights *w, uint32_t block,
                                cl_mem from, cl_mem to)
{
    const unfused *u = r->u;
    const bool shifted = block % 2 == 1;
    const cl_mem windows = u->buffers[UNFUSED_WINDOWS];
    const cl_mem narrow = u->buffers[UNFUSED_NARROW];
    WA_TRY(move(r, s, shifted, false, windows, from));
    WA_TRY(linear(r, s->qkv, (uint64_t)s->all_windows * s->tokens, windows,
                  w->qkv_weight, w->qkv_bias,
                  whole(u->buffers[UNFUSED_LARGE])));
    if (u->model->config.generation == 2)
        WA_TRY(normalise(r, s));
    WA_TRY(scores(r, s, block));
    WA_TRY(weigh(r, s, block, shifted));
    WA_TRY(values(r, s));
    WA_TRY(move(r, s, shifted, true, windows, narrow));
    return linear(r, s->proj, s->all_tokens, narrow, w->proj_weight,
                  w->proj_bias, whole(to));
}

/* ---- Blocks and what is between them ---- */

static winattn_status mlp(const run *r, const unfused_stage *s,
                          const winattn_block_weights *w, cl_mem from,
                          cl_mem to)
{
    const cl_mem hidden = r->u->buffers[UNFUSED_LARGE];
    WA_TRY(linear(r, s->fc1, s->all_tokens, from, w->fc1_weight, w->fc1_bias,
                  whole(hidden)));
    WA_TRY(gelu(r, hidden, s->all_tokens * s->hidden));
    return linear(r, s->fc2, s->all_tokens, hidden, w->fc2_weight, w->fc2_bias,
                  whole(to));
}

static winattn_status append_block(const run *r, uint32_t number,
                                   uint32_t block)
{
    const unfused *u = r->u;
    const unfused_stage *s = &u->stages[number];
    const winattn_block_weights *w = &u->weights.stages[number].blocks[block];
    const cl_mem x = u->buffers[number % 2 ? UNFUSED_ODD : UNFUSED_EVEN];
    const cl_mem narrow = u->buffers[UNFUSED_NARROW];
    const cl_mem other = u->buffers[UNFUSED_WINDOWS];
    const uint32_t elements = s->all_tokens * s->channels;
    const float eps = u->model->config.norm_eps;
    if (u->model->config.generation == 1) {
        WA_TRY(norm(r, eps, &s->norm, s->all_tokens, x, w->norm1_weight,
                    w->norm1_bias, narrow));
        WA_TRY(attention(r, s, w, block, narrow, other));
        WA_TRY(add(r, x, other, elements));
        WA_TRY(norm(r, eps, &s->norm, s->all_tokens, x, w->norm2_weight,
                    w->norm2_bias, narrow));
        WA_TRY(mlp(r, s, w, narrow, other));
        return add(r, x, other, elements);
    }
    WA_TRY(attention(r, s, w, block, x, other));
    WA_TRY(norm(r, eps, &s->norm, s->all_tokens, other, w->norm1_weight,
                w->norm1_bias, narrow));
    WA_TRY(add(r, x, narrow, elements));
    WA_TRY(mlp(r, s, w, x, other));
    WA_TRY(norm(r, eps, &s->norm, s->all_tokens, other, w->norm2_weight,
                w->norm2_bias, narrow));
    return add(r, x, narrow, elements);
}

static winattn_status append_head(const run *r)
{
    const unfused *u = r->u;
    const winattn_model *model = u->model;
    const wa_model_weights *w = &model->weights;
    const uint32_t last = model->config.stages - 1;
    const unfused_stage *s = &u->stages[last];
    const cl_mem map = u->buffers[last % 2 ? UNFUSED_ODD : UNFUSED_EVEN];
    const cl_mem buffers[] = {u->buffers[UNFUSED_NARROW],
                              u->buffers[UNFUSED_WINDOWS]};
    const flat_args args = {.count = model->desc.batch * s->channels,
                            .elements = s->channels,
                            .tokens = s->size[0] * s->size[1]};
    WA_TRY(norm(r, model->config.norm_eps, &u->last_norm, s->all_tokens, map,
                w->norm_weight, w->norm_bias, buffers[0]));
    WA_TRY(launch(r, UNFUSED_MEAN, &args, sizeof args, buffers, 2, args.count,
                  FLAT_GROUP));
    return linear(r, model->head, model->desc.batch, buffers[1],
                  w->head_weight, w->head_bias, r->call->logits);
}

static winattn_status append_all(const run *r)
{
    const unfused *u = r->u;
    const uint32_t stages = u->model->config.stages;
    const cl_mem maps[2] = {u->buffers[UNFUSED_EVEN], u->buffers[UNFUSED_ODD]};
    WA_TRY(wa_model_append_embedding(u->model, r->call,
                                     whole(u->buffers[UNFUSED_LARGE]),
                                     whole(maps[0]), r->chain));
    for (uint32_t i = 0; i < stages; i++) {
        for (uint32_t block = 0; block < u->stages[i].depth; block++)
            WA_TRY(append_block(r, i, block));
        if (i + 1 < stages)
            WA_TRY(wa_model_append_merger(u->model, i, whole(maps[i % 2]),
                                          whole(u->buffers[UNFUSED_LARGE]),
                                          whole(maps[1 - i % 2]), r->chain));
    }
    return append_head(r);
}

winattn_status unfused_enqueue(const unfused *u, cl_command_queue queue,
                               const winattn_model_call *call)
{
    wa_kernel_chain chain;
    const run r = {.u = u, .call = call, .chain = &chain};
    WA_TRY(wa_models_chain_begin(&chain, queue, 0, NULL, NULL));
    wa_lock_take(u->model->lock);
    const winattn_status status = append_all(&r);
    wa_lock_release(u->model->lock);
    return wa_models_chain_end(&chain, status, NULL);
}
