/* SPDX-License-Identifier: Apache-2.0
 * Descriptors without a grid: defaults, sizes, masks, strides, versions of the
 * struct; and the texts of statuses. */
#include <math.h>
#include <string.h>

#include "base/struct.h"
#include "kit/described.h"
#include "problem_groups.h"

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
    wa_problem p;
    assert_refused(NULL, WINATTN_INVALID_ARGUMENT, "desc");
    d.struct_size = 0;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d.struct_size = offsetof(winattn_desc, build_options);
    d.build_options = "behind an older program's struct";
    d.grid_options = 2; /* as well */
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_string_equal(p.build_options, "");
    d.struct_size = offsetof(winattn_desc, grid_options);
    d.build_options = "-DX";
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_string_equal(p.build_options, "-DX");
    d.struct_size = offsetof(winattn_desc, build_options) - sizeof(void *);
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d.struct_size = sizeof d - 1; /* within a pointer */
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d.struct_size = WA_STRUCT_MOST + sizeof(void *); /* never set */
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size is 4104");
    memset(&longer, 0, sizeof longer);
    longer.d = valid(WINATTN_DOT);
    longer.d.struct_size = sizeof longer;
    assert_read(&longer.d);
    longer.future[3] = 1;
    assert_refused(&longer.d, WINATTN_UNSUPPORTED_PROBLEM, "version");
}

static const refused_field refused_sizes[] = {
    {FIELD(heads, 0), WINATTN_INVALID_ARGUMENT, "heads"},
    {FIELD(queries, 0), WINATTN_INVALID_ARGUMENT, "queries"},
    {FIELD(keys, 0), WINATTN_INVALID_ARGUMENT, "keys"},
    {FIELD(head_dim, 0), WINATTN_INVALID_ARGUMENT, "head_dim"},
    {FIELD(head_dim, 257), WINATTN_UNSUPPORTED_PROBLEM, "head_dim"},
    {FIELD(heads, 65537), WINATTN_UNSUPPORTED_PROBLEM, "heads"},
    {FIELD(queries, 0x80000000u), WINATTN_UNSUPPORTED_PROBLEM, "queries"},
    {FIELD(windows, UINT64_MAX), WINATTN_INVALID_ARGUMENT, "windows"},
    /* fits 63 bits as a count, but not as elements */
    {FIELD(windows, (cl_ulong)1 << 52), WINATTN_INVALID_ARGUMENT, "2^63"},
    {FIELD(kv_heads, 3), WINATTN_INVALID_ARGUMENT, "kv_heads"},
    {FIELD(kv_heads, 8), WINATTN_INVALID_ARGUMENT, "kv_heads"},
    {FIELD(variant, 3), WINATTN_INVALID_ARGUMENT, "variant"},
    {FIELD(dtype, -1), WINATTN_INVALID_ARGUMENT, "dtype"},
    {FIELD(tier, 9), WINATTN_INVALID_ARGUMENT, "tier"},
    {FIELD(bias, 3), WINATTN_INVALID_ARGUMENT, "bias"},
    {FIELD(mask, MOST_MASK), WINATTN_INVALID_ARGUMENT, "mask"},
    {FIELD(bias_dtype, 2), WINATTN_INVALID_ARGUMENT, "bias_dtype"},
    {FIELD(mask_dtype, 2), WINATTN_INVALID_ARGUMENT, "mask_dtype"},
};

static void sizes(void **state)
{
    (void)state;
    winattn_desc d = valid(WINATTN_DOT);
    ASSERT_FIELDS_REFUSED(&d, refused_sizes);
    d.scale = NAN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "scale");
    d.scale = INFINITY;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "scale");
    d = valid(WINATTN_DOT);
    d.allow_tf32 = CL_TRUE;
    assert_read(&d);
    d.dtype = WINATTN_FP16;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "allow_tf32");
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
    static const refused_field refused[] = {
        {FIELD(mask_windows, 2), WINATTN_INVALID_ARGUMENT, "mask_windows"},
        {FIELD(mask, WINATTN_MASK_ADDITIVE), WINATTN_INVALID_ARGUMENT,
         "mask_windows"},
        {FIELD(has_region_value, CL_TRUE), WINATTN_INVALID_ARGUMENT,
         "region_value"},
    };
    winattn_desc d = valid(WINATTN_DOT);
    ASSERT_FIELDS_REFUSED(&d, refused);
    d.mask = WINATTN_MASK_REGIONS;
    d.mask_windows = 4; /* 6 windows need not be a multiple */
    assert_read(&d);
    d.has_region_value = CL_TRUE;
    d.region_value = -INFINITY;
    assert_read(&d);
    d.region_value = NAN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "region_value");
    d = valid(WINATTN_SLIDING);
    d.bias = WINATTN_BIAS_FULL;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "bias");
    d = valid(WINATTN_SLIDING);
    d.mask = WINATTN_MASK_ADDITIVE;
    d.mask_windows = 1;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "mask");
}

static void sliding_fields(void **state)
{
    (void)state;
    static const refused_field refused[] = {
        {FIELD(block, 0), WINATTN_INVALID_ARGUMENT, "block"},
        {FIELD(query_offset, 0x7fffffffu), WINATTN_UNSUPPORTED_PROBLEM,
         "query_offset"},
        {FIELD(sink, 0x80000000u), WINATTN_UNSUPPORTED_PROBLEM, "sink"},
    };
    /* of other variants */
    static const refused_field refused_elsewhere[] = {
        {FIELD(block, 16), WINATTN_INVALID_ARGUMENT, "block"},
        {FIELD(sink, 16), WINATTN_INVALID_ARGUMENT, "sink"},
        {FIELD(query_offset, 1), WINATTN_INVALID_ARGUMENT, "query_offset"},
    };
    winattn_desc d = valid(WINATTN_SLIDING);
    const winattn_desc dot = valid(WINATTN_DOT);
    const winattn_desc cosine = valid(WINATTN_COSINE);
    ASSERT_FIELDS_REFUSED(&d, refused);
    ASSERT_FIELDS_REFUSED(&dot, refused_elsewhere);
    ASSERT_FIELDS_REFUSED(&cosine, refused_elsewhere);
    d.window_blocks = 2;
    d.sink = 17;
    d.sink_in_window = CL_TRUE;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "sink");
    d.sink_in_window = CL_FALSE;
    assert_read(&d);
}

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
    assert_int_equal(WINATTN_INVALID_PROCESS, -3005);
    assert_int_equal(WINATTN_UNSUPPORTED_PROBLEM, -3010);
    assert_int_equal(WINATTN_UNSUPPORTED_DEVICE, -3020);
    assert_int_equal(WINATTN_WORKSPACE_TOO_SMALL, -3030);
    assert_string_equal(winattn_status_name(0), "WINATTN_SUCCESS");
    assert_string_equal(winattn_status_name(-3001), "WINATTN_INVALID_LAYOUT");
    assert_string_equal(winattn_status_name(CL_OUT_OF_RESOURCES),
                        "CL_OUT_OF_RESOURCES");
    assert_string_equal(winattn_status_name(-1001),
                        "CL_PLATFORM_NOT_FOUND_KHR");
    assert_string_equal(winattn_status_name(12345), "unknown status");
    assert_non_null(strstr(winattn_status_message(-3001), "strides"));
    assert_int_equal(winattn_version(), WINATTN_VERSION);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults),        cmocka_unit_test(sliding_defaults),
    cmocka_unit_test(struct_versions), cmocka_unit_test(sizes),
    cmocka_unit_test(masks),           cmocka_unit_test(sliding_fields),
    cmocka_unit_test(strides),         cmocka_unit_test(status_texts),
};
const test_group problem_fields = TEST_GROUP(NULL, tests);
