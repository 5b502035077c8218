/* SPDX-License-Identifier: Apache-2.0
 * What all kernels of cl/hopper/ ask of a device and of tensors. */
#ifndef WINATTN_HOPPER_H
#define WINATTN_HOPPER_H

#include "plan/family.h"

/* Does the device have these instructions, and may they be taken? */
bool wa_has_wgmma(const wa_device *device);

/* Can copies of 16 bytes fetch and store all rows of what a pass has? */
bool wa_wgmma_copies(const wa_problem *problem, wa_pass pass);

/* NULL, or what kernels for windows cannot compute: "" where nobody expects
 * them. Tables have no more entries than there are pairs, so that the
 * self-test's memory is bounded. */
const char *wa_wgmma_windows_refusal(const wa_problem *problem,
                                     const wa_device *device, wa_pass pass);

/* Their wa_family.speed: an H200 showed 190 in the sliding variant. */
#define WA_WGMMA_SPEED 64.0

/* They read and write 16 bytes at once. */
void wa_set_wgmma_access(wa_plan *plan);

#endif
