/* SPDX-License-Identifier: Apache-2.0
 * Shapes that people run, for tests (with few windows) and bench. */
#ifndef KIT_WORKLOADS_H
#define KIT_WORKLOADS_H

#include "cases.h"

typedef struct workload_row {
    const char *name;
    const char *text; /* of a case */
} workload_row;

extern const workload_row workload_rows[];
extern const size_t workload_count;

/* Feature maps that are read in place, for bench. Tests of grids have maps of
 * their own, with fewer tokens. */
extern const workload_row map_rows[];
extern const size_t map_count;

#endif
