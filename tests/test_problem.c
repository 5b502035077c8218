/* SPDX-License-Identifier: Apache-2.0
 * Descriptors: defaults, and every way to be wrong with its status and a
 * reason that names the culprit. No device is needed. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "problem.h"
#include "status.h"

static winattn_desc valid(winattn_variant variant)
{
    winattn_desc d;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.variant = variant;
    d.windows = 6;
    d.heads = 4;
    d.queries = 49;
    d.keys = 49;
    d.head_dim = 32;
    if (variant == WINATTN_SLIDING)
        d.block = 16;
    return d;
}

static void assert_read(const winattn_desc *d)
{
    wa_problem p;
    wa_forget_failure();
    const winattn_status status = wa_problem_read(d, &p);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s: %s", winattn_status_name(status), winattn_last_reason());
}

/* The reason must contain `culprit`. */
static void assert_refused(const winattn_desc *d, winattn_status wanted,
                           const char *culprit)
{
    wa_problem p;
    wa_forget_failure();
    const winattn_status status = wa_problem_read(d, &p);
    if (status != wanted || !strstr(winattn_last_reason(), culprit))
        fail_msg("%s \"%s\" instead of %s and \"%s\"",
                 winattn_status_name(status), winattn_last_reason(),
                 winattn_status_name(wanted), culprit);
}

static void defaults(void **state)
{
    (void)state;
    winattn_desc d = valid(WINATTN_DOT);
    wa_problem p;
    d.dtype = WINATTN_FP16;
    d.bias = WINATTN_BIAS_FULL;
    d.bias_dtype = WINATTN_TERM_FP32;
    d.mask = WINATTN_MASK_REGIONS;
    d.mask_windows = 5;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.kv_heads, 4);
    assert_true(p.scale == (float)(1.0 / sqrt(32.0)));
    assert_true(p.region_value == -100.0f);
    assert_string_equal(p.build_options, "");
    const wa_tensor *q = &p.tensor[WA_Q];
    assert_int_equal(q->element_size, 2);
    assert_int_equal(q->stride[WA_WINDOW], 4 * 49 * 32);
    assert_int_equal(q->stride[WA_HEAD], 49 * 32);
    assert_int_equal(q->stride[WA_ROW], 32);
    assert_int_equal(q->stride[WA_COLUMN], 1);
    assert_int_equal(q->span, 6 * 4 * 49 * 32);
    const wa_tensor *bias = &p.tensor[WA_BIAS];
    assert_int_equal(bias->element_size, 4);
    assert_int_equal(bias->stride[WA_HEAD], 49 * 49);
    assert_int_equal(bias->span, 4 * 49 * 49);
    assert_int_equal(p.tensor[WA_KEY_REGIONS].span, 5 * 49);
    assert_int_equal(p.tensor[WA_KEY_REGIONS].element_size, 1);
    assert_int_equal(p.tensor[WA_LSE].span, 6 * 4 * 49);
    assert_false(p.tensor[WA_MASK].used);
    assert_false(p.tensor[WA_LOGIT_SCALE].used);
    d.has_region_value = CL_TRUE;
    d.region_value = 0.0f; /* a real value */
    d.scale = -2.0f;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_true(p.region_value == 0.0f);
    assert_true(p.scale == -2.0f);
}

static void sliding_defaults(void **state)
{
    (void)state;
    winattn_desc d = valid(WINATTN_SLIDING);
    wa_problem p;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.first_block, 16);
    assert_int_equal(p.window_blocks, 0);
    /* a sink of 20 tokens touches blocks 0 (10 tokens) and 1 */
    d.first_block = 10;
    d.window_blocks = 5;
    d.sink = 20;
    d.sink_in_window = CL_TRUE;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.first_block, 10);
    assert_int_equal(p.window_blocks, 3);
    d.sink = 10;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.window_blocks, 4);
    d.sink_in_window = CL_FALSE;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.window_blocks, 5);
}

static void struct_versions(void **state)
{
    (void)state;
    struct {
        winattn_desc d;
        char future[16];
    } longer;
    winattn_desc d = valid(WINATTN_DOT);
    assert_refused(NULL, WINATTN_INVALID_ARGUMENT, "desc");
    d.struct_size = 0;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d.struct_size = offsetof(winattn_desc, build_options);
    assert_read(&d);
    memset(&longer, 0, sizeof longer);
    longer.d = valid(WINATTN_DOT);
    longer.d.struct_size = sizeof longer;
    assert_read(&longer.d);
    longer.future[3] = 1;
    assert_refused(&longer.d, WINATTN_UNSUPPORTED_PROBLEM, "version");
}

static void sizes(void **state)
{
    (void)state;
    winattn_desc d;
#define REFUSE(variant, field, value, status, culprit)                        \
    d = valid(variant);                                                       \
    d.field = value;                                                          \
    assert_refused(&d, status, culprit)
    REFUSE(WINATTN_DOT, heads, 0, WINATTN_INVALID_ARGUMENT, "heads");
    REFUSE(WINATTN_DOT, queries, 0, WINATTN_INVALID_ARGUMENT, "queries");
    REFUSE(WINATTN_DOT, keys, 0, WINATTN_INVALID_ARGUMENT, "keys");
    REFUSE(WINATTN_DOT, head_dim, 0, WINATTN_INVALID_ARGUMENT, "head_dim");
    REFUSE(WINATTN_DOT, head_dim, 257, WINATTN_UNSUPPORTED_PROBLEM,
           "head_dim");
    REFUSE(WINATTN_DOT, heads, 65537, WINATTN_UNSUPPORTED_PROBLEM, "heads");
    REFUSE(WINATTN_DOT, queries, 0x80000000u, WINATTN_UNSUPPORTED_PROBLEM,
           "queries");
    REFUSE(WINATTN_DOT, windows, UINT64_MAX, WINATTN_INVALID_ARGUMENT,
           "windows");
    /* fits 63 bits as a count, but not as elements */
    REFUSE(WINATTN_DOT, windows, (cl_ulong)1 << 52, WINATTN_INVALID_ARGUMENT,
           "2^63");
    REFUSE(WINATTN_DOT, kv_heads, 3, WINATTN_INVALID_ARGUMENT, "kv_heads");
    REFUSE(WINATTN_DOT, kv_heads, 8, WINATTN_INVALID_ARGUMENT, "kv_heads");
    REFUSE(WINATTN_DOT, scale, NAN, WINATTN_INVALID_ARGUMENT, "scale");
    REFUSE(WINATTN_DOT, scale, INFINITY, WINATTN_INVALID_ARGUMENT, "scale");
    REFUSE(WINATTN_DOT, variant, (winattn_variant)3, WINATTN_INVALID_ARGUMENT,
           "variant");
    REFUSE(WINATTN_DOT, dtype, (winattn_dtype)-1, WINATTN_INVALID_ARGUMENT,
           "dtype");
    REFUSE(WINATTN_DOT, tier, (winattn_tier)9, WINATTN_INVALID_ARGUMENT,
           "tier");
    REFUSE(WINATTN_DOT, bias, (winattn_bias)3, WINATTN_INVALID_ARGUMENT,
           "bias");
    REFUSE(WINATTN_DOT, mask, (winattn_mask)4, WINATTN_INVALID_ARGUMENT,
           "mask");
    REFUSE(WINATTN_DOT, bias_dtype, (winattn_term_dtype)2,
           WINATTN_INVALID_ARGUMENT, "bias_dtype");
    REFUSE(WINATTN_DOT, mask_dtype, (winattn_term_dtype)2,
           WINATTN_INVALID_ARGUMENT, "mask_dtype");
    d = valid(WINATTN_DOT);
    d.windows = 0;
    assert_read(&d);
    d = valid(WINATTN_DOT);
    d.kv_heads = 2;
    assert_read(&d);
}

static void masks(void **state)
{
    (void)state;
    winattn_desc d;
    REFUSE(WINATTN_DOT, mask_windows, 2, WINATTN_INVALID_ARGUMENT,
           "mask_windows");
    REFUSE(WINATTN_DOT, mask, WINATTN_MASK_ADDITIVE, WINATTN_INVALID_ARGUMENT,
           "mask_windows");
    REFUSE(WINATTN_DOT, has_region_value, CL_TRUE, WINATTN_INVALID_ARGUMENT,
           "region_value");
    d = valid(WINATTN_DOT);
    d.mask = WINATTN_MASK_REGIONS;
    d.mask_windows = 4; /* 6 windows need not be a multiple */
    assert_read(&d);
    d.has_region_value = CL_TRUE;
    d.region_value = -INFINITY;
    assert_read(&d);
    d.region_value = NAN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "region_value");
    REFUSE(WINATTN_SLIDING, bias, WINATTN_BIAS_FULL,
           WINATTN_UNSUPPORTED_PROBLEM, "bias");
    d = valid(WINATTN_SLIDING);
    d.mask = WINATTN_MASK_ADDITIVE;
    d.mask_windows = 1;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "mask");
}

static void sliding_fields(void **state)
{
    (void)state;
    winattn_desc d;
    REFUSE(WINATTN_SLIDING, block, 0, WINATTN_INVALID_ARGUMENT, "block");
    REFUSE(WINATTN_SLIDING, query_offset, 0x7fffffffu,
           WINATTN_UNSUPPORTED_PROBLEM, "query_offset");
    REFUSE(WINATTN_SLIDING, sink, 0x80000000u, WINATTN_UNSUPPORTED_PROBLEM,
           "sink");
    REFUSE(WINATTN_DOT, block, 16, WINATTN_INVALID_ARGUMENT, "block");
    REFUSE(WINATTN_COSINE, sink, 16, WINATTN_INVALID_ARGUMENT, "sink");
    REFUSE(WINATTN_DOT, query_offset, 1, WINATTN_INVALID_ARGUMENT,
           "query_offset");
    d = valid(WINATTN_SLIDING);
    d.window_blocks = 2;
    d.sink = 17;
    d.sink_in_window = CL_TRUE;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "sink");
    d.sink_in_window = CL_FALSE;
    assert_read(&d);
}
#undef REFUSE

static void set_strides(winattn_strides *s, cl_ulong window, cl_ulong head,
                        cl_ulong row, cl_ulong column)
{
    s->window = window;
    s->head = head;
    s->row = row;
    s->column = column;
}

static void strides(void **state)
{
    (void)state;
    winattn_desc d = valid(WINATTN_DOT);
    /* packed [windows, tokens, 3, heads, dim] */
    set_strides(&d.q, 49 * 3 * 4 * 32, 32, 3 * 4 * 32, 1);
    assert_read(&d);
    /* a row one element too short for its channels */
    set_strides(&d.q, 49 * 4 * 32, 49 * 32, 31, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q");
    /* heads reach into each other */
    set_strides(&d.q, 49 * 4 * 32, 49 * 32 - 1, 32, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q");
    /* equal strides */
    set_strides(&d.q, 49 * 4 * 32, 49 * 32, 32, 32);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q");

    d = valid(WINATTN_DOT);
    set_strides(&d.k, 0, 49 * 32, 32, 1); /* one k for all windows */
    assert_read(&d);
    set_strides(&d.o, 0, 49 * 32, 32, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "o");
    set_strides(&d.o, 4 * 49 * 32, 49 * 32, 32, 0);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "o");
    d = valid(WINATTN_DOT);
    set_strides(&d.lse, 196, 49, 1, 0);
    assert_read(&d);
    set_strides(&d.lse, 196, 49, 1, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "lse has no axis column");

    d = valid(WINATTN_DOT);
    set_strides(&d.v, (cl_ulong)1 << 62, 49 * 32, 32, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "v");
    set_strides(&d.v, (cl_ulong)1 << 45, 49 * 32, (cl_ulong)1 << 33, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "2^32");
    /* strides of axes of extent 1 do not matter */
    d = valid(WINATTN_DOT);
    d.windows = 1;
    d.heads = 1;
    set_strides(&d.q, 7, 5, 32, 1);
    assert_read(&d);

    d = valid(WINATTN_DOT);
    d.bias = WINATTN_BIAS_FULL;
    set_strides(&d.bias_strides, 0, 0, 49, 1); /* one bias for all heads */
    assert_read(&d);
    set_strides(&d.bias_strides, 1, 0, 49, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "bias has no axis window");
    set_strides(&d.bias_strides, 0, 0, (cl_ulong)1 << 31, 1);
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "bias");
    d = valid(WINATTN_DOT);
    d.mask = WINATTN_MASK_ADDITIVE;
    d.mask_windows = 3;
    set_strides(&d.mask_strides, 49, 0, 0, 1); /* hides keys, not pairs */
    assert_read(&d);
    set_strides(&d.mask_strides, 49, 1, 0, 1);
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "mask has no axis head");
}

static void status_texts(void **state)
{
    (void)state;
    assert_int_equal(WINATTN_INVALID_ARGUMENT, -3000);
    assert_int_equal(WINATTN_INVALID_LAYOUT, -3001);
    assert_int_equal(WINATTN_INVALID_BUFFER, -3002);
    assert_int_equal(WINATTN_BUFFER_TOO_SMALL, -3003);
    assert_int_equal(WINATTN_INVALID_QUEUE, -3004);
    assert_int_equal(WINATTN_UNSUPPORTED_PROBLEM, -3010);
    assert_int_equal(WINATTN_UNSUPPORTED_DEVICE, -3020);
    assert_int_equal(WINATTN_WORKSPACE_TOO_SMALL, -3030);
    assert_string_equal(winattn_status_name(0), "WINATTN_SUCCESS");
    assert_string_equal(winattn_status_name(-3001), "WINATTN_INVALID_LAYOUT");
    assert_string_equal(winattn_status_name(CL_OUT_OF_RESOURCES),
                        "CL_OUT_OF_RESOURCES");
    assert_string_equal(winattn_status_name(12345), "unknown status");
    assert_non_null(strstr(winattn_status_message(-3001), "strides"));
    assert_int_equal(winattn_version(), WINATTN_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),        cmocka_unit_test(sliding_defaults),
        cmocka_unit_test(struct_versions), cmocka_unit_test(sizes),
        cmocka_unit_test(masks),           cmocka_unit_test(sliding_fields),
        cmocka_unit_test(strides),         cmocka_unit_test(status_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
