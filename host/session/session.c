/* SPDX-License-Identifier: Apache-2.0
 * Keeps what plans share. */
#include "session/session.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/process.h"
#include "base/status.h"
#include "device/query.h"
#include "session/family_check.h"
#include "session/probe.h"
#include "session/self_test.h"

#define CHECK_REASON_SIZE 256

/* What a self-test found. */
typedef struct kept_check {
    char *subject; /* what was tested, and with which options */
    winattn_status status;
    char reason[CHECK_REASON_SIZE]; /* of a failure */
    struct kept_check *next;
} kept_check;

struct wa_session {
    cl_context context;
    cl_device_id device_id;
    wa_device device;
    unsigned users;
    wa_program_set *programs;
    wa_lock *check_lock; /* for `checks`; held while a test runs */
    kept_check *checks;
    struct wa_session *next;
};

/* Guarded by the global lock. */
static wa_session *sessions;

cl_context wa_session_context(const wa_session *session)
{
    return session->context;
}

cl_device_id wa_session_device_id(const wa_session *session)
{
    return session->device_id;
}

const wa_device *wa_session_device(const wa_session *session)
{
    return &session->device;
}

wa_program_set *wa_session_programs(const wa_session *session)
{
    return session->programs;
}

winattn_status wa_session_kernel(const wa_session *session, const char *name,
                                 const char *defines,
                                 const char *build_options, cl_kernel *kernel)
{
    return wa_program_set_kernel(session->programs, name, defines,
                                 build_options, kernel);
}

winattn_status wa_session_check_kernel(const wa_session *session,
                                       cl_kernel kernel, uint32_t work_group,
                                       uint32_t *most)
{
    size_t size = 0;
    WA_TRY(WA_CL(clGetKernelWorkGroupInfo, kernel, session->device_id,
                 CL_KERNEL_WORK_GROUP_SIZE, sizeof size, &size, NULL));
    if (most)
        *most = (uint32_t)size;
    if (size < work_group && wa_session_device(session)->reports_kernel_sizes)
        return WA_BAD_DEVICE(
            "the kernel built for work-groups of %llu, not %u",
            (unsigned long long)size, work_group);
    return WINATTN_SUCCESS;
}

winattn_status wa_session_find_spills(const wa_session *session,
                                      cl_kernel kernel, cl_ulong *bytes)
{
    *bytes = 0;
    const cl_int error = clGetKernelWorkGroupInfo(
        kernel, wa_session_device_id(session), CL_KERNEL_PRIVATE_MEM_SIZE,
        sizeof *bytes, bytes, NULL);
    if (wa_may_pass(error))
        return wa_fail_cl(error, "clGetKernelWorkGroupInfo");
    if (error != CL_SUCCESS)
        *bytes = 0;
    return WINATTN_SUCCESS;
}

/* ---- Self-tests ---- */

/* A text that is to be freed; NULL: out of memory. */
static char *text_of(const wa_tested *subject)
{
    const size_t size = strlen(subject->kernel) + strlen(subject->defines) +
                        strlen(subject->build_options) + 16;
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%d %s %s\n%s", (int)subject->dtype,
                 subject->kernel, subject->defines, subject->build_options);
    return text;
}

/* What an earlier test found; false: there was none. */
static bool recall(const wa_session *session, const char *subject,
                   winattn_status *status)
{
    const kept_check *check = session->checks;
    while (check && strcmp(check->subject, subject) != 0)
        check = check->next;
    if (check && check->status != WINATTN_SUCCESS)
        wa_fail(check->status, "%s", check->reason);
    if (check)
        *status = check->status;
    return check;
}

/* What failed for a reason that may pass is tested again. */
static void keep(wa_session *session, char **subject, winattn_status status)
{
    kept_check *check = NULL;
    if (status == WINATTN_SUCCESS || status == WINATTN_UNSUPPORTED_DEVICE)
        check = calloc(1, sizeof *check);
    if (!check)
        return;
    check->subject = *subject;
    *subject = NULL;
    check->status = status;
    snprintf(check->reason, sizeof check->reason, "%s", winattn_last_reason());
    check->next = session->checks;
    session->checks = check;
}

winattn_status wa_session_test_once(wa_session *session,
                                    const wa_tested *subject,
                                    wa_self_test *test, const void *data)
{
    winattn_status status;
    char *text = text_of(subject);
    WA_TRY_MEMORY(text);
    wa_lock_take(session->check_lock);
    if (!recall(session, text, &status)) {
        status = test(session, data);
        keep(session, &text, status);
    }
    wa_lock_release(session->check_lock);
    free(text);
    return status;
}

static winattn_status test_matrix_unit(wa_session *session, const void *data)
{
    const wa_tested *subject = data;
    return wa_check_matrix_unit(session->context, session->device_id,
                                session->programs, &session->device,
                                subject->dtype, subject->build_options);
}

winattn_status wa_session_check_matrix_unit(wa_session *session,
                                            winattn_dtype dtype,
                                            const char *build_options)
{
    const wa_tested subject = {dtype, "", "", build_options};
    return wa_session_test_once(session, &subject, test_matrix_unit, &subject);
}

typedef struct planned_pass {
    const wa_problem *problem;
    const wa_plan *plan;
    const wa_kernels *kernels;
    const wa_table_buffers *table;
} planned_pass;

static winattn_status test_family(wa_session *session, const void *data)
{
    const planned_pass *p = data;
    return wa_check_family(session, p->problem, p->plan, p->kernels, p->table,
                           NULL, NULL);
}

winattn_status wa_session_check_family(wa_session *session,
                                       const wa_problem *problem,
                                       const wa_plan *plan,
                                       const wa_kernels *kernels,
                                       const wa_table_buffers *table)
{
    const wa_step *main = &plan->step[wa_main_step(plan->pass)];
    const wa_tested subject = {problem->dtype, main->kernel, main->defines,
                               problem->build_options};
    const planned_pass pass = {problem, plan, kernels, table};
    return wa_session_test_once(session, &subject, test_family, &pass);
}

/* ---- Contexts and devices ---- */

/* The device that a sub-device is part of, NULL for a whole one. */
static winattn_status find_parent(cl_device_id device, cl_device_id *parent)
{
    *parent = NULL;
    return wa_query_if_known(device, CL_DEVICE_PARENT_DEVICE, sizeof *parent,
                             parent);
}

/* Is the device, or a whole of which it is a part, in the list? */
static winattn_status find_device(const cl_device_id *devices, size_t count,
                                  cl_device_id device, bool *found)
{
    *found = false;
    while (device) {
        for (size_t i = 0; i < count; i++)
            *found = *found || devices[i] == device;
        if (*found)
            break;
        WA_TRY(find_parent(device, &device));
    }
    return WINATTN_SUCCESS;
}

/* PoCL lists the whole device in a context made of its parts, so a device
 * also belongs where its parent does. */
static winattn_status check_context(cl_context context, cl_device_id device)
{
    size_t bytes = 0;
    bool found = false;
    WA_WANT(context, "context");
    WA_WANT(device, "device");
    WA_TRY(
        WA_CL(clGetContextInfo, context, CL_CONTEXT_DEVICES, 0, NULL, &bytes));
    cl_device_id *devices = malloc(bytes + 1);
    WA_TRY_MEMORY(devices);
    winattn_status status = WA_CL(clGetContextInfo, context,
                                  CL_CONTEXT_DEVICES, bytes, devices, NULL);
    WA_THEN(status,
            find_device(devices, bytes / sizeof *devices, device, &found));
    free(devices);
    WA_TRY(status);
    if (!found)
        return WA_INVALID("device is not one of the context's");
    return WINATTN_SUCCESS;
}

static void session_free(wa_session *session)
{
    while (session->checks) {
        kept_check *check = session->checks;
        session->checks = check->next;
        free(check->subject);
        free(check);
    }
    wa_lock_destroy(session->check_lock);
    wa_program_set_destroy(session->programs);
    clReleaseContext(session->context);
    clReleaseDevice(session->device_id);
    free(session);
}

/* A context need not hold a sub-device that it was made of (PoCL's does not),
 * and none holds one of whose whole it was made. */
static winattn_status retain(cl_context context, cl_device_id device)
{
    WA_TRY(WA_CL(clRetainContext, context));
    const cl_int error = clRetainDevice(device);
    if (error != CL_SUCCESS)
        clReleaseContext(context);
    return wa_cl_status(error, "clRetainDevice");
}

static winattn_status session_new(cl_context context, cl_device_id device,
                                  wa_session **result)
{
    wa_session *session = calloc(1, sizeof *session);
    WA_TRY_MEMORY(session);
    winattn_status status = retain(context, device);
    if (status != WINATTN_SUCCESS) {
        free(session);
        return status;
    }
    session->context = context;
    session->device_id = device;
    session->users = 1;
    session->programs = wa_program_set_create(context, device);
    session->check_lock = wa_lock_create();
    status = session->programs && session->check_lock
                 ? wa_device_query(device, &session->device)
                 : wa_fail_memory();
    WA_THEN(status, wa_probe_device(context, device, &session->device));
    if (status != WINATTN_SUCCESS) {
        session_free(session);
        return status;
    }
    *result = session;
    return WINATTN_SUCCESS;
}

winattn_status wa_session_acquire(cl_context context, cl_device_id device,
                                  wa_session **result)
{
    winattn_status status = wa_check_process();
    WA_THEN(status, check_context(context, device));
    if (status != WINATTN_SUCCESS)
        return status;
    wa_claim_process();
    wa_global_lock_take();
    wa_session *session = sessions;
    while (session &&
           (session->context != context || session->device_id != device))
        session = session->next;
    if (session) {
        session->users++;
    } else {
        status = session_new(context, device, &session);
        if (status == WINATTN_SUCCESS) {
            session->next = sessions;
            sessions = session;
        }
    }
    wa_global_lock_release();
    *result = session;
    return status;
}

bool wa_session_is_inherited(const wa_session *session)
{
    return session && wa_is_forked();
}

void wa_session_release(wa_session *session)
{
    bool last = false;
    if (!session)
        return;
    wa_global_lock_take();
    if (--session->users == 0) {
        wa_session **link = &sessions;
        while (*link != session)
            link = &(*link)->next;
        *link = session->next;
        last = true;
    }
    wa_global_lock_release();
    if (last)
        session_free(session);
}
