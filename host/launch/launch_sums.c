/* SPDX-License-Identifier: Apache-2.0
 * The backward pass: adds up what splits have summed over windows. */
#include <string.h>

#include "base/status.h"
#include "launch/passes.h"

/* The same size on host and device, whatever the compiler. */
_Static_assert(sizeof(all_sum_args) == SUMS * (size_t)72,
               "all_sum_args has padding");
_Static_assert(sizeof(table_args) == 120, "table_args has padding");

/* The sums that a launch of sum_partials makes, so far. */
typedef struct sum_list {
    all_sum_args args;
    cl_mem to[SUMS];
    uint32_t count;
    uint64_t groups;
} sum_list;

/* Adds the sum over `splits` partials of the gradient `id`, where it is
 * wanted; zeros where there was no window. adds: to what is there. */
static void list_sum(sum_list *list, const wa_problem *problem,
                     const wa_buffers *buffers, wa_tensor_id id,
                     uint64_t partials, uint64_t splits, bool adds)
{
    const wa_tensor *tensor = &problem->tensor[id];
    sum_args *args = &list->args.sum[list->count];
    if (!tensor->used || !buffers->tensor[id].buffer)
        return;
    args->to = wa_layout_of(problem, buffers, id);
    args->partials = partials;
    args->splits = problem->windows ? (cl_uint)splits : 0;
    args->heads = (cl_uint)tensor->extent[WA_HEAD];
    args->rows = (cl_uint)tensor->extent[WA_ROW];
    args->columns = (cl_uint)tensor->extent[WA_COLUMN];
    args->flags = adds ? ARG_ADD_SUMS : 0;
    args->first_group = (cl_uint)list->groups;
    list->to[list->count++] = buffers->tensor[id].buffer;
    const uint64_t elements =
        (uint64_t)args->heads * args->rows * args->columns;
    list->groups += (elements + SUM_ELEMENTS - 1) / SUM_ELEMENTS;
}

/* Adds up what the splits have summed. */
static winattn_status launch_list(wa_call *call, sum_list *list)
{
    const cl_kernel kernel = call->kernels->step[WA_STEP_SUM];
    const size_t group = call->plan->step[WA_STEP_SUM].work_group;
    wa_kernel_chain *chain = &call->chain;
    if (list->groups == 0)
        return WINATTN_SUCCESS;
    for (uint32_t i = list->count; i < SUMS; i++)
        list->args.sum[i].first_group = UINT32_MAX; /* never reached */
    WA_TRY(wa_chain_set(chain, kernel, 0, sizeof list->args, &list->args));
    WA_TRY(
        wa_chain_set_buffer(chain, kernel, 1, call->given->workspace.buffer));
    for (cl_uint i = 0; i < SUMS; i++)
        WA_TRY(wa_chain_set_buffer(chain, kernel, 2 + i,
                                   i < list->count ? list->to[i] : NULL));
    return wa_chain_append(chain, kernel, list->groups * group, group);
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

/* Adds up what belongs to each entry of a table, of so many splits that lie
 * `from` in the workspace on. */
static winattn_status launch_table_sum(wa_call *call, uint64_t from,
                                       uint64_t splits)
{
    const wa_problem *problem = call->asked;
    const wa_buffers *buffers = call->given;
    const cl_kernel kernel = call->kernels->step[WA_STEP_SUM_TABLE];
    wa_kernel_chain *chain = &call->chain;
    table_args args;
    memset(&args, 0, sizeof args);
    args.to = wa_layout_of(problem, buffers, WA_DBIAS);
    args.from = from;
    args.pairs = (uint64_t)problem->queries * problem->keys;
    args.heads = problem->heads;
    args.entries = problem->table.entries;
    args.flags = (call->accumulate & WINATTN_DBIAS) != 0 ? ARG_ADD_SUMS : 0;
    args.splits = problem->windows ? (cl_uint)splits : 0;
    cl_uint index = 1;
    if (!problem->table.is_listed) {
        set_positions(problem, &args);
    } else {
        WA_TRY(wa_chain_set_buffer(chain, kernel, index++,
                                   buffers->table.starts));
        WA_TRY(
            wa_chain_set_buffer(chain, kernel, index++, buffers->table.order));
    }
    WA_TRY(wa_chain_set_buffer(chain, kernel, index++,
                               buffers->workspace.buffer));
    WA_TRY(wa_chain_set_buffer(chain, kernel, index,
                               buffers->tensor[WA_DBIAS].buffer));
    const uint64_t all = (uint64_t)args.heads * args.entries;
    const uint64_t most = call->plan->schedule.entries_per_launch;
    for (args.first = 0; args.first < all; args.first += most) {
        const uint64_t left = all - args.first;
        WA_TRY(wa_chain_set(chain, kernel, 0, sizeof args, &args));
        WA_TRY(wa_chain_append(chain, kernel,
                               (left < most ? left : most) * TABLE_ITEMS,
                               TABLE_ITEMS));
    }
    return WINATTN_SUCCESS;
}

/* The sums of a bias for each query and key, for sum_table: in the workspace.
 */
static void list_dense_sum(sum_list *list, const wa_call *call,
                           uint64_t partials, uint64_t splits)
{
    const wa_problem without_table = wa_problem_without_table(call->asked);
    wa_buffers buffers = *call->given;
    buffers.tensor[WA_DBIAS] = buffers.workspace;
    buffers.tensor[WA_DBIAS].offset += wa_dense_at(call->plan);
    list_sum(list, &without_table, &buffers, WA_DBIAS, partials, splits,
             false);
}

/* The sums that do not belong to a bias. */
static void list_others(sum_list *list, const wa_call *call,
                        const backward_args *args)
{
    const wa_schedule *s = &call->plan->schedule;
    const uint64_t scale_splits =
        s->row_splits ? (uint64_t)s->row_splits * s->row_blocks : s->splits;
    /* without padding there are no partials, and the sums are 0 */
    const uint64_t pad_splits =
        call->plan->workspace.pad ? (uint64_t)s->splits * s->key_blocks : 0;
    const struct {
        wa_tensor_id id;
        uint64_t partials, splits;
        cl_bitfield output;
    } sums[] = {
        {WA_D_LOGIT_SCALE, args->scale_partials, scale_splits,
         WINATTN_D_LOGIT_SCALE},
        {WA_D_PAD_K, args->pad_k_partials, pad_splits, WINATTN_D_PAD_K},
        {WA_D_PAD_V, args->pad_v_partials, pad_splits, WINATTN_D_PAD_V},
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        list_sum(list, call->asked, call->given, sums[i].id, sums[i].partials,
                 sums[i].splits, (call->accumulate & sums[i].output) != 0);
}

winattn_status wa_launch_sums(wa_call *call, const backward_args *args)
{
    const wa_problem *problem = call->asked;
    const wa_schedule *s = &call->plan->schedule;
    const uint64_t bias_splits = s->row_splits ? s->row_splits : s->splits;
    const bool sums_table =
        problem->table.used && call->given->tensor[WA_DBIAS].buffer;
    const uint64_t partials =
        bias_splits * problem->heads * problem->queries * problem->keys;
    const bool is_dense = sums_table && partials > TABLE_PARTIALS;
    sum_list list;
    memset(&list, 0, sizeof list);
    if (is_dense)
        list_dense_sum(&list, call, args->bias_partials, bias_splits);
    else if (!sums_table)
        list_sum(&list, problem, call->given, WA_DBIAS, args->bias_partials,
                 bias_splits, (call->accumulate & WINATTN_DBIAS) != 0);
    list_others(&list, call, args);
    WA_TRY(launch_list(call, &list));
    if (is_dense)
        return launch_table_sum(
            call,
            (call->given->workspace.offset + wa_dense_at(call->plan)) / 4, 1);
    return sums_table
               ? launch_table_sum(call, args->bias_partials, bias_splits)
               : WINATTN_SUCCESS;
}
