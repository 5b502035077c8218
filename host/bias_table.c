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

/* The entries of a query's pairs. */
typedef struct entry_row {
    const int32_t *index; /* NULL: from places */
    const uint32_t *key_places;
    uint32_t base;
} entry_row;

static entry_row row_of(const wa_problem *problem, const uint32_t *key_places,
                        uint32_t query)
{
    const wa_table *table = &problem->table;
    entry_row row = {.key_places = key_places};
    if (table->has_index)
        row.index = table->index + (size_t)query * problem->keys;
    else
        row.base = place_of(table, query) + table->center;
    return row;
}

static uint32_t entry_in(const entry_row *row, uint32_t key)
{
    return row->index ? (uint32_t)row->index[key]
                      : row->base - row->key_places[key];
}

/* starts[e] counts entry e, then becomes where its list ends, and while the
 * lists are filled from their ends where it starts. */
static void fill_lists(const wa_problem *problem, const uint32_t *key_places,
                       wa_table_lists *lists)
{
    const uint32_t queries = problem->queries, keys = problem->keys;
    for (uint32_t i = 0; i < queries; i++) {
        const entry_row row = row_of(problem, key_places, i);
        for (uint32_t j = 0; j < keys; j++)
            lists->starts[entry_in(&row, j)]++;
    }
    for (uint32_t e = 0; e < problem->table.entries; e++)
        lists->starts[e + 1] += lists->starts[e];
    for (uint32_t i = queries; i-- > 0;) {
        const entry_row row = row_of(problem, key_places, i);
        for (uint32_t j = keys; j-- > 0;)
            lists->order[--lists->starts[entry_in(&row, j)]] = i * keys + j;
    }
}

bool wa_table_lists_make(const wa_problem *problem, wa_table_lists *lists)
{
    const uint32_t keys = problem->keys;
    uint32_t *key_places = NULL;
    lists->starts =
        calloc((size_t)problem->table.entries + 1, sizeof *lists->starts);
    lists->order =
        malloc((size_t)problem->queries * keys * sizeof *lists->order);
    if (!problem->table.has_index)
        key_places = malloc(keys * sizeof *key_places);
    const bool made = lists->starts && lists->order &&
                      (key_places || problem->table.has_index);
    for (uint32_t j = 0; made && key_places && j < keys; j++)
        key_places[j] = place_of(&problem->table, j);
    if (made)
        fill_lists(problem, key_places, lists);
    else
        wa_table_lists_free(lists);
    free(key_places);
    return made;
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

/* Before memory is taken for them. */
static winattn_status check_sizes(const wa_device *device, uint64_t pairs,
                                  uint64_t starts)
{
    const uint64_t bytes = 4 * (pairs > starts ? pairs : starts);
    if (device->buffer_bytes != 0 && bytes > device->buffer_bytes)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "the table's lists need a buffer of %llu bytes, and "
                       "those of %s have at most %llu",
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
    const bool sums = problem->table.used && problem->passes[WA_BACKWARD];
    wa_table_lists lists;
    if (problem->table.has_index || sums)
        WA_TRY(check_sizes(device, pairs, sums ? starts : 0));
    if (problem->table.has_index)
        WA_TRY(make_buffer(context, problem->table.index, pairs,
                           &buffers->index));
    if (!sums)
        return WINATTN_SUCCESS;
    if (!wa_table_lists_make(problem, &lists))
        return wa_fail_memory();
    winattn_status status =
        make_buffer(context, lists.starts, starts, &buffers->starts);
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
