/* SPDX-License-Identifier: Apache-2.0
 * Does the library see in each emulated device the one that plans are made for
 * where nothing runs (kit/devices.c)? So what tests say of those plans holds
 * for what is executed here. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"
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
enum { PAIRS = sizeof pairs / sizeof *pairs };

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
        char text[256];
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

/* Its UUID says which, and others have none. */
static void cuda_has_one_of_them(void **state)
{
    enum { DEVICE_UUID = 0x106a };
    void *library = dlopen(EMULATED_CUDA, RTLD_NOW);
    __typeof__(cuInit) *init;
    __typeof__(cuDeviceGetUuid_v2) *get_uuid;
    CUuuid cuda, opencl;
    (void)state;
    assert_non_null(library);
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&get_uuid = dlsym(library, "cuDeviceGetUuid_v2");
    assert_int_equal(init(0), CUDA_SUCCESS);
    assert_int_equal(get_uuid(&cuda, 0), CUDA_SUCCESS);
    for (int i = 0; i < PAIRS; i++) {
        const cl_int error = clGetDeviceInfo(find(pairs[i][0]), DEVICE_UUID,
                                             sizeof opencl, &opencl, NULL);
        assert_int_equal(error, i == 0 ? CL_SUCCESS : CL_INVALID_VALUE);
        if (i == 0)
            assert_memory_equal(&cuda, &opencl, sizeof cuda);
    }
    dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_known),
        cmocka_unit_test(contexts_have_one_device),
        cmocka_unit_test(cuda_has_one_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
