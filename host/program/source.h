/* SPDX-License-Identifier: Apache-2.0
 * The text of a kernel's program: its file of cl/ and what that includes. */
#ifndef WINATTN_SOURCE_H
#define WINATTN_SOURCE_H

#include <stdbool.h>

#include "winattn.h"

/* Of cl/<folder>/<kernel>.cl, to be freed; <pass>_matrix_<unit> is
 * <pass>_matrix.cl for the matrix unit of cl/unit/unit_<unit>.cl. A file
 * stands where it is included first. *text becomes NULL, without a failure, if
 * there is no such kernel. */
winattn_status wa_source_of_kernel(const char *kernel, char **text);

/* Of a file that a program beside the library has, which may include files of
 * its own and of cl/: `find` knows both, as wa_source knows those of cl/. */
typedef const char *wa_source_finder(const char *name);
winattn_status wa_source_of_file(wa_source_finder *find, const char *file,
                                 char **text);

#endif
