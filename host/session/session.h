/* SPDX-License-Identifier: Apache-2.0
 * Sessions: what all plans of one context and device share. A session knows
 * the device, has its programs, and remembers what its matrix unit showed. */
#ifndef WINATTN_SESSION_H
#define WINATTN_SESSION_H

#include "base/sister.h"
#include "device/device.h"
#include "launch/launch.h"
#include "program/program_set.h"

typedef struct wa_session wa_session;

/* Finds or makes the session and counts one more user. Retains context and
 * device. Fails if the device is not of the context. */
WA_SISTER winattn_status wa_session_acquire(cl_context context,
                                            cl_device_id device,
                                            wa_session **session);
WA_SISTER void wa_session_release(wa_session *session); /* NULL is fine */

/* Is it the parent's of a process that was forked? Then nothing that belongs
 * to it may be touched, nor a lock be taken. False for NULL. */
WA_SISTER bool wa_session_is_inherited(const wa_session *session);

WA_SISTER cl_context wa_session_context(const wa_session *session);
WA_SISTER cl_device_id wa_session_device_id(const wa_session *session);
WA_SISTER const wa_device *wa_session_device(const wa_session *session);

WA_SISTER wa_program_set *wa_session_programs(const wa_session *session);

/* See wa_program_set_kernel. */
WA_SISTER winattn_status wa_session_kernel(const wa_session *session,
                                           const char *name,
                                           const char *defines,
                                           const char *build_options,
                                           cl_kernel *kernel);

/* A kernel that built can still be one that the device cannot run; *most, if
 * not NULL, becomes the work-items that it can. */
WA_SISTER winattn_status wa_session_check_kernel(const wa_session *session,
                                                 cl_kernel kernel,
                                                 uint32_t work_group,
                                                 uint32_t *most);

/* Bytes of slow memory that a work-item of the kernel needs because registers
 * do not suffice; 0 where the driver does not tell. */
WA_SISTER winattn_status wa_session_find_spills(const wa_session *session,
                                                cl_kernel kernel,
                                                cl_ulong *bytes);

/* What a self-test is about: a type, or a kernel ("": none). */
typedef struct wa_tested {
    winattn_dtype dtype;
    const char *kernel, *defines;
    const char *build_options; /* the caller's */
} wa_tested;

/* Makes a test once for each subject. It fails with WINATTN_UNSUPPORTED_DEVICE
 * if the device is wrong; one that fails in another way is made again. */
typedef winattn_status wa_self_test(wa_session *session, const void *data);
WA_SISTER winattn_status wa_session_test_once(wa_session *session,
                                              const wa_tested *subject,
                                              wa_self_test *test,
                                              const void *data);

/* wa_check_family of a plan's pass, made once for each program of its main
 * step. */
winattn_status wa_session_check_family(wa_session *session,
                                       const wa_problem *problem,
                                       const wa_plan *plan,
                                       const wa_kernels *kernels,
                                       const wa_table_buffers *table);

/* wa_check_matrix_unit for the session's device, made once for each type and
 * build options. */
WA_SISTER winattn_status wa_session_check_matrix_unit(
    wa_session *session, winattn_dtype dtype, const char *build_options);

#endif
