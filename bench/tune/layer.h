/* SPDX-License-Identifier: Apache-2.0
 * A linear layer of winattn_models that is timed: what it is, its tensors, and
 * how far its results are off. */
#ifndef BENCH_LAYER_H
#define BENCH_LAYER_H

#include "kit/storage.h"
#include "measure/measure.h"
#include "models/linear.h"

typedef struct bench_layer {
    char name[40];
    unsigned long long rows;
    unsigned in, out;
    bool norm, bias, gelu, residual;
    unsigned count; /* of such layers in a model */
} bench_layer;

/* Reads ROWSxINxOUT[:norm][:bias][:gelu][:residual]; false if it is not that.
 */
bool layer_read(const char *text, bench_layer *l);

/* The layers of Swin-T for so many pictures: of each stage those of its
 * blocks, then of the merging, without norms, which blocks have by
 * themselves. Returns how many, at most `most`. */
int layer_swin(unsigned batch, bench_layer *layers, int most);

winattn_linear_desc layer_desc(const bench_layer *l, winattn_dtype dtype);

typedef struct layer_tensor {
    unsigned char *bytes; /* of inputs */
    cl_mem mem;
    size_t count;
} layer_tensor;

typedef struct layer_run {
    const bench_layer *l;
    storage_kind kind;
    const bench_device *device;
    winattn_linear_plan *plan; /* the caller's */
    layer_tensor x, weight, bias, norm_weight, norm_bias, residual, y,
        workspace;
    winattn_linear call;
    unsigned random;
} layer_run;

/* Makes the tensors that a call of the plan needs, which may be replaced by
 * another for the same layer; to be closed even if it fails. */
bool layer_open(layer_run *r, const bench_layer *l, winattn_dtype dtype,
                const bench_device *device, winattn_linear_plan *plan);
void layer_close(layer_run *r);

/* A call of r->plan; data: a layer_run. */
winattn_status layer_enqueue(void *data, unsigned round);

/* The largest relative error of a few rows of the last call; negative: they
 * could not be read. */
double layer_error(const layer_run *r);

/* What a call must read and write. */
double layer_bytes(const layer_run *r);

#endif
