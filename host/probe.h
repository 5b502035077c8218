/* SPDX-License-Identifier: Apache-2.0
 * Throw-away builds that turn a doubtful capability into a fact. */
#ifndef WINATTN_PROBE_H
#define WINATTN_PROBE_H

#include "device.h"

/* Corrects what the driver reports. A probe that fails leaves the reported
 * number. */
void wa_probe_device(cl_context context, cl_device_id id, wa_device *device);

#endif
