/* SPDX-License-Identifier: Apache-2.0
 * Golden files as values of a case's tensors. */
#include "golden.h"

#include <stdlib.h>

#include "npy.h"

const golden_tensor golden_tensors[] = {
    {T_Q, "qkv", 0, 3},
    {T_K, "qkv", 1, 3},
    {T_V, "qkv", 2, 3},
    {T_BIAS, "table", 0, 1},
    {T_LOGIT_SCALE, "logit_scale", 0, 1},
    {T_PAD_K, "pad_k", 0, 1},
    {T_PAD_V, "pad_v", 0, 1},
    {T_D_O, "d_o", 0, 1},
    {T_O, "o", 0, 1},
    {T_DQ, "dqkv", 0, 3},
    {T_DK, "dqkv", 1, 3},
    {T_DV, "dqkv", 2, 3},
    {T_DBIAS, "dtable", 0, 1},
    {T_D_LOGIT_SCALE, "dlogit_scale", 0, 1},
    {T_D_PAD_K, "d_pad_k", 0, 1},
    {T_D_PAD_V, "d_pad_v", 0, 1},
};
const size_t golden_count = sizeof golden_tensors / sizeof *golden_tensors;

double *golden_read(const char *folder, const char *case_name,
                    const golden_tensor *g, const tensor_data *t)
{
    const size_t *n = t->extent;
    const size_t count = n[0] * n[1] * n[2] * n[3];
    npy_array array = npy_read(folder, case_name, g->name);
    double *value = NULL;
    if (array.value && array.count == count * g->parts)
        value = malloc(sizeof *value * count);
    double *to = value;
    for (size_t w = 0; value && w < n[0]; w++)
        for (size_t h = 0; h < n[1]; h++)
            for (size_t r = 0; r < n[2]; r++)
                for (size_t x = 0; x < n[3]; x++) {
                    const size_t row = (w * n[2] + r) * g->parts + g->part;
                    *to++ = array.value[(row * n[1] + h) * n[3] + x];
                }
    npy_free(&array);
    return value;
}

const char *golden_fill(const char *folder, const char *case_name,
                        case_buffers *d)
{
    for (size_t i = 0; i < golden_count; i++) {
        const golden_tensor *g = &golden_tensors[i];
        tensor_data *t = &d->tensor[g->id];
        if (!t->used || t->is_output)
            continue;
        double *value = golden_read(folder, case_name, g, t);
        if (!value)
            return g->name;
        free(t->value);
        t->value = value;
    }
    return NULL;
}
