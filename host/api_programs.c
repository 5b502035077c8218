/* SPDX-License-Identifier: Apache-2.0
 * The public entry points for compiled kernels. */
#include <stdlib.h>

#include "base/process.h"
#include "base/status.h"
#include "program/cache.h"
#include "session/session.h"

struct winattn_programs {
    wa_session *session;
};

winattn_status winattn_set_cache_dir(const char *folder)
{
    wa_forget_failure();
    return wa_cache_set_folder(folder);
}

winattn_status winattn_programs_create(cl_context context, cl_device_id device,
                                       winattn_programs **result)
{
    wa_forget_failure();
    WA_WANT(result, "programs");
    *result = NULL;
    winattn_programs *programs = calloc(1, sizeof *programs);
    WA_TRY_MEMORY(programs);
    const winattn_status status =
        wa_session_acquire(context, device, &programs->session);
    if (status != WINATTN_SUCCESS) {
        free(programs);
        return status;
    }
    wa_program_set_add_exporter(wa_session_programs(programs->session));
    *result = programs;
    return WINATTN_SUCCESS;
}

void winattn_programs_destroy(winattn_programs *programs)
{
    if (!programs || wa_session_is_inherited(programs->session))
        return;
    wa_program_set_remove_exporter(wa_session_programs(programs->session));
    wa_session_release(programs->session);
    free(programs);
}

winattn_status winattn_programs_import(winattn_programs *programs, size_t size,
                                       const void *blob)
{
    wa_forget_failure();
    WA_WANT(programs, "programs");
    WA_WANT(blob, "blob");
    WA_TRY(wa_check_process());
    return wa_program_set_import(wa_session_programs(programs->session), size,
                                 blob);
}

winattn_status winattn_programs_export(const winattn_programs *programs,
                                       size_t size, void *blob, size_t *needed)
{
    wa_forget_failure();
    WA_WANT(programs, "programs");
    if (!blob && size != 0)
        return WA_INVALID("blob is NULL, but size is not 0");
    WA_TRY(wa_check_process());
    return wa_program_set_export(wa_session_programs(programs->session), size,
                                 blob, needed);
}
