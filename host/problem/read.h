/* SPDX-License-Identifier: Apache-2.0
 * The steps of reading a descriptor, of which each fills its part of the
 * problem. wa_problem_read (problem.h) takes them in their order. */
#ifndef WA_READ_H
#define WA_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "problem/problem.h"

#define WA_MAX_TOKENS 0x7fffffffu

/* problem.c: the descriptor's field `name` is 1 to `most`, or a number up to
 * `last`. */
winattn_status wa_check_count(const char *name, uint64_t value, uint64_t most);
winattn_status wa_check_enum(const char *name, int value, int last);

/* grid.c: axes, windows, shift, padding; then the bias's table, which needs
 * the numbers of queries and keys. */
winattn_status wa_read_grid(const winattn_desc *desc, wa_problem *problem);
winattn_status wa_read_table(const winattn_desc *desc, wa_problem *problem);

/* tensors.c: extents and strides of all tensors, last. */
winattn_status wa_read_tensors(const winattn_desc *desc, wa_problem *problem);
/* Do tokens of the padding take part with given channels, or would they, were
 * there any? */
bool wa_has_pad_values(const wa_problem *problem);

#endif
