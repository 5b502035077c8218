/* SPDX-License-Identifier: Apache-2.0
 * A run of winattn-bench. */
#ifndef BENCH_COMPARISON_H
#define BENCH_COMPARISON_H

#include "command/options.h"
#include "measure/screen.h"
#include "report/report.h"

/* Measures all rows on all devices, and prints them as they come. False if a
 * device could not be measured at all. */
bool comparison_run(const options *o, const bench_screen *screen,
                    const cl_device_id *ids, char (*names)[256], size_t count,
                    report *r);

#endif
