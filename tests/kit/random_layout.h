/* SPDX-License-Identifier: Apache-2.0
 * Memory layouts drawn at random, as odd as the library allows. */
#ifndef KIT_RANDOM_LAYOUT_H
#define KIT_RANDOM_LAYOUT_H

#include "data.h"

/* Gives all tensors of a case new strides, offsets and buffers: axes nested in
 * any order, with gaps; tensors of one shape interleaved in one buffer,
 * whether read or written; inputs broadcast along some axes; or all of it
 * aligned, so that vectors can be loaded. Half of the buffers end with their
 * last element, at a multiple of 128 bytes. far: the outermost axis of each
 * tensor has a stride of 2^32 elements and more, or as large a one as it may,
 * and reaches up to 2^35 elements.
 *
 * d->buffer[].size says how large buffers are now; there are no images any
 * more, and data_write cannot be called. */
void layout_random(case_buffers *d, random_state *r, bool far);

#endif
