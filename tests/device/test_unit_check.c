/* SPDX-License-Identifier: Apache-2.0
 * What a plan of tier matrix asks the device's unit first
 * (session/self_test.c): the unit passes, and where it is spoilt it does not.
 * Skipped where the device has none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/fragment_session.h"
#include "kit/runner.h"
#include "session/self_test.h"
#include "session/session.h"

static winattn_status check(winattn_dtype dtype, const char *build_options)
{
    wa_session *session;
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    char options[1024];
    const char *more = getenv("WINATTN_TEST_BUILD_OPTIONS");
    snprintf(options, sizeof options, "%s %s", build_options,
             more ? more : "");
    const winattn_status status = wa_check_matrix_unit(
        device.context, device.id, wa_session_programs(session),
        wa_session_device(session), dtype, options);
    wa_session_release(session);
    return status;
}

static void unit_passes(void **state)
{
    (void)state;
    const wa_matrix_unit *unit = device_unit();
    if (!unit)
        skip();
    for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++)
        if (has_fragments(dtype) &&
            check((winattn_dtype)dtype, "") != WINATTN_SUCCESS)
            fail_msg("%s: %s", unit->name, winattn_last_reason());
}

/* A unit is spoilt through what the fragment layer lets its file, and so an
 * option, define. */
#define OWN_COPIES "-DASYNC_COPIES=1 -DEND_COPIES()= -DAWAIT_COPIES(newer)= "
static void faults_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *unit; /* NULL: any without asynchronous copies */
        winattn_dtype first, last;
        const char *options, *reason;
    } faults[] = {
        /* values come in another order than weights */
        {"mfma16", WINATTN_FP16, WINATTN_BF16, "-DSLOT_KEY(k)=((k)^1)",
         "o of query"},
        /* copies bring zeros */
        {NULL, WINATTN_FP16, WINATTN_BF16,
         OWN_COPIES "-Dcopy_16(to,from,exists,wanted)="
                    "vstore8((ushort8)(0),0,to)",
         "score of query"},
        /* subnormal operands are 0 */
        {NULL, WINATTN_FP16, WINATTN_FP16,
         OWN_COPIES "-Dcopy_16(to,from,exists,wanted)=vstore8(vload8(0,from)&"
                    "as_ushort8((vload8(0,from)&(ushort)0x7c00)!=(ushort)0)&"
                    "(ushort)(-(exists)),0,to)",
         " is 0, not "},
    };
    const wa_matrix_unit *unit = device_unit();
    if (!unit || unit->copies_async)
        skip();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int dtype = faults[i].first;
             (!faults[i].unit || strcmp(faults[i].unit, unit->name) == 0) &&
             dtype <= (int)faults[i].last;
             dtype++) {
            const winattn_status status =
                check((winattn_dtype)dtype, faults[i].options);
            if (status != WINATTN_UNSUPPORTED_DEVICE ||
                !strstr(winattn_last_reason(), faults[i].reason) ||
                !strstr(winattn_last_reason(), unit->name))
                fail_msg("%s: %s \"%s\"", faults[i].options,
                         winattn_status_name(status), winattn_last_reason());
        }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(unit_passes),
                                       cmocka_unit_test(faults_are_found)};
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
