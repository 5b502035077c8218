/* SPDX-License-Identifier: Apache-2.0
 * Runs lines of PTX as the body of a kernel. Before them %r1 is the work-item,
 * %r2 16 KB of local memory, %r4 the work-item's word of it, %rd0 words in
 * global memory, %rd2 the work-item's of these, and %r0 a number. */
#ifndef TESTS_EMULATOR_PTX_TEST_H
#define TESTS_EMULATOR_PTX_TEST_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_WORDS = 8192 };

/* Runs a body for so many work-items on these words; the reason why it fails,
 * or "". */
const char *run(const char *body, size_t items, uint32_t number,
                uint32_t *words, unsigned seed);

/* The same in several work-groups, and waves of so many lanes. */
const char *run_waves(const char *body, size_t groups, size_t items,
                      size_t lanes, uint32_t number, uint32_t *words,
                      unsigned seed);

void assert_fails(const char *body, size_t items, const char *why);

#endif
