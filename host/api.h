/* SPDX-License-Identifier: Apache-2.0
 * What rooms above the public functions ask of a plan. */
#ifndef WINATTN_API_H
#define WINATTN_API_H

#include "session/family_check.h"

/* A list of its programs, without launches. NULL: out of memory. */
winattn_launch_list *wa_plan_begin_list(const winattn_plan *plan);
/* Has the pass kernels that are not trusted unseen? */
bool wa_plan_is_checked(const winattn_plan *plan, wa_pass pass);
/* wa_check_family of the pass. */
winattn_status wa_plan_check(const winattn_plan *plan, wa_pass pass,
                             wa_runner *runner, void *data);

#endif
