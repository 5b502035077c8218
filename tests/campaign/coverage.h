/* SPDX-License-Identifier: Apache-2.0
 * Do the launches of a call compute each window once? A long call is cut into
 * several, of which each kernel's go on where the one before ended. */
#ifndef CAMPAIGN_COVERAGE_H
#define CAMPAIGN_COVERAGE_H

#include "meaning.h"

/* Of the launches that are recorded; is_cut: there are more of them. NULL, or
 * what is wrong. */
const char *coverage_fault(const winattn_desc *desc, bool is_cut);

#endif
