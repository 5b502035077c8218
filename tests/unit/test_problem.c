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

#include "base/status.h"
#include "launch/bias_table.h"
#include "problem/problem.h"

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
    wa_problem p;
    assert_refused(NULL, WINATTN_INVALID_ARGUMENT, "desc");
    d.struct_size = 0;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d.struct_size = offsetof(winattn_desc, build_options);
    d.build_options = "behind an older program's struct";
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_string_equal(p.build_options, "");
    d.struct_size -= sizeof(void *);
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d.struct_size = sizeof d - 1; /* within a pointer */
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
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

/* ---- Grids and tables ---- */

/* 4 x 5 windows of 7 x 6 tokens, padded and shifted. */
static winattn_desc on_grid(void)
{
    winattn_desc d;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.heads = 4;
    d.head_dim = 32;
    d.grid.axes = 2;
    d.grid.size[0] = 26;
    d.grid.size[1] = 30;
    d.grid.window[0] = 7;
    d.grid.window[1] = 6;
    d.grid.shift[0] = 3;
    d.grid.shift[1] = 2;
    d.grid.batch = 2;
    return d;
}

static void assert_triple(const uint32_t got[3], uint32_t a, uint32_t b,
                          uint32_t c)
{
    assert_int_equal(got[0], a);
    assert_int_equal(got[1], b);
    assert_int_equal(got[2], c);
}

static void assert_strides(const wa_tensor *t, uint64_t batch, uint64_t axis_0,
                           uint64_t axis_1, uint64_t row, uint64_t head,
                           uint64_t column)
{
    assert_int_equal(t->stride[WA_WINDOW], batch);
    assert_int_equal(t->stride[WA_AXIS_0], axis_0);
    assert_int_equal(t->stride[WA_AXIS_1], axis_1);
    assert_int_equal(t->stride[WA_ROW], row);
    assert_int_equal(t->stride[WA_HEAD], head);
    assert_int_equal(t->stride[WA_COLUMN], column);
}

static void grid_defaults(void **state)
{
    (void)state;
    winattn_desc d = on_grid();
    wa_problem p;
    d.kv_heads = 2;
    d.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    d.mask = WINATTN_MASK_SHIFT;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.windows, 2 * 4 * 5);
    assert_int_equal(p.queries, 42);
    assert_int_equal(p.keys, 42);
    assert_true(p.grid.used && p.grid.is_padded);
    assert_int_equal(p.grid.axes, 2);
    assert_int_equal(p.grid.batch, 2);
    assert_triple(p.grid.size, 1, 26, 30);
    assert_triple(p.grid.window, 1, 7, 6);
    assert_triple(p.grid.windows, 1, 4, 5);
    assert_triple(p.grid.shift, 0, 3, 2);
    assert_int_equal(p.grid.seams, 6);
    assert_int_equal(wa_problem_padding(&p), 1);
    assert_true(p.region_value == -100.0f);
    /* [batch, axes, heads, channels] */
    assert_strides(&p.tensor[WA_Q], 26 * 30 * 128, 0, 30 * 128, 128, 32, 1);
    assert_strides(&p.tensor[WA_DK], 26 * 30 * 64, 0, 30 * 64, 64, 32, 1);
    assert_int_equal(p.tensor[WA_O].span, 2 * 26 * 30 * 128);
    assert_strides(&p.tensor[WA_D_LSE], 26 * 30 * 4, 0, 30 * 4, 4, 1, 0);
    /* [kv_heads, channels] */
    assert_strides(&p.tensor[WA_PAD_K], 0, 0, 0, 0, 32, 1);
    assert_int_equal(p.tensor[WA_PAD_V].span, 64);
    assert_int_equal(p.tensor[WA_D_PAD_K].element_size, 4);
    assert_int_equal(p.tensor[WA_D_PAD_V].extent[WA_HEAD], 2);

    /* what follows may be given */
    d.windows = 40;
    d.queries = d.keys = 42;
    assert_read(&d);
    d.grid.padding = WINATTN_PADDING_HIDDEN;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(wa_problem_padding(&p), 2);
    assert_false(p.tensor[WA_PAD_K].used || p.tensor[WA_D_PAD_V].used);

    /* nothing to pad, but an image of another size may need it: the tensors
     * are known all the same */
    d = on_grid();
    d.grid.size[0] = 28;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(wa_problem_padding(&p), 0);
    assert_true(p.tensor[WA_PAD_K].used);
    assert_false(p.tensor[WA_D_PAD_K].used);
    d.grid.batch = 0;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.windows, 0);
}

/* No shift where the window covers the padded axis, no seam where the axis is
 * a circle. */
static void grid_shifts(void **state)
{
    (void)state;
    winattn_desc d = on_grid();
    wa_problem p;
    d.grid.size[0] = 5;
    d.grid.size[1] = 6;
    d.mask = WINATTN_MASK_SHIFT;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.shift, 0, 0, 0);
    assert_triple(p.grid.windows, 1, 1, 1);
    assert_int_equal(p.grid.seams, 0);
    d.grid.size[0] = 8; /* two windows */
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.shift, 0, 3, 0);
    assert_int_equal(p.grid.seams, 2);
    d.grid.size[1] = 12;
    d.grid.periodic[1] = CL_TRUE;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.shift, 0, 3, 2);
    assert_int_equal(p.grid.seams, 2);
    d.grid.axes = 3;
    d.grid.size[2] = 9;
    d.grid.window[2] = 4;
    d.grid.shift[2] = 1;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.size, 8, 12, 9);
    assert_triple(p.grid.shift, 3, 2, 1);
    assert_int_equal(p.grid.seams, 5);
    assert_int_equal(p.queries, 7 * 6 * 4);
    assert_int_equal(p.windows, 2 * 2 * 2 * 3);
}

static void grid_refusals(void **state)
{
    (void)state;
    winattn_desc d;
#define REFUSE_GRID(field, value, status, culprit)                            \
    d = on_grid();                                                            \
    d.field = value;                                                          \
    assert_refused(&d, status, culprit)
    REFUSE_GRID(grid.axes, 4, WINATTN_INVALID_ARGUMENT, "grid.axes");
    REFUSE_GRID(grid.axes, 1, WINATTN_INVALID_ARGUMENT, "axis 1");
    REFUSE_GRID(grid.axes, 3, WINATTN_INVALID_ARGUMENT, "grid.size[2]");
    REFUSE_GRID(grid.size[2], 1, WINATTN_INVALID_ARGUMENT, "axis 2");
    REFUSE_GRID(grid.window[2], 1, WINATTN_INVALID_ARGUMENT, "axis 2");
    REFUSE_GRID(grid.shift[2], 1, WINATTN_INVALID_ARGUMENT, "axis 2");
    REFUSE_GRID(grid.periodic[2], 1, WINATTN_INVALID_ARGUMENT, "axis 2");
    REFUSE_GRID(grid.size[0], 0, WINATTN_INVALID_ARGUMENT, "grid.size[0]");
    REFUSE_GRID(grid.size[1], 0x80000000u, WINATTN_UNSUPPORTED_PROBLEM,
                "grid.size[1]");
    REFUSE_GRID(grid.size[0], 0x7fffffffu, WINATTN_UNSUPPORTED_PROBLEM,
                "grid.size[0]"); /* padded it is above the limit */
    REFUSE_GRID(grid.window[1], 0, WINATTN_INVALID_ARGUMENT, "grid.window[1]");
    REFUSE_GRID(grid.shift[0], 7, WINATTN_INVALID_ARGUMENT, "grid.shift[0]");
    REFUSE_GRID(grid.periodic[0], 1, WINATTN_UNSUPPORTED_PROBLEM,
                "grid.size[0]");
    REFUSE_GRID(grid.padding, (winattn_padding)2, WINATTN_INVALID_ARGUMENT,
                "grid.padding");
    REFUSE_GRID(grid.batch, (cl_ulong)1 << 32, WINATTN_UNSUPPORTED_PROBLEM,
                "grid.batch");
    REFUSE_GRID(windows, 41, WINATTN_INVALID_ARGUMENT, "windows is 41");
    REFUSE_GRID(queries, 49, WINATTN_INVALID_ARGUMENT, "queries is 49");
    REFUSE_GRID(keys, 49, WINATTN_INVALID_ARGUMENT, "keys is 49");
    REFUSE_GRID(mask_windows, 2, WINATTN_INVALID_ARGUMENT, "mask_windows");
    d.mask = WINATTN_MASK_SHIFT;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "mask_windows");
    d.mask = WINATTN_MASK_REGIONS;
    assert_read(&d);
    REFUSE_GRID(has_region_value, CL_TRUE, WINATTN_INVALID_ARGUMENT,
                "region_value");
    d.mask = WINATTN_MASK_SHIFT;
    d.region_value = -INFINITY;
    assert_read(&d);
    d.region_value = NAN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "region_value");
#undef REFUSE_GRID
    /* 2^31 windows of one token */
    d = on_grid();
    d.grid.size[0] = d.grid.size[1] = 1u << 16;
    d.grid.window[0] = d.grid.window[1] = 1;
    d.grid.shift[0] = d.grid.shift[1] = 0;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "2^31 windows");
    d.grid.window[0] = d.grid.window[1] = 1u << 16;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "2^31 tokens");
    d = on_grid();
    d.variant = WINATTN_SLIDING;
    d.block = 7;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "grid");
    /* without axes there is no grid */
    d = valid(WINATTN_DOT);
    d.grid.batch = 1;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "grid.axes");
    d = valid(WINATTN_DOT);
    d.grid.padding = WINATTN_PADDING_HIDDEN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "grid.axes");
    d = valid(WINATTN_DOT);
    d.mask = WINATTN_MASK_SHIFT;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "needs a grid");
}

static void grid_strides(void **state)
{
    (void)state;
    winattn_desc d = on_grid();
    wa_problem p;
    /* packed [batch, y, x, 3, heads, dim] */
    d.q.window = 26 * 30 * 384;
    d.q.axis[0] = 30 * 384;
    d.q.axis[1] = 384;
    d.q.head = 32;
    d.q.column = 1;
    d.k = d.q;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_strides(&p.tensor[WA_Q], 26 * 30 * 384, 0, 30 * 384, 384, 32, 1);
    assert_int_equal(p.tensor[WA_Q].span, 2 * 26 * 30 * 384 - 256);
    d.q.row = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q lies on a grid");
    d.q.row = 0;
    d.q.axis[2] = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q has no axis axis[2]");
    d.q.axis[2] = 0;
    d.q.axis[0] = 29 * 384; /* lines reach into each other */
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q");
    d.q.axis[0] = 0; /* each line the same */
    assert_read(&d);
    d.q.axis[0] = (cl_ulong)1 << 33;
    d.q.window = (cl_ulong)1 << 40;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "axis[0] of q");
    /* the last token's first channel is within 2^32, its last is not */
    d.q.axis[0] = 171798246;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "a grid of q spans");
    d.q.axis[0] -= 2;
    assert_read(&d);
    d = on_grid();
    d.o.window = 26 * 30 * 128;
    d.o.axis[0] = 30 * 128;
    d.o.head = 32;
    d.o.column = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "axis axis[1]");
    d = on_grid();
    d.lse.column = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "lse has no axis column");
    /* masks have windows, not axes */
    d = on_grid();
    d.mask = WINATTN_MASK_ADDITIVE;
    d.mask_windows = 20;
    d.mask_strides.axis[0] = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "mask has no axis axis[0]");
    d = valid(WINATTN_DOT);
    d.q.axis[1] = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "q has no axis axis[1]");

    d = on_grid();
    d.pad_k.head = 1;
    d.pad_k.column = 4; /* whether k has the same is for calls to check */
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_strides(&p.tensor[WA_PAD_K], 0, 0, 0, 0, 1, 4);
    d.pad_k.window = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "pad_k has no axis window");
    d.pad_k.window = 0;
    d.pad_k.row = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "pad_k has no axis row");
    d.pad_k.row = 0;
    d.pad_k.axis[0] = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "pad_k has no axis axis[0]");
    d = on_grid();
    d.passes = WINATTN_PASS_BACKWARD;
    d.d_pad_v.column = 1; /* heads fall onto each other */
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "d_pad_v is an output");
}

static void tables(void **state)
{
    (void)state;
    winattn_desc d = on_grid();
    wa_problem p;
    d.bias = WINATTN_BIAS_TABLE;
    d.bias_dtype = WINATTN_TERM_FP32;
    d.passes = WINATTN_PASS_BACKWARD;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.table.entries, 13 * 11);
    assert_triple(p.table.window, 1, 7, 6);
    assert_triple(p.table.step, 13 * 11, 11, 1);
    assert_int_equal(p.table.center, 6 * 11 + 5);
    assert_false(p.table.has_index);
    /* [entries, heads] */
    assert_strides(&p.tensor[WA_BIAS], 0, 0, 0, 4, 1, 0);
    assert_int_equal(p.tensor[WA_BIAS].span, 13 * 11 * 4);
    assert_int_equal(p.tensor[WA_BIAS].element_size, 4);
    assert_strides(&p.tensor[WA_DBIAS], 0, 0, 0, 4, 1, 0);
    const wa_problem dense = wa_problem_without_table(&p);
    assert_strides(&dense.tensor[WA_BIAS], 0, 0, 0, 42, 42 * 42, 1);
    assert_int_equal(dense.tensor[WA_DBIAS].span, 4 * 42 * 42);
    assert_false(dense.table.used);

    /* of a larger window, whose positions a slice keeps */
    d.table.axes = 2;
    d.table.window[0] = 8;
    d.table.window[1] = 7;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_int_equal(p.table.entries, 15 * 13);
    assert_triple(p.table.window, 1, 7, 6);
    assert_int_equal(p.table.center, 7 * 13 + 6);
    d.table.sliced = CL_TRUE;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.table.window, 1, 8, 7);
    d.table.window[1] = 5;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.window[1], 5");
    d.table.window[1] = 0;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.window[1]");
    d.table.axes = 1;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.axes is 1");
    d.table.window[1] = 7;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.window[1] is 7");
    d.table.axes = 4;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.axes is 4");
    d.table.axes = 2;
    d.table.window[0] = d.table.window[1] = 1u << 16;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "2^31 entries");

    /* without a grid */
    d = valid(WINATTN_COSINE);
    d.bias = WINATTN_BIAS_TABLE;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.axes");
    d.table.axes = 2;
    d.table.window[0] = d.table.window[1] = 7;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.table.window, 1, 7, 7);
    d.table.window[1] = 8;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.sliced");
    d.table.sliced = CL_TRUE;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.table.window, 1, 7, 8);
    d.table.window[1] = 6;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "fewer than");
    d.queries = d.keys = 1u << 16;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "queries x keys");

    /* strides */
    d = on_grid();
    d.bias = WINATTN_BIAS_TABLE;
    d.bias_strides.head = 143;
    d.bias_strides.row = 1;
    assert_read(&d);
    d.bias_strides.column = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "bias has no axis column");
    d.bias_strides.column = 0;
    d.bias_strides.row = 1u << 25;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "bias");
    d.bias_strides.row = 1;
    d.bias_strides.axis[0] = 1;
    assert_refused(&d, WINATTN_INVALID_LAYOUT, "bias has no axis axis[0]");

    /* fields without a table; a variant that takes none */
    d = valid(WINATTN_DOT);
    d.table.sliced = CL_TRUE;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table");
    d = valid(WINATTN_DOT);
    d.table.entries = 4;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table");
    d = valid(WINATTN_SLIDING);
    d.bias = WINATTN_BIAS_TABLE;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "bias");
}

static void indices(void **state)
{
    (void)state;
    static cl_int index[6 * 8];
    winattn_desc d = valid(WINATTN_DOT);
    wa_problem p;
    d.queries = 6;
    d.keys = 8;
    d.bias = WINATTN_BIAS_TABLE;
    d.table.index = index;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.entries");
    d.table.entries = 3;
    index[47] = 2;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_true(p.table.has_index);
    assert_int_equal(p.table.entries, 3);
    assert_strides(&p.tensor[WA_BIAS], 0, 0, 0, 4, 1, 0);
    index[47] = 3;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.index[47] is 3");
    index[47] = 0;
    index[9] = -1;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.index[9] is -1");
    index[9] = 0;
    d.table.sliced = CL_TRUE;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.sliced");
    d.table.sliced = CL_FALSE;
    d.table.axes = 1;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.axes");
    d.table.axes = 0;
    d.table.window[2] = 1;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.window");
    d.table.window[2] = 0;
    d.table.entries = 0x80000000u;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "table.entries");
    d.table.entries = 3;
    d.table.index = NULL;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table.entries");
}

/* As table_place of cl/common/problem.cl. */
static uint32_t place_of(const wa_table *table, uint32_t token)
{
    const uint32_t last = table->window[2], middle = table->window[1];
    return token / last / middle * table->step[0] +
           token / last % middle * table->step[1] + token % last;
}

static uint32_t entry_of(const wa_problem *p, uint32_t query, uint32_t key)
{
    return p->table.has_index ? (uint32_t)p->table.index[query * p->keys + key]
                              : place_of(&p->table, query) + p->table.center -
                                    place_of(&p->table, key);
}

/* Every pair stands in the list of its entry, once and in ascending order. */
static void entry_lists(void **state)
{
    (void)state;
    static cl_int index[42 * 42];
    for (int round = 0; round < 3; round++) {
        winattn_desc d = on_grid();
        wa_table_lists lists;
        wa_problem p;
        uint32_t seen = 0;
        d.bias = WINATTN_BIAS_TABLE;
        if (round == 1) {
            d.table.axes = 2;
            d.table.window[0] = 9;
            d.table.window[1] = 6;
            d.table.sliced = CL_TRUE;
        } else if (round == 2) {
            for (int i = 0; i < 42 * 42; i++)
                index[i] = i * 7919 % 50; /* the last ten have none */
            d.table.index = index;
            d.table.entries = 60;
        }
        assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
        assert_true(p.table.is_listed);
        assert_true(wa_table_lists_make(&p, &lists));
        assert_int_equal(lists.starts[0], 0);
        for (uint32_t e = 0; e < p.table.entries; e++)
            for (uint32_t i = lists.starts[e]; i < lists.starts[e + 1]; i++) {
                const uint32_t pair = lists.order[i];
                assert_true(i == lists.starts[e] || pair > lists.order[i - 1]);
                assert_int_equal(entry_of(&p, pair / 42, pair % 42), e);
                seen++;
            }
        assert_int_equal(seen, 42 * 42);
        assert_int_equal(lists.starts[p.table.entries], 42 * 42);
        wa_table_lists_free(&lists);
        if (round == 0) { /* as Swin's relative_position_index has it */
            assert_int_equal(entry_of(&p, 0, 0), 6 * 11 + 5);
            assert_int_equal(entry_of(&p, 0, 41), 0);
            assert_int_equal(entry_of(&p, 41, 0), 13 * 11 - 1);
            assert_int_equal(entry_of(&p, 7, 2), 7 * 11 + 4);
        }
    }
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
    assert_string_equal(winattn_status_name(-1001),
                        "CL_PLATFORM_NOT_FOUND_KHR");
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
        cmocka_unit_test(strides),         cmocka_unit_test(grid_defaults),
        cmocka_unit_test(grid_shifts),     cmocka_unit_test(grid_refusals),
        cmocka_unit_test(grid_strides),    cmocka_unit_test(tables),
        cmocka_unit_test(indices),         cmocka_unit_test(entry_lists),
        cmocka_unit_test(status_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
