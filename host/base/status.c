/* SPDX-License-Identifier: Apache-2.0
 * Names and messages of status codes, and the calling thread's last reason. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/text.h"

static WA_THREAD_LOCAL char last_reason[512];
static WA_THREAD_LOCAL char last_build_log[16384];

#ifndef CL_PLATFORM_NOT_FOUND_KHR /* CL/cl_ext.h has it */
#define CL_PLATFORM_NOT_FOUND_KHR (-1001)
#endif

/* OpenCL's codes that a call of this library can meet, and the first one that
 * an application meets where no OpenCL is installed. */
#define CL_STATUS_LIST(X)                                                     \
    X(CL_PLATFORM_NOT_FOUND_KHR)                                              \
    X(CL_DEVICE_NOT_FOUND)                                                    \
    X(CL_DEVICE_NOT_AVAILABLE)                                                \
    X(CL_COMPILER_NOT_AVAILABLE)                                              \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE)                                       \
    X(CL_OUT_OF_RESOURCES)                                                    \
    X(CL_OUT_OF_HOST_MEMORY)                                                  \
    X(CL_PROFILING_INFO_NOT_AVAILABLE)                                        \
    X(CL_BUILD_PROGRAM_FAILURE)                                               \
    X(CL_MISALIGNED_SUB_BUFFER_OFFSET)                                        \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)                           \
    X(CL_INVALID_VALUE)                                                       \
    X(CL_INVALID_DEVICE)                                                      \
    X(CL_INVALID_CONTEXT)                                                     \
    X(CL_INVALID_COMMAND_QUEUE)                                               \
    X(CL_INVALID_MEM_OBJECT)                                                  \
    X(CL_INVALID_BINARY)                                                      \
    X(CL_INVALID_BUILD_OPTIONS)                                               \
    X(CL_INVALID_PROGRAM)                                                     \
    X(CL_INVALID_PROGRAM_EXECUTABLE)                                          \
    X(CL_INVALID_KERNEL_NAME)                                                 \
    X(CL_INVALID_KERNEL)                                                      \
    X(CL_INVALID_ARG_INDEX)                                                   \
    X(CL_INVALID_ARG_VALUE)                                                   \
    X(CL_INVALID_ARG_SIZE)                                                    \
    X(CL_INVALID_KERNEL_ARGS)                                                 \
    X(CL_INVALID_WORK_DIMENSION)                                              \
    X(CL_INVALID_WORK_GROUP_SIZE)                                             \
    X(CL_INVALID_WORK_ITEM_SIZE)                                              \
    X(CL_INVALID_GLOBAL_OFFSET)                                               \
    X(CL_INVALID_EVENT_WAIT_LIST)                                             \
    X(CL_INVALID_EVENT)                                                       \
    X(CL_INVALID_OPERATION)                                                   \
    X(CL_INVALID_BUFFER_SIZE)                                                 \
    X(CL_INVALID_GLOBAL_WORK_SIZE)

const char *winattn_status_name(winattn_status status)
{
    switch (status) {
    case WINATTN_SUCCESS:
        return "WINATTN_SUCCESS";
#define CASE(name, number, cause)                                             \
    case name:                                                                \
        return #name;
        WINATTN_STATUS_LIST(CASE)
#undef CASE
#define CASE(name)                                                            \
    case name:                                                                \
        return #name;
        CL_STATUS_LIST(CASE)
#undef CASE
    default:
        return "unknown status";
    }
}

const char *winattn_status_message(winattn_status status)
{
    switch (status) {
    case WINATTN_SUCCESS:
        return "success";
#define CASE(name, number, cause)                                             \
    case name:                                                                \
        return cause;
        WINATTN_STATUS_LIST(CASE)
#undef CASE
    default:
        return "an OpenCL call failed";
    }
}

const char *winattn_last_reason(void) { return last_reason; }
const char *winattn_last_build_log(void) { return last_build_log; }

winattn_status wa_fail(winattn_status status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(last_reason, sizeof last_reason, format, values);
    va_end(values);
    wa_make_plain(last_reason,
                  ""); /* it may have names of files and devices */
    return status;
}

winattn_status wa_fail_cl(cl_int error, const char *function)
{
    return wa_fail(error, "%s failed with %s (%d)", function,
                   winattn_status_name(error), (int)error);
}

winattn_status wa_fail_memory(void)
{
    return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
}

bool wa_may_pass(winattn_status status)
{
    return status == CL_OUT_OF_HOST_MEMORY || status == CL_OUT_OF_RESOURCES ||
           status == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
           status == CL_DEVICE_NOT_AVAILABLE;
}

void wa_keep_build_log(const char *log)
{
    snprintf(last_build_log, sizeof last_build_log, "%s", log);
    wa_make_plain(last_build_log, "\n\t");
}

void wa_forget_failure(void)
{
    last_reason[0] = 0;
    last_build_log[0] = 0;
}
