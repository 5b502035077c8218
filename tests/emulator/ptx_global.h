/* SPDX-License-Identifier: Apache-2.0
 * Races in global memory, between the work-groups of a launch and within one.
 * Other launches are ordered by the queue. */
#ifndef TESTS_EMULATOR_PTX_GLOBAL_H
#define TESTS_EMULATOR_PTX_GLOBAL_H

#include "ptx_code.h"

/* NULL: out of memory. */
struct ptx_global *ptx_global_new(const ptx_launch *launch);
void ptx_global_free(struct ptx_global *global);

void ptx_global_read(ptx_wave *wave, unsigned lane, const unsigned char *at,
                     size_t bytes);
void ptx_global_write(ptx_wave *wave, unsigned lane, const unsigned char *at,
                      size_t bytes);
void ptx_global_atomic(ptx_wave *wave, unsigned lane, const unsigned char *at,
                       size_t bytes);

#endif
