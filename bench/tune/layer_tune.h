/* SPDX-License-Identifier: Apache-2.0
 * Linear layers of winattn_models: measures shapes of the kernel that a call
 * takes, and finds the row of the tuning table. */
#ifndef BENCH_LAYER_TUNE_H
#define BENCH_LAYER_TUNE_H

#include <stddef.h>

#include "device/device.h"
#include "measure/measure.h"

/* What is wanted for layers. */
typedef struct layer_job {
    const bench_device *device;
    const wa_device *capabilities; /* of the device, as planners see them */
    winattn_dtype dtype;
    winattn_tier tier;
    double gain;               /* that a row must have, as a part of 1 */
    double seconds;            /* of all layers of a text */
    const char *output;        /* file that rows are appended to; or NULL */
    const char *const *shapes; /* none: a search */
    size_t shape_count;
} layer_job;

/* Is it a layer, or the name of a model's? How many layers, 0: no. */
int layer_count(const char *text);

/* False, said on stdout, if something is wrong with one of them. */
bool layer_tune(const layer_job *j, const char *text);

#endif
