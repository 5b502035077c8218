/* SPDX-License-Identifier: Apache-2.0
 * Kernel arguments, from the problem and the buffers of a call. */
#ifndef WINATTN_ARGUMENTS_H
#define WINATTN_ARGUMENTS_H

#include "base/sister.h"
#include "launch/chain.h"
#include "launch/launch.h"

#include "../cl/common/args.h"

/* Of the blocks of rows of a sliding problem those at the beginning that see
 * fewer blocks than a row may; of the blocks of keys as many at the end, which
 * fewer rows see. Work is dealt by them (cl/matrix/sliding_rows.cl). */
uint32_t wa_short_row_blocks(const wa_problem *problem, uint32_t block_rows,
                             uint32_t row_blocks);
uint32_t wa_short_key_blocks(const wa_problem *problem, uint32_t block_keys,
                             uint32_t key_blocks);

WA_SISTER winattn_status wa_set_arg(cl_kernel kernel, cl_uint index,
                                    size_t size, const void *value);
/* The buffers of so many tensors, from argument *index on, which moves. Those
 * that the kernels of the problem do not have are left out. */
winattn_status wa_set_buffers(wa_kernel_chain *chain,
                              const wa_problem *problem, cl_kernel kernel,
                              const wa_buffers *buffers,
                              const wa_tensor_id *ids, size_t count,
                              cl_uint *index);

/* Where a tensor lies (zeros where the problem lacks it), and the arguments
 * that say nothing of a plan. */
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
