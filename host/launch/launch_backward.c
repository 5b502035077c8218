/* SPDX-License-Identifier: Apache-2.0
 * The kernels of the backward pass, one after the other. */
#include "launch/launch_backward.h"

#include <string.h>

#include "base/status.h"

/* The same size on host and device, whatever the compiler. */
_Static_assert(sizeof(backward_args) == 832, "backward_args has padding");
_Static_assert(sizeof(all_sum_args) == SUMS * (size_t)72,
               "all_sum_args has padding");
_Static_assert(sizeof(table_args) == 120, "table_args has padding");

/* In the order of BACKWARD_PARAMETERS in cl/common/problem.cl; 0 is the
 * arguments' place. */
static winattn_status set_buffers(const wa_problem *problem, cl_kernel kernel,
                                  const wa_buffers *buffers)
{
    static const wa_tensor_id order[] = {
        WA_Q,           WA_K,           WA_V,
        WA_BIAS,        WA_MASK,        WA_QUERY_REGIONS,
        WA_KEY_REGIONS, WA_LOGIT_SCALE, WA_PAD_K,
        WA_PAD_V,       WA_O,           WA_LSE,
        WA_D_O,         WA_D_LSE,       WA_DQ,
        WA_DK,          WA_DV};
    cl_uint index = 1;
    WA_TRY(wa_set_buffers(problem, kernel, buffers, order,
                          sizeof order / sizeof *order, &index));
    const cl_mem workspace = buffers->workspace.buffer;
    return wa_set_arg(kernel, index, sizeof workspace,
                      workspace ? &workspace : NULL);
}

static cl_uint flags_of(const wa_problem *problem, const wa_buffers *buffers,
                        cl_bitfield accumulate)
{
    static const struct {
        wa_tensor_id id;
        cl_uint given;
        cl_bitfield output;
        cl_uint adds;
    } all[] = {
        {WA_O, ARG_O, 0, 0},
        {WA_LSE, ARG_LSE, 0, 0},
        {WA_D_LSE, ARG_D_LSE, 0, 0},
        {WA_DQ, ARG_DQ, WINATTN_DQ, ARG_ADD_DQ},
        {WA_DK, ARG_DK, WINATTN_DK, ARG_ADD_DK},
        {WA_DV, ARG_DV, WINATTN_DV, ARG_ADD_DV},
        {WA_DBIAS, ARG_DBIAS, 0, 0},
        {WA_D_LOGIT_SCALE, ARG_D_LOGIT_SCALE, 0, 0},
        {WA_D_PAD_K, ARG_D_PAD_K, 0, 0},
        {WA_D_PAD_V, ARG_D_PAD_V, 0, 0},
    };
    cl_uint flags = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (problem->tensor[all[i].id].used &&
            buffers->tensor[all[i].id].buffer) {
            flags |= all[i].given;
            if ((accumulate & all[i].output) != 0)
                flags |= all[i].adds;
        }
    return flags;
}

static backward_args make_args(const wa_problem *problem,
                               const wa_backward_plan *plan,
                               const wa_buffers *buffers,
                               cl_bitfield accumulate)
{
    backward_args args;
    memset(&args, 0, sizeof args);
    args.forward = wa_forward_args(problem, buffers);
    args.forward.flags |= flags_of(problem, buffers, accumulate);
    static const wa_tensor_id ids[] = {WA_Q, WA_K,   WA_V,  WA_PAD_K, WA_PAD_V,
                                       WA_O, WA_D_O, WA_DQ, WA_DK,    WA_DV};
    if (wa_allows_wide_access(problem, buffers, ids, sizeof ids / sizeof *ids,
                              plan->access_elements, plan->access_bytes))
        args.forward.flags |= ARG_WIDE_ACCESS;
    args.forward.row_blocks = plan->row_blocks;
    args.forward.block_rows =
        plan->kernels[plan->whole ? WA_BACKWARD_KEYS : WA_BACKWARD_ROWS]
            .block_rows;
    args.d_o = wa_layout_of(problem, buffers, WA_D_O);
    args.d_lse = wa_layout_of(problem, buffers, WA_D_LSE);
    args.dq = wa_layout_of(problem, buffers, WA_DQ);
    args.dk = wa_layout_of(problem, buffers, WA_DK);
    args.dv = wa_layout_of(problem, buffers, WA_DV);
    args.workspace = buffers->workspace.offset / 4;
    args.bias_partials = args.workspace + plan->statistics_bytes / 4;
    args.scale_partials = args.bias_partials + plan->bias_bytes / 4;
    args.pad_k_partials = args.scale_partials + plan->scale_bytes / 4;
    args.pad_v_partials = args.pad_k_partials + plan->pad_bytes / 4;
    args.key_blocks = plan->key_blocks;
    return args;
}

static winattn_status
launch_windows(const wa_problem *problem, const wa_backward_plan *plan,
               const wa_backward_kernels *kernels, const wa_buffers *buffers,
               backward_args *args, wa_kernel_chain *chain)
{
    for (int i = WA_BACKWARD_FIRST; i <= WA_BACKWARD_LAST; i++)
        if (kernels->part[i])
            WA_TRY(set_buffers(problem, kernels->part[i], buffers));
    args->forward.flags |= ARG_FIRST_LAUNCH;
    /* where the kernel of rows sums what belongs to them */
    const bool skips_keys =
        plan->row_slots &&
        (args->forward.flags &
         (ARG_DK | ARG_DV | ARG_D_PAD_K | ARG_D_PAD_V)) == 0;
    for (uint64_t window = 0; window < problem->windows;
         window += plan->windows_per_launch) {
        const uint64_t left = problem->windows - window;
        args->forward.first_window = window;
        args->forward.windows =
            left < plan->windows_per_launch ? left : plan->windows_per_launch;
        const uint64_t units =
            args->forward.windows * problem->heads * plan->row_blocks;
        const uint64_t owners = (uint64_t)plan->slots * problem->kv_heads *
                                plan->key_blocks *
                                (plan->key_parts ? plan->key_parts : 1);
        const uint64_t row_owners =
            (uint64_t)plan->row_slots * problem->heads * plan->row_blocks;
        for (int i = WA_BACKWARD_FIRST; i <= WA_BACKWARD_LAST; i++) {
            const bool last = i == WA_BACKWARD_LAST;
            const size_t group = plan->kernels[i].work_group;
            if (!kernels->part[i] || (last && skips_keys))
                continue;
            args->forward.slots = last ? plan->slots : plan->row_slots;
            WA_TRY(wa_set_arg(kernels->part[i], 0, sizeof *args, args));
            WA_TRY(wa_chain_append(chain, kernels->part[i],
                                   (last              ? owners
                                    : plan->row_slots ? row_owners
                                                      : units) *
                                       group,
                                   group));
        }
        args->forward.flags &= ~ARG_FIRST_LAUNCH;
    }
    return WINATTN_SUCCESS;
}

/* What the launches of sums have in common. */
typedef struct sum_launch {
    const wa_problem *problem;
    const wa_backward_plan *plan;
    const wa_backward_kernels *kernels;
    const wa_buffers *buffers;
    cl_bitfield accumulate;
    wa_kernel_chain *chain;
} sum_launch;

/* The sums that a launch of sum_partials makes, so far. */
typedef struct sum_list {
    all_sum_args args;
    cl_mem to[SUMS];
    uint32_t count;
    uint64_t groups;
} sum_list;

/* Adds the sum over `slots` partials of the gradient `id`, where it is wanted;
 * zeros where there was no window. output: WINATTN_D..., for `accumulate`. */
static void list_sum(sum_list *list, const sum_launch *launch, wa_tensor_id id,
                     uint64_t partials, uint64_t slots, cl_bitfield output)
{
    const wa_tensor *tensor = &launch->problem->tensor[id];
    sum_args *args = &list->args.sum[list->count];
    if (!tensor->used || !launch->buffers->tensor[id].buffer)
        return;
    args->to = wa_layout_of(launch->problem, launch->buffers, id);
    args->partials = partials;
    args->slots = launch->problem->windows ? (cl_uint)slots : 0;
    args->heads = (cl_uint)tensor->extent[WA_HEAD];
    args->rows = (cl_uint)tensor->extent[WA_ROW];
    args->columns = (cl_uint)tensor->extent[WA_COLUMN];
    args->flags = (launch->accumulate & output) != 0 ? ARG_ADD_SUMS : 0;
    args->first_group = (cl_uint)list->groups;
    list->to[list->count++] = launch->buffers->tensor[id].buffer;
    const uint64_t elements =
        (uint64_t)args->heads * args->rows * args->columns;
    list->groups += (elements + SUM_ELEMENTS - 1) / SUM_ELEMENTS;
}

/* Adds up what the slots have summed. */
static winattn_status launch_list(const sum_launch *launch, sum_list *list)
{
    const cl_kernel kernel = launch->kernels->part[WA_BACKWARD_SUM];
    const size_t group = launch->plan->kernels[WA_BACKWARD_SUM].work_group;
    const cl_mem workspace = launch->buffers->workspace.buffer;
    if (list->groups == 0)
        return WINATTN_SUCCESS;
    for (uint32_t i = list->count; i < SUMS; i++)
        list->args.sum[i].first_group = UINT32_MAX; /* never reached */
    WA_TRY(wa_set_arg(kernel, 0, sizeof list->args, &list->args));
    WA_TRY(wa_set_arg(kernel, 1, sizeof workspace,
                      workspace ? &workspace : NULL));
    for (cl_uint i = 0; i < SUMS; i++)
        WA_TRY(wa_set_arg(kernel, 2 + i, sizeof list->to[i],
                          i < list->count ? &list->to[i] : NULL));
    return wa_chain_append(launch->chain, kernel, list->groups * group, group);
}

/* By which cl/reduce/sum_table.cl finds the pairs of an entry. */
static void set_positions(const wa_problem *problem, table_args *args)
{
    const wa_table *table = &problem->table;
    const uint32_t across = table->step[1], down = table->step[0] / across;
    args->queries = problem->queries;
    args->keys = problem->keys;
    args->window[0] = table->window[1];
    args->window[1] = table->window[2];
    args->step[0] = table->step[0];
    args->step[1] = table->step[1];
    args->center[2] = (across - 1) / 2;
    args->center[1] = (down - 1) / 2;
    args->center[0] = table->center / table->step[0];
}

/* Adds up what belongs to each entry of a table, of so many slots that lie
 * `from` in the workspace on. */
static winattn_status launch_table_sum(const sum_launch *launch, uint64_t from,
                                       uint64_t slots)
{
    const wa_problem *problem = launch->problem;
    const wa_buffers *buffers = launch->buffers;
    const cl_kernel kernel = launch->kernels->part[WA_BACKWARD_SUM_TABLE];
    const cl_mem to = buffers->tensor[WA_DBIAS].buffer;
    table_args args;
    memset(&args, 0, sizeof args);
    args.to = wa_layout_of(problem, buffers, WA_DBIAS);
    args.from = from;
    args.pairs = (uint64_t)problem->queries * problem->keys;
    args.heads = problem->heads;
    args.entries = problem->table.entries;
    args.flags = (launch->accumulate & WINATTN_DBIAS) != 0 ? ARG_ADD_SUMS : 0;
    args.slots = problem->windows ? (cl_uint)slots : 0;
    cl_uint index = 1;
    if (!problem->table.is_listed) {
        set_positions(problem, &args);
    } else {
        WA_TRY(wa_set_arg(kernel, index++, sizeof buffers->table.starts,
                          &buffers->table.starts));
        WA_TRY(wa_set_arg(kernel, index++, sizeof buffers->table.order,
                          &buffers->table.order));
    }
    WA_TRY(wa_set_arg(kernel, index++, sizeof buffers->workspace.buffer,
                      &buffers->workspace.buffer));
    WA_TRY(wa_set_arg(kernel, index++, sizeof to, &to));
    const uint64_t all = (uint64_t)args.heads * args.entries;
    const uint64_t most = launch->plan->entries_per_launch;
    for (args.first = 0; args.first < all; args.first += most) {
        const uint64_t left = all - args.first;
        WA_TRY(wa_set_arg(kernel, 0, sizeof args, &args));
        WA_TRY(wa_chain_append(launch->chain, kernel,
                               (left < most ? left : most) * TABLE_ITEMS,
                               TABLE_ITEMS));
    }
    return WINATTN_SUCCESS;
}

/* The sums of a bias for each query and key, for sum_table: in the workspace,
 * from byte `dense_at` on. */
static void list_dense_sum(sum_list *list, const sum_launch *launch,
                           uint64_t partials, uint64_t slots,
                           uint64_t dense_at)
{
    const wa_problem without_table = wa_problem_without_table(launch->problem);
    wa_buffers buffers = *launch->buffers;
    sum_launch dense = *launch;
    buffers.tensor[WA_DBIAS] = buffers.workspace;
    buffers.tensor[WA_DBIAS].offset += dense_at;
    dense.problem = &without_table;
    dense.buffers = &buffers;
    list_sum(list, &dense, WA_DBIAS, partials, slots, 0);
}

/* All sums over windows in one launch, but for those of a table's entries. */
static winattn_status launch_sums(const sum_launch *launch,
                                  const backward_args *args, uint64_t dense_at)
{
    const wa_problem *problem = launch->problem;
    const wa_backward_plan *plan = launch->plan;
    const uint64_t slots = plan->slots;
    const uint64_t row_slots = (uint64_t)plan->row_slots * plan->row_blocks;
    const uint64_t bias_slots = plan->row_slots ? plan->row_slots : slots;
    /* without padding there are no partials, and the sums are 0 */
    const uint64_t pad_slots = plan->pad_bytes ? slots * plan->key_blocks : 0;
    const bool sums_table =
        problem->table.used && launch->buffers->tensor[WA_DBIAS].buffer;
    const uint64_t partials =
        bias_slots * problem->heads * problem->queries * problem->keys;
    const bool is_dense = sums_table && partials > TABLE_PARTIALS;
    sum_list list;
    memset(&list, 0, sizeof list);
    if (is_dense)
        list_dense_sum(&list, launch, args->bias_partials, bias_slots,
                       dense_at);
    else if (!sums_table)
        list_sum(&list, launch, WA_DBIAS, args->bias_partials, bias_slots,
                 WINATTN_DBIAS);
    list_sum(&list, launch, WA_D_LOGIT_SCALE, args->scale_partials,
             row_slots ? row_slots : slots, WINATTN_D_LOGIT_SCALE);
    list_sum(&list, launch, WA_D_PAD_K, args->pad_k_partials, pad_slots,
             WINATTN_D_PAD_K);
    list_sum(&list, launch, WA_D_PAD_V, args->pad_v_partials, pad_slots,
             WINATTN_D_PAD_V);
    WA_TRY(launch_list(launch, &list));
    if (is_dense)
        return launch_table_sum(
            launch, (launch->buffers->workspace.offset + dense_at) / 4, 1);
    return sums_table
               ? launch_table_sum(launch, args->bias_partials, bias_slots)
               : WINATTN_SUCCESS;
}

winattn_status wa_launch_backward(const wa_problem *problem,
                                  const wa_backward_plan *plan,
                                  const wa_backward_kernels *kernels,
                                  cl_command_queue queue,
                                  const wa_buffers *buffers,
                                  cl_bitfield accumulate, cl_uint wait_count,
                                  const cl_event *wait_list, cl_event *event)
{
    wa_kernel_chain chain;
    const sum_launch sums = {problem, plan,       kernels,
                             buffers, accumulate, &chain};
    const uint64_t dense_at = plan->workspace_bytes - plan->dense_bytes;
    wa_problem computed = *problem;
    wa_buffers used = *buffers;
    WA_TRY(wa_chain_begin(&chain, queue, wait_count, wait_list, event));
    winattn_status status = WINATTN_SUCCESS;
    if (kernels->part[WA_BACKWARD_EXPAND] && problem->windows != 0)
        status = wa_expand_table(&computed, &used, dense_at,
                                 kernels->part[WA_BACKWARD_EXPAND], &chain);
    backward_args args = make_args(&computed, plan, &used, accumulate);
    if (status == WINATTN_SUCCESS && problem->windows != 0)
        status =
            launch_windows(&computed, plan, kernels, &used, &args, &chain);
    if (status == WINATTN_SUCCESS)
        status = launch_sums(&sums, &args, dense_at);
    return wa_chain_end(&chain, status, event);
}
