/* SPDX-License-Identifier: Apache-2.0
 * Building kernels from source. */
#ifndef WINATTN_PROGRAM_H
#define WINATTN_PROGRAM_H

#include "winattn.h"

/* Builds any source. On CL_BUILD_PROGRAM_FAILURE the compiler's output is
 * kept for winattn_last_build_log. */
winattn_status wa_build_program(cl_context context, cl_device_id device,
                                cl_uint count, const char *const *sources,
                                const char *options, cl_program *program);

/* Builds cl/<name>.cl with the files that every kernel needs. */
winattn_status wa_build_kernel_program(cl_context context, cl_device_id device,
                                       const char *name, const char *options,
                                       cl_program *program);

#endif
