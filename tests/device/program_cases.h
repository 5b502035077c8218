/* SPDX-License-Identifier: Apache-2.0
 * Cases of a program: what may differ where the same kernels run. */
#ifndef DEVICE_PROGRAM_CASES_H
#define DEVICE_PROGRAM_CASES_H

#include "kit/demand.h"

/* The words of case `number` of a program whose first case is *base, which
 * has no such words; NULL: the program has no more. From 1 on; some do not
 * suit the program, and then *suits is false. */
const char *program_case(const test_case *base, size_t number, bool *suits);

/* demand_parse, with words of grids whose windows are of any size. Digits of
 * map: windows along each axis; of cut: tokens that the last one lacks; of
 * roll: the shift; where an axis has no room for that, as many as it has. */
bool program_parse(const char *text, test_case *c, demand *d, char bad[64]);

#endif
