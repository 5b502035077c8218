/* SPDX-License-Identifier: Apache-2.0
 * A case with its data, its plan and its buffers on the device under test,
 * ready to be enqueued; for tests of calls. Whatever fails here fails the
 * test. */
#ifndef KIT_FIXTURE_H
#define KIT_FIXTURE_H

#include "runner.h"

typedef struct fixture {
    case_buffers *data;
    device_buffers buffers;
    winattn_desc desc;
    winattn_plan *plan;
    winattn_forward forward; /* of the case's pass, and the other zeros */
    winattn_backward backward;
    cl_mem workspace; /* NULL: none is needed */
} fixture;

fixture set_up_case(const test_case *c);
fixture set_up(const char *text); /* of a case */
void tear_down(fixture *f);

/* Waits for the device's queue: the results are those of the oracle. */
void assert_correct(const fixture *f);
/* Not a byte of any buffer differs from what it held before. */
void assert_nothing_written(const fixture *f);

/* The plan, which must be made, or a call of the case, which must be taken. */
winattn_plan *make_plan(const winattn_desc *desc);
void enqueue_forward(const fixture *f, const winattn_plan *plan);

void plan_text(const winattn_plan *plan, char text[4096]);

#endif
