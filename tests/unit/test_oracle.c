/* SPDX-License-Identifier: Apache-2.0
 * The oracle and its gradients against vectors that PyTorch made in double
 * precision (golden/make_golden.py), and gradients against central
 * differences of its own forward pass. Whoever is wrong, they would
 * differ. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/asserts.h"
#include "kit/oracle.h"

static oracle_gradients gradients_new(const oracle_problem *p)
{
    const size_t q = p->queries * p->dim, k = p->keys * p->dim;
    const size_t s = p->queries * p->keys;
    double *all = calloc(2 * q + 4 * k + 2 * s, sizeof *all);
    assert_non_null(all);
    return (oracle_gradients){.dq = all,
                              .dq_size = all + q,
                              .dk = all + 2 * q,
                              .dk_size = all + 2 * q + k,
                              .dv = all + 2 * q + 2 * k,
                              .dv_size = all + 2 * q + 3 * k,
                              .dbias = all + 2 * q + 4 * k,
                              .dbias_size = all + 2 * q + 4 * k + s};
}

static void gradients_free(oracle_gradients *g) { free(g->dq); }

/* ---- PyTorch ---- */

#define TOLERANCE 1e-12

/* scaled_dot_product_attention under a block-causal mask, and autograd's
 * gradients of modules; test_modules.c has what libraries make of windows. */
static const struct {
    const char *name;
    double scale; /* 0: a file says it, or it is that of the channels */
    double region_value;
    size_t tensors; /* files */
} goldens[] = {
    {"sliding", 0, 0, 7},
    {"sliding_cache", 0, 0, 7},
    {"gradients_dot", 0.7, -2.5, 11},
    {"gradients_cosine", 0.7, -2.5, 13},
    {"gradients_sliding", 0.7, 0, 9},
};

enum {
    Q,
    K,
    V,
    BIAS,
    REGIONS,
    LOGIT_SCALE,
    SHAPE,
    SCALE,
    O,
    LSE,
    D_O,
    D_LSE,
    DQ,
    DK,
    DV,
    DBIAS,
    D_LOGIT_SCALE,
    NAMES
};
static const char *const names[NAMES] = {
    "q",     "k",     "v",  "bias",  "regions",     "logit_scale",
    "shape", "scale", "o",  "lse",   "d_o",         "d_lse",
    "dq",    "dk",    "dv", "dbias", "dlogit_scale"};

/* What a module has; other values are NULL. */
typedef struct golden {
    npy_array all[NAMES];
    double scale, region_value;
    size_t windows, heads, queries, keys, dim;
    unsigned char *ids; /* regions of tokens */
    float logit_scale;  /* of the head that is looked at */
} golden;

static golden load_golden(size_t row)
{
    golden g = {.scale = goldens[row].scale,
                .region_value = goldens[row].region_value};
    size_t found = 0;
    for (int i = 0; i < NAMES; i++) {
        g.all[i] = npy_read(GOLDEN_FOLDER, goldens[row].name, names[i]);
        found += g.all[i].value != NULL;
    }
    if (found != goldens[row].tensors)
        fail_msg("%s has %zu tensors", goldens[row].name, found);
    const npy_array *q = &g.all[Q], *regions = &g.all[REGIONS];
    g.windows = q->extent[0];
    g.heads = q->extent[1];
    g.queries = q->extent[2];
    g.keys = g.all[K].extent[2];
    g.dim = q->extent[3];
    g.ids = malloc(regions->count + 1);
    assert_non_null(g.ids);
    for (size_t i = 0; i < regions->count; i++)
        g.ids[i] = (unsigned char)regions->value[i];
    if (g.scale == 0)
        g.scale = g.all[SCALE].value ? g.all[SCALE].value[0]
                                     : 1.0 / sqrt((double)g.dim);
    return g;
}

static void free_golden(golden *g)
{
    for (int i = 0; i < NAMES; i++)
        npy_free(&g->all[i]);
    free(g->ids);
}

static oracle_problem golden_problem(golden *g, size_t window, size_t head)
{
    const size_t number = window * g->heads + head;
    const double *shape = g->all[SHAPE].value, *bias = g->all[BIAS].value;
    const double *logit_scale = g->all[LOGIT_SCALE].value;
    oracle_problem p = {
        .queries = g->queries,
        .keys = g->keys,
        .dim = g->dim,
        .q = g->all[Q].value + number * g->queries * g->dim,
        .k = g->all[K].value + number * g->keys * g->dim,
        .v = g->all[V].value + number * g->keys * g->dim,
        .bias = bias ? bias + head * g->queries * g->keys : NULL,
        .region_value = g->region_value,
        .scale = g->scale,
        .cosine = logit_scale != NULL,
    };
    if (logit_scale) {
        g->logit_scale = (float)logit_scale[head];
        p.logit_scale = &g->logit_scale;
    }
    if (g->all[REGIONS].value)
        p.query_region = p.key_region =
            g->ids + window % g->all[REGIONS].extent[0] * g->queries;
    if (shape) {
        p.sliding = true;
        p.block = (size_t)shape[0];
        p.window_blocks = (size_t)shape[1];
        p.query_offset = g->all[SHAPE].count > 2 ? (size_t)shape[2] : 0;
    }
    return p;
}

static void check_forward(golden *g, size_t window, size_t head)
{
    const oracle_problem p = golden_problem(g, window, head);
    const size_t values = g->queries * g->dim;
    const size_t number = window * g->heads + head;
    double *o = calloc(2 * values + 2 * g->queries, sizeof *o), largest;
    double *lse = o + 2 * values;
    oracle_forward(&p, o, o + values, lse, lse + g->queries, &largest);
    assert_close("o", o, g->all[O].value + number * values, values, TOLERANCE);
    if (g->all[LSE].value)
        assert_close("lse", lse, g->all[LSE].value + number * g->queries,
                     g->queries, TOLERANCE);
    free(o);
}

static void check_gradients(golden *g, size_t head)
{
    const size_t pairs = g->queries * g->keys, values = g->queries * g->dim;
    double *dbias = calloc(pairs, sizeof *dbias), d_logit_scale = 0;
    for (size_t w = 0; w < g->windows; w++) {
        const oracle_problem p = golden_problem(g, w, head);
        const size_t row = (w * g->heads + head) * g->queries;
        oracle_gradients got = gradients_new(&p);
        oracle_backward(&p, g->all[D_O].value + row * g->dim,
                        g->all[D_LSE].value + row, &got);
        double *const made[] = {got.dq, got.dk, got.dv};
        for (int i = 0; i < 3; i++)
            assert_close(names[DQ + i], made[i],
                         g->all[DQ + i].value + row * g->dim, values,
                         TOLERANCE);
        for (size_t i = 0; i < pairs; i++)
            dbias[i] += got.dbias[i];
        d_logit_scale += got.d_logit_scale;
        gradients_free(&got);
    }
    if (g->all[DBIAS].value)
        assert_close("dbias", dbias, g->all[DBIAS].value + head * pairs, pairs,
                     TOLERANCE);
    if (g->all[D_LOGIT_SCALE].value)
        assert_close("d_logit_scale", &d_logit_scale,
                     g->all[D_LOGIT_SCALE].value + head, 1, TOLERANCE);
    free(dbias);
}

static void golden_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        golden g = load_golden(i);
        const bool is_forward = g.all[O].value != NULL;
        print_message("%s\n", goldens[i].name);
        for (size_t h = 0; h < g.heads; h++) {
            for (size_t w = 0; is_forward && w < g.windows; w++)
                check_forward(&g, w, h);
            if (!is_forward)
                check_gradients(&g, h);
        }
        free_golden(&g);
    }
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

/* ---- Who sees whom ---- */

/* What PyTorch has no name for: sinks, a first block of its own, windows that
 * count the sink. Spelled out token by token. */
static void visibility(void **state)
{
    (void)state;
    /* blocks: 0 1 | 2 3 4 | 5 6 7 | 8 9 */
    oracle_problem p = {.queries = 10,
                        .keys = 10,
                        .dim = 1,
                        .sliding = true,
                        .block = 3,
                        .first_block = 2,
                        .window_blocks = 2};
    static const char *const plain[] = {
        "1100000000", "1100000000", "1111100000", "1111100000", "1111100000",
        "0011111100", "0011111100", "0011111100", "0000011111", "0000011111"};
    for (size_t i = 0; i < 10; i++)
        for (size_t j = 0; j < 10; j++)
            assert_int_equal(oracle_sees(&p, i, j), plain[i][j] == '1');
    p.sink = 3; /* block 0 and one token of block 1 */
    for (size_t i = 0; i < 10; i++)
        for (size_t j = 0; j < 10; j++)
            assert_int_equal(oracle_sees(&p, i, j), plain[i][j] == '1' ||
                                                        (j < 3 && i >= 2) ||
                                                        (j < 2 && i < 2));
    p.window_blocks = 3;
    p.sink_in_window = true; /* two blocks touched, one left */
    static const char *const inside[] = {
        "1100000000", "1100000000", "1111100000", "1111100000", "1111100000",
        "1110011100", "1110011100", "1110011100", "1110000011", "1110000011"};
    for (size_t i = 0; i < 10; i++)
        for (size_t j = 0; j < 10; j++)
            assert_int_equal(oracle_sees(&p, i, j), inside[i][j] == '1');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors),
        cmocka_unit_test(differences),
        cmocka_unit_test(visibility),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
