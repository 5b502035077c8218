/* SPDX-License-Identifier: Apache-2.0
 * What the device must know of a table of biases: the caller's index, and for
 * the gradient the queries and keys that share an entry. */
#ifndef WINATTN_BIAS_TABLE_H
#define WINATTN_BIAS_TABLE_H

#include "launch/launch.h"

/* Elements order[starts[e]] .. order[starts[e + 1] - 1] of [queries, keys] are
 * those whose bias is entry e, in ascending order. Only of tables that are
 * listed, see wa_table: of others cl/reduce/sum_table.cl finds them itself. */
typedef struct wa_table_lists {
    cl_uint *starts; /* entries + 1 */
    cl_uint *order;  /* queries * keys */
} wa_table_lists;

/* False: out of memory. */
bool wa_table_lists_make(const wa_problem *problem, wa_table_lists *lists);
void wa_table_lists_free(wa_table_lists *lists);

/* Makes the buffers that the problem's passes need; none without a table. What
 * the device cannot hold is refused before host memory is taken for it. */
winattn_status wa_table_buffers_make(cl_context context,
                                     const wa_device *device,
                                     const wa_problem *problem,
                                     wa_table_buffers *buffers);
void wa_table_buffers_release(wa_table_buffers *buffers);

#endif
