/* SPDX-License-Identifier: Apache-2.0
 * Launches one behind the other. */
#ifndef WINATTN_CHAIN_H
#define WINATTN_CHAIN_H

#include <stdbool.h>

#include "base/sister.h"
#include "winattn.h"

/* Launches of which each reads what those before it wrote. The first waits for
 * what the caller names. A queue that runs them in order needs no events in
 * between, which take time
 * (bench/decisions/small-windows-have-one-gradient-kernel.md). */
typedef struct wa_kernel_chain {
    /* Where launches are written down (list.h); NULL: they are enqueued, and
     * all of the rest is for that. */
    winattn_launch_list *list;
    cl_command_queue queue;
    /* what the next launch waits for: the caller's list, then &last or, in
     * order, nothing */
    cl_uint wait_count;
    const cl_event *wait_list;
    bool in_order;    /* so is the queue */
    bool wants_event; /* the caller */
    bool has_begun;
    cl_event last; /* NULL: there is none, or no one waits for it */
    /* wa_is_aligned's of all buffers that the launches access, or-ed */
    uint64_t start;
} wa_kernel_chain;

/* Is told of each launch that was enqueued and its event, which it may retain:
 * for who measures calls (unfused/parts.c). NULL: nobody does. Changes while
 * no call is under way; calls then must not be asked for events. */
extern void (*wa_chain_watcher)(cl_kernel kernel, cl_event done);

WA_SISTER winattn_status wa_chain_begin(wa_kernel_chain *chain,
                                        cl_command_queue queue,
                                        cl_uint wait_count,
                                        const cl_event *wait_list,
                                        bool wants_event);
/* An argument of the launches of the kernel that follow: bytes, or a buffer
 * (NULL: there is none). */
winattn_status wa_chain_set(wa_kernel_chain *chain, cl_kernel kernel,
                            cl_uint index, size_t size, const void *value);
winattn_status wa_chain_set_buffer(wa_kernel_chain *chain, cl_kernel kernel,
                                   cl_uint index, cl_mem buffer);
/* Appends a launch of at least so many work-items. */
WA_SISTER winattn_status wa_chain_append(wa_kernel_chain *chain,
                                         cl_kernel kernel, uint64_t items,
                                         size_t group);
/* Where the next command's event goes, NULL: nobody asks for it; and what
 * waits for that command from then on. */
WA_SISTER cl_event *wa_chain_event(const wa_kernel_chain *chain,
                                   cl_event *done);
WA_SISTER void wa_chain_go_on(wa_kernel_chain *chain, cl_event done);
/* The last launch's event, or a marker's where there was no launch, becomes
 * the caller's; after a failure, or where event is NULL, it is let go. Returns
 * status. */
WA_SISTER winattn_status wa_chain_end(wa_kernel_chain *chain,
                                      winattn_status status, cl_event *event);

#endif
