/* SPDX-License-Identifier: Apache-2.0
 * What the header of a file of safetensors says. */
#ifndef WINATTN_SAFETENSORS_HEADER_H
#define WINATTN_SAFETENSORS_HEADER_H

#include "models/safetensors.h"

typedef struct wa_header {
    wa_file_tensor *tensors; /* in the header's order, their names perhaps */
    size_t count;            /* not unique, their places perhaps shared */
    char *names;
} wa_header;

/* Each tensor as it should be by itself: with a name, a type that is known,
 * and as many bytes inside the data as its shape needs. */
winattn_status wa_header_read(const char *text, size_t size,
                              const unsigned char *data, uint64_t data_size,
                              wa_header *header);
void wa_header_free(wa_header *header);

#endif
