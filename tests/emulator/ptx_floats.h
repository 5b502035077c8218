/* SPDX-License-Identifier: Apache-2.0
 * Floating-point numbers of the types that an instruction names. */
#ifndef TESTS_EMULATOR_PTX_FLOATS_H
#define TESTS_EMULATOR_PTX_FLOATS_H

#include "ptx_code.h"

/* + - * / and m M, which prefer a number to a NaN. */
void ptx_calculate(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes,
                   char operation);
bool ptx_holds(const ptx_instruction *i, uint64_t a, uint64_t b);

#endif
