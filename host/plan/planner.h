/* SPDX-License-Identifier: Apache-2.0
 * What kernel families share. */
#ifndef WINATTN_PLANNER_H
#define WINATTN_PLANNER_H

#include "plan/plan.h"
#include "plan/tuning_row.h"

/* Keeps the first reason why a measured shape of a tier was not taken. */
void wa_note_untuned(char untuned[WA_REASON_SIZE], winattn_tier tier,
                     const char *why);
/* Blocks of keys that a work tile loops over at most. */
double wa_plan_key_blocks(const wa_problem *problem, uint32_t block_rows,
                          uint32_t block_keys);
static inline uint32_t wa_ceil_div(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}
/* The largest size up to `most` of blocks that share `all` evenly, that is
 * ceil(all / n) for some n; 0 for 0. All such sizes, from the largest on:
 * for (s = wa_even_size(all, all); s > 0; s = wa_even_size(all, s - 1)) */
uint32_t wa_even_size(uint32_t all, uint32_t most);

#endif
