/* SPDX-License-Identifier: Apache-2.0
 * Checks what a call was given before anything is enqueued. */
#ifndef WINATTN_CHECK_H
#define WINATTN_CHECK_H

#include "base/sister.h"
#include "launch/launch.h"

/* What kernels do with a buffer. */
typedef enum wa_access {
    WA_READS = 1,
    WA_WRITES = 2,
    WA_READS_AND_WRITES = WA_READS | WA_WRITES
} wa_access;

/* Is `at` a buffer of the context that kernels may access so, aligned to its
 * elements, with so many bytes? *start, unless NULL, is or-ed with where the
 * buffer's memory starts (wa_is_aligned). */
WA_SISTER winattn_status wa_check_memory(const char *name,
                                         const winattn_tensor *at,
                                         cl_context context, wa_access access,
                                         uint32_t element_size, uint64_t bytes,
                                         uint64_t *start);

/* Every tensor present, readable or writable, of the context, aligned to its
 * elements and inside its buffer; enough workspace. Completes `start`.
 * accumulate: as wa_launch's. */
winattn_status wa_check_buffers(const wa_problem *problem, wa_pass pass,
                                uint64_t workspace_bytes, cl_context context,
                                wa_buffers *buffers, cl_bitfield accumulate);

/* Checks queue and wait list, before anything else that asks OpenCL: it also
 * checks the process. */
WA_SISTER winattn_status wa_check_queue(cl_command_queue queue,
                                        cl_context context,
                                        cl_device_id device,
                                        cl_uint wait_count,
                                        const cl_event *wait_list);

#endif
