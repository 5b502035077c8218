/* SPDX-License-Identifier: Apache-2.0
 * Buffers of the library's own. */
#ifndef WINATTN_BUFFER_H
#define WINATTN_BUFFER_H

#include <stdint.h>

#include "base/sister.h"
#include "winattn.h"

/* content: what is copied to it, or NULL. On failure *buffer is NULL, and the
 * reason says how many bytes were asked for, and how many there can be. */
WA_SISTER winattn_status wa_make_buffer(cl_context context, cl_mem_flags flags,
                                        uint64_t bytes, const void *content,
                                        cl_mem *buffer);

/* NULL is fine. */
static inline void wa_release_buffer(cl_mem buffer)
{
    if (buffer)
        clReleaseMemObject(buffer);
}

#endif
