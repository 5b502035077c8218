/* SPDX-License-Identifier: Apache-2.0
 * How an element is stored: its bytes, and what of a number they can hold. */
#ifndef KIT_STORAGE_H
#define KIT_STORAGE_H

#include <stddef.h>
#include <stdint.h>

typedef enum storage_kind {
    KIND_FP32,
    KIND_FP16,
    KIND_BF16,
    KIND_U8
} storage_kind;
size_t kind_size(storage_kind kind);
/* Nearest value of the kind, ties to even. */
double kind_round(storage_kind kind, double x);
void kind_write(storage_kind kind, double x, void *to);
double kind_read(storage_kind kind, const void *from);

/* Memory with room for so many bytes, all ones, to be freed; *odd is the first
 * of them, on a multiple of `element`, a power of 2, but of no more. NULL: out
 * of memory. */
unsigned char *odd_memory(size_t bytes, size_t element, unsigned char **odd);

#endif
