/* SPDX-License-Identifier: Apache-2.0
 * Numbers of self-tests as fp16 and bf16 store them. */
#ifndef WINATTN_STORED_NUMBERS_H
#define WINATTN_STORED_NUMBERS_H

#include <stdint.h>

#include "winattn.h"

/* n times 2^power, |n| < 128, which must be no subnormal number. */
uint16_t wa_stored_bits(winattn_dtype dtype, int n, int power);

#endif
