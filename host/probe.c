/* SPDX-License-Identifier: Apache-2.0
 * Probes: what only a build can tell. */
#include "probe.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "status.h"

static bool build(cl_context context, cl_device_id id, const char *source,
                  const char *options, cl_program *program)
{
    wa_recipe recipe;
    if (wa_recipe_of_text(id, "probe", source, options, &recipe) !=
        WINATTN_SUCCESS)
        return false;
    const winattn_status status =
        wa_obtain_program(context, id, &recipe, program);
    wa_recipe_free(&recipe);
    return status == WINATTN_SUCCESS;
}

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
    if (!build(context, id, source, options, &program))
        return false;
    const cl_kernel kernel = clCreateKernel(program, "probe", &error);
    if (error == CL_SUCCESS)
        clReleaseKernel(kernel);
    clReleaseProgram(program);
    return error == CL_SUCCESS;
}

/* Rounds of a long loop that really ran; 0 if that could not be found out. */
static uint32_t rounds_that_run(cl_context context, cl_device_id id,
                                cl_int wanted)
{
    static const char *const source =
        "__kernel void probe(__global volatile int *x, int rounds)\n"
        "{\n"
        "    for (int i = 0; i < rounds; i++)\n"
        "        x[0] = x[0] + 1;\n"
        "}\n";
    const size_t one = 1;
    cl_int ran = 0, error;
    cl_program program;
    cl_kernel kernel = NULL;
    cl_command_queue queue = NULL;
    if (!build(context, id, source, "", &program))
        return 0;
    const cl_mem x =
        clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       sizeof ran, &ran, &error);
    if (error == CL_SUCCESS)
        kernel = clCreateKernel(program, "probe", &error);
    if (error == CL_SUCCESS)
        queue = clCreateCommandQueue(context, id, 0, &error);
    if (error != CL_SUCCESS ||
        clSetKernelArg(kernel, 0, sizeof x, &x) != CL_SUCCESS ||
        clSetKernelArg(kernel, 1, sizeof wanted, &wanted) != CL_SUCCESS ||
        clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL,
                               NULL) != CL_SUCCESS ||
        clEnqueueReadBuffer(queue, x, CL_TRUE, 0, sizeof ran, &ran, 0, NULL,
                            NULL) != CL_SUCCESS)
        ran = 0;
    if (queue)
        clReleaseCommandQueue(queue);
    if (kernel)
        clReleaseKernel(kernel);
    if (x)
        clReleaseMemObject(x);
    clReleaseProgram(program);
    return ran > 0 ? (uint32_t)ran : 0;
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
    /* Mesa's software renderer ends a shader's loops after 65,535 rounds,
     * all together, and reports nothing. */
    if (strncmp(device->name, "llvmpipe", 8) == 0 && device->compiles) {
        const uint32_t wanted = 1u << 20;
        const uint32_t ran = rounds_that_run(context, id, (cl_int)wanted);
        if (ran > 0 && ran < wanted)
            device->loop_limit = ran;
    }
    wa_forget_failure();
}
