/* SPDX-License-Identifier: Apache-2.0
 * What tables and summaries mean. */
#ifndef BENCH_EXPLAIN_H
#define BENCH_EXPLAIN_H

#include <stdio.h>

void explain_print(FILE *to);

#endif
