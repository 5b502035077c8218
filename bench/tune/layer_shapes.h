/* SPDX-License-Identifier: Apache-2.0
 * The shapes of a linear layer's kernel that winattn-tune may measure: all
 * legal ones of a grid, in the order in which a rough model likes them. */
#ifndef BENCH_LAYER_SHAPES_H
#define BENCH_LAYER_SHAPES_H

#include "models/linear_shapes.h"

typedef struct layer_shape {
    wa_linear_shape shape;
    double cost;    /* of the model; NaN: unknown */
    bool tried;     /* measured, or found not to work */
    double seconds; /* of a call; INFINITY: it does not work */
    double error;
} layer_shape;

typedef struct layer_shapes {
    const wa_linear_problem *problem;
    const wa_device *device;
    winattn_tier tier;
    wa_linear_kernel_id id;
    uint64_t rows; /* of the call */
    layer_shape *all;
    size_t count, room;
    bool overflowed; /* memory did not suffice for some */
} layer_shapes;

void layer_shapes_add(layer_shapes *s, const wa_linear_shape *shape,
                      double cost);
void layer_shapes_collect(layer_shapes *s);
void layer_shapes_free(layer_shapes *s);

/* In how many numbers do they differ? */
int layer_shape_distance(const wa_linear_shape *a, const wa_linear_shape *b);

#endif
