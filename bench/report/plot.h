/* SPDX-License-Identifier: Apache-2.0
 * Draws devices against cases, as fractions of each device's own ceiling. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include "report/report.h"

/* Is this a picture that plot_write could make here? False with the reason:
 * its name, or no gnuplot. */
bool plot_possible(const char *path, char reason[REPORT_REASON_SIZE]);

/* Draws to FILE.png or FILE.svg. A script FILE.gnuplot beside it is left there
 * only if that fails. */
bool plot_write(const report *r, const char *path,
                char reason[REPORT_REASON_SIZE]);

#endif
