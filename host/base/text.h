/* SPDX-License-Identifier: Apache-2.0
 * Texts of a fixed size that grow. */
#ifndef WINATTN_TEXT_H
#define WINATTN_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/sister.h"

/* Appends to a text of the given size; cuts what does not fit. */
WA_SISTER void wa_append(char *text, size_t size, const char *format, ...);

/* A text of any size, written twice: first, with `text` NULL, for its size. */
typedef struct wa_output {
    char *text;
    size_t size;
} wa_output;
void wa_put(wa_output *to, const char *text, size_t size);

/* Before a stranger's text is printed or kept, a device's name or what a file
 * calls something: what a terminal would obey (control characters, also those
 * of U+0080 to U+009F) becomes '?', but of those in `kept`, and so do bytes
 * that are no UTF-8. */
void wa_make_plain(char *text, const char *kept);

/* Is it one of the words, which have spaces between them? */
WA_SISTER bool wa_has_word(const char *words, const char *word);

#endif
