/* SPDX-License-Identifier: Apache-2.0
 * Linear layers as a part of larger calls. */
#ifndef WINATTN_LINEAR_H
#define WINATTN_LINEAR_H

#include "launch/chain.h"

#include "winattn_models.h"

/* Checks a call as winattn_enqueue_linear does, but for the queue; appends
 * nothing. */
winattn_status wa_linear_check(const winattn_linear_plan *plan,
                               const winattn_linear *linear);

/* Appends the launches of a call that wa_linear_check accepted. */
winattn_status wa_linear_append(const winattn_linear_plan *plan,
                                const winattn_linear *linear,
                                wa_kernel_chain *chain);

#endif
