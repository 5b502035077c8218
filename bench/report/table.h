/* SPDX-License-Identifier: Apache-2.0
 * A report on a terminal of 100 columns, row by row while it grows. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <stdio.h>

#include "report/report.h"

#define TABLE_WIDTH 100

/* One line, of which what is too long is cut off. */
void table_print_line(FILE *to, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* "12.3x", or "-" where unknown. */
const char *table_factor(double factor, char text[16]);

void table_print_device(FILE *to, const report *r, size_t device);
void table_print_heading(FILE *to);
void table_print_row(FILE *to, const report *r, const report_row *row);

#endif
