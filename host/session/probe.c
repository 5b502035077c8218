/* SPDX-License-Identifier: Apache-2.0
 * Probes: what only a build can tell. */
#include "session/probe.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device/buffer.h"
#include "launch/arguments.h"
#include "program/program.h"

static winattn_status build(cl_context context, cl_device_id id,
                            const char *source, const char *options,
                            cl_program *program)
{
    wa_program_source program_source;
    WA_TRY(wa_program_source_of_text(id, "probe", source, options,
                                     &program_source));
    const winattn_status status =
        wa_obtain_program(context, id, &program_source, "probe", program);
    wa_program_source_free(&program_source);
    return status;
}

static winattn_status make_kernel(cl_program program, cl_kernel *kernel)
{
    cl_int error;
    *kernel = clCreateKernel(program, "probe", &error);
    return wa_cl_status(error, "clCreateKernel");
}

/* Builds a kernel that declares so much local memory. */
static winattn_status declare_local(cl_context context, cl_device_id id,
                                    uint32_t bytes)
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
    cl_kernel kernel;
    snprintf(options, sizeof options, "-cl-std=CL1.2 -DBYTES=%u", bytes);
    WA_TRY(build(context, id, source, options, &program));
    const winattn_status status = make_kernel(program, &kernel);
    if (status == WINATTN_SUCCESS)
        clReleaseKernel(kernel);
    clReleaseProgram(program);
    return status;
}

/* Does it build? Fails where that could not be found out. */
static winattn_status declares_local(cl_context context, cl_device_id id,
                                     uint32_t bytes, bool *does)
{
    winattn_status status = declare_local(context, id, bytes);
    if (status == CL_OUT_OF_RESOURCES)
        status = declare_local(context, id, bytes);
    *does = status == WINATTN_SUCCESS;
    return wa_may_pass(status) && status != CL_OUT_OF_RESOURCES
               ? status
               : WINATTN_SUCCESS;
}

static winattn_status launch(cl_command_queue queue, cl_kernel kernel,
                             cl_mem x, cl_int rounds, cl_int *left)
{
    const size_t one = 1;
    WA_TRY(wa_set_arg(kernel, 0, sizeof x, &x));
    WA_TRY(wa_set_arg(kernel, 1, sizeof rounds, &rounds));
    WA_TRY(WA_CL(clEnqueueNDRangeKernel, queue, kernel, 1, NULL, &one, &one, 0,
                 NULL, NULL));
    return WA_CL(clEnqueueReadBuffer, queue, x, CL_TRUE, 0, sizeof *left, left,
                 0, NULL, NULL);
}

/* Runs a kernel of two arguments, once, and reads what it left. */
static winattn_status run(cl_context context, cl_device_id id,
                          cl_kernel kernel, cl_int rounds, cl_int *left)
{
    cl_mem x;
    cl_int error;
    const cl_command_queue queue =
        clCreateCommandQueue(context, id, 0, &error);
    WA_TRY(wa_cl_status(error, "clCreateCommandQueue"));
    winattn_status status =
        wa_make_buffer(context, CL_MEM_READ_WRITE, sizeof *left, left, &x);
    WA_THEN(status, launch(queue, kernel, x, rounds, left));
    wa_release_buffer(x);
    clReleaseCommandQueue(queue);
    return status;
}

/* Rounds of a long loop that really ran. */
static winattn_status count_rounds(cl_context context, cl_device_id id,
                                   cl_int wanted, cl_int *ran)
{
    static const char *const source =
        "__kernel void probe(__global volatile int *x, int rounds)\n"
        "{\n"
        "    for (int i = 0; i < rounds; i++)\n"
        "        x[0] = x[0] + 1;\n"
        "}\n";
    cl_program program;
    cl_kernel kernel;
    *ran = 0;
    WA_TRY(build(context, id, source, "", &program));
    winattn_status status = make_kernel(program, &kernel);
    if (status == WINATTN_SUCCESS) {
        status = run(context, id, kernel, wanted, ran);
        clReleaseKernel(kernel);
    }
    clReleaseProgram(program);
    return status;
}

/* NVIDIA reports 48 KiB, the limit of a local argument; an array that a kernel
 * declares may take nearly all that the compute unit has. */
static winattn_status probe_local(cl_context context, cl_device_id id,
                                  wa_device *device)
{
    for (uint32_t spare = 1024; spare <= 4096; spare += 1024) {
        const uint32_t bytes = device->local_capacity - spare;
        bool does = false;
        if (bytes > device->local_bytes)
            WA_TRY(declares_local(context, id, bytes, &does));
        if (does) {
            device->local_bytes = bytes;
            break;
        }
    }
    return WINATTN_SUCCESS;
}

/* Mesa's software renderer ends a shader's loops after 65,535 rounds, all
 * together, and reports nothing. */
static winattn_status probe_loops(cl_context context, cl_device_id id,
                                  wa_device *device)
{
    const cl_int wanted = 1 << 20;
    cl_int ran = 0;
    WA_TRY(count_rounds(context, id, wanted, &ran));
    if (ran > 0 && ran < wanted)
        device->loop_limit = (uint32_t)ran;
    return WINATTN_SUCCESS;
}

winattn_status wa_probe_device(cl_context context, cl_device_id id,
                               wa_device *device)
{
    if (device->vendor == WA_VENDOR_NVIDIA && device->compiles &&
        device->local_capacity > device->local_bytes)
        WA_TRY(probe_local(context, id, device));
    if (strncmp(device->name, "llvmpipe", 8) == 0 && device->compiles)
        WA_TRY(probe_loops(context, id, device));
    wa_forget_failure();
    return WINATTN_SUCCESS;
}
