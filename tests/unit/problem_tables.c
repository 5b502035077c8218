/* SPDX-License-Identifier: Apache-2.0
 * Descriptors of tables: by position and by an index, and the pairs of each
 * entry. */
#include "kit/described.h"
#include "launch/bias_table.h"
#include "problem_groups.h"

static winattn_desc with_table(void)
{
    winattn_desc d = on_grid();
    d.bias = WINATTN_BIAS_TABLE;
    d.bias_dtype = WINATTN_TERM_FP32;
    d.passes = WINATTN_PASS_BACKWARD;
    return d;
}

static void table_of_the_window(void)
{
    const winattn_desc d = with_table();
    wa_problem p;
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
}

/* Whose positions a slice keeps. */
static void table_of_a_larger_window(void)
{
    winattn_desc d = with_table();
    wa_problem p;
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
}

static void table_without_a_grid(void)
{
    wa_problem p;
    winattn_desc d = valid(WINATTN_COSINE);
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
}

static void strides_of_a_table(void)
{
    winattn_desc d = on_grid();
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
}

/* Of what has no table, and of a variant that takes none. */
static void fields_of_no_table(void)
{
    winattn_desc d = valid(WINATTN_DOT);
    d.table.sliced = CL_TRUE;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table");
    d = valid(WINATTN_DOT);
    d.table.entries = 4;
    assert_refused(&d, WINATTN_INVALID_ARGUMENT, "table");
    d = valid(WINATTN_SLIDING);
    d.bias = WINATTN_BIAS_TABLE;
    assert_refused(&d, WINATTN_UNSUPPORTED_PROBLEM, "bias");
}

static void tables(void **state)
{
    (void)state;
    table_of_the_window();
    table_of_a_larger_window();
    table_without_a_grid();
    strides_of_a_table();
    fields_of_no_table();
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

/* As table_position of cl/common/weights.h. */
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tables),
    cmocka_unit_test(indices),
    cmocka_unit_test(entry_lists),
};
const test_group problem_tables = TEST_GROUP(NULL, tests);
