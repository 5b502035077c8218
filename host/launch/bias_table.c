/* SPDX-License-Identifier: Apache-2.0
 * Lists and buffers of a table of biases. */
#include "launch/bias_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/buffer.h"

/* Like table_position of cl/common/weights.h. */
static uint32_t position_of(const wa_table *table, uint32_t token)
{
    const uint32_t last = table->window[2], middle = table->window[1];
    return token / last / middle * table->step[0] +
           token / last % middle * table->step[1] + token % last;
}

/* The positions of so many tokens; NULL: out of memory. */
static uint32_t *positions_of(const wa_table *table, uint32_t tokens)
{
    uint32_t *positions = malloc((size_t)tokens * sizeof *positions);
    for (uint32_t i = 0; positions && i < tokens; i++)
        positions[i] = position_of(table, i);
    return positions;
}

/* The entry of a query and a key. positions: NULL with an index. */
static uint32_t entry_of(const wa_problem *problem, const uint32_t *positions,
                         uint32_t query, uint32_t key)
{
    const wa_table *table = &problem->table;
    if (!positions)
        return (uint32_t)table->index[(size_t)query * problem->keys + key];
    return positions[query] + table->center - positions[key];
}

bool wa_table_lists_make(const wa_problem *problem, wa_table_lists *lists)
{
    const uint32_t entries = problem->table.entries;
    const uint32_t queries = problem->queries, keys = problem->keys;
    const bool has_index = problem->table.has_index;
    uint32_t *positions =
        has_index
            ? NULL
            : positions_of(&problem->table, queries > keys ? queries : keys);
    cl_uint *starts = calloc((size_t)entries + 1, sizeof *starts);
    cl_uint *order = malloc((size_t)queries * keys * sizeof *order);
    lists->starts = starts;
    lists->order = order;
    if (!starts || !order || (!has_index && !positions)) {
        free(positions);
        wa_table_lists_free(lists);
        return false;
    }
    /* starts[e] counts entry e, then becomes where its list ends, and while
     * the lists are filled from their ends where it starts */
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t j = 0; j < keys; j++)
            starts[entry_of(problem, positions, i, j)]++;
    for (uint32_t e = 0; e < entries; e++)
        starts[e + 1] += starts[e];
    for (uint32_t i = queries; i-- > 0;)
        for (uint32_t j = keys; j-- > 0;)
            order[--starts[entry_of(problem, positions, i, j)]] = i * keys + j;
    free(positions);
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
    return wa_make_buffer(context, CL_MEM_READ_ONLY, count * sizeof(cl_uint),
                          data, buffer);
}

/* Before memory is taken for them. */
static winattn_status check_sizes(const wa_device *device, uint64_t pairs,
                                  uint64_t starts)
{
    const uint64_t bytes = 4 * (pairs > starts ? pairs : starts);
    if (device->buffer_bytes != 0 && bytes > device->buffer_bytes)
        return WA_BAD_DEVICE("the table's lists need a buffer of %llu bytes, "
                             "and those of %s have at most %llu",
                             (unsigned long long)bytes, device->name,
                             (unsigned long long)device->buffer_bytes);
    return WINATTN_SUCCESS;
}

winattn_status wa_table_buffers_make(cl_context context,
                                     const wa_device *device,
                                     const wa_problem *problem,
                                     wa_table_buffers *buffers)
{
    const uint64_t pairs = (uint64_t)problem->queries * problem->keys;
    const uint64_t starts = (uint64_t)problem->table.entries + 1;
    const bool lists_pairs =
        problem->table.is_listed && problem->passes[WA_BACKWARD];
    wa_table_lists lists;
    if (problem->table.has_index || lists_pairs)
        WA_TRY(check_sizes(device, pairs, lists_pairs ? starts : 0));
    if (problem->table.has_index)
        WA_TRY(make_buffer(context, problem->table.index, pairs,
                           &buffers->index));
    if (!lists_pairs)
        return WINATTN_SUCCESS;
    if (!wa_table_lists_make(problem, &lists))
        return wa_fail_memory();
    winattn_status status =
        make_buffer(context, lists.starts, starts, &buffers->starts);
    WA_THEN(status, make_buffer(context, lists.order, pairs, &buffers->order));
    wa_table_lists_free(&lists);
    return status;
}

void wa_table_buffers_release(wa_table_buffers *buffers)
{
    wa_release_buffer(buffers->index);
    wa_release_buffer(buffers->starts);
    wa_release_buffer(buffers->order);
    memset(buffers, 0, sizeof *buffers);
}
