/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_plan.h"
#include "kit/devices.h"
#include "standin.h"

/* The n-th call or allocation fails; false if none did. */
static bool plan_while_failing(const winattn_desc *desc, unsigned long n,
                               bool allocation)
{
    winattn_plan *plan;
    const cl_device_id id = standin_device(made_up_device("H200"));
    const cl_context context = standin_context(1, &id);
    if (allocation)
        standin_fail_allocation(n);
    else
        standin_fail_call(NULL, n, 0);
    const winattn_status status =
        winattn_plan_create(context, id, desc, &plan);
    const bool failed = standin_failed() != NULL;
    standin_fail_nothing();
    if (status == WINATTN_SUCCESS)
        winattn_plan_destroy(plan);
    else
        assert_string_not_equal(winattn_last_reason(), "");
    clReleaseContext(context);
    assert_null(standin_alive());
    assert_null(standin_wrong(NULL));
    return failed;
}

/* With sanitizers, where each plan takes three times as long, every third. */
#ifdef __SANITIZE_ADDRESS__
#define STEP 3
#else
#define STEP 1
#endif

void any_call_of_plan_may_fail(const winattn_desc *desc, int (*start)(void **),
                               unsigned long least)
{
    for (int allocation = 0; allocation < 2; allocation++) {
        unsigned long n = 1;
        for (start(NULL); plan_while_failing(desc, n, allocation != 0);
             start(NULL))
            n += STEP;
        assert_in_range(n, least, 2000);
    }
}
