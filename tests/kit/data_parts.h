/* SPDX-License-Identifier: Apache-2.0
 * What the files of data.h give each other. */
#ifndef KIT_DATA_PARTS_H
#define KIT_DATA_PARTS_H

#include "data.h"

#define GUARD 256 /* bytes before and behind tensors that are written */

/* Which tensors there are, of which kind and extents. */
void data_describe(case_buffers *d);
/* Their strides, offsets and buffers, and the sizes of these. */
void data_place(case_buffers *d);

/* The row that stands for this one where an axis is broadcast. */
size_t data_first_row(const tensor_data *t, size_t row);

/* The values of inputs, and of what outputs are added to. False, as below: out
 * of memory. */
bool data_fill(case_buffers *d);
/* Which entry of the table each query and key takes. */
bool data_fill_entries(case_buffers *d);

#endif
