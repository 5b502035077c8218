/* SPDX-License-Identifier: Apache-2.0
 * Assertions that many test programs make. */
#include "asserts.h"

#include <math.h>
#include <string.h>

test_case parsed(const char *text)
{
    test_case c = case_default();
    char bad[64];
    if (!case_parse(text, &c, bad))
        fail_msg("%s in \"%s\"", bad, text);
    return c;
}

npy_array loaded(const char *case_name, const char *tensor)
{
    const npy_array array = npy_read(GOLDEN_FOLDER, case_name, tensor);
    if (!array.value)
        fail_msg("%s_%s.npy cannot be read", case_name, tensor);
    return array;
}

void assert_close(const char *what, const double *got, const double *want,
                  size_t count, double tolerance)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(got[i]));
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(error) <= tolerance * sqrt(norm)))
        fail_msg("%s: relative error %g", what, sqrt(error / norm));
}

void assert_status(winattn_status got, winattn_status wanted,
                   const char *culprit)
{
    if (got != wanted || !strstr(winattn_last_reason(), culprit))
        fail_msg("%s \"%s\" instead of %s and \"%s\"",
                 winattn_status_name(got), winattn_last_reason(),
                 winattn_status_name(wanted), culprit);
}
