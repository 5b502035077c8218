/* SPDX-License-Identifier: Apache-2.0 */
#include "problem/read.h"

#include "base/status.h"

winattn_status wa_check_count(const char *name, uint64_t value, uint64_t most)
{
    if (value == 0)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is 0", name);
    if (value > most)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "%s is %llu, above %llu",
                       name, (unsigned long long)value,
                       (unsigned long long)most);
    return WINATTN_SUCCESS;
}

winattn_status wa_check_enum(const char *name, int value, int last)
{
    if (value < 0 || value > last)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is %d, not 0 to %d", name,
                       value, last);
    return WINATTN_SUCCESS;
}
