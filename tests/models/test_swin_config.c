/* SPDX-License-Identifier: Apache-2.0
 * Shapes of models, by name and refused, and weights at random. */
#include <math.h>
#include <string.h>

#include "kit/asserts.h"
#include "models/swin_weights.h"

static winattn_swin_config named(const char *name)
{
    winattn_swin_config config = {.struct_size = sizeof config};
    assert_status(winattn_swin_config_find(name, &config), 0, "");
    return config;
}

/* Parameters of a model: what papers and libraries say it has. */
static double millions(const winattn_swin_config *c)
{
    double sum = (double)c->channels * (c->patch[0] * c->patch[1] * 3 + 3);
    double channels = c->channels;
    for (cl_uint i = 0; i < c->stages; i++, channels *= 2) {
        const double table = (2.0 * c->window[i][0] - 1) *
                             (2.0 * c->window[i][1] - 1) * c->heads[i];
        const double positions = 512.0 * (2 + 1 + c->heads[i]) + c->heads[i];
        const double block = 4 * channels * channels +
                             2 * channels * c->hidden[i] + c->hidden[i] +
                             9 * channels +
                             (c->generation == 2 ? positions : table);
        sum += c->depths[i] * block;
        if (i + 1 < c->stages)
            sum += 8 * channels * channels +
                   2 * channels * (c->generation == 2 ? 2 : 4);
    }
    channels /= 2;
    return (sum + 2 * channels + (channels + 1) * c->classes) / 1e6;
}

static void test_names(void **state)
{
    /* torchvision's weights, and the papers' tables */
    static const struct {
        const char *name;
        double millions;
        cl_uint resize, crop;
    } models[] = {
        {"swin_t", 28.288354, 232, 224},    {"swin_s", 49.606258, 246, 224},
        {"swin_b", 87.768224, 238, 224},    {"swin_v2_t", 28.351570, 260, 256},
        {"swin_v2_s", 49.737442, 260, 256}, {"swin_v2_b", 87.930848, 272, 256},
    };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const winattn_swin_config c = named(models[i].name);
        /* torchvision counts a bias of k, which is without effect */
        if (fabs(millions(&c) - models[i].millions) > 1e-7)
            fail_msg("%s has %.6f million", models[i].name, millions(&c));
        assert_int_equal(c.resize[0], models[i].resize);
        assert_int_equal(c.crop[0], models[i].crop);
        assert_int_equal(c.crop[1], models[i].crop);
    }
    winattn_swin_config c = named("swin_l");
    assert_true(millions(&c) > 196 && millions(&c) < 198);
    c = named("swin_v2_l");
    assert_int_equal(c.window[3][0], 8);
    assert_int_equal(c.position_window[0][1], 12);
    assert_int_equal(c.position_window[3][1], 6);
    for (cl_uint i = 0; winattn_swin_config_name(i); i++) {
        c = named(winattn_swin_config_name(i));
        assert_status(wa_swin_config_check(&c), 0, "");
    }
}

static void test_like(void **state)
{
    char text[64];
    (void)state;
    winattn_swin_config c = named("swin_v2_t");
    memset(c.window, 0, sizeof c.window);
    wa_swin_config_names(&c, sizeof text, text);
    assert_string_equal(text, "swin_v2_t, swin_v2_t_w16");
    c.depths[1]++;
    wa_swin_config_names(&c, sizeof text, text);
    assert_string_equal(text, "");
}

static void test_bad_names(void **state)
{
    winattn_swin_config c = {.struct_size = sizeof c};
    (void)state;
    assert_status(winattn_swin_config_find("swin", &c),
                  WINATTN_INVALID_ARGUMENT, "swin");
    assert_status(winattn_swin_config_find(NULL, &c), WINATTN_INVALID_ARGUMENT,
                  "name");
    assert_status(winattn_swin_config_find("swin_t", NULL),
                  WINATTN_INVALID_ARGUMENT, "config");
    c.struct_size = SIZE_MAX; /* never set */
    assert_status(winattn_swin_config_find("swin_t", &c),
                  WINATTN_INVALID_ARGUMENT, "struct_size");
    c.struct_size = 0;
    assert_status(winattn_swin_config_find("swin_t", &c),
                  WINATTN_INVALID_ARGUMENT, "struct_size");
}

/* Structs of older and of newer programs. */
static void test_struct_sizes(void **state)
{
    struct {
        winattn_swin_config config;
        unsigned char more[16];
    } both;
    (void)state;
    memset(&both, 0xee, sizeof both);
    both.config.struct_size = offsetof(winattn_swin_config, channels);
    assert_status(winattn_swin_config_find("swin_t", &both.config), 0, "");
    assert_int_equal(both.config.generation, 1);
    assert_int_equal(both.config.channels, 0xeeeeeeee);
    both.config.struct_size = sizeof both;
    assert_status(winattn_swin_config_find("swin_t", &both.config), 0, "");
    assert_int_equal(both.config.channels, 96);
    assert_int_equal(both.config.struct_size, sizeof both);
    for (size_t i = 0; i < sizeof both.more; i++)
        assert_int_equal(both.more[i], 0);
}

static void test_refused(void **state)
{
    winattn_swin_weights *w;
    (void)state;
#define REFUSED(field, value, status, culprit)                                \
    do {                                                                      \
        winattn_swin_config bad = named("swin_t");                            \
        bad.field = value;                                                    \
        assert_status(winattn_swin_weights_random(&bad, 1, &w), status,       \
                      culprit);                                               \
        assert_null(w);                                                       \
    } while (0)
    REFUSED(generation, 3, WINATTN_INVALID_ARGUMENT, "generation is 3");
    REFUSED(stages, 0, WINATTN_INVALID_ARGUMENT, "stages is 0");
    REFUSED(stages, 5, WINATTN_INVALID_ARGUMENT, "stages is 5");
    REFUSED(stages, 2, WINATTN_INVALID_ARGUMENT, "of stage 2");
    REFUSED(depths[2], 0, WINATTN_INVALID_ARGUMENT, "depths is 0");
    REFUSED(heads[1], 7, WINATTN_UNSUPPORTED_PROBLEM, "not 7 heads");
    REFUSED(heads[3], 2, WINATTN_UNSUPPORTED_PROBLEM, "not 2 heads");
    REFUSED(window[1][1], 0, WINATTN_INVALID_ARGUMENT, "window is 0");
    REFUSED(window[0][0], 65, WINATTN_INVALID_ARGUMENT, "window is 65");
    REFUSED(position_window[0][0], 7, WINATTN_INVALID_ARGUMENT,
            "position_window");
    REFUSED(hidden[3], 0, WINATTN_INVALID_ARGUMENT, "hidden is 0");
    REFUSED(channels, 0, WINATTN_INVALID_ARGUMENT, "channels is 0");
    REFUSED(patch[0], 0, WINATTN_INVALID_ARGUMENT, "patch is 0");
    REFUSED(in_channels, 0, WINATTN_INVALID_ARGUMENT, "in_channels is 0");
    REFUSED(norm_eps, NAN, WINATTN_INVALID_ARGUMENT, "norm_eps");
    REFUSED(norm_eps, -1, WINATTN_INVALID_ARGUMENT, "norm_eps");
    REFUSED(deviation[1], 0, WINATTN_INVALID_ARGUMENT, "deviation[1]");
    REFUSED(mean[2], INFINITY, WINATTN_INVALID_ARGUMENT, "mean[2]");
    REFUSED(filter, 9, WINATTN_INVALID_ARGUMENT, "filter");
    REFUSED(classes, 1u << 30, WINATTN_INVALID_ARGUMENT, "classes");
#undef REFUSED
}

/* ---- At random ---- */

static winattn_swin_config small(cl_uint generation)
{
    const winattn_swin_config config = {.struct_size = sizeof config,
                                        .generation = generation,
                                        .in_channels = 3,
                                        .patch = {2, 3},
                                        .channels = 64,
                                        .stages = 2,
                                        .depths = {2, 1},
                                        .heads = {2, 4},
                                        .window = {{4, 3}, {2, 5}},
                                        .hidden = {96, 40},
                                        .classes = 7};
    return config;
}

static wa_swin_weights *drawn(cl_uint generation, cl_ulong seed)
{
    winattn_swin_weights *w;
    const winattn_swin_config config = small(generation);
    assert_status(winattn_swin_weights_random(&config, seed, &w), 0, "");
    return w;
}

static void test_random(void **state)
{
    (void)state;
    wa_swin_weights *a = drawn(1, 7), *b = drawn(1, 7), *c = drawn(1, 8);
    assert_memory_equal(a->values, b->values,
                        (size_t)a->count * sizeof(float));
    assert_memory_not_equal(a->values, c->values,
                            (size_t)a->count * sizeof(float));
    assert_true(a->config.norm_eps == 1e-5F);
    assert_int_equal(a->config.crop[0], 224);
    /* the same on every machine */
    assert_true(a->patch_weight[0] == -0x1.0ff84ep-3F);
    assert_true(a->head_bias[6] == 0x1.7c8d9ep-3F);
    assert_string_equal(a->origin, "random, seed 7");
    winattn_swin_weights_destroy(a);
    winattn_swin_weights_destroy(b);
    winattn_swin_weights_destroy(c);
}

/* Mean and variance of a matrix are those of its initialisation. */
static void test_moments(void **state)
{
    double sum = 0, squares = 0;
    (void)state;
    wa_swin_weights *w = drawn(2, 3);
    const float *qkv = w->stages[1].blocks[0].qkv_weight;
    const size_t count = 3 * 128 * 128;
    for (size_t i = 0; i < count; i++) {
        sum += qkv[i];
        squares += (double)qkv[i] * qkv[i];
    }
    assert_true(fabs(sum / (double)count) < 2e-3);
    assert_true(fabs(squares / (double)count * 128 - 1) < 0.02);
    for (size_t i = 0; i < 128; i++)
        assert_true(w->stages[1].blocks[0].qkv_bias[128 + i] == 0);
    winattn_swin_weights_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_like),
        cmocka_unit_test(test_bad_names), cmocka_unit_test(test_struct_sizes),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_random),
        cmocka_unit_test(test_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
