/* SPDX-License-Identifier: Apache-2.0
 * Reads and checks a descriptor. */
#include "problem.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "status.h"

#define MAX_TOKENS 0x7fffffffu
#define MAX_HEAD_DIM 256u
#define MAX_HEADS 65536u
/* Strides of rows and columns are 32-bit kernel arguments. */
#define MAX_INNER_STRIDE UINT32_MAX

static const struct {
    const char *name;
    wa_role role[WA_PASSES]; /* forward, backward */
} traits[WA_TENSORS] = {
    [WA_Q] = {"q", {WA_INPUT, WA_INPUT}},
    [WA_K] = {"k", {WA_INPUT, WA_INPUT}},
    [WA_V] = {"v", {WA_INPUT, WA_INPUT}},
    [WA_BIAS] = {"bias", {WA_INPUT, WA_INPUT}},
    [WA_MASK] = {"mask", {WA_INPUT, WA_INPUT}},
    [WA_QUERY_REGIONS] = {"query_regions", {WA_INPUT, WA_INPUT}},
    [WA_KEY_REGIONS] = {"key_regions", {WA_INPUT, WA_INPUT}},
    [WA_LOGIT_SCALE] = {"logit_scale", {WA_OPTIONAL_INPUT, WA_OPTIONAL_INPUT}},
    [WA_PAD_K] = {"pad_k", {WA_OPTIONAL_INPUT, WA_OPTIONAL_INPUT}},
    [WA_PAD_V] = {"pad_v", {WA_OPTIONAL_INPUT, WA_OPTIONAL_INPUT}},
    [WA_O] = {"o", {WA_OUTPUT, WA_OPTIONAL_INPUT}},
    [WA_LSE] = {"lse", {WA_OPTIONAL_OUTPUT, WA_OPTIONAL_INPUT}},
    [WA_D_O] = {"d_o", {WA_ABSENT, WA_INPUT}},
    [WA_D_LSE] = {"d_lse", {WA_ABSENT, WA_OPTIONAL_INPUT}},
    [WA_DQ] = {"dq", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_DK] = {"dk", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_DV] = {"dv", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_DBIAS] = {"dbias", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_D_LOGIT_SCALE] = {"d_logit_scale", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_D_PAD_K] = {"d_pad_k", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
    [WA_D_PAD_V] = {"d_pad_v", {WA_ABSENT, WA_OPTIONAL_OUTPUT}},
};

static const char *const axis_names[WA_AXES] = {
    "window", "head", "axis[0]", "axis[1]", "row", "column"};

const char *wa_tensor_name(wa_tensor_id id) { return traits[id].name; }

wa_role wa_tensor_role(wa_tensor_id id, wa_pass pass)
{
    return traits[id].role[pass];
}

static bool is_output(wa_tensor_id id)
{
    return traits[id].role[WA_FORWARD] >= WA_OUTPUT ||
           traits[id].role[WA_BACKWARD] >= WA_OUTPUT;
}

/* Summed over windows, so without that axis. */
static bool lacks_windows(wa_tensor_id id)
{
    return id == WA_BIAS || id == WA_LOGIT_SCALE || id == WA_DBIAS ||
           id == WA_D_LOGIT_SCALE;
}

bool wa_tensor_is_adjacent(const wa_tensor *tensor)
{
    return !tensor->used || tensor->extent[WA_COLUMN] <= 1 ||
           tensor->stride[WA_COLUMN] == 1;
}

/* a * b + c into *result; false if it does not fit 63 bits. */
static bool multiply_add(uint64_t a, uint64_t b, uint64_t c, uint64_t *result)
{
    const uint64_t limit = INT64_MAX;
    if (c > limit || (a != 0 && b > (limit - c) / a))
        return false;
    *result = a * b + c;
    return true;
}

static winattn_status fill_contiguous(wa_tensor *tensor, const char *name)
{
    uint64_t stride = 1;
    for (int axis = WA_AXES - 1; axis >= 0; axis--) {
        tensor->stride[axis] = tensor->extent[axis] > 1 ? stride : 0;
        if (!multiply_add(stride, tensor->extent[axis], 0, &stride))
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "%s has more than 2^63 elements", name);
    }
    return WINATTN_SUCCESS;
}

/* Every stride must exceed what the smaller ones span together. */
static bool overlaps_itself(const wa_tensor *tensor)
{
    uint64_t reached = 0; /* offset of the last element so far */
    bool taken[WA_AXES] = {false};
    for (int round = 0; round < WA_AXES; round++) {
        int least = -1;
        for (int axis = 0; axis < WA_AXES; axis++)
            if (!taken[axis] && tensor->extent[axis] > 1 &&
                tensor->stride[axis] != 0 &&
                (least < 0 || tensor->stride[axis] < tensor->stride[least]))
                least = axis;
        if (least < 0)
            break;
        taken[least] = true;
        if (tensor->stride[least] <= reached)
            return true;
        /* cannot overflow: the span was computed before */
        reached += tensor->stride[least] * (tensor->extent[least] - 1);
    }
    return false;
}

/* Shape and strides of one tensor. An extent of 0 means that the tensor has
 * no such axis. */
static winattn_status read_tensor(wa_problem *problem, wa_tensor_id id,
                                  uint32_t element_size,
                                  const uint64_t extent[WA_AXES],
                                  const winattn_strides *strides)
{
    wa_tensor *tensor = &problem->tensor[id];
    const char *name = traits[id].name;
    const uint64_t given[WA_AXES] = {
        strides->window,  strides->head, strides->axis[0],
        strides->axis[1], strides->row,  strides->column};
    bool contiguous = true;
    tensor->used = true;
    tensor->element_size = element_size;
    for (int axis = 0; axis < WA_AXES; axis++) {
        const bool exists =
            extent[axis] != 0 || (axis == WA_WINDOW && !lacks_windows(id));
        if (!exists && given[axis] != 0)
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "%s has no axis %s, yet its stride is %llu", name,
                           axis_names[axis], (unsigned long long)given[axis]);
        tensor->extent[axis] = exists ? extent[axis] : 1;
        tensor->stride[axis] = tensor->extent[axis] > 1 ? given[axis] : 0;
        contiguous = contiguous && given[axis] == 0;
    }
    if (contiguous)
        WA_TRY(fill_contiguous(tensor, name));

    tensor->span = 1;
    for (int axis = 0; axis < WA_AXES; axis++) {
        const uint64_t count = tensor->extent[axis];
        if (count == 0) {
            tensor->span = 0;
            return WINATTN_SUCCESS;
        }
        if (!multiply_add(tensor->stride[axis], count - 1, tensor->span,
                          &tensor->span))
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "the strides of %s reach past 2^63 elements", name);
        if (is_output(id) && count > 1 && tensor->stride[axis] == 0)
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "%s is an output, so its stride of axis %s must "
                           "not be 0",
                           name, axis_names[axis]);
        if (axis >= WA_ROW && tensor->stride[axis] > MAX_INNER_STRIDE)
            return wa_fail(WINATTN_INVALID_LAYOUT,
                           "the stride of axis %s of %s is above 2^32",
                           axis_names[axis], name);
    }
    /* Kernels address the terms inside a plane with 32 bits. */
    if (((id >= WA_BIAS && id <= WA_KEY_REGIONS) || id == WA_DBIAS) &&
        (tensor->extent[WA_ROW] - 1) * tensor->stride[WA_ROW] +
                (tensor->extent[WA_COLUMN] - 1) * tensor->stride[WA_COLUMN] >
            INT32_MAX)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "a plane of %s spans more than 2^31 elements", name);
    if (overlaps_itself(tensor))
        return wa_fail(WINATTN_INVALID_LAYOUT,
                       "the strides of %s let elements overlap", name);
    if (tensor->span > UINT64_MAX / 2 / element_size)
        return wa_fail(WINATTN_INVALID_LAYOUT, "%s spans more than 2^63 bytes",
                       name);
    return WINATTN_SUCCESS;
}

static winattn_status check_count(const char *name, uint64_t value,
                                  uint64_t most)
{
    if (value == 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is 0", name);
    if (value > most)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s is %llu, above %llu",
                       name, (unsigned long long)value,
                       (unsigned long long)most);
    return WINATTN_SUCCESS;
}

static winattn_status check_enum(const char *name, int value, int last)
{
    if (value < 0 || value > last)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is %d, not 0 to %d", name,
                       value, last);
    return WINATTN_SUCCESS;
}

static winattn_status read_sizes(const winattn_desc *desc, wa_problem *problem)
{
    WA_TRY(check_enum("variant", (int)desc->variant, WINATTN_SLIDING));
    WA_TRY(check_enum("dtype", (int)desc->dtype, WINATTN_BF16));
    WA_TRY(check_enum("tier", (int)desc->tier, WINATTN_TIER_MATRIX));
    WA_TRY(check_enum("bias", (int)desc->bias, WINATTN_BIAS_FULL));
    WA_TRY(check_enum("bias_dtype", (int)desc->bias_dtype, WINATTN_TERM_FP32));
    WA_TRY(check_enum("mask", (int)desc->mask, WINATTN_MASK_REGIONS));
    WA_TRY(check_enum("mask_dtype", (int)desc->mask_dtype, WINATTN_TERM_FP32));
    WA_TRY(check_count("heads", desc->heads, MAX_HEADS));
    WA_TRY(check_count("queries", desc->queries, MAX_TOKENS));
    WA_TRY(check_count("keys", desc->keys, MAX_TOKENS));
    WA_TRY(check_count("head_dim", desc->head_dim, MAX_HEAD_DIM));
    if (desc->windows > INT64_MAX)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "windows is above 2^63");
    if (desc->kv_heads != 0 &&
        (desc->kv_heads > desc->heads || desc->heads % desc->kv_heads != 0))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "kv_heads, %u, does not divide heads, %u",
                       desc->kv_heads, desc->heads);
    if (!isfinite(desc->scale))
        return wa_fail(WINATTN_INVALID_ARGUMENT, "scale is not finite");

    if ((desc->passes &
         ~(cl_bitfield)(WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)) != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "passes has a bit that is no WINATTN_PASS_");
    problem->passes[WA_FORWARD] =
        desc->passes == 0 || (desc->passes & WINATTN_PASS_FORWARD) != 0;
    problem->passes[WA_BACKWARD] = (desc->passes & WINATTN_PASS_BACKWARD) != 0;
    problem->variant = desc->variant;
    problem->dtype = desc->dtype;
    problem->tier = desc->tier;
    problem->windows = desc->windows;
    problem->heads = desc->heads;
    problem->kv_heads = desc->kv_heads ? desc->kv_heads : desc->heads;
    problem->queries = desc->queries;
    problem->keys = desc->keys;
    problem->head_dim = desc->head_dim;
    problem->scale = desc->scale != 0.0f
                         ? desc->scale
                         : (float)(1.0 / sqrt((double)desc->head_dim));
    if (desc->grid.axes != 0 || desc->bias == WINATTN_BIAS_TABLE)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "no grids and tables yet");
    return WINATTN_SUCCESS;
}

static winattn_status read_terms(const winattn_desc *desc, wa_problem *problem)
{
    if (desc->variant == WINATTN_SLIDING &&
        (desc->bias != WINATTN_BIAS_NONE || desc->mask != WINATTN_MASK_NONE))
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "the sliding variant takes no bias and no mask");
    if (desc->mask == WINATTN_MASK_NONE && desc->mask_windows != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "mask_windows is set, but there is no mask");
    if (desc->mask != WINATTN_MASK_NONE &&
        (desc->mask_windows == 0 || desc->mask_windows > INT64_MAX))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "a mask needs mask_windows from 1 to 2^63");
    if (desc->has_region_value && desc->mask != WINATTN_MASK_REGIONS)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "region_value is set, but the mask has no regions");
    if (desc->has_region_value &&
        (isnan(desc->region_value) || desc->region_value == INFINITY))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "region_value is NaN or +infinity");
    problem->bias = desc->bias;
    problem->bias_dtype = desc->bias_dtype;
    problem->mask = desc->mask;
    problem->mask_dtype = desc->mask_dtype;
    problem->mask_windows = desc->mask_windows ? desc->mask_windows : 1;
    problem->region_value =
        desc->has_region_value ? desc->region_value : -100.0f;
    return WINATTN_SUCCESS;
}

static winattn_status read_sliding(const winattn_desc *desc,
                                   wa_problem *problem)
{
    if (desc->variant != WINATTN_SLIDING) {
        if (desc->block || desc->first_block || desc->window_blocks ||
            desc->sink || desc->sink_in_window || desc->query_offset)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "block, first_block, window_blocks, sink, "
                           "sink_in_window and query_offset are for the "
                           "sliding variant");
        return WINATTN_SUCCESS;
    }
    WA_TRY(check_count("block", desc->block, MAX_TOKENS));
    if (desc->first_block > MAX_TOKENS || desc->sink > MAX_TOKENS ||
        desc->window_blocks > MAX_TOKENS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "first_block, window_blocks or sink is above 2^31");
    if ((uint64_t)desc->query_offset + desc->queries > MAX_TOKENS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "query_offset + queries is above 2^31");
    problem->block = desc->block;
    problem->first_block = desc->first_block ? desc->first_block : desc->block;
    problem->window_blocks = desc->window_blocks;
    problem->sink = desc->sink;
    problem->query_offset = desc->query_offset;
    if (desc->sink_in_window && desc->sink != 0 && desc->window_blocks != 0) {
        const uint32_t last = desc->sink - 1;
        const uint32_t touched =
            last < problem->first_block
                ? 1
                : 2 + (last - problem->first_block) / problem->block;
        if (touched >= desc->window_blocks)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "the sink touches %u blocks, which leaves nothing "
                           "of a window of %u",
                           touched, desc->window_blocks);
        problem->window_blocks = desc->window_blocks - touched;
    }
    return WINATTN_SUCCESS;
}

static winattn_status read_tensors(const winattn_desc *desc,
                                   wa_problem *problem)
{
    const uint32_t size = problem->dtype == WINATTN_FP32 ? 4 : 2;
    const uint32_t bias_size =
        desc->bias_dtype == WINATTN_TERM_FP32 ? 4 : size;
    const uint32_t mask_size =
        desc->mask_dtype == WINATTN_TERM_FP32 ? 4 : size;
    const uint64_t windows = problem->windows, heads = problem->heads;
    const uint64_t kv_heads = problem->kv_heads, dim = problem->head_dim;
    const uint64_t queries = problem->queries, keys = problem->keys;
    const uint64_t masks = problem->mask_windows;
    const winattn_strides contiguous = {0};
#define READ(id, size, strides, window, head, row, column)                    \
    WA_TRY(read_tensor(                                                       \
        problem, id, size,                                                    \
        (const uint64_t[WA_AXES]){window, head, 0, 0, row, column}, strides))
    READ(WA_Q, size, &desc->q, windows, heads, queries, dim);
    READ(WA_K, size, &desc->k, windows, kv_heads, keys, dim);
    READ(WA_V, size, &desc->v, windows, kv_heads, keys, dim);
    READ(WA_O, size, &desc->o, windows, heads, queries, dim);
    READ(WA_LSE, 4, &desc->lse, windows, heads, queries, 0);
    if (desc->bias != WINATTN_BIAS_NONE)
        READ(WA_BIAS, bias_size, &desc->bias_strides, 0, heads, queries, keys);
    if (desc->mask == WINATTN_MASK_ADDITIVE)
        READ(WA_MASK, mask_size, &desc->mask_strides, masks, 0, queries, keys);
    if (desc->mask == WINATTN_MASK_REGIONS) {
        READ(WA_QUERY_REGIONS, 1, &desc->query_region_strides, masks, 0,
             queries, 0);
        READ(WA_KEY_REGIONS, 1, &desc->key_region_strides, masks, 0, keys, 0);
    }
    if (desc->variant == WINATTN_COSINE)
        READ(WA_LOGIT_SCALE, 4, &contiguous, 0, heads, 0, 0);
    if (!problem->passes[WA_BACKWARD])
        return WINATTN_SUCCESS;
    READ(WA_D_O, size, &desc->d_o, windows, heads, queries, dim);
    READ(WA_D_LSE, 4, &desc->d_lse, windows, heads, queries, 0);
    READ(WA_DQ, size, &desc->dq, windows, heads, queries, dim);
    READ(WA_DK, size, &desc->dk, windows, kv_heads, keys, dim);
    READ(WA_DV, size, &desc->dv, windows, kv_heads, keys, dim);
    if (desc->bias != WINATTN_BIAS_NONE)
        READ(WA_DBIAS, 4, &desc->dbias_strides, 0, heads, queries, keys);
    if (desc->variant == WINATTN_COSINE)
        READ(WA_D_LOGIT_SCALE, 4, &contiguous, 0, heads, 0, 0);
#undef READ
    return WINATTN_SUCCESS;
}

winattn_status wa_problem_read(const winattn_desc *desc, wa_problem *problem)
{
    winattn_desc own;
    memset(&own, 0, sizeof own);
    memset(problem, 0, sizeof *problem);
    if (!desc)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "desc is NULL");
    if (desc->struct_size < offsetof(winattn_desc, build_options))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "desc.struct_size is %llu, not sizeof(winattn_desc)",
                       (unsigned long long)desc->struct_size);
    /* A newer program may pass a longer struct; what this library does not
     * know must then be zero. */
    for (size_t i = sizeof own; i < desc->struct_size; i++)
        if (((const unsigned char *)desc)[i] != 0)
            return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                           "desc sets a field that this version of the "
                           "library does not know");
    memcpy(&own, desc,
           desc->struct_size < sizeof own ? desc->struct_size : sizeof own);

    WA_TRY(read_sizes(&own, problem));
    WA_TRY(read_terms(&own, problem));
    WA_TRY(read_sliding(&own, problem));
    WA_TRY(read_tensors(&own, problem));
    problem->build_options = own.build_options ? own.build_options : "";
    return WINATTN_SUCCESS;
}

uint32_t wa_problem_seen_keys(const wa_problem *problem)
{
    if (problem->variant != WINATTN_SLIDING || problem->window_blocks == 0)
        return problem->keys;
    const uint64_t seen =
        (uint64_t)problem->window_blocks * problem->block + problem->sink;
    return seen < problem->keys ? (uint32_t)seen : problem->keys;
}

double wa_problem_row_operations(const wa_problem *problem)
{
    return 4.0 * wa_problem_seen_keys(problem) * problem->head_dim;
}

double wa_problem_operations(const wa_problem *problem)
{
    return wa_problem_row_operations(problem) * (double)problem->windows *
           problem->heads * problem->queries;
}
