/* SPDX-License-Identifier: Apache-2.0
 * Lists and buffers of a table of biases. */
#include "bias_table.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* Like table_place of cl/problem.cl. */
static uint32_t place_of(const wa_table *table, uint32_t token)
{
    const uint32_t last = table->window[2], middle = table->window[1];
    return token / last / middle * table->step[0] +
           token / last % middle * table->step[1] + token % last;
}

uint32_t wa_table_entry(const wa_problem *problem, uint32_t query,
                        uint32_t key)
{
    const wa_table *table = &problem->table;
    if (table->has_index)
        return (uint32_t)table->index[(size_t)query * problem->keys + key];
    return place_of(table, query) + table->center - place_of(table, key);
}

bool wa_table_lists_make(const wa_problem *problem, wa_table_lists *lists)
{
    const uint32_t entries = problem->table.entries;
    const uint32_t queries = problem->queries, keys = problem->keys;
    cl_uint *starts = calloc((size_t)entries + 1, sizeof *starts);
    cl_uint *order = malloc((size_t)queries * keys * sizeof *order);
    lists->starts = starts;
    lists->order = order;
    if (!starts || !order) {
        wa_table_lists_free(lists);
        return false;
    }
    /* starts[e] counts entry e, then becomes where its list ends, and while
     * the lists are filled from their ends where it starts */
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t j = 0; j < keys; j++)
            starts[wa_table_entry(problem, i, j)]++;
    for (uint32_t e = 0; e < entries; e++)
        starts[e + 1] += starts[e];
    for (uint32_t i = queries; i-- > 0;)
        for (uint32_t j = keys; j-- > 0;)
            order[--starts[wa_table_entry(problem, i, j)]] = i * keys + j;
    return true;
}

void wa_table_lists_free(wa_table_lists *lists)
{
    free(lists->starts);
    free(lists->order);
    memset(lists, 0, sizeof *lists);
}

static winattn_status make_buffer(cl_context context, const void *data,
                                  uint64_t count, cl_mem *buffer)
{
    cl_int error;
    /* the data is only read */
    *buffer = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                             (size_t)count * sizeof(cl_uint),
                             (void *)(size_t)data, &error);
    return error == CL_SUCCESS ? WINATTN_SUCCESS
                               : wa_fail_cl(error, "clCreateBuffer");
}

winattn_status wa_table_buffers_make(cl_context context,
                                     const wa_problem *problem,
                                     wa_table_buffers *buffers)
{
    const uint64_t pairs = (uint64_t)problem->queries * problem->keys;
    wa_table_lists lists;
    if (problem->table.has_index)
        WA_TRY(make_buffer(context, problem->table.index, pairs,
                           &buffers->index));
    if (!problem->table.used || !problem->passes[WA_BACKWARD])
        return WINATTN_SUCCESS;
    if (!wa_table_lists_make(problem, &lists))
        return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
    winattn_status status =
        make_buffer(context, lists.starts,
                    (uint64_t)problem->table.entries + 1, &buffers->starts);
    if (status == WINATTN_SUCCESS)
        status = make_buffer(context, lists.order, pairs, &buffers->order);
    wa_table_lists_free(&lists);
    return status;
}

void wa_table_buffers_release(wa_table_buffers *buffers)
{
    if (buffers->index)
        clReleaseMemObject(buffers->index);
    if (buffers->starts)
        clReleaseMemObject(buffers->starts);
    if (buffers->order)
        clReleaseMemObject(buffers->order);
    memset(buffers, 0, sizeof *buffers);
}
