/* SPDX-License-Identifier: Apache-2.0
 * The self-test of a device's matrix unit: its layouts come from documents,
 * and a compiler, a driver or a new chip may not follow them. */
#ifndef WINATTN_SELF_TEST_H
#define WINATTN_SELF_TEST_H

#include "device/device.h"
#include "program/program_set.h"

/* Multiplies small tiles of this type on the unit that `device` names, and
 * compares. Fails with WINATTN_UNSUPPORTED_DEVICE, and the first number that
 * is wrong as the reason, if the unit does not compute as cl/unit/fragment.cl
 * says; with another status if the test could not be made. build_options: the
 * caller's. */
winattn_status wa_check_matrix_unit(cl_context context, cl_device_id id,
                                    wa_program_set *programs,
                                    const wa_device *device,
                                    winattn_dtype dtype,
                                    const char *build_options);

#endif
