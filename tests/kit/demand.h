/* SPDX-License-Identifier: Apache-2.0
 * What a test demands of the plan of a case, in words that may stand among
 * those of the case's text:
 *
 *   unit=mfma16     of tier matrix, one that the device has
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

#include "device/matrix_unit.h"
#include "plan/family.h"
#include "run.h"

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

/* Is what is demanded written as shapes of the case's kernels are? */
bool demand_is_shape(const test_case *c, const demand *d);

/* Plans the case's pass in the shape that is demanded; false, with
 * plan->refusals, if kernel or device do not allow it. */
bool demand_plan(const test_case *c, const demand *d,
                 const wa_problem *problem, const wa_device *device,
                 wa_plan *plan);

/* May a device have a plan of that shape, or is none demanded? */
bool demand_is_legal(const test_case *c, const demand *d,
                     const wa_device *device);

/* As case_run; where nothing is demanded, by way of the public interface. What
 * is demanded is run behind a user event, and where it is cut into launches in
 * a queue without order. False, with result->failure, if something is wrong;
 * also if the shape is refused, which result->failure then says. */
bool demand_run(const test_device *device, const test_case *c, const demand *d,
                case_result *result);

/* The call alone, of a demand, on buffers of the test's own, until it is done.
 */
case_call demand_run_buffers;

#endif
