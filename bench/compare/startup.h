/* SPDX-License-Identifier: Apache-2.0
 * Time from the start of a program to its first result, which building
 * kernels makes up, with caches empty and filled. Each is a process of its
 * own. */
#ifndef BENCH_STARTUP_H
#define BENCH_STARTUP_H

#include "kit/cases.h"

/* The process that is timed: opens the device, computes the case (a few of its
 * windows, on zeros) and reads from the result. */
bool startup_first_result(cl_device_id id, const test_case *c);

/* What that process prints as soon as it has it. */
#define STARTUP_LINE "first result"

/* Times it: `program` is called as
 *   program --first-result --device NAME --seconds N ... --case TEXT
 * first with an empty folder for winattn's and the drivers' caches, then with
 * what that left there. No start may take longer than
 * `most` seconds. False if one did, or failed. */
bool startup_measure(const char *program, const char *device_name,
                     const test_case *c, double most, double *cold,
                     double *warm);

#endif
