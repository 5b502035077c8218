/* SPDX-License-Identifier: Apache-2.0
 * What a bench run found, and its forms: table, comparison, CSV, JSON. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct report_device {
    char platform[128];
    char name[128];
    char driver[128];
    double copy_bandwidth; /* bytes read + written per second */
    double fma_rate;       /* fp32 operations per second */
} report_device;

typedef struct report_row {
    size_t device;     /* index */
    char name[64];     /* of the workload, with ":w64" where shrunk */
    char text[256];    /* the case, as the option --case takes it */
    const char *dtype; /* "fp32", "fp16", "bf16" */
    const char *pass;  /* "forward" */
    char tier[16];     /* "" where the plan failed */
    double seconds;    /* of one call */
    double bytes;      /* that the call must move at least */
    double operations; /* an FMA counts 2 */
    double error;      /* relative, on sampled windows; NaN: unknown */
    char failure[256]; /* "" if there are times */
} report_row;

typedef struct report {
    char date[32]; /* UTC, ISO 8601 */
    size_t device_count, row_count;
    report_device *devices;
    report_row *rows;
} report;

void report_start(report *r);
void report_free(report *r);
/* Appended with zeros and returned; NULL: out of memory. The next call may
 * move them. */
report_device *report_add_device(report *r);
report_row *report_add_row(report *r);

/* Fractions of the row's device's ceilings; 0 where unknown. */
double report_of_copy(const report *r, const report_row *row);
double report_of_fma(const report *r, const report_row *row);
/* The larger of both: 1 is what no kernel on this device can exceed. */
double report_of_ceiling(const report *r, const report_row *row);

void report_print_device(const report_device *device);
void report_print_heading(void);
void report_print_row(const report *r, const report_row *row);
/* Cases against devices. */
void report_print_comparison(const report *r);
/* False if the file could not be written. */
bool report_write_csv(const report *r, const char *path);
bool report_write_json(const report *r, const char *path);

#endif
