/* SPDX-License-Identifier: Apache-2.0
 * The device of a random case, and what its driver is like. */
#ifndef DRAWN_DEVICE_H
#define DRAWN_DEVICE_H

#include <stdbool.h>

#include "device/device.h"
#include "kit/cases.h"

/* Mostly one that there is, else one of odd numbers. */
const wa_device *draw_device(random_state *r);

/* Sets standin_drivers. Is there something about it that may make a right
 * problem impossible? */
bool draw_driver(random_state *r);

#endif
