/* SPDX-License-Identifier: Apache-2.0
 * Values that nobody has set. Whoever computes with one has another. They may
 * be selected away; to branch by one, to store it in global memory, or to find
 * an address by it is an error. */
#ifndef TESTS_EMULATOR_PTX_UNSET_H
#define TESTS_EMULATOR_PTX_UNSET_H

#include "ptx_code.h"

/* NULL: out of memory. */
struct ptx_unset *ptx_unset_new(const ptx_group *group);
void ptx_unset_free(struct ptx_unset *unset);
/* A wave starts: nothing is set but constants. */
void ptx_unset_start(ptx_wave *wave);

/* Before the instruction runs: are its results set, and may it run? */
void ptx_unset_spread(ptx_wave *wave, const ptx_instruction *instruction,
                      lane_mask lanes);
void ptx_unset_guard(ptx_wave *wave, const ptx_instruction *instruction,
                     lane_mask lanes);

/* What a lane has loaded was not set: in that operand. */
void ptx_unset_loaded(ptx_wave *wave, const ptx_instruction *instruction,
                      unsigned operand, unsigned lane);
/* What a lane stores of an operand. */
void ptx_unset_stored(ptx_wave *wave, const ptx_instruction *instruction,
                      unsigned operand, unsigned lane, const unsigned char *to,
                      size_t bytes);
/* Has a work-item not written all of this memory of its own? */
bool ptx_private_is_unset(const ptx_wave *wave, const unsigned char *at,
                          size_t bytes);

#endif
