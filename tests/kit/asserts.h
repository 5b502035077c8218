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
#include "npy.h"

/* The case of a text, which must be right. */
test_case parsed(const char *text);

/* A tensor of tests/golden. */
npy_array loaded(const char *case_name, const char *tensor);

/* ||got - want|| is at most `tolerance` times ||want||; all numbers are
 * finite. what: the name in a failure. */
void assert_close(const char *what, const double *got, const double *want,
                  size_t count, double tolerance);

/* The reason of the call before must contain `culprit`. */
void assert_status(winattn_status got, winattn_status wanted,
                   const char *culprit);

#endif
