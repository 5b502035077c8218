/* SPDX-License-Identifier: Apache-2.0
 * Results of a forward pass against the oracle, and what must not be written.
 */
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double promised_error(int dtype)
{
    static const double promised[] = {5e-6, 5e-4, 4e-3};
    return promised[dtype];
}

void measure(distance *d, double got, double want, double size)
{
    if (isnan(want) || isinf(want)) {
        if (isnan(want) ? !isnan(got) : got != want)
            d->mismatch = isnan(want)  ? "a NaN is missing"
                          : isnan(got) ? "an infinity became NaN"
                                       : "an infinity is missing";
        return;
    }
    if (isnan(got) || isinf(got)) {
        d->mismatch = isnan(got) ? "NaN where a number belongs"
                                 : "infinity where a number belongs";
        return;
    }
    d->error2 += (got - want) * (got - want);
    d->want2 += want * want;
    d->size2 += size * size;
}

double share(const distance *d, double tolerance, double size_share)
{
    const double allowed =
        tolerance * fmax(sqrt(d->want2), sqrt(d->size2) * size_share);
    const double error = sqrt(d->error2);
    return error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;
}

void note_error(case_result *result, tensor_id id, const distance *d,
                double part, double tolerance)
{
    result->error[id] = fmax(result->error[id], part);
    result->plain_error[id] =
        fmax(result->plain_error[id], share(d, tolerance, 0));
    if (id == T_LSE)
        return;
    result->o_error = fmax(result->o_error, part);
    if (d->want2 > 0)
        result->o_relative =
            fmax(result->o_relative, sqrt(d->error2 / d->want2));
}

static bool check_window_head(const case_buffers *d,
                              unsigned char *const bytes[TENSORS],
                              size_t window, size_t head, double *scratch,
                              case_result *result)
{
    const test_case *c = &d->c;
    const size_t rows = (size_t)c->queries, dim = (size_t)c->dim;
    double *o = scratch, *o_size = o + rows * dim;
    double *lse = o_size + rows * dim, *lse_size = lse + rows;
    double largest;
    distance o_distance = {0, 0, 0, NULL}, lse_distance = {0, 0, 0, NULL};
    size_t stored = 0;
    data_oracle(d, window, head, o, o_size, lse, lse_size, &largest);
    const tensor_data *t = &d->tensor[T_O], *t_lse = &d->tensor[T_LSE];
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, row = i;
        if (!data_find(d, T_O, &at, &row))
            continue; /* of the padding: there is no result */
        stored += dim;
        for (size_t x = 0; x < dim; x++)
            measure(&o_distance,
                    kind_read(t->kind,
                              bytes[t->buffer] + data_at(t, at, head, row, x)),
                    o[i * dim + x], o_size[i * dim + x]);
        if (t_lse->used)
            measure(
                &lse_distance,
                kind_read(t_lse->kind, bytes[t_lse->buffer] +
                                           data_at(t_lse, at, head, row, 0)),
                lse[i], lse_size[i]);
    }

    /* a logit is a rounded fp32 number; of TF32, a sum of rounded products */
    double by_logits = ldexp(largest, -23);
    for (size_t i = 0; c->tf32 && i < rows; i++)
        if (isfinite(lse_size[i]))
            by_logits = fmax(by_logits, ldexp(lse_size[i], -12));
    const double fp32 = fmax(
        c->tf32 ? PROMISED_TF32 : promised_error(WINATTN_FP32), by_logits);
    const double tolerance = c->data == DATA_ALONE && !c->tf32 ? 0
                             : c->dtype == WINATTN_FP32
                                 ? fp32
                                 : fmax(promised_error(c->dtype), by_logits);
    /* all of o is small where the padding's values are 0 and have all weight
     */
    distance beyond = o_distance;
    const double o_share =
        share_stored(&beyond, stored_underflow(t->kind), stored, tolerance,
                     ORDINARY_SIZE_SHARE);
    /* the logarithm is stored in fp32, whatever q, k and v are */
    const double lse_share = share(&lse_distance, fp32, 1.0);
    result->lse_error = fmax(result->lse_error, lse_share);
    note_error(result, T_O, &o_distance, o_share, tolerance);
    note_error(result, T_LSE, &lse_distance, lse_share, fp32);
    const char *wrong = o_distance.mismatch     ? o_distance.mismatch
                        : lse_distance.mismatch ? lse_distance.mismatch
                                                : NULL;
    if (!wrong && o_share <= 1 && lse_share <= 1)
        return true;
    snprintf(result->failure, sizeof result->failure,
             "window %zu head %zu: %s; o is at %.3g of the allowed error, lse "
             "at %.3g",
             window, head, wrong ? wrong : "too far from the oracle", o_share,
             lse_share);
    return false;
}

/* Bytes that are no element of an output must be as before the call. */
static bool check_untouched(const case_buffers *d,
                            unsigned char *const bytes[TENSORS],
                            case_result *result)
{
    for (int i = 0; i < d->buffers; i++) {
        const buffer_image *image = &d->buffer[i];
        unsigned char *owned = calloc(image->size, 1);
        const char *names = "";
        if (!owned)
            return false;
        for (int id = T_O; id < TENSORS; id++) {
            const tensor_data *t = &d->tensor[id];
            if (!t->used || !t->is_output || t->buffer != i)
                continue;
            names = tensor_names[id];
            for (size_t n = 0; n < data_count(t); n++)
                memset(owned + data_place_of(t, n), 1, kind_size(t->kind));
        }
        size_t at = 0;
        while (at < image->size &&
               (owned[at] || bytes[i][at] == image->bytes[at]))
            at++;
        free(owned);
        if (at < image->size) {
            snprintf(result->failure, sizeof result->failure,
                     "byte %zu of buffer %d%s%s was written, which is no "
                     "element of an output",
                     at, i, *names ? ", which holds " : "", names);
            return false;
        }
    }
    return true;
}

bool buffers_check(cl_command_queue queue, const case_buffers *d,
                   const device_buffers *b, case_result *result)
{
    const test_case *c = &d->c;
    unsigned char *bytes[TENSORS] = {NULL};
    const size_t rows = (size_t)c->queries;
    double *scratch =
        malloc(sizeof(double) * (2 * rows * (size_t)c->dim + 2 * rows));
    bool passed = scratch != NULL;
    for (int i = 0; i < d->buffers; i++) {
        bytes[i] = malloc(d->buffer[i].size);
        if (!bytes[i] || clEnqueueReadBuffer(queue, b->mem[i], CL_TRUE, 0,
                                             d->buffer[i].size, bytes[i], 0,
                                             NULL, NULL) != CL_SUCCESS)
            passed = false;
    }
    if (!passed)
        snprintf(result->failure, sizeof result->failure,
                 "results could not be read");
    passed = passed && check_untouched(d, bytes, result);
    if (c->pass == PASS_BACKWARD)
        passed = passed && check_gradients(d, bytes, result);
    for (size_t w = 0; c->pass == PASS_FORWARD && w < (size_t)c->windows; w++)
        for (size_t h = 0; passed && h < (size_t)c->heads; h++)
            passed = check_window_head(d, bytes, w, h, scratch, result);
    for (int i = 0; i < d->buffers; i++)
        free(bytes[i]);
    free(scratch);
    return passed;
}
