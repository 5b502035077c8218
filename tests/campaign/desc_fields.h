/* SPDX-License-Identifier: Apache-2.0
 * The fields of winattn_desc by name and place. */
#ifndef CAMPAIGN_DESC_FIELDS_H
#define CAMPAIGN_DESC_FIELDS_H

#include <stddef.h>

typedef struct desc_field {
    const char *name;
    size_t place, bytes;
} desc_field;

/* First the plain ones, then strides. No pointers, and not struct_size. */
extern const desc_field desc_fields[];
extern const size_t desc_plain_fields, desc_field_count;

#endif
