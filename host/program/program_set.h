/* SPDX-License-Identifier: Apache-2.0
 * The programs of one context and device: each is obtained once, from an
 * imported binary, the cache's or its source, and lives as long as this. */
#ifndef WINATTN_PROGRAM_SET_H
#define WINATTN_PROGRAM_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/sister.h"
#include "winattn.h"

typedef struct wa_program_set wa_program_set;

/* Does not retain the context. NULL: out of memory. */
wa_program_set *wa_program_set_create(cl_context context, cl_device_id device);
void wa_program_set_destroy(wa_program_set *set);

/* A new kernel object of function `name` (see wa_program_source_of_kernel),
 * built with a plan's defines and the caller's build_options. Of a program of
 * several, `name` is the program's and the function's, with a colon between.
 */
winattn_status wa_program_set_kernel(wa_program_set *set, const char *name,
                                     const char *defines,
                                     const char *build_options,
                                     cl_kernel *kernel);

/* Where the kernel's program came from: "compiled from source" and so on. */
#define WA_FROM_CACHE "from the cache" /* of wa_program_set_keep */
WA_SISTER winattn_status wa_program_set_origin(wa_program_set *set,
                                               cl_kernel kernel,
                                               const char **origin);

/* Will wa_program_set_keep take the binary of the kernel's program? Only if it
 * was built from source, and there is a cache or somebody who may export. One
 * that could not be stored for a cause that may pass is taken the next time.
 */
WA_SISTER winattn_status wa_program_set_keeps(wa_program_set *set,
                                              cl_kernel kernel, bool *keeps);
WA_SISTER void wa_program_set_keep(wa_program_set *set, cl_kernel kernel);

/* Between these two somebody may export. */
void wa_program_set_add_exporter(wa_program_set *set);
void wa_program_set_remove_exporter(wa_program_set *set);

/* What winattn_programs_import and winattn_programs_export do. */
winattn_status wa_program_set_import(wa_program_set *set, size_t size,
                                     const void *blob);
winattn_status wa_program_set_export(wa_program_set *set, size_t size,
                                     void *blob, size_t *needed);

/* How many programs were built from source since the start; for tests. */
unsigned wa_programs_built(void);

#endif
