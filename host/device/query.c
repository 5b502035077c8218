/* SPDX-License-Identifier: Apache-2.0
 * Asks OpenCL about devices and platforms. */
#include "device/query.h"

#include <stdlib.h>

#include "base/status.h"

winattn_status wa_query(cl_device_id id, cl_device_info what, size_t size,
                        void *value)
{
    return WA_CL(clGetDeviceInfo, id, what, size, value, NULL);
}

winattn_status wa_query_if_known(cl_device_id id, cl_device_info what,
                                 size_t size, void *value)
{
    const cl_int error = clGetDeviceInfo(id, what, size, value, NULL);
    return error == CL_INVALID_VALUE ? WINATTN_SUCCESS
                                     : wa_cl_status(error, "clGetDeviceInfo");
}

/* Whom to ask: a platform, or where that is NULL a device. */
typedef struct asked {
    cl_device_id device;
    cl_platform_id platform;
} asked;

static cl_int ask(const asked *whom, cl_uint what, size_t size, char *text,
                  size_t *needed)
{
    return whom->platform
               ? clGetPlatformInfo(whom->platform, what, size, text, needed)
               : clGetDeviceInfo(whom->device, what, size, text, needed);
}

static winattn_status ask_text(const asked *whom, cl_uint what, char **text)
{
    const char *const function =
        whom->platform ? "clGetPlatformInfo" : "clGetDeviceInfo";
    size_t size = 0;
    cl_int error = CL_SUCCESS;
    WA_TRY(wa_cl_status(ask(whom, what, 0, NULL, &size), function));
    char *all = calloc(size + 1, 1);
    WA_TRY_MEMORY(all);
    if (size > 0)
        error = ask(whom, what, size, all, NULL);
    if (error != CL_SUCCESS) {
        free(all);
        return wa_fail_cl(error, function);
    }
    *text = all;
    return WINATTN_SUCCESS;
}

winattn_status wa_query_text(cl_device_id id, cl_device_info what, char **text)
{
    const asked whom = {.device = id};
    return ask_text(&whom, what, text);
}

winattn_status wa_query_platform_text(cl_platform_id id, cl_platform_info what,
                                      char **text)
{
    const asked whom = {.platform = id};
    return ask_text(&whom, what, text);
}
