/* SPDX-License-Identifier: Apache-2.0
 * A session of a device under test that has a matrix unit; for tests of what
 * only such a device does. */
#ifndef KIT_FRAGMENT_SESSION_H
#define KIT_FRAGMENT_SESSION_H

#include "session/session.h"

/* Has the device a matrix unit, and for numbers of this winattn_dtype? */
bool has_fragments(int dtype);

/* Skips the test where it has none. While the session is held, plans take the
 * unit as if somebody had seen it work, and know of no kernels with wgmma. */
wa_session *fragment_session(void);

#endif
