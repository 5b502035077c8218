/* SPDX-License-Identifier: Apache-2.0
 * What tests of plans start from: made-up devices with their matrix units, the
 * problem of a text, its plan, and what the options of a step say. */
#ifndef UNIT_PLAN_MADE_H
#define UNIT_PLAN_MADE_H

#include "device/matrix_unit.h"
#include "kit/asserts.h"
#include "kit/devices.h"
#include "kit/plan_legal.h"
#include "plan/planner.h"

/* The made-up devices with their matrix units, as wa_device_query adds them,
 * once find_units was called. */
#define MOST_DEVICES 64
extern wa_device devices[MOST_DEVICES];
void find_units(void);

const wa_device *device_named(const char *name);

/* Of a case, which must be right. */
wa_problem problem_of(const char *text);

/* The pass that the problem's text names. */
wa_pass pass_of(const wa_problem *p);

/* The plan of that pass, or the other one; it must be there. plan_after: as
 * what failed before taught. */
wa_plan plan_after(const wa_problem *p, const wa_device *device, wa_pass pass,
                   const wa_exclusions *failed);
wa_plan plan_of(const wa_problem *p, const wa_device *device);
wa_plan backward_plan_of(const wa_problem *p, const wa_device *device);

/* The plan says this of itself. */
void assert_described(const wa_plan *plan, const char *line);

/* Has the library the families of Hopper (WINATTN_HOPPER)? */
bool has_hopper(void);

/* Has the device a unit that is taken unasked? */
bool has_proven_unit(const wa_device *device);

/* Does tier matrix compute the pass of such problems on the device? */
bool suits_matrix(const wa_problem *p, const wa_device *device, wa_pass pass);

/* The one that was made for such a device and problem. */
winattn_tier best_tier(const wa_problem *p, const wa_device *device,
                       wa_pass pass);

/* what: the problem, in a failure. */
void assert_legal(const wa_problem *p, const wa_device *device,
                  const wa_plan *plan, const char *what);

#endif
