/* SPDX-License-Identifier: Apache-2.0 */
#include "models/levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "launch/check.h"

/* Parts of a workspace start on lines of memory. */
#define PART_ALIGNMENT 256u

int winattn_models_version(void) { return WINATTN_VERSION; }

winattn_status wa_models_begin(void)
{
    wa_forget_failure();
    if (winattn_version() != WINATTN_VERSION)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "winattn_models is of version %d, but winattn of %d",
                       WINATTN_VERSION, winattn_version());
    return WINATTN_SUCCESS;
}

uint32_t wa_element_size(winattn_dtype dtype)
{
    return dtype == WINATTN_FP32 ? 4 : 2;
}

uint32_t wa_term_size(winattn_dtype dtype, winattn_term_dtype term)
{
    return term == WINATTN_TERM_FP32 ? 4 : wa_element_size(dtype);
}

winattn_status wa_check_types(winattn_dtype dtype, winattn_tier tier)
{
    if ((unsigned)dtype > WINATTN_BF16)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "dtype is %d, which is none",
                       (int)dtype);
    if ((unsigned)tier > WINATTN_TIER_MATRIX)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "tier is %d, which is none",
                       (int)tier);
    return WINATTN_SUCCESS;
}

uint64_t wa_product(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

uint64_t wa_part_bytes(uint64_t bytes)
{
    return (bytes + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
}

winattn_status wa_check_inputs(const wa_wanted_tensor *wanted, size_t count,
                               cl_context context, uint64_t *start)
{
    for (size_t i = 0; i < count; i++) {
        const wa_wanted_tensor *t = &wanted[i];
        if (t->is_wanted != (t->at->buffer != NULL))
            return wa_fail(WINATTN_INVALID_ARGUMENT,
                           t->is_wanted
                               ? "%s is NULL"
                               : "%s is given, but the plan does not use it",
                           t->name);
        if (t->is_wanted)
            WA_TRY(wa_check_memory(t->name, t->at, context, WA_READS,
                                   t->element_size, t->count * t->element_size,
                                   start));
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_check_workspace(const winattn_tensor *workspace,
                                  cl_context context, uint64_t bytes,
                                  uint64_t *start)
{
    if (!workspace->buffer)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "workspace is NULL, but the call needs %llu bytes",
                       (unsigned long long)bytes);
    const winattn_status status =
        wa_check_memory("workspace", workspace, context, WA_READS_AND_WRITES,
                        16, bytes, start);
    return status == WINATTN_BUFFER_TOO_SMALL ? WINATTN_WORKSPACE_TOO_SMALL
                                              : status;
}

winattn_status wa_check_order(const wa_session *session,
                              cl_command_queue queue, cl_uint wait_count,
                              const cl_event *wait_list)
{
    if ((wait_count == 0) != (wait_list == NULL))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "wait_count and wait_list contradict each other");
    return wa_check_queue(queue, wa_session_context(session),
                          wa_session_device_id(session));
}

winattn_status wa_describe_part(const char *name, wa_describer *describe,
                                const void *plan, char *text, size_t size)
{
    size_t needed = 0;
    WA_TRY(describe(plan, 0, NULL, &needed));
    char *own = malloc(needed);
    if (!own)
        return wa_fail_memory();
    const winattn_status status = describe(plan, needed, own, NULL);
    for (const char *line = own; status == WINATTN_SUCCESS && *line;) {
        const size_t length = strcspn(line, "\n");
        wa_append(text, size, "%s %.*s\n", name, (int)length, line);
        line += length + (line[length] == '\n');
    }
    free(own);
    return status;
}

winattn_status wa_give_text(const char *all, size_t size, char *text,
                            size_t *needed)
{
    if (!text && size != 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "text is NULL, but size is not 0");
    if (size != 0)
        snprintf(text, size, "%s", all);
    if (needed)
        *needed = strlen(all) + 1;
    return WINATTN_SUCCESS;
}
