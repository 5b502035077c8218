/* SPDX-License-Identifier: Apache-2.0
 * Tables of programs for test_programs.c. */
#ifndef DEVICE_PROGRAMS_H
#define DEVICE_PROGRAMS_H

#include <stddef.h>

/* A row is a program: words of what differs at compile time, and what a plan
 * must be like (shape and so on, kit/demand.h); 2 windows and 1 head where
 * nothing else is said. Behind each "|" are the words of a case beside those
 * that any program has. more=1: such cases may build a program more; only=1:
 * it has no cases but its own. */
typedef struct program_table {
    const char *pass, *tier, *part;
    const char *const *rows;
    size_t count;
} program_table;

#define PROGRAMS(rows) rows, sizeof(rows) / sizeof *(rows)

/* A file each; the last one has no rows. */
extern const program_table matrix_programs[], matrix_gradients[],
    local_programs[], cpu_programs[], hopper_programs[];

#endif
