/* SPDX-License-Identifier: Apache-2.0
 * What a plan of either pass promises to kernels and launches, written down a
 * second time. */
#ifndef KIT_PLAN_LEGAL_H
#define KIT_PLAN_LEGAL_H

#include "plan/planner.h"

/* What is not so of the plan; NULL: nothing. Not for two threads at once. */
const char *broken_plan(const wa_problem *p, const wa_device *device,
                        const wa_plan *plan);

/* The device with its own matrix unit, of number 0, and with each other that
 * it could have. False: there are no more. */
bool device_with_unit(const wa_device *of, size_t number, wa_device *device);

bool has_define(const char *defines, const char *name, unsigned value);
/* 0 if the options do not have it. */
uint32_t define_of(const char *defines, const char *name);

#endif
