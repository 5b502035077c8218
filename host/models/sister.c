/* SPDX-License-Identifier: Apache-2.0 */
#include "models/sister.h"

#include "base/status.h"

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
