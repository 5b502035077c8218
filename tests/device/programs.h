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

extern const program_table matrix_forward_programs;
extern const program_table matrix_grid_programs;
extern const program_table matrix_sliding_programs;
extern const program_table matrix_shared_programs;
extern const program_table matrix_whole_gradients;
extern const program_table matrix_split_gradients;
extern const program_table matrix_grid_gradients;
extern const program_table matrix_sliding_gradients;
extern const program_table local_forward_programs;
extern const program_table local_grid_programs;
extern const program_table local_backward_programs;
extern const program_table local_grid_gradients;
extern const program_table cpu_forward_programs;
extern const program_table cpu_grid_programs;
extern const program_table cpu_backward_programs;
extern const program_table cpu_grid_gradients;
extern const program_table hopper_forward_programs;
extern const program_table hopper_backward_programs;

#endif
