/* SPDX-License-Identifier: Apache-2.0
 * What winattn_models does with the winattn that it meets. */
#include "base/status.h"
#include "kit/asserts.h"
#include "models/levels.h"

static void versions_agree(void **state)
{
    (void)state;
    assert_int_equal(winattn_models_version(), WINATTN_VERSION);
    assert_int_equal(winattn_models_version(), winattn_version());
}

/* The last failure belongs to both libraries. */
static void calls_forget_failures(void **state)
{
    (void)state;
    wa_fail(WINATTN_INVALID_ARGUMENT, "left from before");
    assert_string_equal(winattn_last_reason(), "left from before");
    assert_int_equal(wa_models_begin(), WINATTN_SUCCESS);
    assert_string_equal(winattn_last_reason(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_agree),
        cmocka_unit_test(calls_forget_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
