/* SPDX-License-Identifier: Apache-2.0
 * Does the library see in each emulated device the one that plans are made for
 * where nothing runs (kit/devices.c)? So what tests say of those plans holds
 * for what is executed here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kit/devices.h"
#include "kit/test_device.h"
#include "session/session.h"

static const char *const pairs[][2] = {
    {"H200 (emulated)", "H200"},
    {"gfx1100 (emulated)", "gfx1100 (RX 7900 XTX)"},
    {"gfx1201 (emulated)", "gfx1201 (RX 9070 XT)"},
    {"gfx942 (emulated)", "gfx942 (MI300X)"},
    {"Arc A770 (emulated DG2)", "Arc A770"},
    {"Max 1100 (emulated PVC)", "Max 1100 (PVC)"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Of a plan, all but names, versions and the limits of buffers and of
 * arguments follows from these. */
static void assert_same(const wa_device *seen, const wa_device *made_up)
{
#define SAME(member)                                                          \
    if (seen->member != made_up->member)                                      \
    fail_msg("%s: " #member " is %llu in place of %llu", seen->name,          \
             (unsigned long long)seen->member,                                \
             (unsigned long long)made_up->member)
    SAME(vendor);
    SAME(is_cpu);
    SAME(has_int64);
    SAME(compiles);
    SAME(compute_units);
    SAME(clock_mhz);
    SAME(max_work_group);
    SAME(address_bits);
    SAME(vector_lanes);
    SAME(wave);
    SAME(sub_group);
    SAME(registers);
    SAME(register_words);
    SAME(local_bytes);
    SAME(local_capacity);
    SAME(local_is_global);
    SAME(compute_capability);
    SAME(has_fma);
    SAME(miscompiles_barriers);
    SAME(breaks_barriers);
    SAME(splits_half_vectors);
    SAME(aligns_half_vectors);
    SAME(limits_registers);
    SAME(reports_kernel_sizes);
    SAME(loop_limit);
    SAME(has_matrix_extension);
    assert_ptr_equal(seen->matrix_unit, made_up->matrix_unit);
}

static cl_device_id find(const char *name)
{
    cl_device_id ids[64];
    char names[64][256];
    const int count = device_list(ids, names, 64);
    for (int i = 0; i < count; i++)
        if (strstr(names[i], name))
            return ids[i];
    return NULL;
}

static void devices_are_known(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        const cl_device_id id = find(pairs[i][0]);
        const wa_device *made_up = made_up_device(pairs[i][1]);
        wa_session *session;
        cl_int error;
        assert_non_null(id);
        assert_non_null(made_up);
        cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &error);
        assert_int_equal(error, CL_SUCCESS);
        assert_int_equal(wa_session_acquire(context, id, &session),
                         WINATTN_SUCCESS);
        assert_same(wa_session_device(session), made_up);
        wa_session_release(session);
        clReleaseContext(context);
    }
}

/* A context is of one device. */
static void contexts_have_one_device(void **state)
{
    const cl_device_id both[] = {find(pairs[0][0]), find(pairs[1][0])};
    cl_int error;
    (void)state;
    assert_null(clCreateContext(NULL, 2, both, NULL, NULL, &error));
    assert_int_equal(error, CL_DEVICE_NOT_AVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_known),
        cmocka_unit_test(contexts_have_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
