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
void table_print_device(FILE *to, const report *r, size_t device);
void table_print_heading(FILE *to);
void table_print_row(FILE *to, const report *r, const report_row *row);

/* ---- The end of a run ---- */

#define SUMMARY_LINES 24

/* What a run left behind. */
typedef struct summary_files {
    const char *json; /* NULL: not asked for */
    const char *log;  /* of drivers and compilers, or NULL */
    size_t log_lines; /* 0: they printed nothing */
    bool advises;     /* on what to do next */
} summary_files;

/* Devices with their ceilings, and per kind of attention and pass what was
 * reached of them and the speed-ups. */
void summary_print_devices(FILE *to, const report *r);
/* What was left out, where results are, and what to do next. */
void summary_print_end(FILE *to, const report *r, const summary_files *files);

#endif
