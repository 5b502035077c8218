/* SPDX-License-Identifier: Apache-2.0
 * Texts of a fixed size that grow. */
#ifndef WINATTN_TEXT_H
#define WINATTN_TEXT_H

#include <stddef.h>

#include "base/sister.h"

/* Appends to a text of the given size; cuts what does not fit. */
WA_SISTER void wa_append(char *text, size_t size, const char *format, ...);

#endif
