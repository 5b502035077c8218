/* SPDX-License-Identifier: Apache-2.0
 * One launch of new kernels, of one work tile on zeros. Runtimes may
 * compile a kernel to the end at its first launch only (PoCL does), and a
 * binary taken before lacks that part. */
#ifndef WINATTN_WARMUP_H
#define WINATTN_WARMUP_H

#include "launch/launch.h"

/* A queue, and buffers of zeros, for launches whose results nobody wants. */
typedef struct wa_zeros {
    cl_command_queue queue;
    cl_mem in, out, workspace;
} wa_zeros;

/* Makes buffers of at least so many bytes; to be ended also after a failure.
 */
WA_SISTER winattn_status wa_zeros_begin(wa_zeros *z, cl_context context,
                                        cl_device_id device, uint64_t in,
                                        uint64_t out, uint64_t workspace);
/* Waits for what was enqueued, unless the status says that it failed; whose
 * failure or its own it returns. */
WA_SISTER winattn_status wa_zeros_end(wa_zeros *z, winattn_status status);

/* Multiply-adds that a warm-up may have, some tenths of a second of one core.
 * On tier cpu it has one query, whose keys make so many when they are
 * millions; kernels of other tiers compute a block of queries at least. Where
 * that is more, there is no warm-up: what the binary then lacks takes little
 * time beside such a window. */
#define WA_MOST_WARM_UP_WORK 134217728.0 /* 2^27 */
double wa_warm_up_work(const wa_problem *problem, const wa_plan *plan);

/* Waits for the launch. The status is for those who would try again: a kernel
 * whose warm-up fails may still be one that runs. */
winattn_status wa_warm_up(cl_context context, cl_device_id device,
                          const wa_problem *problem, const wa_plan *plan,
                          const wa_kernels *kernels,
                          const wa_table_buffers *table);

#endif
