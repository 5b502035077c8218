/* SPDX-License-Identifier: Apache-2.0
 * Compares gradients with the oracle's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    case_result *result;
    double tolerance;
} checker;

/* Sums over the query heads of a key head, and over windows. dbias is dense
 * until a table's entries are summed. */
typedef struct sums {
    oracle_gradients head; /* of one window-head */
    double *d_o, *d_lse;   /* what flows back into it */
    double *dk, *dk_size;  /* of one window and key head */
    double *dv, *dv_size;
    double *dbias, *dbias_size;   /* of all heads */
    double *pad[2], *pad_size[2]; /* of all key heads: what flows into the
                                     padding's keys and values */
    double *scale, *scale_size;   /* of each head */
    double *all;                  /* the memory of these */
    bool *spoilt;                 /* heads in which there is a NaN */
    double largest;               /* logit */
} sums;

static double *zeros(size_t count) { return calloc(count, sizeof(double)); }

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

static bool has_nan(const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (isnan(x[i]))
            return true;
    return false;
}

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

/* rows x columns of a gradient from `row` on. */
static void check_rows(const checker *check, int id, const char *name,
                       size_t window, size_t head, size_t row, size_t rows,
                       const double *want, const double *size)
{
    const tensor_data *t = &check->d->tensor[id];
    const size_t columns = t->extent[3];
    const test_case *c = &check->d->c;
    distance far = {0, 0, 0, NULL};
    double underflow = stored_underflow(t->kind);
    size_t count = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, found = row + i;
        if (!data_find(check->d, (tensor_id)id, &at, &found))
            continue; /* of the padding */
        for (size_t x = 0; x < columns; x++, count++) {
            const double before = data_value(t, at, head, found, x);
            const double target = before + want[i * columns + x];
            const double got =
                kind_read(t->kind, check->bytes[t->buffer] +
                                       data_at(t, at, head, found, x));
            measure_gradient(&far, t->kind, got, target,
                             size[i * columns + x] + fabs(before),
                             check->tolerance);
        }
        if (gradient_goes_by_row(c->variant, (tensor_id)id))
            underflow += lost_in_p(check->d, id, at, head, found);
    }
    if (id == T_D_PAD_K && c->variant == WINATTN_COSINE)
        underflow +=
            lost_in_p(check->d, id, 0, head, 0) * c->windows * c->keys;
    const double part =
        share_stored(&far, underflow, count, check->tolerance,
                     case_is_strict(c) ? 0.0 : ORDINARY_SIZE_SHARE);
    case_result *result = check->result;
    note_error(result, (tensor_id)id, &far, part, check->tolerance);
    if ((far.mismatch || !(part <= 1)) && !result->failure[0])
        snprintf(result->failure, sizeof result->failure,
                 "%s of window %zu head %zu row %zu: %s, at %.3g of the "
                 "allowed error",
                 name, window, head, row,
                 far.mismatch ? far.mismatch : "too far from the oracle",
                 part);
}

/* Who sees a single key has P = 1, whatever q and k are: unless lse has a
 * gradient, dq and dk are exactly 0. Matrix units take P in two parts. */
static bool is_exactly_zero(const test_case *c, tensor_id id)
{
    return c->keys == 1 && !c->d_lse && (id == T_DQ || id == T_DK) &&
           (c->tier == WINATTN_TIER_CPU || c->tier == WINATTN_TIER_LOCAL);
}

/* A plane, or each row of it. */
static void check_plane(const checker *like, tensor_id id, const char *name,
                        size_t window, size_t head, const double *want,
                        const double *size)
{
    checker own = *like;
    const checker *check = &own;
    const tensor_data *t = &check->d->tensor[id];
    if (is_exactly_zero(&check->d->c, id))
        own.tolerance = 0;
    const bool by_row = gradient_goes_by_row(check->d->c.variant, id);
    const size_t columns = t->extent[3];
    if (!t->used)
        return;
    const size_t rows = data_rows(check->d, id);
    if (!by_row)
        check_rows(check, id, name, window, head, 0, rows, want, size);
    for (size_t i = 0; by_row && i < rows; i++)
        check_rows(check, id, name, window, head, i, 1, want + i * columns,
                   size + i * columns);
}

/* dO and dLSE of one window-head. */
static void read_flow(const case_buffers *d, size_t window, size_t head,
                      double *d_o, double *d_lse)
{
    const tensor_data *o = &d->tensor[T_D_O], *lse = &d->tensor[T_D_LSE];
    const size_t rows = data_rows(d, T_D_O), dim = o->extent[3];
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, row = i;
        /* nothing flows into what has no result */
        const bool exists = data_find(d, T_D_O, &at, &row);
        for (size_t x = 0; x < dim; x++)
            d_o[i * dim + x] = exists ? data_value(o, at, head, row, x) : 0;
        d_lse[i] = exists && lse->used ? data_value(lse, at, head, row, 0) : 0;
    }
}

static double largest_logit(const oracle_problem *p)
{
    const size_t count = p->queries * p->dim;
    double *x = zeros(2 * count + 2 * p->queries), largest = 0;
    oracle_forward(p, x, x + count, x + 2 * count, x + 2 * count + p->queries,
                   &largest);
    free(x);
    return largest;
}

/* Matrix units take P and dS in 16 bits, which fp16 has less range in than
 * fp32: a key whose weights are all below 2^-28 of the largest may lose them.
 * So each row of a size becomes at least a 2^-15th of the largest, 0.1 of 1e-3
 * of which is allowed. norms: of the rows, which the gradients were divided
 * by; or NULL. */
static void grant_range(double *size, size_t rows, size_t columns,
                        const double *norms)
{
    for (size_t x = 0; x < columns; x++) {
        double largest = 0;
        for (size_t i = 0; i < rows; i++)
            largest =
                fmax(largest, size[i * columns + x] * (norms ? norms[i] : 1));
        for (size_t i = 0; i < rows; i++)
            size[i * columns + x] =
                fmax(size[i * columns + x],
                     ldexp(largest, -15) / (norms ? norms[i] : 1));
    }
}

static void grant_ranges(const oracle_problem *p, int variant,
                         oracle_gradients *g)
{
    double *norms = zeros(p->keys);
    for (size_t i = 0; i < p->keys; i++) {
        double squares = 0;
        for (size_t x = 0; x < p->dim; x++)
            squares += p->k[i * p->dim + x] * p->k[i * p->dim + x];
        norms[i] = fmax(sqrt(squares), 1e-12);
    }
    grant_range(g->dk_size, p->keys, p->dim,
                variant == WINATTN_COSINE ? norms : NULL);
    grant_range(g->dv_size, p->keys, p->dim, NULL);
    free(norms);
}

/* All that query head `head` of a window adds; false if it holds a NaN. */
static bool add_head(const case_buffers *d, size_t window, size_t head,
                     sums *s)
{
    const test_case *c = &d->c;
    const size_t k_count = (size_t)c->keys * (size_t)c->dim;
    const size_t logits = (size_t)c->queries * (size_t)c->keys;
    data_view view;
    data_view_open(d, window, head, &view);
    read_flow(d, window, head, s->d_o, s->d_lse);
    oracle_backward(&view.problem, s->d_o, s->d_lse, &s->head);
    if (c->dtype == WINATTN_FP16)
        grant_ranges(&view.problem, c->variant, &s->head);
    s->largest = fmax(s->largest, largest_logit(&view.problem));
    data_view_close(&view);
    add(s->dk, s->head.dk, k_count);
    add(s->dk_size, s->head.dk_size, k_count);
    add(s->dv, s->head.dv, k_count);
    add(s->dv_size, s->head.dv_size, k_count);
    add(s->dbias + head * logits, s->head.dbias, logits);
    add(s->dbias_size + head * logits, s->head.dbias_size, logits);
    s->scale[head] += s->head.d_logit_scale;
    s->scale_size[head] += s->head.d_logit_scale_size;
    return !has_nan(s->head.dq, (size_t)c->queries * (size_t)c->dim) &&
           !has_nan(s->head.dk, k_count) && !has_nan(s->head.dv, k_count);
}

/* dk and dv of a window's padding go to their sums. */
static void add_pads(const case_buffers *d, size_t window, size_t kv_head,
                     sums *s)
{
    const size_t dim = (size_t)d->c.dim;
    for (size_t i = 0; i < (size_t)d->c.keys; i++) {
        size_t at = window, row = i;
        if (data_find(d, T_K, &at, &row))
            continue;
        add(s->pad[0] + kv_head * dim, s->dk + i * dim, dim);
        add(s->pad_size[0] + kv_head * dim, s->dk_size + i * dim, dim);
        add(s->pad[1] + kv_head * dim, s->dv + i * dim, dim);
        add(s->pad_size[1] + kv_head * dim, s->dv_size + i * dim, dim);
    }
}

static void check_window(const checker *check, size_t window, sums *s)
{
    const test_case *c = &check->d->c;
    const size_t group = (size_t)(c->heads / c->kv_heads);
    const size_t k_count = (size_t)c->keys * (size_t)c->dim;
    checker own = *check;
    for (size_t kv_head = 0; kv_head < (size_t)c->kv_heads; kv_head++) {
        bool spoilt = false;
        memset(s->dk, 0, sizeof(double) * k_count);
        memset(s->dk_size, 0, sizeof(double) * k_count);
        memset(s->dv, 0, sizeof(double) * k_count);
        memset(s->dv_size, 0, sizeof(double) * k_count);
        for (size_t head = kv_head * group; head < (kv_head + 1) * group;
             head++) {
            const bool clean = add_head(check->d, window, head, s);
            own.tolerance =
                fmax(promised[c->dtype], ldexp(s->largest, LOGIT_EXPONENT));
            spoilt = spoilt || !clean;
            s->spoilt[head] = s->spoilt[head] || !clean;
            if (clean)
                check_plane(&own, T_DQ, "dq", window, head, s->head.dq,
                            s->head.dq_size);
        }
        /* a NaN spoils its window-head, how far is not said */
        if (spoilt)
            continue;
        check_plane(&own, T_DK, "dk", window, kv_head, s->dk, s->dk_size);
        check_plane(&own, T_DV, "dv", window, kv_head, s->dv, s->dv_size);
        add_pads(check->d, window, kv_head, s);
    }
}

/* dbias of a head: of a table, each entry's sum. */
static void check_dbias(const checker *check, size_t head, const sums *s)
{
    const case_buffers *d = check->d;
    const size_t logits = (size_t)d->c.queries * (size_t)d->c.keys;
    const double *want = s->dbias + head * logits;
    const double *size = s->dbias_size + head * logits;
    if (!d->tensor[T_DBIAS].used)
        return;
    if (!d->entry) {
        check_plane(check, T_DBIAS, "dbias", 0, head, want, size);
        return;
    }
    const size_t entries = d->tensor[T_DBIAS].extent[2];
    double *sum = zeros(2 * entries);
    for (size_t i = 0; i < logits; i++) {
        sum[d->entry[i]] += want[i];
        sum[entries + (size_t)d->entry[i]] += size[i];
    }
    check_plane(check, T_DBIAS, "dbias (of the table)", 0, head, sum,
                sum + entries);
    free(sum);
}

/* Zeros. False: out of memory. */
static bool make_sums(const test_case *c, sums *s)
{
    const size_t q = (size_t)c->queries * (size_t)c->dim;
    const size_t k = (size_t)c->keys * (size_t)c->dim;
    const size_t logits = (size_t)c->queries * (size_t)c->keys;
    const size_t heads = (size_t)c->heads;
    const size_t pads = (size_t)c->kv_heads * (size_t)c->dim;
    const struct {
        double **array;
        size_t count;
    } arrays[] = {{&s->head.dq, q},
                  {&s->head.dq_size, q},
                  {&s->head.dk, k},
                  {&s->head.dk_size, k},
                  {&s->head.dv, k},
                  {&s->head.dv_size, k},
                  {&s->head.dbias, logits},
                  {&s->head.dbias_size, logits},
                  {&s->d_o, q},
                  {&s->d_lse, (size_t)c->queries},
                  {&s->dk, k},
                  {&s->dk_size, k},
                  {&s->dv, k},
                  {&s->dv_size, k},
                  {&s->dbias, heads * logits},
                  {&s->dbias_size, heads * logits},
                  {&s->pad[0], pads},
                  {&s->pad[1], pads},
                  {&s->pad_size[0], pads},
                  {&s->pad_size[1], pads},
                  {&s->scale, heads},
                  {&s->scale_size, heads}};
    const size_t number = sizeof arrays / sizeof *arrays;
    size_t count = 0;
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < number; i++)
        count += arrays[i].count;
    s->all = zeros(count);
    s->spoilt = calloc(heads, sizeof *s->spoilt);
    double *at = s->all;
    for (size_t i = 0; at && i < number; i++) {
        *arrays[i].array = at;
        at += arrays[i].count;
    }
    return s->all && s->spoilt;
}

static void free_sums(sums *s)
{
    free(s->all);
    free(s->spoilt);
}

/* What is summed over all windows, but for heads that a NaN spoils. */
static void check_sums(const checker *check, const sums *s)
{
    const test_case *c = &check->d->c;
    const size_t heads = (size_t)c->heads, kv_heads = (size_t)c->kv_heads;
    for (size_t h = 0; h < heads; h++) {
        if (s->spoilt[h])
            continue;
        check_dbias(check, h, s);
        check_plane(check, T_D_LOGIT_SCALE, "d_logit_scale", 0, h,
                    &s->scale[h], &s->scale_size[h]);
    }
    for (size_t h = 0; h < kv_heads; h++) {
        const size_t group = heads / kv_heads;
        const size_t first = h * (size_t)c->dim;
        bool clean = true;
        for (size_t i = h * group; i < (h + 1) * group; i++)
            clean = clean && !s->spoilt[i];
        if (!clean)
            continue;
        check_plane(check, T_D_PAD_K, "d_pad_k", 0, h, s->pad[0] + first,
                    s->pad_size[0] + first);
        check_plane(check, T_D_PAD_V, "d_pad_v", 0, h, s->pad[1] + first,
                    s->pad_size[1] + first);
    }
}

bool check_gradients(const case_buffers *d,
                     unsigned char *const bytes[TENSORS], case_result *result)
{
    checker check = {d, bytes, result, promised[d->c.dtype]};
    sums s;
    if (!make_sums(&d->c, &s)) {
        snprintf(result->failure, sizeof result->failure, "out of memory");
        free_sums(&s);
        return false;
    }
    for (size_t w = 0; w < (size_t)d->c.windows; w++)
        check_window(&check, w, &s);
    check.tolerance = fmax(check.tolerance, ldexp(s.largest, LOGIT_EXPONENT));
    check_sums(&check, &s);
    free_sums(&s);
    return result->failure[0] == 0;
}
