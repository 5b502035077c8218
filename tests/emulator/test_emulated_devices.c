/* SPDX-License-Identifier: Apache-2.0
 * Does the library see in each emulated device the one that plans are made for
 * where nothing runs (kit/devices.c)? So what tests say of those plans holds
 * for what is executed here. */
#include <string.h>

#include "kit/asserts.h"
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
enum { PAIRS = sizeof pairs / sizeof *pairs, DEVICE_UUID = 0x106a };

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

/* The first is CUDA's, too, by its UUID (test_cuda_calls compares them). */
static void devices_are_known(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        const cl_device_id id = find(pairs[i][0]);
        const wa_device *made_up = made_up_device(pairs[i][1]);
        wa_session *session;
        char text[256], uuid[16];
        cl_int error;
        assert_non_null(id);
        assert_non_null(made_up);
        cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &error);
        assert_int_equal(error, CL_SUCCESS);
        assert_int_equal(wa_session_acquire(context, id, &session),
                         WINATTN_SUCCESS);
        if (!device_is_like(wa_session_device(session), made_up, text))
            fail_msg("%s", text);
        wa_session_release(session);
        clReleaseContext(context);
        error = clGetDeviceInfo(id, DEVICE_UUID, sizeof uuid, uuid, NULL);
        assert_int_equal(error, i == 0 ? CL_SUCCESS : CL_INVALID_VALUE);
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
