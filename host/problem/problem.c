/* SPDX-License-Identifier: Apache-2.0
 * Reads and checks a descriptor. */
#include "problem/problem.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "problem/read.h"

#define MAX_HEAD_DIM 256u
#define MAX_HEADS 65536u

winattn_status wa_check_count(const char *name, uint64_t value, uint64_t most)
{
    if (value == 0)
        return WA_INVALID("%s is 0", name);
    if (value > most)
        return WA_UNSUPPORTED("%s is %llu, above %llu", name,
                              (unsigned long long)value,
                              (unsigned long long)most);
    return WINATTN_SUCCESS;
}

winattn_status wa_check_enum(const char *name, int value, int last)
{
    if (value < 0 || value > last)
        return WA_INVALID("%s is %d, not 0 to %d", name, value, last);
    return WINATTN_SUCCESS;
}

static winattn_status read_sizes(const winattn_desc *desc, wa_problem *problem)
{
    WA_TRY(wa_check_enum("variant", (int)desc->variant, WINATTN_SLIDING));
    WA_TRY(wa_check_enum("dtype", (int)desc->dtype, WINATTN_BF16));
    WA_TRY(wa_check_enum("tier", (int)desc->tier, WINATTN_TIER_MATRIX));
    WA_TRY(wa_check_enum("bias", (int)desc->bias, WINATTN_BIAS_TABLE));
    WA_TRY(
        wa_check_enum("bias_dtype", (int)desc->bias_dtype, WINATTN_TERM_FP32));
    /* of an array kernels know two (mask_of) */
    WA_TRY(wa_check_enum("mask", (int)desc->mask, MOST_MASK - 1));
    WA_TRY(
        wa_check_enum("mask_dtype", (int)desc->mask_dtype, WINATTN_TERM_FP32));
    WA_TRY(wa_read_grid(desc, problem));
    WA_TRY(wa_check_count("heads", desc->heads, MAX_HEADS));
    WA_TRY(wa_check_count("queries", problem->queries, WA_MAX_TOKENS));
    WA_TRY(wa_check_count("keys", problem->keys, WA_MAX_TOKENS));
    WA_TRY(wa_check_count("head_dim", desc->head_dim, MAX_HEAD_DIM));
    if (problem->windows > INT64_MAX)
        return WA_INVALID("windows is above 2^63");
    if (desc->kv_heads != 0 &&
        (desc->kv_heads > desc->heads || desc->heads % desc->kv_heads != 0))
        return WA_INVALID("kv_heads, %u, does not divide heads, %u",
                          desc->kv_heads, desc->heads);
    if (desc->allow_tf32 && desc->dtype != WINATTN_FP32)
        return WA_INVALID("allow_tf32 is set, but the tensors are not fp32");
    if (!isfinite(desc->scale))
        return WA_INVALID("scale is not finite");

    if ((desc->passes &
         ~(cl_bitfield)(WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)) != 0)
        return WA_INVALID("passes has a bit that is no WINATTN_PASS_");
    problem->passes[WA_FORWARD] =
        desc->passes == 0 || (desc->passes & WINATTN_PASS_FORWARD) != 0;
    problem->passes[WA_BACKWARD] = (desc->passes & WINATTN_PASS_BACKWARD) != 0;
    problem->variant = desc->variant;
    problem->dtype = desc->dtype;
    problem->tier = desc->tier;
    problem->allows_tf32 = desc->allow_tf32 != CL_FALSE;
    problem->heads = desc->heads;
    problem->kv_heads = desc->kv_heads ? desc->kv_heads : desc->heads;
    problem->head_dim = desc->head_dim;
    problem->scale = desc->scale != 0.0f
                         ? desc->scale
                         : (float)(1.0 / sqrt((double)desc->head_dim));
    return WINATTN_SUCCESS;
}

_Static_assert(MASK_NONE == WINATTN_MASK_NONE &&
                   MASK_ARRAY == WINATTN_MASK_ADDITIVE &&
                   MASK_ARRAY_FP32 == WINATTN_MASK_ADDITIVE + 1 &&
                   MASK_REGIONS == WINATTN_MASK_REGIONS + 1 &&
                   MASK_SHIFT == WINATTN_MASK_SHIFT + 1,
               "kernels number masks in another order");

/* Of those that the caller numbers, kernels know that of an array as two. */
static uint32_t mask_of(const winattn_desc *desc)
{
    if (desc->mask < WINATTN_MASK_ADDITIVE ||
        (desc->mask == WINATTN_MASK_ADDITIVE &&
         desc->mask_dtype == WINATTN_TERM_SAME))
        return (uint32_t)desc->mask;
    return (uint32_t)desc->mask + 1;
}

static winattn_status read_mask(const winattn_desc *desc, wa_problem *problem)
{
    const uint32_t mask = mask_of(desc);
    const bool is_read = MASK_READS_ARRAY(mask) || MASK_READS_REGIONS(mask);
    if (mask == MASK_NONE && desc->mask_windows != 0)
        return WA_INVALID("mask_windows is set, but there is no mask");
    if (MASK_FOLLOWS_GRID(mask) && !problem->grid.used)
        return WA_INVALID("the mask of a shift needs a grid");
    if (!is_read && desc->mask_windows != 0)
        return WA_INVALID("mask_windows is set, but the mask is computed");
    if (is_read && (desc->mask_windows == 0 || desc->mask_windows > INT64_MAX))
        return WA_INVALID("a mask needs mask_windows from 1 to 2^63");
    if (desc->has_region_value && !MASK_HAS_REGIONS(mask))
        return WA_INVALID("region_value is set, but the mask has no regions");
    if (desc->has_region_value &&
        (isnan(desc->region_value) || desc->region_value == INFINITY))
        return WA_INVALID("region_value is NaN or +infinity");
    problem->mask = mask;
    problem->mask_windows = desc->mask_windows ? desc->mask_windows : 1;
    problem->region_value =
        desc->has_region_value ? desc->region_value : -100.0f;
    return WINATTN_SUCCESS;
}

static winattn_status read_terms(const winattn_desc *desc, wa_problem *problem)
{
    if (desc->variant == WINATTN_SLIDING &&
        (desc->bias != WINATTN_BIAS_NONE || desc->mask != WINATTN_MASK_NONE))
        return WA_UNSUPPORTED("the sliding variant takes no bias and no mask");
    problem->bias = desc->bias;
    problem->bias_dtype = desc->bias_dtype;
    return read_mask(desc, problem);
}

static winattn_status read_sliding(const winattn_desc *desc,
                                   wa_problem *problem)
{
    if (desc->variant != WINATTN_SLIDING) {
        if (desc->block || desc->first_block || desc->window_blocks ||
            desc->sink || desc->sink_in_window || desc->query_offset)
            return WA_INVALID(
                "block, first_block, window_blocks, sink, sink_in_window and "
                "query_offset are for the sliding variant");
        return WINATTN_SUCCESS;
    }
    WA_TRY(wa_check_count("block", desc->block, WA_MAX_TOKENS));
    if (desc->first_block > WA_MAX_TOKENS || desc->sink > WA_MAX_TOKENS ||
        desc->window_blocks > WA_MAX_TOKENS)
        return WA_UNSUPPORTED(
            "first_block, window_blocks or sink is above 2^31");
    if ((uint64_t)desc->query_offset + desc->queries > WA_MAX_TOKENS)
        return WA_UNSUPPORTED("query_offset + queries is above 2^31");
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
            return WA_INVALID("the sink touches %u blocks, which leaves "
                              "nothing of a window of %u",
                              touched, desc->window_blocks);
        problem->window_blocks = desc->window_blocks - touched;
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_problem_read(const winattn_desc *desc, wa_problem *problem)
{
    winattn_desc own;
    memset(problem, 0, sizeof *problem);
    WA_TRY(wa_read_struct("desc", desc, &own, sizeof own,
                          offsetof(winattn_desc, build_options)));

    WA_TRY(read_sizes(&own, problem));
    WA_TRY(read_terms(&own, problem));
    WA_TRY(wa_read_table(&own, problem));
    WA_TRY(read_sliding(&own, problem));
    WA_TRY(wa_read_tensors(&own, problem));
    problem->build_options = own.build_options ? own.build_options : "";
    return WINATTN_SUCCESS;
}

uint32_t wa_problem_padding(const wa_problem *problem)
{
    if (!problem->grid.is_padded)
        return 0;
    return wa_has_pad_values(problem) ? 1 : 2;
}

bool wa_problem_has_score_bias(const wa_problem *problem)
{
    return problem->bias != WINATTN_BIAS_NONE || problem->mask != MASK_NONE;
}

wa_problem wa_problem_without_table(const wa_problem *problem)
{
    static const wa_tensor_id ids[] = {WA_BIAS, WA_DBIAS};
    const uint64_t keys = problem->keys;
    const uint64_t plane = problem->queries * keys;
    wa_problem dense = *problem;
    if (!problem->table.used)
        return dense;
    memset(&dense.table, 0, sizeof dense.table);
    dense.bias = WINATTN_BIAS_FULL;
    dense.bias_dtype = WINATTN_TERM_FP32;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        wa_tensor *tensor = &dense.tensor[ids[i]];
        if (!tensor->used)
            continue;
        tensor->element_size = 4;
        tensor->extent[WA_ROW] = problem->queries;
        tensor->extent[WA_COLUMN] = keys;
        tensor->stride[WA_HEAD] = problem->heads > 1 ? plane : 0;
        tensor->stride[WA_ROW] = problem->queries > 1 ? keys : 0;
        tensor->stride[WA_COLUMN] = keys > 1 ? 1 : 0;
        tensor->span = problem->heads * plane;
    }
    return dense;
}

uint64_t wa_problem_dense_bias_bytes(const wa_problem *problem)
{
    return 4u * (uint64_t)problem->heads * problem->queries * problem->keys;
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
