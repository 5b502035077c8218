/* SPDX-License-Identifier: Apache-2.0
 * Parts of the level of winattn.h. */
#ifndef CAMPAIGN_CORE_LEVEL_H
#define CAMPAIGN_CORE_LEVEL_H

#include "levels.h"

void core_draw(random_state *r, level_desc *made);
void core_draw_small(random_state *r, level_desc *made);
/* Gives a table an index, now and then build options. */
void core_finish(random_state *r, level_desc *made);
void core_release(level_desc *made);

/* Do the launches of a call compute each window once? A long call is cut into
 * several, of which each kernel's go on where the one before ended. */
const char *core_launches_fault(const level_desc *desc, bool is_cut);

#endif
