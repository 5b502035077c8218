/* SPDX-License-Identifier: Apache-2.0
 * A linear layer of winattn_models that is tuned. */
#ifndef BENCH_LAYER_H
#define BENCH_LAYER_H

#include "kit/storage.h"
#include "models/linear.h"
#include "tune/subject.h"

#define MOST_LAYERS 32

typedef struct bench_layer {
    char name[40];
    unsigned long long rows;
    unsigned in, out;
    bool norm, bias, gelu, residual, tf32;
    unsigned count; /* of such layers in a model */
} bench_layer;

typedef struct layer_tensor {
    unsigned char *bytes; /* of inputs */
    cl_mem mem;
    size_t count;
} layer_tensor;

/* In the order of winattn_linear. */
typedef enum layer_tensor_id {
    LAYER_X,
    LAYER_WEIGHT,
    LAYER_BIAS,
    LAYER_NORM_WEIGHT,
    LAYER_NORM_BIAS,
    LAYER_RESIDUAL,
    LAYER_Y,
    LAYER_WORKSPACE,
    LAYER_TENSORS
} layer_tensor_id;

typedef struct layer_run {
    const bench_layer *l;
    storage_kind kind;
    const bench_device *device;
    winattn_linear_plan *plan; /* the caller's */
    layer_tensor tensor[LAYER_TENSORS];
    winattn_linear call;
    unsigned random;
} layer_run;

typedef struct layer_subject {
    subject s; /* the first member: where it is, the rest is */
    const bench_layer *l;
    layer_run run; /* the tensors of all calls */
    winattn_linear_plan *own;
    wa_linear_kernel_id id; /* of the plan, that such calls take */
    winattn_linear_desc desc;
} layer_subject;

/* Is it a layer, or the name of a model's? How many layers, 0: no. */
int layers_read(const char *text, bench_layer layers[MOST_LAYERS]);

/* The kernel is the one that the layer's plan takes. False, said on stdout, if
 * there is none; it is closed all the same. */
bool layer_subject_open(layer_subject *a, const bench_device *device,
                        const wa_device *capabilities, const bench_layer *l,
                        winattn_dtype dtype, winattn_tier tier);
void layer_subject_close(layer_subject *a);

#endif
