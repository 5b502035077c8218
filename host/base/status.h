/* SPDX-License-Identifier: Apache-2.0
 * How a call fails: a status, one line that says why, and a build log. Both
 * texts belong to the calling thread. */
#ifndef WINATTN_STATUS_H
#define WINATTN_STATUS_H

#include <stdbool.h>

#include "base/sister.h"
#include "winattn.h"

#if defined(__GNUC__)
#define WA_PRINTF(text, values) __attribute__((format(printf, text, values)))
#else
#define WA_PRINTF(text, values)
#endif

/* Passes a failure of `call` up. */
#define WA_TRY(call)                                                          \
    do {                                                                      \
        const winattn_status wa_try_status = (call);                          \
        if (wa_try_status != WINATTN_SUCCESS)                                 \
            return wa_try_status;                                             \
    } while (0)

/* Goes on with `call` where nothing has failed so far. */
#define WA_THEN(status, call)                                                 \
    do {                                                                      \
        if ((status) == WINATTN_SUCCESS)                                      \
            (status) = (call);                                                \
    } while (0)

/* Refuses an argument that is NULL. */
#define WA_WANT(pointer, name)                                                \
    do {                                                                      \
        if (!(pointer))                                                       \
            return WA_INVALID("%s is NULL", name);                            \
    } while (0)

/* Passes up that an allocation failed. */
#define WA_TRY_MEMORY(pointer)                                                \
    do {                                                                      \
        if (!(pointer))                                                       \
            return wa_fail_memory();                                          \
    } while (0)

/* Keeps the reason and returns the status. */
WA_SISTER winattn_status wa_fail(winattn_status status, const char *format,
                                 ...) WA_PRINTF(2, 3);

#define WA_INVALID(...) wa_fail(WINATTN_INVALID_ARGUMENT, __VA_ARGS__)
#define WA_BAD_LAYOUT(...) wa_fail(WINATTN_INVALID_LAYOUT, __VA_ARGS__)
#define WA_BAD_FILE(...) wa_fail(WINATTN_INVALID_FILE, __VA_ARGS__)
#define WA_BAD_DEVICE(...) wa_fail(WINATTN_UNSUPPORTED_DEVICE, __VA_ARGS__)
#define WA_UNSUPPORTED(...) wa_fail(WINATTN_UNSUPPORTED_PROBLEM, __VA_ARGS__)

/* For an OpenCL call that failed. */
WA_SISTER winattn_status wa_fail_cl(cl_int error, const char *function);

/* The same, or success. */
static inline winattn_status wa_cl_status(cl_int error, const char *function)
{
    return error == CL_SUCCESS ? WINATTN_SUCCESS : wa_fail_cl(error, function);
}

/* Calls a function of OpenCL's for such a status. */
#define WA_CL(function, ...) wa_cl_status(function(__VA_ARGS__), #function)

/* For an allocation that failed. */
WA_SISTER winattn_status wa_fail_memory(void);

/* Is it a failure that may pass, and so says nothing of a kernel, a device or
 * a binary? CL_OUT_OF_RESOURCES is one too, although some drivers say it of
 * kernels that the device cannot run: who builds asks a second time. */
WA_SISTER bool wa_may_pass(winattn_status status);

void wa_keep_build_log(const char *log);

/* Every public call starts with this. */
WA_SISTER void wa_forget_failure(void);

#endif
