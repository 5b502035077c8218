/* SPDX-License-Identifier: Apache-2.0
 * Throw-away builds that turn a doubtful capability into a fact. */
#ifndef WINATTN_PROBE_H
#define WINATTN_PROBE_H

#include "device/device.h"

/* Corrects what the driver reports. Fails where a probe could not be made; one
 * whose kernel the device does not take leaves the reported number. */
winattn_status wa_probe_device(cl_context context, cl_device_id id,
                               wa_device *device);

#endif
