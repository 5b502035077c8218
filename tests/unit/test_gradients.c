/* SPDX-License-Identifier: Apache-2.0
 * The oracle's gradients against PyTorch's autograd (golden/make_golden.py)
 * and against central differences of its own forward pass. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/asserts.h"
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

#define TOLERANCE 1e-12

/* A module's tensors; those that a variant has not are empty. */
typedef struct golden {
    bool is_cosine, is_sliding;
    npy_array q, k, v, bias, logit_scale, regions, shape;
    npy_array d_o, d_lse, dq, dk, dv, dbias, d_logit_scale;
    size_t windows, heads, tokens, dim;
    unsigned char ids[2][64]; /* regions of tokens */
} golden;

static golden load_golden(const char *name, bool is_cosine, bool is_sliding)
{
    golden g;
    memset(&g, 0, sizeof g);
    g.is_cosine = is_cosine;
    g.is_sliding = is_sliding;
    g.q = loaded(name, "q");
    g.k = loaded(name, "k");
    g.v = loaded(name, "v");
    g.dq = loaded(name, "dq");
    g.dk = loaded(name, "dk");
    g.dv = loaded(name, "dv");
    g.d_o = loaded(name, "d_o");
    g.d_lse = loaded(name, "d_lse");
    if (is_sliding) {
        g.shape = loaded(name, "shape");
    } else {
        g.bias = loaded(name, "bias");
        g.dbias = loaded(name, "dbias");
        g.regions = loaded(name, "regions");
    }
    if (is_cosine) {
        g.logit_scale = loaded(name, "logit_scale");
        g.d_logit_scale = loaded(name, "dlogit_scale");
    }
    g.windows = g.q.extent[0];
    g.heads = g.q.extent[1];
    g.tokens = g.q.extent[2];
    g.dim = g.q.extent[3];
    assert_true(g.tokens <= 64);
    for (size_t i = 0; i < g.regions.count; i++)
        g.ids[i / g.tokens][i % g.tokens] = (unsigned char)g.regions.value[i];
    return g;
}

static void free_golden(golden *g)
{
    npy_array *all[] = {
        &g->q,       &g->k,     &g->v,     &g->bias,         &g->logit_scale,
        &g->regions, &g->shape, &g->d_o,   &g->d_lse,        &g->dq,
        &g->dk,      &g->dv,    &g->dbias, &g->d_logit_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        npy_free(all[i]);
}

static oracle_problem golden_problem(const golden *g, size_t window,
                                     size_t head, const float *scale)
{
    const size_t tokens = g->tokens;
    const size_t at = (window * g->heads + head) * tokens * g->dim;
    oracle_problem p = {
        .queries = tokens,
        .keys = tokens,
        .dim = g->dim,
        .q = g->q.value + at,
        .k = g->k.value + at,
        .v = g->v.value + at,
        .scale = 0.7,
        .cosine = g->is_cosine,
        .logit_scale = g->is_cosine ? scale : NULL,
    };
    if (g->is_sliding) {
        p.sliding = true;
        p.block = (size_t)g->shape.value[0];
        p.window_blocks = (size_t)g->shape.value[1];
    } else {
        p.bias = g->bias.value + head * tokens * tokens;
        p.query_region = p.key_region = g->ids[window % 2];
        p.region_value = -2.5;
    }
    return p;
}

static void check_golden_head(const golden *g, size_t head)
{
    const size_t tokens = g->tokens, dim = g->dim;
    double *dbias_sum = calloc(tokens * tokens, sizeof(double));
    double d_logit_scale_sum = 0;
    const float scale = g->is_cosine ? (float)g->logit_scale.value[head] : 0;
    for (size_t w = 0; w < g->windows; w++) {
        const size_t row = (w * g->heads + head) * tokens, at = row * dim;
        const oracle_problem p = golden_problem(g, w, head, &scale);
        oracle_gradients got = gradients_new(&p);
        oracle_backward(&p, g->d_o.value + at, g->d_lse.value + row, &got);
        assert_close("dq", got.dq, g->dq.value + at, tokens * dim, TOLERANCE);
        assert_close("dk", got.dk, g->dk.value + at, tokens * dim, TOLERANCE);
        assert_close("dv", got.dv, g->dv.value + at, tokens * dim, TOLERANCE);
        for (size_t i = 0; i < tokens * tokens; i++)
            dbias_sum[i] += got.dbias[i];
        d_logit_scale_sum += got.d_logit_scale;
        gradients_free(&got);
    }
    if (!g->is_sliding)
        assert_close("dbias", dbias_sum,
                     g->dbias.value + head * tokens * tokens, tokens * tokens,
                     TOLERANCE);
    if (g->is_cosine)
        assert_close("d_logit_scale", &d_logit_scale_sum,
                     g->d_logit_scale.value + head, 1, TOLERANCE);
    free(dbias_sum);
}

static void check_golden(const char *name, bool is_cosine, bool is_sliding)
{
    golden g = load_golden(name, is_cosine, is_sliding);
    for (size_t h = 0; h < g.heads; h++)
        check_golden_head(&g, h);
    free_golden(&g);
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
