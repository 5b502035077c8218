/* SPDX-License-Identifier: Apache-2.0
 * The oracle's gradients against PyTorch's autograd (golden/make_golden.py)
 * and against central differences of its own forward pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/cases.h"
#include "kit/npy.h"
#include "kit/oracle.h"

static oracle_gradients gradients_new(const oracle_problem *p)
{
    const size_t q = p->queries * p->dim, k = p->keys * p->dim;
    const size_t s = p->queries * p->keys;
    oracle_gradients g;
    memset(&g, 0, sizeof g);
    g.dq = calloc(q, sizeof(double));
    g.dk = calloc(k, sizeof(double));
    g.dv = calloc(k, sizeof(double));
    g.dbias = calloc(s, sizeof(double));
    g.dq_size = calloc(q, sizeof(double));
    g.dk_size = calloc(k, sizeof(double));
    g.dv_size = calloc(k, sizeof(double));
    g.dbias_size = calloc(s, sizeof(double));
    return g;
}

static void gradients_free(oracle_gradients *g)
{
    double *all[] = {g->dq,      g->dk,      g->dv,      g->dbias,
                     g->dq_size, g->dk_size, g->dv_size, g->dbias_size};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- PyTorch ---- */

static npy_array load(const char *case_name, const char *tensor)
{
    const npy_array array = npy_read(GOLDEN_FOLDER, case_name, tensor);
    if (!array.value)
        fail_msg("%s_%s.npy cannot be read", case_name, tensor);
    return array;
}

static void assert_close(const char *what, const double *got,
                         const double *want, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(error) <= 1e-12 * sqrt(norm)))
        fail_msg("%s: relative error %g", what, sqrt(error / norm));
}

static void check_golden(const char *name, bool cosine, bool is_sliding)
{
    npy_array q = load(name, "q"), k = load(name, "k"), v = load(name, "v");
    npy_array dq = load(name, "dq"), dk = load(name, "dk");
    npy_array dv = load(name, "dv"), d_o = load(name, "d_o");
    npy_array d_lse = load(name, "d_lse");
    npy_array bias = {0}, dbias = {0}, regions = {0}, shape = {0};
    npy_array logit_scale = {0}, d_logit_scale = {0};
    if (is_sliding) {
        shape = load(name, "shape");
    } else {
        bias = load(name, "bias");
        dbias = load(name, "dbias");
        regions = load(name, "regions");
    }
    if (cosine) {
        logit_scale = load(name, "logit_scale");
        d_logit_scale = load(name, "dlogit_scale");
    }
    const size_t windows = q.extent[0], heads = q.extent[1];
    const size_t tokens = q.extent[2], dim = q.extent[3];
    unsigned char ids[2][64];
    assert_true(tokens <= 64);
    for (size_t i = 0; i < regions.count; i++)
        ids[i / tokens][i % tokens] = (unsigned char)regions.value[i];
    for (size_t h = 0; h < heads; h++) {
        double *dbias_sum = calloc(tokens * tokens, sizeof(double));
        double d_logit_scale_sum = 0;
        const float scale = cosine ? (float)logit_scale.value[h] : 0.0f;
        for (size_t w = 0; w < windows; w++) {
            const size_t row = (w * heads + h) * tokens, at = row * dim;
            oracle_problem p = {
                .queries = tokens,
                .keys = tokens,
                .dim = dim,
                .q = q.value + at,
                .k = k.value + at,
                .v = v.value + at,
                .scale = 0.7,
                .cosine = cosine,
                .logit_scale = cosine ? &scale : NULL,
            };
            if (is_sliding) {
                p.sliding = true;
                p.block = (size_t)shape.value[0];
                p.window_blocks = (size_t)shape.value[1];
            } else {
                p.bias = bias.value + h * tokens * tokens;
                p.query_region = p.key_region = ids[w % 2];
                p.region_value = -2.5;
            }
            oracle_gradients g = gradients_new(&p);
            oracle_backward(&p, d_o.value + at, d_lse.value + row, &g);
            assert_close("dq", g.dq, dq.value + at, tokens * dim);
            assert_close("dk", g.dk, dk.value + at, tokens * dim);
            assert_close("dv", g.dv, dv.value + at, tokens * dim);
            for (size_t i = 0; i < tokens * tokens; i++)
                dbias_sum[i] += g.dbias[i];
            d_logit_scale_sum += g.d_logit_scale;
            gradients_free(&g);
        }
        if (!is_sliding)
            assert_close("dbias", dbias_sum, dbias.value + h * tokens * tokens,
                         tokens * tokens);
        if (cosine)
            assert_close("d_logit_scale", &d_logit_scale_sum,
                         d_logit_scale.value + h, 1);
        free(dbias_sum);
    }
    npy_array *all[] = {&q,     &k,       &v,           &dq,           &dk,
                        &dv,    &d_o,     &d_lse,       &bias,         &dbias,
                        &shape, &regions, &logit_scale, &d_logit_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        npy_free(all[i]);
}

static void golden_dot(void **state)
{
    (void)state;
    check_golden("gradients_dot", false, false);
}

static void golden_cosine(void **state)
{
    (void)state;
    check_golden("gradients_cosine", true, false);
}

static void golden_sliding(void **state)
{
    (void)state;
    check_golden("gradients_sliding", false, true);
}

/* ---- Central differences ---- */

#define QUERIES 5
#define KEYS 6
#define DIM 4

/* What the gradients are those of: sum(d_o o) + sum(d_lse lse). */
static double loss(const oracle_problem *p, const double *d_o,
                   const double *d_lse)
{
    double o[QUERIES * DIM], size[QUERIES * DIM], lse[QUERIES];
    double lse_size[QUERIES], largest, sum = 0;
    oracle_forward(p, o, size, lse, lse_size, &largest);
    for (size_t i = 0; i < QUERIES * DIM; i++)
        sum += d_o[i] * o[i];
    for (size_t i = 0; i < QUERIES; i++)
        if (isfinite(lse[i]))
            sum += d_lse[i] * lse[i];
    return sum;
}

static double loss_at(const oracle_problem *p, const double *d_o,
                      const double *d_lse, double *x, double step)
{
    const double kept = *x;
    *x = kept + step;
    const double result = loss(p, d_o, d_lse);
    *x = kept;
    return result;
}

static void check_differences(const char *what, const oracle_problem *p,
                              const double *d_o, const double *d_lse,
                              double *x, const double *gradient, size_t count)
{
    const double h = 1e-3;
    for (size_t i = 0; i < count; i++) {
        const double near = loss_at(p, d_o, d_lse, x + i, h) -
                            loss_at(p, d_o, d_lse, x + i, -h);
        const double far = loss_at(p, d_o, d_lse, x + i, 2 * h) -
                           loss_at(p, d_o, d_lse, x + i, -2 * h);
        const double slope = (8 * near - far) / (12 * h);
        if (!(fabs(slope - gradient[i]) <= 1e-7 * (1 + fabs(slope))))
            fail_msg("%s[%zu]: %.12g, but differences say %.12g", what, i,
                     gradient[i], slope);
    }
}

static void differences(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 60; seed++) {
        random_state r = random_seeded((unsigned long long)seed);
        double q[QUERIES * DIM], k[KEYS * DIM], v[KEYS * DIM];
        double bias[QUERIES * KEYS], mask[QUERIES * KEYS];
        double d_o[QUERIES * DIM], d_lse[QUERIES];
        double *const tensors[] = {q, k, v, bias, mask, d_o, d_lse};
        const size_t counts[] = {QUERIES * DIM,  KEYS * DIM,     KEYS * DIM,
                                 QUERIES * KEYS, QUERIES * KEYS, QUERIES * DIM,
                                 QUERIES};
        for (size_t t = 0; t < sizeof counts / sizeof *counts; t++)
            for (size_t i = 0; i < counts[t]; i++)
                tensors[t][i] = random_normal(&r);
        for (size_t j = 0; j < KEYS; j++)
            mask[KEYS + j] = -INFINITY; /* row 1 sees nothing */
        mask[3 * KEYS + 2] = -INFINITY;
        float logit_scale = (float)(seed % 4) * 0.5f;
        oracle_problem p = {.queries = QUERIES,
                            .keys = KEYS,
                            .dim = DIM,
                            .q = q,
                            .k = k,
                            .v = v,
                            .scale = random_normal(&r)};
        if (seed % 3 == 2) {
            p.sliding = true;
            p.block = 2;
            p.window_blocks = 1 + (size_t)seed % 2;
            p.query_offset = (size_t)seed % 4 / 2;
        } else {
            p.bias = bias;
            p.mask = mask;
            p.cosine = seed % 3 == 1;
            p.logit_scale = p.cosine && seed % 2 ? &logit_scale : NULL;
        }
        oracle_gradients g = gradients_new(&p);
        oracle_backward(&p, d_o, d_lse, &g);
        check_differences("q", &p, d_o, d_lse, q, g.dq, QUERIES * DIM);
        check_differences("k", &p, d_o, d_lse, k, g.dk, KEYS * DIM);
        check_differences("v", &p, d_o, d_lse, v, g.dv, KEYS * DIM);
        if (p.bias)
            check_differences("bias", &p, d_o, d_lse, bias, g.dbias,
                              QUERIES * KEYS);
        if (p.logit_scale) {
            /* steps that fp32 holds exactly */
            const float kept = logit_scale, h = 0x1p-8f;
            double at[4];
            const float steps[] = {h, -h, 2 * h, -2 * h};
            for (int i = 0; i < 4; i++) {
                logit_scale = kept + steps[i];
                at[i] = loss(&p, d_o, d_lse);
            }
            logit_scale = kept;
            const double slope =
                (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
            assert_true(fabs(slope - g.d_logit_scale) <=
                        1e-5 * (1 + fabs(slope)));
        }
        gradients_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_dot),
        cmocka_unit_test(golden_cosine),
        cmocka_unit_test(golden_sliding),
        cmocka_unit_test(differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
