/* SPDX-License-Identifier: Apache-2.0
 * Devices that nobody here owns, as wa_device_query and the probes would
 * describe them; from the vendors' documents and public clinfo reports. */
#ifndef KIT_DEVICES_H
#define KIT_DEVICES_H

#include <stddef.h>

#include "device/device.h"

extern const wa_device made_up_devices[];
extern const size_t made_up_count;

/* NULL if there is none of that name. */
const wa_device *made_up_device(const char *name);

/* Is all the same that a plan follows from, but for names, versions and the
 * limits of buffers and of arguments? If not, the text says what differs. */
bool device_is_like(const wa_device *seen, const wa_device *wanted,
                    char text[256]);

#endif
