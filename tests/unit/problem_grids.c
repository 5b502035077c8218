/* SPDX-License-Identifier: Apache-2.0
 * Descriptors of grids: what follows from them, what is refused, strides. */
#include <math.h>
#include <string.h>

#include "kit/described.h"
#include "problem_groups.h"

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
    assert_int_equal(p.grid.shift_boundaries, 6);
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

/* No shift where the window covers the padded axis, no shift boundary where
 * the axis is a circle. */
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
    assert_int_equal(p.grid.shift_boundaries, 0);
    d.grid.size[0] = 8; /* two windows */
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.shift, 0, 3, 0);
    assert_int_equal(p.grid.shift_boundaries, 2);
    d.grid.size[1] = 12;
    d.grid.periodic[1] = CL_TRUE;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.shift, 0, 3, 2);
    assert_int_equal(p.grid.shift_boundaries, 2);
    d.grid.axes = 3;
    d.grid.size[2] = 9;
    d.grid.window[2] = 4;
    d.grid.shift[2] = 1;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    assert_triple(p.grid.size, 8, 12, 9);
    assert_triple(p.grid.shift, 3, 2, 1);
    assert_int_equal(p.grid.shift_boundaries, 5);
    assert_int_equal(p.queries, 7 * 6 * 4);
    assert_int_equal(p.windows, 2 * 2 * 2 * 3);
}

/* Rolled first: the option is gone where no axis is both padded and shifted,
 * and windows that cover an axis are shifted. */
static void grid_orders(void **state)
{
    (void)state;
    static const struct {
        cl_uint size[2], shift[2];
        bool rolls_first;
        uint32_t shift_boundaries;
    } rows[] = {
        {{26, 30}, {3, 2}, true, 6},  /* axis 0 is padded and shifted */
        {{26, 30}, {0, 2}, false, 4}, /* padded, shifted, not the same */
        {{28, 30}, {3, 2}, false, 6}, /* nothing is padded */
        {{7, 30}, {3, 0}, false, 2},  /* one whole window, shifted */
        {{28, 4}, {0, 5}, true, 4},   /* by more than there is of the map */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        winattn_desc d = on_grid();
        wa_problem p;
        memcpy(d.grid.size, rows[i].size, sizeof rows[i].size);
        memcpy(d.grid.shift, rows[i].shift, sizeof rows[i].shift);
        d.mask = WINATTN_MASK_SHIFT;
        d.grid_options = WINATTN_GRID_ROLL_FIRST;
        assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
        assert_int_equal(p.grid.rolls_first, rows[i].rolls_first);
        assert_int_equal(p.grid.shift_boundaries, rows[i].shift_boundaries);
        assert_triple(p.grid.shift, 0, rows[i].shift[0], rows[i].shift[1]);
        d.grid_options = WINATTN_GRID_SHIFT_ALL;
        assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
        assert_false(p.grid.rolls_first);
        assert_triple(p.grid.shift, 0, rows[i].shift[0], rows[i].shift[1]);
        d.grid_options = 0;
        assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
        assert_false(p.grid.rolls_first);
    }
}

static const refused_field refused_grids[] = {
    {FIELD(grid.axes, 4), WINATTN_INVALID_ARGUMENT, "grid.axes"},
    {FIELD(grid.axes, 1), WINATTN_INVALID_ARGUMENT, "axis 1"},
    {FIELD(grid.axes, 3), WINATTN_INVALID_ARGUMENT, "grid.size[2]"},
    {FIELD(grid.size[2], 1), WINATTN_INVALID_ARGUMENT, "axis 2"},
    {FIELD(grid.window[2], 1), WINATTN_INVALID_ARGUMENT, "axis 2"},
    {FIELD(grid.shift[2], 1), WINATTN_INVALID_ARGUMENT, "axis 2"},
    {FIELD(grid.periodic[2], 1), WINATTN_INVALID_ARGUMENT, "axis 2"},
    {FIELD(grid.size[0], 0), WINATTN_INVALID_ARGUMENT, "grid.size[0]"},
    {FIELD(grid.size[1], 0x80000000u), WINATTN_UNSUPPORTED_PROBLEM,
     "grid.size[1]"},
    /* padded it is above the limit */
    {FIELD(grid.size[0], 0x7fffffffu), WINATTN_UNSUPPORTED_PROBLEM,
     "grid.size[0]"},
    {FIELD(grid.window[1], 0), WINATTN_INVALID_ARGUMENT, "grid.window[1]"},
    {FIELD(grid.shift[0], 7), WINATTN_INVALID_ARGUMENT, "grid.shift[0]"},
    {FIELD(grid.periodic[0], 1), WINATTN_UNSUPPORTED_PROBLEM, "grid.size[0]"},
    {FIELD(grid.padding, 2), WINATTN_INVALID_ARGUMENT, "grid.padding"},
    {FIELD(grid.batch, (cl_ulong)1 << 32), WINATTN_UNSUPPORTED_PROBLEM,
     "grid.batch"},
    {FIELD(grid_options, 4), WINATTN_INVALID_ARGUMENT, "grid_options is 0x4"},
    {FIELD(windows, 41), WINATTN_INVALID_ARGUMENT, "windows is 41"},
    {FIELD(queries, 49), WINATTN_INVALID_ARGUMENT, "queries is 49"},
    {FIELD(keys, 49), WINATTN_INVALID_ARGUMENT, "keys is 49"},
    {FIELD(mask_windows, 2), WINATTN_INVALID_ARGUMENT, "mask_windows"},
    {FIELD(has_region_value, CL_TRUE), WINATTN_INVALID_ARGUMENT,
     "region_value"},
};

static void masks_are_refused(void)
{
    winattn_desc d = on_grid();
    d.mask_windows = 2;
    d.mask = WINATTN_MASK_SHIFT;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "mask_windows");
    d.mask = WINATTN_MASK_REGIONS;
    assert_read(&d);
    d = on_grid();
    d.has_region_value = CL_TRUE;
    d.mask = WINATTN_MASK_SHIFT;
    d.region_value = -INFINITY;
    assert_read(&d);
    d.region_value = NAN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "region_value");
}

static void limits_are_refused(void)
{
    winattn_desc d = on_grid();
    d.grid.size[0] = d.grid.size[1] = 1u << 16;
    d.grid.window[0] = d.grid.window[1] = 1;
    d.grid.shift[0] = d.grid.shift[1] = 0;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "2^31 windows");
    d.grid.window[0] = d.grid.window[1] = 1u << 16;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "2^31 tokens");
}

static void fields_without_a_grid_are_refused(void)
{
    winattn_desc d = valid(WINATTN_DOT);
    d.grid.batch = 1;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "grid.axes");
    d = valid(WINATTN_DOT);
    d.grid.padding = WINATTN_PADDING_HIDDEN;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "grid.axes");
    d = valid(WINATTN_DOT);
    d.grid_options = WINATTN_GRID_ROLL_FIRST;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "grid_options is set");
    d = valid(WINATTN_DOT);
    d.mask = WINATTN_MASK_SHIFT;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "needs a grid");
}

static void grid_refusals(void **state)
{
    (void)state;
    winattn_desc d = on_grid();
    ASSERT_FIELDS_REFUSED(&d, refused_grids);
    masks_are_refused();
    limits_are_refused();
    d.variant = WINATTN_SLIDING;
    d.block = 7;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "grid");
    fields_without_a_grid_are_refused();
}

static void strides_of_packed_maps(void)
{
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
}

static void axes_that_tensors_lack(void)
{
    winattn_desc d = on_grid();
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
}

static void strides_of_padding(void)
{
    wa_problem p;
    winattn_desc d = on_grid();
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

static void grid_strides(void **state)
{
    (void)state;
    strides_of_packed_maps();
    axes_that_tensors_lack();
    strides_of_padding();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(grid_defaults), cmocka_unit_test(grid_shifts),
    cmocka_unit_test(grid_orders),   cmocka_unit_test(grid_refusals),
    cmocka_unit_test(grid_strides),
};
const test_group problem_grids = TEST_GROUP(NULL, tests);
