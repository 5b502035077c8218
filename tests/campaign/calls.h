/* SPDX-License-Identifier: Apache-2.0
 * Argument sets for a plan, right ones and spoilt ones, and what must hold of
 * every call. */
#ifndef CAMPAIGN_CALLS_H
#define CAMPAIGN_CALLS_H

#include "descriptors.h"

/* What a plan is called on. */
typedef struct call_site {
    winattn_plan *plan;
    const winattn_desc *desc; /* that it was made of */
    cl_device_id device;
    unsigned address_bits; /* of the device */
    cl_context context, other_context;
} call_site;

typedef struct call_counts {
    unsigned long calls, refused, launches, tensors;
} call_counts;

/* Somebody to tell what is wrong. */
typedef void finding_reporter(const char *what, const char *detail);

/* Makes one call of the pass (0: forward) with arguments that are right, or
 * spoilt in a few places, and checks what comes of it. */
void call_and_check(random_state *r, const call_site *site, int pass,
                    bool may_spoil, call_counts *counts,
                    finding_reporter *report);

#endif
