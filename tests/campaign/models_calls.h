/* SPDX-License-Identifier: Apache-2.0
 * Argument sets for plans of the library of models, right ones and spoilt
 * ones, and what must hold of every call. */
#ifndef CAMPAIGN_MODELS_CALLS_H
#define CAMPAIGN_MODELS_CALLS_H

#include "calls.h"
#include "models_levels.h"

/* What a plan is called on. */
typedef struct level_site {
    const level_desc *desc; /* that it was made of */
    void *plan;
    cl_device_id device;
    unsigned address_bits; /* of the device */
    cl_context context, other_context;
} level_site;

/* Makes one call with arguments that are right, or spoilt in a few places, and
 * checks what comes of it. */
void level_call_and_check(random_state *r, const level_site *site,
                          call_counts *counts, finding_reporter *report);

#endif
