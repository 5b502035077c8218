/* SPDX-License-Identifier: Apache-2.0
 * Random cases, of tiers local and matrix in random shapes that fit them. */
#ifndef DEVICE_RANDOM_PROGRAMS_H
#define DEVICE_RANDOM_PROGRAMS_H

#include "kit/demand.h"

/* Of a pass and a tier, and for tier matrix of d->unit: the same for the same
 * seed. */
void random_program(int seed, int pass, int tier, test_case *c, demand *d);

#endif
