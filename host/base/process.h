/* SPDX-License-Identifier: Apache-2.0
 * The process that uses OpenCL. A child of fork has its objects, but none of
 * the threads that serve them, so that calls may wait for ever. */
#ifndef WA_PROCESS_H
#define WA_PROCESS_H

#include <stdbool.h>

#include "base/sister.h"
#include "winattn.h"

/* It is this one, if it is none so far. */
void wa_claim_process(void);

/* Is this a child of fork of that process, or a child's child? */
WA_SISTER bool wa_is_forked(void);

/* Fails where it is. */
WA_SISTER winattn_status wa_check_process(void);

#endif
