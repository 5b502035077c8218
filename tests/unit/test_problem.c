/* SPDX-License-Identifier: Apache-2.0
 * Descriptors: what they are read as, and every way to be wrong; versions of
 * the struct, indices of tables, the pairs of each entry; texts of statuses.
 * No device is needed. */
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "launch/bias_table.h"
#include "problem_rows.h"

/* ---- Rows ---- */

winattn_desc describe(described what)
{
    static const winattn_variant variants[] = {[OF_COSINE] = WINATTN_COSINE,
                                               [OF_SLIDING] = WINATTN_SLIDING,
                                               [OF_TABLE] = WINATTN_DOT};
    winattn_desc d = {.struct_size = sizeof d,
                      .variant = variants[what],
                      .heads = 4,
                      .head_dim = 32,
                      .block = what == OF_SLIDING ? 16 : 0};
    if (what < OF_MAP) {
        d.windows = 6;
        d.queries = d.keys = 49;
        return d;
    }
    d.grid = (winattn_grid){.axes = 2,
                            .size = {26, 30},
                            .window = {7, 6},
                            .shift = {3, 2},
                            .batch = 2};
    if (what == OF_TABLE) {
        d.bias = WINATTN_BIAS_TABLE;
        d.bias_dtype = WINATTN_TERM_FP32;
    }
    return d;
}

void set_fields(winattn_desc *d, const field_value *fields, size_t count)
{
    for (size_t i = 0; i < count && fields[i].name; i++) {
        const cl_uint word = (cl_uint)fields[i].value;
        const cl_ulong number = fields[i].value;
        if (fields[i].size == sizeof word)
            memcpy((char *)d + fields[i].at, &word, sizeof word);
        else if (fields[i].size == sizeof number)
            memcpy((char *)d + fields[i].at, &number, sizeof number);
        else
            fail_msg("%s has %zu bytes", fields[i].name, fields[i].size);
    }
}

/* A number of 1, 4 or 8 bytes. */
static uint64_t number_at(const void *at, size_t size)
{
    uint64_t number;
    uint32_t word;
    if (size == 1)
        return *(const unsigned char *)at;
    memcpy(size == 4 ? (void *)&word : (void *)&number, at, size);
    return size == 4 ? word : number;
}

static void assert_refused(const winattn_desc *d, winattn_status wanted,
                           const char *culprit)
{
    wa_problem p;
    wa_forget_failure();
    assert_status(wa_problem_read(d, &p), wanted, culprit);
}

static void wrong_ones_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < refused_count; i++) {
        const refused_row *row = &refused_rows[i];
        winattn_desc d = describe(row->what);
        wa_problem p;
        set_fields(&d, row->fields, sizeof row->fields / sizeof *row->fields);
        wa_forget_failure();
        const winattn_status status = wa_problem_read(&d, &p);
        if (status != row->status ||
            !strstr(winattn_last_reason(), row->culprit))
            fail_msg("row %zu, %s: %s \"%s\", not %s and \"%s\"", i,
                     row->fields[0].name, winattn_status_name(status),
                     winattn_last_reason(), winattn_status_name(row->status),
                     row->culprit);
    }
}

static void right_ones_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < read_count; i++) {
        const read_row *row = &read_rows[i];
        winattn_desc d = describe(row->what);
        wa_problem p;
        set_fields(&d, row->fields, sizeof row->fields / sizeof *row->fields);
        if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
            fail_msg("row %zu: %s", i, winattn_last_reason());
        for (const field_value *is = row->is; is->name; is++) {
            const uint64_t got = number_at((char *)&p + is->at, is->size);
            const uint64_t want = number_at(&is->value, is->size);
            if (got != want)
                fail_msg("row %zu: %s is %llu, not %llu", i, is->name,
                         (unsigned long long)got, (unsigned long long)want);
        }
    }
}

/* ---- Versions ---- */

static void assert_options(const winattn_desc *d, const char *options)
{
    wa_problem p;
    assert_int_equal(wa_problem_read(d, &p), WINATTN_SUCCESS);
    assert_string_equal(p.build_options, options);
}

static void struct_versions(void **state)
{
    (void)state;
    static const size_t wrong[] = {
        0, offsetof(winattn_desc, build_options) - sizeof(void *),
        sizeof(winattn_desc) - 1, /* within a pointer */
        WA_STRUCT_MOST + sizeof(void *) /* never set */};
    struct {
        winattn_desc d;
        char future[16];
    } longer;
    winattn_desc d = describe(OF_DOT);
    assert_refused(NULL, WINATTN_INVALID_ARGUMENT, "desc");
    assert_options(&d, "");
    d.build_options = "-DX";
    d.grid_options = 2; /* behind an older program's struct */
    d.struct_size = offsetof(winattn_desc, build_options);
    assert_options(&d, "");
    d.struct_size = offsetof(winattn_desc, grid_options);
    assert_options(&d, "-DX");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        d.struct_size = wrong[i];
        assert_refused(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    }
    memset(&longer, 0, sizeof longer);
    longer.d = describe(OF_DOT);
    longer.d.struct_size = sizeof longer;
    assert_options(&longer.d, "");
    longer.future[3] = 1;
    assert_refused(&longer.d, WINATTN_UNSUPPORTED_PROBLEM, "version");
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

/* ---- Tables ---- */

static void indices_are_checked(void **state)
{
    (void)state;
    static cl_int index[6 * 8];
    static const struct {
        const char *culprit;
        int at, value; /* of the index */
        field_value field;
    } wrong[] = {
        {"table.index[47] is 3", 47, 3, FIELD(queries, 6)},
        {"table.index[9] is -1", 9, -1, FIELD(queries, 6)},
        {"table.sliced", 0, 0, FIELD(table.sliced, 1)},
        {"table.axes", 0, 0, FIELD(table.axes, 1)},
        {"table.window", 0, 0, FIELD(table.window[2], 1)},
        {"table.entries", 0, 0, FIELD(table.entries, 0)},
    };
    winattn_desc right = describe(OF_DOT);
    wa_problem p;
    right.queries = 6;
    right.keys = 8;
    right.bias = WINATTN_BIAS_TABLE;
    right.table.index = index;
    right.table.entries = 3;
    index[47] = 2;
    assert_int_equal(wa_problem_read(&right, &p), WINATTN_SUCCESS);
    assert_true(p.table.has_index);
    assert_int_equal(p.table.entries, 3);
    assert_int_equal(p.tensor[WA_BIAS].stride[WA_ROW], 4);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        winattn_desc d = right;
        const cl_int was = index[wrong[i].at];
        set_fields(&d, &wrong[i].field, 1);
        index[wrong[i].at] = wrong[i].value;
        assert_refused(&d, WINATTN_INVALID_ARGUMENT, wrong[i].culprit);
        index[wrong[i].at] = was;
    }
    right.table.entries = 0x80000000u;
    assert_refused(&right, WINATTN_UNSUPPORTED_PROBLEM, "table.entries");
    right.table.entries = 3;
    right.table.index = NULL;
    assert_refused(&right, WINATTN_INVALID_ARGUMENT, "table.entries");
}

static void table_as_a_bias(void **state)
{
    (void)state;
    winattn_desc d = describe(OF_TABLE);
    wa_problem p;
    d.passes = WINATTN_PASS_BACKWARD;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    const wa_problem dense = wa_problem_without_table(&p);
    assert_int_equal(dense.tensor[WA_BIAS].stride[WA_ROW], 42);
    assert_int_equal(dense.tensor[WA_BIAS].stride[WA_HEAD], 42 * 42);
    assert_int_equal(dense.tensor[WA_BIAS].stride[WA_COLUMN], 1);
    assert_int_equal(dense.tensor[WA_DBIAS].span, 4 * 42 * 42);
    assert_false(dense.table.used);
}

/* What table_position of cl/common/weights.h says. */
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
        winattn_desc d = describe(OF_MAP);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_ones_are_refused),
        cmocka_unit_test(right_ones_are_read),
        cmocka_unit_test(struct_versions),
        cmocka_unit_test(status_texts),
        cmocka_unit_test(indices_are_checked),
        cmocka_unit_test(table_as_a_bias),
        cmocka_unit_test(entry_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
