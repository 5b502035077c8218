/* SPDX-License-Identifier: Apache-2.0
 * Enqueues a pass. */
#ifndef WINATTN_LAUNCH_H
#define WINATTN_LAUNCH_H

#include "plan/plan.h"

/* What the device must know of a table of biases; the plan owns it. NULL where
 * it is not needed. */
typedef struct wa_table_buffers {
    cl_mem index;         /* the caller's [queries][keys] */
    cl_mem starts, order; /* see wa_table_lists */
} wa_table_buffers;

/* The tensors of one call, by wa_tensor_id; buffer NULL where absent. */
typedef struct wa_buffers {
    winattn_tensor tensor[WA_TENSORS];
    uint64_t start[WA_TENSORS]; /* of their buffers, see wa_is_aligned */
    winattn_tensor workspace;
    /* WINATTN_TENSORS: where the tensors are whose buffers are none of
     * OpenCL's (list.h); NULL: they are OpenCL's */
    const winattn_memory *memory;
    wa_table_buffers table;
} wa_buffers;

/* Does a tensor start on a multiple of so many bytes, a power of 2? `start` is
 * where the memory of its buffer does, so far as that is known: an address of
 * the host's where the buffer is the caller's memory, the origin of a
 * sub-buffer, both or-ed; 0 where the driver has chosen a place, on which
 * every type is aligned. wa_check_memory asks for it. */
static inline bool wa_is_aligned(const winattn_tensor *at, uint64_t start,
                                 uint64_t bytes)
{
    return ((at->offset | start) & (bytes - 1)) == 0;
}

/* The kernel of each step; NULL where the plan has no such step. */
typedef struct wa_kernels {
    cl_kernel step[WA_STEPS];
} wa_kernels;

/* Enqueues all launches of the plan's pass. `accumulate` is winattn_backward's
 * (0 for the forward pass). The kernels must not be used by another thread
 * meanwhile. */
winattn_status wa_launch(const wa_problem *problem, const wa_plan *plan,
                         const wa_kernels *kernels, cl_command_queue queue,
                         const wa_buffers *buffers, cl_bitfield accumulate,
                         cl_uint wait_count, const cl_event *wait_list,
                         cl_event *event);

/* Writes them down instead, of tensors that wa_list_place placed. */
winattn_status wa_list_launches(const wa_problem *problem, const wa_plan *plan,
                                const wa_kernels *kernels,
                                const wa_buffers *buffers,
                                cl_bitfield accumulate,
                                winattn_launch_list *list);

#endif
