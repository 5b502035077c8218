/* SPDX-License-Identifier: Apache-2.0
 * Numbers of the host in the types of the device. */
#ifndef WINATTN_HALF_H
#define WINATTN_HALF_H

#include "winattn.h"

/* Stores fp32 numbers as `dtype`: the nearest, ties to even; a NaN stays one.
 */
void wa_store_numbers(winattn_dtype dtype, const float *from, size_t count,
                      void *to);

#endif
