/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/arguments.h"

#include <string.h>

#include "base/status.h"

/* The same size on host and device, whatever the compiler. */
_Static_assert(sizeof(forward_args) == 592, "forward_args has padding");

tensor_layout wa_layout_of(const wa_problem *problem,
                           const wa_buffers *buffers, wa_tensor_id id)
{
    const wa_tensor *tensor = &problem->tensor[id];
    tensor_layout layout;
    memset(&layout, 0, sizeof layout);
    if (!tensor->used)
        return layout;
    layout.offset = buffers->tensor[id].offset / tensor->element_size;
    layout.window = tensor->stride[WA_WINDOW];
    layout.head = tensor->stride[WA_HEAD];
    layout.axis[0] = (cl_uint)tensor->stride[WA_AXIS_0];
    layout.axis[1] = (cl_uint)tensor->stride[WA_AXIS_1];
    layout.row = (cl_uint)tensor->stride[WA_ROW];
    layout.column = (cl_uint)tensor->stride[WA_COLUMN];
    return layout;
}

bool wa_allows_wide_access(const wa_problem *problem,
                           const wa_buffers *buffers, const wa_tensor_id *ids,
                           size_t count, uint32_t elements, uint32_t bytes)
{
    if (elements == 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        const wa_tensor *tensor = &problem->tensor[ids[i]];
        if (!buffers->tensor[ids[i]].buffer)
            continue;
        if (!wa_tensor_is_adjacent(tensor))
            return false;
        if (bytes == 0)
            continue;
        uint64_t steps = 0;
        for (int axis = WA_WINDOW; axis <= WA_ROW; axis++)
            steps |= tensor->stride[axis] * tensor->element_size;
        if (steps % bytes != 0 ||
            !wa_is_aligned(&buffers->tensor[ids[i]], buffers->start[ids[i]],
                           bytes))
            return false;
    }
    return true;
}

static grid_layout layout_of_grid(const wa_grid *grid)
{
    grid_layout layout;
    memset(&layout, 0, sizeof layout);
    for (int axis = 0; axis < WINATTN_AXES; axis++) {
        layout.size[axis] = grid->size[axis];
        layout.windows[axis] = grid->windows[axis];
        layout.shift[axis] = grid->shift[axis];
    }
    layout.shift_boundaries = grid->shift_boundaries;
    return layout;
}

forward_args wa_forward_args(const wa_problem *problem,
                             const wa_buffers *buffers)
{
    forward_args args;
    memset(&args, 0, sizeof args);
    args.q = wa_layout_of(problem, buffers, WA_Q);
    args.k = wa_layout_of(problem, buffers, WA_K);
    args.v = wa_layout_of(problem, buffers, WA_V);
    args.o = wa_layout_of(problem, buffers, WA_O);
    args.bias = wa_layout_of(problem, buffers, WA_BIAS);
    args.mask = wa_layout_of(problem, buffers, WA_MASK);
    args.query_regions = wa_layout_of(problem, buffers, WA_QUERY_REGIONS);
    args.key_regions = wa_layout_of(problem, buffers, WA_KEY_REGIONS);
    args.lse = wa_layout_of(problem, buffers, WA_LSE);
    args.pad_k = wa_layout_of(problem, buffers, WA_PAD_K);
    args.pad_v = wa_layout_of(problem, buffers, WA_PAD_V);
    args.grid = layout_of_grid(&problem->grid);
    args.logit_scale_offset =
        wa_layout_of(problem, buffers, WA_LOGIT_SCALE).offset;
    args.mask_windows = problem->mask_windows;
    args.heads = problem->heads;
    args.heads_per_kv_head = problem->heads / problem->kv_heads;
    args.queries = problem->queries;
    args.keys = problem->keys;
    args.scale = problem->scale;
    args.region_value = problem->region_value;
    args.block = problem->block;
    args.first_block = problem->first_block;
    args.window = problem->window_blocks;
    args.sink = problem->sink;
    args.query_offset = problem->query_offset;
    if (buffers->tensor[WA_LOGIT_SCALE].buffer)
        args.flags |= ARG_LOGIT_SCALE;
    if (buffers->tensor[WA_PAD_K].buffer)
        args.flags |= ARG_PAD_K;
    if (buffers->tensor[WA_PAD_V].buffer)
        args.flags |= ARG_PAD_V;
    if (problem->window_blocks != 0)
        args.flags |= ARG_WINDOW_BOUNDED;
    return args;
}

/* Tokens that come before all of the blocks are there that a row may see. */
static uint64_t tokens_of_window(const wa_problem *problem)
{
    if (problem->window_blocks == 0)
        return UINT64_MAX;
    return problem->window_blocks == 1
               ? 0
               : problem->first_block +
                     (problem->window_blocks - 2ull) * problem->block;
}

uint32_t wa_short_row_blocks(const wa_problem *problem, uint32_t block_rows,
                             uint32_t row_blocks)
{
    const uint64_t before = tokens_of_window(problem);
    const uint64_t rows =
        before > problem->query_offset ? before - problem->query_offset : 0;
    const uint64_t blocks = rows / block_rows + (rows % block_rows != 0);
    return blocks < row_blocks ? (uint32_t)blocks : row_blocks;
}

uint32_t wa_short_key_blocks(const wa_problem *problem, uint32_t block_keys,
                             uint32_t key_blocks)
{
    const uint64_t blocks = tokens_of_window(problem) / block_keys;
    return blocks < key_blocks ? (uint32_t)blocks : key_blocks;
}

winattn_status wa_set_arg(cl_kernel kernel, cl_uint index, size_t size,
                          const void *value)
{
    return WA_CL(clSetKernelArg, kernel, index, size, value);
}

/* Has a kernel of the problem a parameter for the tensor? */
static bool is_parameter(const wa_problem *problem, wa_tensor_id id)
{
    const bool is_pad = id == WA_PAD_K || id == WA_PAD_V;
    return problem->tensor[id].used &&
           (!is_pad || wa_problem_padding(problem) == 1);
}

winattn_status wa_set_buffers(wa_kernel_chain *chain,
                              const wa_problem *problem, cl_kernel kernel,
                              const wa_buffers *buffers,
                              const wa_tensor_id *ids, size_t count,
                              cl_uint *index)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_parameter(problem, ids[i]))
            continue;
        WA_TRY(wa_chain_set_buffer(chain, kernel, (*index)++,
                                   buffers->tensor[ids[i]].buffer));
        if (ids[i] == WA_BIAS && problem->table.has_index)
            WA_TRY(wa_chain_set_buffer(chain, kernel, (*index)++,
                                       buffers->table.index));
    }
    return WINATTN_SUCCESS;
}
