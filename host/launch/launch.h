/* SPDX-License-Identifier: Apache-2.0
 * Checks the buffers of a call, sets kernel arguments and enqueues. */
#ifndef WINATTN_LAUNCH_H
#define WINATTN_LAUNCH_H

#include "plan/plan.h"

#include "../cl/common/args.h"

/* What the device must know of a table of biases; the plan owns it. NULL where
 * it is not needed. */
typedef struct wa_table_buffers {
    cl_mem index;         /* the caller's [queries][keys] */
    cl_mem starts, order; /* see wa_table_lists */
} wa_table_buffers;

/* The tensors of one call, by wa_tensor_id; buffer NULL where absent. */
typedef struct wa_buffers {
    winattn_tensor tensor[WA_TENSORS];
    winattn_tensor workspace;
    wa_table_buffers table;
} wa_buffers;

/* Every tensor present, readable or writable, of the context, aligned to its
 * elements and inside its buffer; enough workspace. */
winattn_status wa_check_buffers(const wa_problem *problem, wa_pass pass,
                                uint64_t workspace_bytes, cl_context context,
                                const wa_buffers *buffers);

winattn_status wa_check_queue(cl_command_queue queue, cl_context context,
                              cl_device_id device);

typedef struct wa_forward_kernels {
    cl_kernel main;
    cl_kernel expand; /* NULL unless the plan expands a table */
} wa_forward_kernels;

/* Enqueues all launches of a forward pass. The kernels must not be used by
 * another thread meanwhile. */
winattn_status wa_launch_forward(const wa_problem *problem,
                                 const wa_plan *plan,
                                 const wa_forward_kernels *kernels,
                                 cl_command_queue queue,
                                 const wa_buffers *buffers, cl_uint wait_count,
                                 const cl_event *wait_list, cl_event *event);

/* Launches of which each reads what those before it wrote. The first waits for
 * what the caller names. A queue that runs them in order needs no events in
 * between, which take time (bench/notes.md). */
typedef struct wa_kernel_chain {
    cl_command_queue queue;
    /* what the next launch waits for: the caller's list, then &last or, in
     * order, nothing */
    cl_uint wait_count;
    const cl_event *wait_list;
    bool in_order;    /* so is the queue */
    bool wants_event; /* the caller */
    bool has_begun;
    cl_event last; /* NULL: there is none, or no one waits for it */
} wa_kernel_chain;

winattn_status wa_chain_begin(wa_kernel_chain *chain, cl_command_queue queue,
                              cl_uint wait_count, const cl_event *wait_list,
                              bool wants_event);
/* Appends a launch of at least so many work-items. */
winattn_status wa_chain_append(wa_kernel_chain *chain, cl_kernel kernel,
                               uint64_t items, size_t group);
/* The last launch's event, or a marker's where there was no launch, becomes
 * the caller's; after a failure, or where event is NULL, it is let go. Returns
 * status. */
winattn_status wa_chain_end(wa_kernel_chain *chain, winattn_status status,
                            cl_event *event);

winattn_status wa_set_arg(cl_kernel kernel, cl_uint index, size_t size,
                          const void *value);
/* The buffers of so many tensors, from argument *index on, which moves. Those
 * that the kernels of the problem do not have are left out. */
winattn_status wa_set_buffers(const wa_problem *problem, cl_kernel kernel,
                              const wa_buffers *buffers,
                              const wa_tensor_id *ids, size_t count,
                              cl_uint *index);

/* For a kernel that knows no tables: appends the launch that writes what the
 * table stands for to the workspace, from byte `at` of it on, and makes the
 * problem and the buffers those of an ordinary bias. */
winattn_status wa_expand_table(wa_problem *problem, wa_buffers *buffers,
                               uint64_t at, cl_kernel kernel,
                               wa_kernel_chain *chain);

/* For the launchers of other passes: where a tensor lies (zeros where the
 * problem lacks it), and the arguments that say nothing of a plan. */
tensor_layout wa_layout_of(const wa_problem *problem,
                           const wa_buffers *buffers, wa_tensor_id id);
forward_args wa_forward_args(const wa_problem *problem,
                             const wa_buffers *buffers);
/* Do the tensors that are there have neighbouring channels and, where the
 * kernel wants aligned vectors of so many bytes, rows that start on a multiple
 * of them? elements: of a vector; 0: the kernel has none. */
bool wa_allows_wide_access(const wa_problem *problem,
                           const wa_buffers *buffers, const wa_tensor_id *ids,
                           size_t count, uint32_t elements, uint32_t bytes);

#endif
