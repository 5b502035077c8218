/* SPDX-License-Identifier: Apache-2.0
 * The oracle against vectors that PyTorch and torchvision made in double
 * precision (golden/make_golden.py). Whoever is wrong, they would differ. */
#include <math.h>
#include <stdlib.h>

#include "kit/asserts.h"
#include "kit/oracle.h"

#define TOLERANCE 1e-12

/* Results of one window-head. */
typedef struct output {
    double *o, *o_size, *lse, *lse_size, largest;
} output;

static output run_oracle(const oracle_problem *p)
{
    output out;
    out.o = malloc(sizeof(double) * p->queries * p->dim);
    out.o_size = malloc(sizeof(double) * p->queries * p->dim);
    out.lse = malloc(sizeof(double) * p->queries);
    out.lse_size = malloc(sizeof(double) * p->queries);
    oracle_forward(p, out.o, out.o_size, out.lse, out.lse_size, &out.largest);
    return out;
}

static void output_free(output *out)
{
    free(out->o);
    free(out->o_size);
    free(out->lse);
    free(out->lse_size);
}

/* torchvision's shifted_window_attention: height and width of the map differ,
 * the windows are shifted, two images share the masks. */
static void check_swin(const char *name, bool cosine)
{
    npy_array q = loaded(name, "q"), k = loaded(name, "k"),
              v = loaded(name, "v");
    npy_array o = loaded(name, "o"), bias = loaded(name, "bias");
    npy_array regions = loaded(name, "regions"), logit_scale = {0};
    if (cosine)
        logit_scale = loaded(name, "logit_scale");
    const size_t windows = q.extent[0], heads = q.extent[1];
    const size_t tokens = q.extent[2], dim = q.extent[3];
    const size_t masks = regions.extent[0];
    assert_int_equal(windows, 2 * masks);
    unsigned char *ids = malloc(regions.count);
    for (size_t i = 0; i < regions.count; i++)
        ids[i] = (unsigned char)regions.value[i];
    for (size_t w = 0; w < windows; w++)
        for (size_t h = 0; h < heads; h++) {
            const size_t at = (w * heads + h) * tokens * dim;
            const float scale = cosine ? (float)logit_scale.value[h] : 0.0f;
            const oracle_problem p = {
                .queries = tokens,
                .keys = tokens,
                .dim = dim,
                .q = q.value + at,
                .k = k.value + at,
                .v = v.value + at,
                .bias = bias.value + h * tokens * tokens,
                .query_region = ids + w % masks * tokens,
                .key_region = ids + w % masks * tokens,
                .region_value = -100.0,
                .scale = 1.0 / sqrt((double)dim),
                .cosine = cosine,
                .logit_scale = cosine ? &scale : NULL,
            };
            output out = run_oracle(&p);
            assert_close("o", out.o, o.value + at, tokens * dim, TOLERANCE);
            output_free(&out);
        }
    free(ids);
    npy_free(&q);
    npy_free(&k);
    npy_free(&v);
    npy_free(&o);
    npy_free(&bias);
    npy_free(&regions);
    npy_free(&logit_scale);
}

static void swin_v1(void **state)
{
    (void)state;
    check_swin("swin_v1", false);
}

static void swin_v2(void **state)
{
    (void)state;
    check_swin("swin_v2", true);
}

/* scaled_dot_product_attention under a block-causal mask. */
static void check_sliding(const char *name)
{
    npy_array q = loaded(name, "q"), k = loaded(name, "k"),
              v = loaded(name, "v");
    npy_array o = loaded(name, "o"), lse = loaded(name, "lse");
    npy_array shape = loaded(name, "shape"), scale = loaded(name, "scale");
    const size_t heads = q.extent[1], dim = q.extent[3];
    for (size_t h = 0; h < heads; h++) {
        const oracle_problem p = {
            .queries = q.extent[2],
            .keys = k.extent[2],
            .dim = dim,
            .q = q.value + h * q.extent[2] * dim,
            .k = k.value + h * k.extent[2] * dim,
            .v = v.value + h * k.extent[2] * dim,
            .scale = scale.value[0],
            .sliding = true,
            .block = (size_t)shape.value[0],
            .window_blocks = (size_t)shape.value[1],
            .query_offset = (size_t)shape.value[2],
        };
        output out = run_oracle(&p);
        assert_close("o", out.o, o.value + h * p.queries * dim,
                     p.queries * dim, TOLERANCE);
        assert_close("lse", out.lse, lse.value + h * p.queries, p.queries,
                     TOLERANCE);
        output_free(&out);
    }
    npy_free(&q);
    npy_free(&k);
    npy_free(&v);
    npy_free(&o);
    npy_free(&lse);
    npy_free(&shape);
    npy_free(&scale);
}

static void sliding(void **state)
{
    (void)state;
    check_sliding("sliding");
}

static void sliding_cache(void **state)
{
    (void)state;
    check_sliding("sliding_cache");
}

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
        cmocka_unit_test(swin_v1),    cmocka_unit_test(swin_v2),
        cmocka_unit_test(sliding),    cmocka_unit_test(sliding_cache),
        cmocka_unit_test(visibility),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
