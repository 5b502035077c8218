/* SPDX-License-Identifier: Apache-2.0
 * The table of fields, and descriptors in print. */
#include "desc_fields.h"

#include <stdio.h>
#include <string.h>

#include "descriptors.h"

#define FIELD(name)                                                           \
    {                                                                         \
#name, offsetof(winattn_desc, name),                                  \
            sizeof(((winattn_desc *)NULL)->name)                              \
    }
#define THREE(name) FIELD(name[0]), FIELD(name[1]), FIELD(name[2])
#define STRIDES(name)                                                         \
    FIELD(name.window), FIELD(name.head), FIELD(name.row),                    \
        FIELD(name.column), THREE(name.axis)
const desc_field desc_fields[] = {
    FIELD(variant),
    FIELD(dtype),
    FIELD(tier),
    FIELD(allow_tf32),
    FIELD(windows),
    FIELD(heads),
    FIELD(kv_heads),
    FIELD(queries),
    FIELD(keys),
    FIELD(head_dim),
    FIELD(scale),
    FIELD(grid.axes),
    THREE(grid.size),
    THREE(grid.window),
    THREE(grid.shift),
    THREE(grid.periodic),
    FIELD(grid.padding),
    FIELD(grid.batch),
    FIELD(grid_options),
    FIELD(bias),
    FIELD(bias_dtype),
    FIELD(table.axes),
    THREE(table.window),
    FIELD(table.sliced),
    FIELD(table.entries),
    FIELD(mask),
    FIELD(mask_dtype),
    FIELD(mask_windows),
    FIELD(has_region_value),
    FIELD(region_value),
    FIELD(block),
    FIELD(first_block),
    FIELD(window_blocks),
    FIELD(sink),
    FIELD(sink_in_window),
    FIELD(query_offset),
    FIELD(passes),
    STRIDES(q),
    STRIDES(k),
    STRIDES(v),
    STRIDES(o),
    STRIDES(lse),
    STRIDES(bias_strides),
    STRIDES(mask_strides),
    STRIDES(query_region_strides),
    STRIDES(key_region_strides),
    STRIDES(d_o),
    STRIDES(d_lse),
    STRIDES(dq),
    STRIDES(dk),
    STRIDES(dv),
    STRIDES(dbias_strides),
    STRIDES(pad_k),
    STRIDES(pad_v),
    STRIDES(d_pad_k),
    STRIDES(d_pad_v),
};
#define STRIDE_FIELDS (19 * 7)
const size_t desc_field_count = sizeof desc_fields / sizeof *desc_fields;
const size_t desc_plain_fields =
    sizeof desc_fields / sizeof *desc_fields - STRIDE_FIELDS;

void desc_print(const winattn_desc *desc, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < desc_field_count; i++) {
        const desc_field *field = &desc_fields[i];
        const unsigned char *at = (const unsigned char *)desc + field->place;
        cl_ulong value = 0;
        cl_float number;
        memcpy(&value, at, field->bytes);
        if (value == 0 || used >= size)
            continue;
        if (field->place == offsetof(winattn_desc, scale) ||
            field->place == offsetof(winattn_desc, region_value)) {
            memcpy(&number, at, sizeof number);
            used += (size_t)snprintf(text + used, size - used, " %s=%g",
                                     field->name, (double)number);
        } else {
            used += (size_t)snprintf(text + used, size - used, " %s=%llu",
                                     field->name, (unsigned long long)value);
        }
    }
    if (desc->table.index && used < size)
        snprintf(text + used, size - used, " table.index=...");
}
