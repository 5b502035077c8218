/* SPDX-License-Identifier: Apache-2.0
 * The end of a run, on one screen of 24 lines and 100 columns. */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include <stdio.h>

#include "report/report.h"

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
