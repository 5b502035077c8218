/* SPDX-License-Identifier: Apache-2.0
 * What linear layers and attention take by themselves. */
#ifndef SWIN_PARTS_H
#define SWIN_PARTS_H

#include "swin/device.h"
#include "swin/options.h"
#include "winattn_models.h"

/* Enqueues what is timed. */
typedef bool swin_call(void *data);

/* Median seconds of a call until the device has done it; negative: one failed,
 * which was said. */
double measure_median(const swin_device *device, swin_call *call, void *data,
                      double seconds);

/* Prints which share of a model's time all its linear layers have, enqueued
 * one after the other on buffers of any content, and all its attention. */
bool measure_parts(const options *o, const swin_device *device,
                   const winattn_swin_config *config, cl_uint batch,
                   double whole);

#endif
