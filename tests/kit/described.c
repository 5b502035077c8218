/* SPDX-License-Identifier: Apache-2.0
 * Descriptors, and what reading them says. */
#include "described.h"

#include <string.h>

#include "base/status.h"

winattn_desc valid(winattn_variant variant)
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

winattn_desc on_grid(void)
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

void assert_read(const winattn_desc *d)
{
    wa_problem p;
    wa_forget_failure();
    const winattn_status status = wa_problem_read(d, &p);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s: %s", winattn_status_name(status), winattn_last_reason());
}

void assert_refused(const winattn_desc *d, winattn_status wanted,
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

void assert_fields_refused(const winattn_desc *right,
                           const refused_field *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        winattn_desc d = *right;
        const cl_uint word = (cl_uint)rows[i].value;
        const void *value = &rows[i].value;
        assert_true(rows[i].size == 8 || rows[i].size == 4);
        memcpy((char *)&d + rows[i].at, rows[i].size == 8 ? value : &word,
               rows[i].size);
        assert_refused(&d, rows[i].status, rows[i].culprit);
    }
}

void assert_triple(const uint32_t got[3], uint32_t a, uint32_t b, uint32_t c)
{
    assert_int_equal(got[0], a);
    assert_int_equal(got[1], b);
    assert_int_equal(got[2], c);
}

void assert_strides(const wa_tensor *t, uint64_t window, uint64_t axis_0,
                    uint64_t axis_1, uint64_t row, uint64_t head,
                    uint64_t column)
{
    assert_int_equal(t->stride[WA_WINDOW], window);
    assert_int_equal(t->stride[WA_AXIS_0], axis_0);
    assert_int_equal(t->stride[WA_AXIS_1], axis_1);
    assert_int_equal(t->stride[WA_ROW], row);
    assert_int_equal(t->stride[WA_HEAD], head);
    assert_int_equal(t->stride[WA_COLUMN], column);
}
