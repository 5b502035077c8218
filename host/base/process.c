/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include "base/os.h"
#include "base/status.h"

#ifdef _WIN32 /* has no fork */
void wa_claim_process(void) {}
bool wa_is_forked(void) { return false; }
#else
#include <stdatomic.h>

static atomic_ulong claimed; /* 0: none so far */

void wa_claim_process(void)
{
    unsigned long none = 0;
    atomic_compare_exchange_strong(&claimed, &none, wa_process_number());
}

bool wa_is_forked(void)
{
    const unsigned long process = atomic_load(&claimed);
    return process != 0 && process != wa_process_number();
}
#endif

winattn_status wa_check_process(void)
{
    if (!wa_is_forked())
        return WINATTN_SUCCESS;
    return wa_fail(WINATTN_INVALID_PROCESS,
                   "this process was forked from one that had used OpenCL, "
                   "which does not work in the child: use winattn in one of "
                   "the two only, or start the child by exec");
}
