/* SPDX-License-Identifier: Apache-2.0
 * Texts of a fixed size that grow. */
#ifndef WINATTN_TEXT_H
#define WINATTN_TEXT_H

#include <stddef.h>

/* Appends to a text of the given size; cuts what does not fit. */
void wa_append(char *text, size_t size, const char *format, ...);

#endif
