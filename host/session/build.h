/* SPDX-License-Identifier: Apache-2.0
 * From the plan of a pass to kernels that are there. */
#ifndef WINATTN_BUILD_H
#define WINATTN_BUILD_H

#include "launch/launch.h"
#include "session/session.h"

/* Plans the pass, builds and checks its kernels; a tier that fails is excluded
 * and the next one planned. `kernels` is zeroed at first, and to be released
 * also after a failure. */
winattn_status wa_build_pass(wa_session *session, const wa_problem *problem,
                             wa_pass pass, const wa_table_buffers *table,
                             wa_plan *plan, wa_kernels *kernels);

/* The same of a plan as it is: builds the kernel of each step, and checks that
 * the device can run it; *most becomes the work-items that the main step's can
 * have. */
winattn_status wa_build_steps(wa_session *session, const wa_problem *problem,
                              const wa_plan *plan, wa_kernels *kernels,
                              uint32_t *most);

void wa_kernels_release(wa_kernels *kernels);

#endif
