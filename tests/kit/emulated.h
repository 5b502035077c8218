/* SPDX-License-Identifier: Apache-2.0
 * A device under test that is told to have a matrix unit, which kernels then
 * emulate; for tests of what only such a device does. */
#ifndef KIT_EMULATED_H
#define KIT_EMULATED_H

#include "session/session.h"

/* While the session is held, plans for the device under test have the matrix
 * unit mma, emulated, and prefer tiers as on a GPU. Skips the test where
 * nothing can be emulated. */
wa_session *pretend_unit(void);

#endif
