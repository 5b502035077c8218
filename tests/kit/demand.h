/* SPDX-License-Identifier: Apache-2.0
 * What a test demands of the plan of a case, in words that may stand among
 * those of the case's text:
 *
 *   unit=mfma32     of tier matrix, one that the device has
 *   shape=1:2:...   as the tuning table writes it; of tier local the one
 *                   kernel of a backward pass, or that of keys
 *   rows=4:8:...    of tier local, the backward kernel of rows
 *   registers=64    that the planner is told of
 *   launch=2        windows, or work tiles, of a launch
 *   groups=3        that the device holds at once
 *   pairs=1         of a table are found by position
 *   kernel=NAME     one that the plan must have, as the planner's choice */
#ifndef KIT_DEMAND_H
#define KIT_DEMAND_H

#include "planned.h"

/* Zeros and "" leave it to the planner. */
typedef struct demand {
    const wa_matrix_unit *unit;
    char shape[96], rows[96], kernel[96];
    int registers, launch, groups, pairs;
} demand;

/* Takes what is demanded; the other words are a case's. False as case_parse.
 */
bool demand_parse(const char *text, test_case *c, demand *d, char bad[64]);

/* Both, as demand_parse reads them. */
void demand_print(const test_case *c, const demand *d, char *text,
                  size_t size);

/* d->shape counts tiles of the unit, 0 for all, and teams have as many more
 * waves as their rows need: makes rows, keys and waves of that which fit the
 * case. False: it is no shape of the case's kernels. */
bool demand_fit(const test_case *c, demand *d);

/* May a device have a plan of that shape, or is none demanded? */
bool demand_is_legal(const test_case *c, const demand *d,
                     const wa_device *device);

/* As case_run; where nothing is demanded, by way of the public interface. */
bool demand_run(const test_device *device, const test_case *c, const demand *d,
                case_result *result);

#endif
