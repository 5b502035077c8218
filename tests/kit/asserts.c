/* SPDX-License-Identifier: Apache-2.0
 * Assertions that many test programs make. */
#include "asserts.h"

#include <string.h>

test_case parsed(const char *text)
{
    test_case c = case_default();
    char bad[64];
    if (!case_parse(text, &c, bad))
        fail_msg("%s in \"%s\"", bad, text);
    return c;
}

void assert_status(winattn_status got, winattn_status wanted,
                   const char *culprit)
{
    if (got != wanted || !strstr(winattn_last_reason(), culprit))
        fail_msg("%s \"%s\" instead of %s and \"%s\"",
                 winattn_status_name(got), winattn_last_reason(),
                 winattn_status_name(wanted), culprit);
}
