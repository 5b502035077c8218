/* SPDX-License-Identifier: Apache-2.0
 * Programs: from source, from the driver's binaries, and back to them. */
#ifndef WINATTN_PROGRAM_H
#define WINATTN_PROGRAM_H

#include <stdbool.h>

#include "winattn.h"

/* What a program is made of. */
typedef struct wa_program_source {
    char *text;
    char *options;
    /* Lines "what: value" that tell this program from every other one: the
     * library, the device and its driver, the text's hash, the options. */
    char *key;
    /* The program is made of the PTX that the driver makes of the text
     * (ptx.h). */
    bool is_ptx;
} wa_program_source;

/* Of the kernel of that name, whose text wa_source_of_kernel puts together. */
winattn_status wa_program_source_of_kernel(cl_device_id device,
                                           const char *name,
                                           const char *options,
                                           wa_program_source *program_source);
/* Of any text; the name is for the key. */
winattn_status wa_program_source_of_text(cl_device_id device, const char *name,
                                         const char *text, const char *options,
                                         wa_program_source *program_source);
void wa_program_source_free(wa_program_source *program_source);

/* Could this library have made the key for this device? */
winattn_status wa_check_key(cl_device_id device, const char *key);

/* Builds from source, where that says so by way of PTX. On
 * CL_BUILD_PROGRAM_FAILURE the compiler's output is kept for
 * winattn_last_build_log. */
winattn_status wa_build_program(cl_context context, cl_device_id device,
                                const wa_program_source *program_source,
                                cl_program *program);

/* From a binary; NULL if the driver refuses it, or if it lacks the kernel. A
 * refusal that may pass is not taken for one before it has come twice. */
cl_program wa_load_program(cl_context context, cl_device_id device,
                           const wa_program_source *program_source,
                           const char *kernel, const unsigned char *binary,
                           size_t size);

/* The same from the cache's binary; *program becomes NULL if there is none. */
winattn_status wa_load_cached_program(cl_context context, cl_device_id device,
                                      const wa_program_source *program_source,
                                      const char *kernel, cl_program *program);

/* The program's binary for the device, to be freed; NULL if the driver gives
 * none. */
winattn_status wa_program_binary(cl_program program, cl_device_id device,
                                 unsigned char **binary, size_t *size);

/* Into the cache, if there is one, where no cause that may pass forbids it. */
winattn_status wa_store_program(cl_program program, cl_device_id device,
                                const char *key);

/* From the cache, else from source and into the cache; for programs that need
 * no launch to be complete. */
winattn_status wa_obtain_program(cl_context context, cl_device_id device,
                                 const wa_program_source *program_source,
                                 const char *kernel, cl_program *program);

#endif
