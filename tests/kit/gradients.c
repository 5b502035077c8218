/* SPDX-License-Identifier: Apache-2.0
 * Compares gradients with the oracle's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs.h"
#include "verdict.h"

/* What is promised, by winattn_dtype. A logit is a rounded fp32 number, and
 * where one key rules a row its P shows that error undiluted. With the square
 * roots and divisions of two norms, which OpenCL lets be 3 and 2.5 ulp off,
 * 2^-21 of the largest logit is allowed (2^-22 was not always enough on
 * an H200). */
static const double promised[] = {1e-5, 1e-3, 6e-3};
#define LOGIT_EXPONENT -21

typedef struct checker {
    const case_buffers *d;
    unsigned char *const *bytes;
    case_truth truth;
    case_result *result;
    double tolerance;
} checker;

/* Largest value that is stored for sure, and what rounding may lose of the
 * smallest ones. */
static double overflow(storage_kind kind)
{
    return kind == KIND_FP16 ? 6e4 : 3e38;
}

double stored_underflow(storage_kind kind)
{
    return kind == KIND_FP16 ? 0x1p-25 : 1.2e-38; /* subnormals may be 0 */
}

void measure_gradient(distance *d, storage_kind kind, double got, double want,
                      double size, double tolerance)
{
    const double reach = fabs(want) + (isinf(got) ? tolerance * size : 0);
    if (!(reach >= overflow(kind)))
        measure(d, got, want, size);
}

double share_stored(distance *d, double underflow, size_t count,
                    double tolerance, double size_share)
{
    d->error2 = fmax(0, sqrt(d->error2) - underflow * sqrt((double)count));
    d->error2 *= d->error2;
    return share(d, tolerance, size_share);
}

bool gradient_goes_by_row(int variant, tensor_id id)
{
    return variant == WINATTN_COSINE && (id == T_DQ || id == T_DK);
}

/* What underflow may cost a row of dq or dk of the cosine variant besides. A
 * P below the normal fp32 numbers may be 0; it is multiplied by the scale, up
 * to 100, and by gradients of o, and divided by the row's norm. */
static double lost_in_p(const case_buffers *d, int id, size_t window,
                        size_t head, size_t row)
{
    const tensor_data *x = &d->tensor[id == T_DQ   ? T_Q
                                      : id == T_DK ? T_K
                                                   : T_PAD_K];
    double squares = 0;
    for (size_t c = 0; c < x->extent[3]; c++) {
        const double value = data_value(x, window, head, row, c);
        squares += value * value;
    }
    return 1.2e-38 * 1e4 / fmax(sqrt(squares), 1e-12);
}

/* Who sees a single key has P = 1, whatever q and k are: unless lse has a
 * gradient, dq and dk are exactly 0. Matrix units take P in two parts. */
static bool is_exactly_zero(const test_case *c, tensor_id id)
{
    return c->keys == 1 && !c->d_lse && (id == T_DQ || id == T_DK) &&
           (c->tier == WINATTN_TIER_CPU || c->tier == WINATTN_TIER_LOCAL);
}

/* So many rows of a gradient of a window-head, from `row` on. */
static void check_rows(const checker *check, tensor_id id, size_t window,
                       size_t head, size_t row, size_t rows)
{
    const tensor_data *t = &check->d->tensor[id];
    const test_case *c = &check->d->c;
    const double *want = check->truth.value.value[id];
    const double *size = check->truth.size.value[id];
    const double tolerance = is_exactly_zero(c, id) ? 0 : check->tolerance;
    distance far = {0, 0, 0, NULL};
    double underflow = stored_underflow(t->kind);
    size_t count = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, found = row + i;
        if (!data_find(check->d, id, &at, &found))
            continue; /* of the padding */
        for (size_t x = 0; x < t->extent[3]; x++, count++) {
            const size_t n = data_index(t, at, head, found, x);
            const double before = t->value ? t->value[n] : 0;
            const double got =
                kind_read(t->kind, check->bytes[t->buffer] +
                                       data_at(t, at, head, found, x));
            measure_gradient(&far, t->kind, got, before + want[n],
                             size[n] + fabs(before), tolerance);
        }
        if (gradient_goes_by_row(c->variant, id))
            underflow += lost_in_p(check->d, id, at, head, found);
    }
    if (id == T_D_PAD_K && c->variant == WINATTN_COSINE)
        underflow +=
            lost_in_p(check->d, id, 0, head, 0) * c->windows * c->keys;
    const double part =
        share_stored(&far, underflow, count, tolerance,
                     case_is_strict(c) ? 0.0 : ORDINARY_SIZE_SHARE);
    case_result *result = check->result;
    note_error(result, id, &far, part, tolerance);
    if ((far.mismatch || !(part <= 1)) && !result->failure[0])
        snprintf(result->failure, sizeof result->failure,
                 "%s of window %zu head %zu row %zu: %s, at %.3g of the "
                 "allowed error",
                 tensor_names[id], window, head, row,
                 far.mismatch ? far.mismatch : "too far from the oracle",
                 part);
}

/* A plane, or each row of it. */
static void check_plane(const checker *check, tensor_id id, size_t window,
                        size_t head)
{
    if (!check->d->tensor[id].used)
        return;
    const size_t rows = data_rows(check->d, id);
    const size_t step =
        gradient_goes_by_row(check->d->c.variant, id) ? 1 : rows;
    for (size_t row = 0; row < rows; row += step)
        check_rows(check, id, window, head, row, step);
}

/* NaN in a window-head spoil what its query heads share, how far is not said.
 */
static bool is_clean(const checker *check, size_t window, size_t kv_head)
{
    const test_case *c = &check->d->c;
    const size_t group = (size_t)(c->heads / c->kv_heads);
    bool spoilt = false;
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        spoilt |= check->truth.spoilt[window * (size_t)c->heads + h];
    return !spoilt;
}

static void check_window(checker *check, size_t window)
{
    const test_case *c = &check->d->c;
    const size_t group = (size_t)(c->heads / c->kv_heads);
    for (size_t kv_head = 0; kv_head < (size_t)c->kv_heads; kv_head++) {
        for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
            const size_t number = window * (size_t)c->heads + h;
            check->tolerance =
                fmax(check->tolerance,
                     ldexp(check->truth.largest[number], LOGIT_EXPONENT));
            if (!check->truth.spoilt[number])
                check_plane(check, T_DQ, window, h);
        }
        if (!is_clean(check, window, kv_head))
            continue;
        check_plane(check, T_DK, window, kv_head);
        check_plane(check, T_DV, window, kv_head);
    }
}

/* What is summed over all windows, but for heads that a NaN spoils. */
static void check_sums(const checker *check)
{
    const test_case *c = &check->d->c;
    const size_t heads = (size_t)c->heads;
    for (size_t h = 0; h < heads; h++) {
        bool spoilt = false;
        for (size_t w = 0; w < (size_t)c->windows; w++)
            spoilt |= check->truth.spoilt[w * heads + h];
        if (spoilt)
            continue;
        check_plane(check, T_DBIAS, 0, h);
        check_plane(check, T_D_LOGIT_SCALE, 0, h);
    }
    for (size_t h = 0; h < (size_t)c->kv_heads; h++) {
        bool clean = true;
        for (size_t w = 0; w < (size_t)c->windows; w++)
            clean &= is_clean(check, w, h);
        if (!clean)
            continue;
        check_plane(check, T_D_PAD_K, 0, h);
        check_plane(check, T_D_PAD_V, 0, h);
    }
}

bool check_gradients(const case_buffers *d,
                     unsigned char *const bytes[TENSORS], case_result *result)
{
    checker check = {d, bytes, truth_of(d), result, promised[d->c.dtype]};
    for (size_t w = 0; w < (size_t)d->c.windows; w++)
        check_window(&check, w);
    check_sums(&check);
    truth_free(&check.truth);
    return result->failure[0] == 0;
}
