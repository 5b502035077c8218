/* SPDX-License-Identifier: Apache-2.0
 * Instructions that OpenCL's compiler for NVIDIA does not know: those of
 * sm_90a, which a program can have only as PTX. A kernel's inline assembly has
 * them as comments, which survive into the binary that the driver gives of a
 * program, as that is PTX:
 *
 *   //@ INSTRUCTION    at the start of a line: is one
 *   //@! DIRECTIVE     moves to the head of its kernel, behind .reqntid
 *
 * (cl/hopper/wgmma.cl). With these turned into text, and the target changed,
 * the driver makes a program of it again. */
#ifndef WINATTN_PTX_H
#define WINATTN_PTX_H

#include <stdbool.h>
#include <stddef.h>

#include "winattn.h"

/* Of the rewritten text. */
#define WA_PTX_TARGET "sm_90a"

/* Larger texts are refused. */
#define WA_PTX_MOST_BYTES ((size_t)16 << 20)

/* Does a kernel of this name have such instructions? */
bool wa_ptx_is_marked(const char *kernel);

/* Rewrites the PTX of a program with one kernel; *result is to be freed. It
 * ends with a comment of the word `build`; NULL: without one. Fails with
 * WINATTN_UNSUPPORTED_DEVICE and a reason if it is not such PTX, or has no
 * marks. The text need not end with a 0. */
winattn_status wa_ptx_rewrite(const unsigned char *text, size_t size,
                              const char *build, unsigned char **result,
                              size_t *result_size);

/* What a build's log says against its instructions, which then are not used as
 * they should be; fails with WINATTN_UNSUPPORTED_DEVICE and that as the
 * reason. */
winattn_status wa_ptx_check_log(const char *log);

#endif
