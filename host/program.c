/* SPDX-License-Identifier: Apache-2.0
 * Assembles and builds kernel sources. */
#include "program.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sources.h"
#include "status.h"

static void keep_log(cl_program program, cl_device_id device)
{
    size_t size = 0;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL,
                              &size) != CL_SUCCESS)
        return;
    char *log = malloc(size + 1);
    if (!log)
        return;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log,
                              NULL) == CL_SUCCESS) {
        log[size] = 0;
        wa_keep_build_log(log);
    }
    free(log);
}

winattn_status wa_build_program(cl_context context, cl_device_id device,
                                cl_uint count, const char *const *sources,
                                const char *options, cl_program *result)
{
    cl_int error;
    /* older OpenCL headers lack the const */
    cl_program program = clCreateProgramWithSource(
        context, count, (const char **)(size_t)sources, NULL, &error);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clCreateProgramWithSource");
    error = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (error != CL_SUCCESS) {
        keep_log(program, device);
        clReleaseProgram(program);
        return wa_fail_cl(error, "clBuildProgram");
    }
    *result = program;
    return WINATTN_SUCCESS;
}

/* Kernels of the tier cpu share a file. */
static bool is_for_cpu(const char *name)
{
    return strstr(name, "_cpu") != NULL;
}

winattn_status wa_build_kernel_program(cl_context context, cl_device_id device,
                                       const char *name, const char *options,
                                       cl_program *program)
{
    /* Subnormal fp32 numbers may become 0, which makes exponentials cheaper.
     * Options that let the compiler forget infinities and NaNs must not come
     * here: masks are made of them. */
    static const char standard[] = "-cl-std=CL1.2 -cl-denorms-are-zero ";
    const size_t size = sizeof standard + strlen(options);
    char *all = malloc(size);
    if (!all)
        return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
    snprintf(all, size, "%s%s", standard, options);
    char file[64];
    snprintf(file, sizeof file, "%s.cl", name);
    const char *const sources[] = {
        wa_source("args.h"), wa_source("storage.cl"), wa_source("problem.cl"),
        is_for_cpu(name) ? wa_source("cpu.cl") : "\n", wa_source(file)};
    const winattn_status status =
        wa_build_program(context, device, 5, sources, all, program);
    free(all);
    return status;
}
