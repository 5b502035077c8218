/* SPDX-License-Identifier: Apache-2.0
 * What linear layers and attention take by themselves. */
#ifndef SWIN_PARTS_H
#define SWIN_PARTS_H

#include "swin/device.h"
#include "swin/options.h"
#include "winattn_models.h"

typedef struct parts parts;

/* All linear layers of a model and all its attention, with buffers of any
 * content. NULL: why not was said. */
parts *parts_open(const options *o, const swin_device *device,
                  const winattn_swin_config *config, cl_uint batch);
void parts_close(parts *p); /* NULL is fine */

/* Enqueue them, one after the other; false: one failed, which was said. */
bool parts_call_linear(void *data);
bool parts_call_attention(void *data);

#endif
