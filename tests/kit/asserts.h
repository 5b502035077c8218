/* SPDX-License-Identifier: Apache-2.0
 * What tests of many subjects assert, with a failure that says what was found
 * instead. For programs of cmocka, which this header includes. */
#ifndef KIT_ASSERTS_H
#define KIT_ASSERTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cases.h"

/* The case of a text, which must be right. */
test_case parsed(const char *text);

/* The reason of the call before must contain `culprit`. */
void assert_status(winattn_status got, winattn_status wanted,
                   const char *culprit);

#endif
