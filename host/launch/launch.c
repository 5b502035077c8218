/* SPDX-License-Identifier: Apache-2.0
 * From checked buffers to enqueued kernels. */
#include "launch/launch.h"

#include <string.h>

#include "base/status.h"

/* The same size on host and device, whatever the compiler. */
_Static_assert(sizeof(forward_args) == 584, "forward_args has padding");

static winattn_status check_memory(const char *name, const winattn_tensor *at,
                                   cl_context context, bool output,
                                   uint32_t element_size, uint64_t bytes)
{
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    cl_context owner = NULL;
    size_t size = 0;
    cl_int error =
        clGetMemObjectInfo(at->buffer, CL_MEM_TYPE, sizeof type, &type, NULL);
    if (error == CL_SUCCESS)
        error = clGetMemObjectInfo(at->buffer, CL_MEM_FLAGS, sizeof flags,
                                   &flags, NULL);
    if (error == CL_SUCCESS)
        error = clGetMemObjectInfo(at->buffer, CL_MEM_CONTEXT, sizeof owner,
                                   &owner, NULL);
    if (error == CL_SUCCESS)
        error = clGetMemObjectInfo(at->buffer, CL_MEM_SIZE, sizeof size, &size,
                                   NULL);
    if (error == CL_INVALID_MEM_OBJECT)
        return wa_fail(WINATTN_INVALID_BUFFER, "%s is no memory object", name);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetMemObjectInfo");
    if (type != CL_MEM_OBJECT_BUFFER)
        return wa_fail(WINATTN_INVALID_BUFFER, "%s is no buffer", name);
    if (owner != context)
        return wa_fail(WINATTN_INVALID_BUFFER,
                       "%s belongs to another context than the plan", name);
    if (!output && (flags & CL_MEM_WRITE_ONLY) != 0)
        return wa_fail(WINATTN_INVALID_BUFFER,
                       "%s is read, but its buffer is write-only", name);
    if (output && (flags & CL_MEM_READ_ONLY) != 0)
        return wa_fail(WINATTN_INVALID_BUFFER,
                       "%s is written, but its buffer is read-only", name);
    if (at->offset % element_size != 0)
        return wa_fail(WINATTN_INVALID_LAYOUT,
                       "the offset of %s, %llu, is no multiple of %u", name,
                       (unsigned long long)at->offset, element_size);
    if (at->offset > size || bytes > size - at->offset)
        return wa_fail(WINATTN_BUFFER_TOO_SMALL,
                       "%s needs %llu bytes from offset %llu on, but its "
                       "buffer has %llu",
                       name, (unsigned long long)bytes,
                       (unsigned long long)at->offset,
                       (unsigned long long)size);
    return WINATTN_SUCCESS;
}

/* Kernels take the step between channels of the padding from k and v. */
static winattn_status check_pad_columns(const wa_problem *problem,
                                        const wa_buffers *buffers,
                                        wa_tensor_id pad, wa_tensor_id tokens)
{
    const uint64_t own = problem->tensor[pad].stride[WA_COLUMN];
    const uint64_t wanted = problem->tensor[tokens].stride[WA_COLUMN];
    if (!buffers->tensor[pad].buffer || own == wanted)
        return WINATTN_SUCCESS;
    return wa_fail(
        WINATTN_INVALID_LAYOUT,
        "the stride of axis column of %s, %llu, is not that of %s, %llu",
        wa_tensor_name(pad), (unsigned long long)own, wa_tensor_name(tokens),
        (unsigned long long)wanted);
}

winattn_status wa_check_buffers(const wa_problem *problem, wa_pass pass,
                                uint64_t workspace_bytes, cl_context context,
                                const wa_buffers *buffers)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_tensor *tensor = &problem->tensor[id];
        const winattn_tensor *at = &buffers->tensor[id];
        const char *name = wa_tensor_name(id);
        const wa_role role = wa_tensor_role(id, pass);
        if (role == WA_ABSENT)
            continue;
        if (!at->buffer) {
            if (tensor->used && (role == WA_INPUT || role == WA_OUTPUT))
                return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is NULL", name);
            continue;
        }
        if (!tensor->used)
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           "%s is given, but the plan does not use it", name);
        WA_TRY(check_memory(name, at, context, role >= WA_OUTPUT,
                            tensor->element_size,
                            tensor->span * tensor->element_size));
    }
    WA_TRY(check_pad_columns(problem, buffers, WA_PAD_K, WA_K));
    WA_TRY(check_pad_columns(problem, buffers, WA_PAD_V, WA_V));
    if (workspace_bytes == 0)
        return WINATTN_SUCCESS;
    if (!buffers->workspace.buffer)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "workspace is NULL, but the %s pass needs %llu bytes",
                       pass == WA_FORWARD ? "forward" : "backward",
                       (unsigned long long)workspace_bytes);
    const winattn_status status = check_memory(
        "workspace", &buffers->workspace, context, true, 16, workspace_bytes);
    return status == WINATTN_BUFFER_TOO_SMALL ? WINATTN_WORKSPACE_TOO_SMALL
                                              : status;
}

winattn_status wa_check_queue(cl_command_queue queue, cl_context context,
                              cl_device_id device)
{
    cl_context queue_context = NULL;
    cl_device_id queue_device = NULL;
    if (!queue)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "queue is NULL");
    cl_int error = clGetCommandQueueInfo(
        queue, CL_QUEUE_CONTEXT, sizeof queue_context, &queue_context, NULL);
    if (error == CL_SUCCESS)
        error = clGetCommandQueueInfo(
            queue, CL_QUEUE_DEVICE, sizeof queue_device, &queue_device, NULL);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetCommandQueueInfo");
    if (queue_context != context)
        return wa_fail(WINATTN_INVALID_QUEUE,
                       "the queue belongs to another context than the plan");
    if (queue_device != device)
        return wa_fail(WINATTN_INVALID_QUEUE,
                       "the queue belongs to another device than the plan");
    return WINATTN_SUCCESS;
}

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
        uint64_t all = buffers->tensor[ids[i]].offset;
        for (int axis = WA_WINDOW; axis <= WA_ROW; axis++)
            all |= tensor->stride[axis] * tensor->element_size;
        if (all % bytes != 0)
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
    layout.seams = grid->seams;
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

winattn_status wa_chain_begin(wa_kernel_chain *chain, cl_command_queue queue,
                              cl_uint wait_count, const cl_event *wait_list,
                              bool wants_event)
{
    cl_command_queue_properties properties = 0;
    const cl_int error = clGetCommandQueueInfo(
        queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    memset(chain, 0, sizeof *chain);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetCommandQueueInfo");
    chain->queue = queue;
    chain->wait_count = wait_count;
    chain->wait_list = wait_list;
    chain->in_order =
        (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    chain->wants_event = wants_event;
    return WINATTN_SUCCESS;
}

winattn_status wa_chain_append(wa_kernel_chain *chain, cl_kernel kernel,
                               uint64_t items, size_t group)
{
    const size_t global = (size_t)((items + group - 1) / group * group);
    cl_event done = NULL;
    const cl_int error = clEnqueueNDRangeKernel(
        chain->queue, kernel, 1, NULL, &global, &group, chain->wait_count,
        chain->wait_list,
        chain->wants_event || !chain->in_order ? &done : NULL);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clEnqueueNDRangeKernel");
    if (chain->last)
        clReleaseEvent(chain->last);
    chain->last = done;
    chain->has_begun = true;
    chain->wait_count = chain->in_order ? 0 : 1;
    chain->wait_list = chain->in_order ? NULL : &chain->last;
    return WINATTN_SUCCESS;
}

winattn_status wa_chain_end(wa_kernel_chain *chain, winattn_status status,
                            cl_event *event)
{
    if (status == WINATTN_SUCCESS && event && !chain->has_begun) {
        const cl_int error = clEnqueueMarkerWithWaitList(
            chain->queue, chain->wait_count, chain->wait_list, &chain->last);
        if (error != CL_SUCCESS)
            status = wa_fail_cl(error, "clEnqueueMarkerWithWaitList");
    }
    if (status == WINATTN_SUCCESS && event)
        *event = chain->last;
    else if (chain->last)
        clReleaseEvent(chain->last);
    return status;
}

winattn_status wa_set_arg(cl_kernel kernel, cl_uint index, size_t size,
                          const void *value)
{
    const cl_int error = clSetKernelArg(kernel, index, size, value);
    return error == CL_SUCCESS ? WINATTN_SUCCESS
                               : wa_fail_cl(error, "clSetKernelArg");
}

/* Has a kernel of the problem a parameter for the tensor? */
static bool is_parameter(const wa_problem *problem, wa_tensor_id id)
{
    const bool is_pad = id == WA_PAD_K || id == WA_PAD_V;
    return problem->tensor[id].used &&
           (!is_pad || wa_problem_padding(problem) == 1);
}

winattn_status wa_set_buffers(const wa_problem *problem, cl_kernel kernel,
                              const wa_buffers *buffers,
                              const wa_tensor_id *ids, size_t count,
                              cl_uint *index)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_parameter(problem, ids[i]))
            continue;
        const cl_mem buffer = buffers->tensor[ids[i]].buffer;
        WA_TRY(wa_set_arg(kernel, (*index)++, sizeof buffer,
                          buffer ? &buffer : NULL));
        if (ids[i] == WA_BIAS && problem->table.has_index)
            WA_TRY(wa_set_arg(kernel, (*index)++, sizeof buffers->table.index,
                              &buffers->table.index));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_expand_table(wa_problem *problem, wa_buffers *buffers,
                               uint64_t at, cl_kernel kernel,
                               wa_kernel_chain *chain)
{
    static const wa_tensor_id ids[] = {WA_BIAS};
    const forward_args args = wa_forward_args(problem, buffers);
    const winattn_tensor dense = {buffers->workspace.buffer,
                                  buffers->workspace.offset + at};
    const cl_ulong to = dense.offset / 4;
    cl_uint index = 1;
    WA_TRY(wa_set_arg(kernel, 0, sizeof args, &args));
    WA_TRY(wa_set_buffers(problem, kernel, buffers, ids, 1, &index));
    WA_TRY(wa_set_arg(kernel, index, sizeof dense.buffer, &dense.buffer));
    WA_TRY(wa_set_arg(kernel, index + 1, sizeof to, &to));
    WA_TRY(wa_chain_append(chain, kernel,
                           (uint64_t)problem->heads * problem->queries, 1));
    *problem = wa_problem_without_table(problem);
    buffers->tensor[WA_BIAS] = dense;
    return WINATTN_SUCCESS;
}

/* Sets the buffers, in the order of FORWARD_PARAMETERS in
 * cl/common/problem.cl. */
static winattn_status set_buffers(const wa_problem *problem, cl_kernel kernel,
                                  const wa_buffers *buffers)
{
    static const wa_tensor_id order[] = {
        WA_Q,           WA_K,           WA_V,
        WA_BIAS,        WA_MASK,        WA_QUERY_REGIONS,
        WA_KEY_REGIONS, WA_LOGIT_SCALE, WA_PAD_K,
        WA_PAD_V,       WA_O,           WA_LSE};
    cl_uint index = 1; /* 0 is forward_args */
    return wa_set_buffers(problem, kernel, buffers, order,
                          sizeof order / sizeof *order, &index);
}

/* Launches of units, a long window in several. */
static winattn_status launch_units(const wa_problem *problem,
                                   const wa_plan *plan, cl_kernel kernel,
                                   forward_args *args, wa_kernel_chain *chain)
{
    const uint32_t per_window = plan->row_blocks * problem->heads;
    const uint64_t per_launch = plan->units_per_launch;
    uint64_t window = 0; /* where the next launch starts */
    uint32_t unit = 0;
    while (window < problem->windows) {
        const uint64_t windows_left = problem->windows - window;
        /* Units left, if that is fewer than a launch takes. */
        const uint64_t left = windows_left > per_launch / per_window + 1
                                  ? per_launch
                                  : windows_left * per_window - unit;
        const uint64_t units = left < per_launch ? left : per_launch;
        const uint64_t groups =
            (units + plan->units_per_group - 1) / plan->units_per_group;
        const uint64_t next = unit + units;
        args->first_window = window;
        args->first_unit = unit;
        args->units = (cl_uint)units;
        window += next / per_window;
        unit = (uint32_t)(next % per_window);
        WA_TRY(wa_set_arg(kernel, 0, sizeof *args, args));
        WA_TRY(wa_chain_append(chain, kernel, groups * plan->work_group,
                               plan->work_group));
    }
    return WINATTN_SUCCESS;
}

/* Launches of whole windows, which work-groups walk. */
static winattn_status launch_walks(const wa_problem *problem,
                                   const wa_plan *plan, cl_kernel kernel,
                                   forward_args *args, wa_kernel_chain *chain)
{
    const uint64_t items = (uint64_t)plan->groups * plan->work_group;
    for (uint64_t window = 0; window < problem->windows;
         window += plan->windows_per_launch) {
        const uint64_t left = problem->windows - window;
        args->first_window = window;
        args->windows =
            left < plan->windows_per_launch ? left : plan->windows_per_launch;
        WA_TRY(wa_set_arg(kernel, 0, sizeof *args, args));
        WA_TRY(wa_chain_append(chain, kernel, items, plan->work_group));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_launch_forward(const wa_problem *problem,
                                 const wa_plan *plan,
                                 const wa_forward_kernels *kernels,
                                 cl_command_queue queue,
                                 const wa_buffers *buffers, cl_uint wait_count,
                                 const cl_event *wait_list, cl_event *event)
{
    static const wa_tensor_id ids[] = {WA_Q,     WA_K,     WA_V,
                                       WA_PAD_K, WA_PAD_V, WA_O};
    wa_kernel_chain chain;
    wa_problem computed = *problem;
    wa_buffers used = *buffers;
    WA_TRY(wa_chain_begin(&chain, queue, wait_count, wait_list, event));
    winattn_status status = WINATTN_SUCCESS;
    if (plan->expands_table)
        status = wa_expand_table(&computed, &used, 0, kernels->expand, &chain);
    forward_args args = wa_forward_args(&computed, &used);
    args.row_blocks = plan->row_blocks;
    args.block_rows = plan->block_rows;
    if (wa_allows_wide_access(&computed, &used, ids, sizeof ids / sizeof *ids,
                              plan->access_elements, plan->access_bytes))
        args.flags |= ARG_WIDE_ACCESS;
    if (used.tensor[WA_LSE].buffer)
        args.flags |= ARG_LSE;
    if (status == WINATTN_SUCCESS)
        status = set_buffers(&computed, kernels->main, &used);
    if (status == WINATTN_SUCCESS)
        status = (plan->groups ? launch_walks : launch_units)(
            &computed, plan, kernels->main, &args, &chain);
    return wa_chain_end(&chain, status, event);
}
