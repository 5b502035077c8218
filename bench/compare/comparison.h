/* SPDX-License-Identifier: Apache-2.0
 * A run of winattn-bench. */
#ifndef BENCH_COMPARISON_H
#define BENCH_COMPARISON_H

#include "command/options.h"
#include "measure/measure.h"
#include "measure/screen.h"
#include "measure/workload.h"
#include "report/report.h"

/* Measures all rows on all devices, and prints them as they come. False if a
 * device could not be measured at all. */
bool comparison_run(const options *o, const bench_screen *screen,
                    const cl_device_id *ids, char (*names)[256], size_t count,
                    report *r);

/* ---- One row of a report (row.c) ---- */

/* Fewer windows (grids where there are some), or fewer tokens and as many
 * blocks of them, until a measurement is expected to fit into `seconds` at a
 * fraction `efficiency` of the device's ceiling. The name says what became of
 * `whole`. */
void row_shrink(const bench_device *device, bench_pass pass, double efficiency,
                double seconds, const bench_case *whole, bench_case *b);

/* `seconds` is what the timed calls may take; building and filling buffers
 * comes on top. Fills in all but device, name, whole, command and
 * unfused times. */
void row_measure(const bench_device *device, const test_case *c,
                 bench_pass pass, double seconds, double efficiency,
                 report_row *row);

/* Fills in what follows from case and pass alone, without measuring. */
void row_describe(const test_case *c, bench_pass pass, report_row *row);

#endif
