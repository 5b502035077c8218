/* SPDX-License-Identifier: Apache-2.0
 * A report on the terminal: row by row while it grows, and as a comparison
 * of devices at the end. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <stdio.h>

#include "report/report.h"

void table_print_device(FILE *to, const report_device *device);
void table_print_heading(FILE *to);
void table_print_row(FILE *to, const report *r, const report_row *row);
/* The distinct reasons why rows of a device were not compared. */
void table_print_notes(FILE *to, const report *r, size_t device);
/* What the columns mean. */
void table_print_legend(FILE *to);
/* Cases against devices. */
void table_print_comparison(FILE *to, const report *r);

#endif
