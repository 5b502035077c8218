/* SPDX-License-Identifier: Apache-2.0
 * Groups of tests, of which programs are made: a file each. Includes cmocka.
 */
#ifndef KIT_GROUP_H
#define KIT_GROUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Tests that run one after the other. */
typedef struct test_group {
    const char *part; /* NULL: any that no other group has. Several groups may
                         have the same. */
    const struct CMUnitTest *tests;
    size_t count;
} test_group;
#define TEST_GROUP(part, tests)                                               \
    {                                                                         \
        part, tests, sizeof(tests) / sizeof *(tests)                          \
    }

#endif
