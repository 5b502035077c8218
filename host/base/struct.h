/* SPDX-License-Identifier: Apache-2.0
 * Structs that callers fill in, of programs that are older or newer than the
 * library. */
#ifndef WA_STRUCT_H
#define WA_STRUCT_H

#include <stddef.h>

#include "base/sister.h"
#include "winattn.h"

/* No version's structs will have more bytes: what says so was never set, and
 * is not believed. */
#define WA_STRUCT_MOST 4096u

/* Copies the caller's winattn_<name> to `own`, `size` bytes as this library
 * knows it. `given` starts with its own size, struct_size. A shorter one, of
 * `least` bytes at least, is an older program's, and what it lacks is 0. What
 * a longer one has behind `size` bytes must be 0. */
WA_SISTER winattn_status wa_read_struct(const char *name, const void *given,
                                        void *own, size_t size, size_t least);

/* Gives a caller who has room for `size` bytes a text, or what fits of it, and
 * says how many bytes it needs. */
WA_SISTER winattn_status wa_give_text(const char *all, size_t size, char *text,
                                      size_t *needed);

#endif
