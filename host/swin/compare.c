/* SPDX-License-Identifier: Apache-2.0
 * Makes the unfused model, and compares its logits with the other's. */
#include "swin/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Each rounds what the other keeps in registers. */
static double most_difference(winattn_dtype dtype, bool allows_tf32)
{
    static const double most[3] = {1e-4, 1e-2, 8e-2};
    return dtype == WINATTN_FP32 && allows_tf32 ? most[WINATTN_FP16]
                                                : most[dtype];
}

void comparison_open(runner *r, const winattn_swin_weights *weights,
                     comparison *c)
{
    *c = (comparison){.r = r};
    const winattn_status status =
        unfused_create(r->model, weights, NULL, &c->model);
    const char *reason = winattn_last_reason();
    if (status != WINATTN_SUCCESS)
        snprintf(c->note, sizeof c->note, "%s",
                 reason[0] ? reason : winattn_status_name(status));
}

void comparison_close(comparison *c)
{
    unfused_destroy(c->model);
    *c = (comparison){0};
}

bool comparison_call(void *data)
{
    const comparison *c = data;
    const winattn_model_call call = runner_call(c->r);
    return is_good(unfused_enqueue(c->model, c->r->device->queue, &call),
                   "unfused call");
}

/* Nothing is left of what the logits were. */
static bool forget_logits(const runner *r)
{
    static const cl_uchar not_a_number = 0xff;
    const size_t size = (size_t)r->batch * r->config.classes *
                        (r->dtype == WINATTN_FP32 ? 4 : 2);
    return is_good(clEnqueueFillBuffer(r->device->queue, r->logits,
                                       &not_a_number, 1, 0, size, 0, NULL,
                                       NULL),
                   "logits");
}

/* NaN where one of them is. */
static double relative_difference(const float *a, const float *b, size_t count)
{
    double differences = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = (double)a[i] - b[i];
        differences += d * d;
        squares += (double)b[i] * b[i];
    }
    return sqrt(differences / squares);
}

bool comparison_check(comparison *c, bool allows_tf32, double *difference)
{
    runner *r = c->r;
    const size_t count = (size_t)r->batch * r->config.classes;
    const double most = most_difference(r->dtype, allows_tf32);
    float *fused = malloc(2 * count * sizeof *fused);
    if (!fused) {
        fprintf(stderr, "winattn-swin: there is no memory for logits\n");
        return false;
    }
    float *unfused_ones = fused + count;
    bool good = forget_logits(r) && runner_start(r) &&
                runner_read_logits(r, fused) && forget_logits(r) &&
                comparison_call(c) && runner_read_logits(r, unfused_ones);
    if (good)
        good = is_finite(r->dtype, "logits of noise", fused, count);
    if (good) {
        *difference = relative_difference(unfused_ones, fused, count);
        good = *difference <= most;
        if (!good)
            fprintf(stderr,
                    "winattn-swin: logits of the unfused model differ by "
                    "%.1e, which is more than %.1e\n",
                    *difference, most);
    }
    free(fused);
    return good;
}
