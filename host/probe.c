/* SPDX-License-Identifier: Apache-2.0
 * Probes: what only a build can tell. */
#include "probe.h"

#include <stdbool.h>
#include <stdio.h>

#include "program.h"
#include "status.h"

static bool declares_local(cl_context context, cl_device_id id, uint32_t bytes)
{
    static const char *const source =
        "__kernel __attribute__((reqd_work_group_size(32, 1, 1)))\n"
        "void probe(__global int *x)\n"
        "{\n"
        "    __local int all[BYTES / 4];\n"
        "    for (int i = get_local_id(0); i < BYTES / 4; i += 32)\n"
        "        all[i] = x[i];\n"
        "    barrier(CLK_LOCAL_MEM_FENCE);\n"
        "    x[get_local_id(0)] = all[BYTES / 4 - 1 - get_local_id(0)];\n"
        "}\n";
    char options[64];
    cl_program program;
    cl_int error;
    snprintf(options, sizeof options, "-cl-std=CL1.2 -DBYTES=%u", bytes);
    if (wa_build_program(context, id, 1, &source, options, &program) !=
        WINATTN_SUCCESS)
        return false;
    const cl_kernel kernel = clCreateKernel(program, "probe", &error);
    if (error == CL_SUCCESS)
        clReleaseKernel(kernel);
    clReleaseProgram(program);
    return error == CL_SUCCESS;
}

void wa_probe_device(cl_context context, cl_device_id id, wa_device *device)
{
    /* NVIDIA reports 48 KiB, the limit of a local argument; an array that a
     * kernel declares may take nearly all that the compute unit has. */
    if (device->vendor == WA_VENDOR_NVIDIA && device->compiles &&
        device->local_capacity > device->local_bytes)
        for (uint32_t spare = 1024; spare <= 4096; spare += 1024) {
            const uint32_t bytes = device->local_capacity - spare;
            if (bytes > device->local_bytes &&
                declares_local(context, id, bytes)) {
                device->local_bytes = bytes;
                break;
            }
        }
    wa_forget_failure();
}
