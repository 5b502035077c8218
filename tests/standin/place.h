/* SPDX-License-Identifier: Apache-2.0
 * A device on the stand-in, a context and a queue of it. For programs of
 * cmocka. */
#ifndef STANDIN_PLACE_H
#define STANDIN_PLACE_H

#include "standin.h"
#include "winattn.h"

typedef struct place {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue; /* in order */
} place;

place place_of(const wa_device *device);
/* Of one of kit/devices.h, after standin_reset. */
place open_place(const char *device);

/* Makes a plan and destroys it; place_said is what winattn_plan_describe says
 * of it, or the reason why there is none. */
winattn_status place_plan(const place *p, const winattn_desc *desc);
extern char place_said[8192];
/* The status must be that, and what is said have that part. */
void assert_plan(const place *p, const winattn_desc *desc,
                 winattn_status status, const char *part);

/* They must be all that is left, and nothing may have gone wrong; else
 * the test fails. */
void close_place(const place *p);

#endif
