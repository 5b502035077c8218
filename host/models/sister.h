/* SPDX-License-Identifier: Apache-2.0
 * Does the winattn that runs fit this library? */
#ifndef WINATTN_MODELS_SISTER_H
#define WINATTN_MODELS_SISTER_H

#include "winattn_models.h"

/* Every public call that can fail starts with this: it forgets the thread's
 * last failure, and fails where winattn's inner functions, which have no
 * stable interface, are of another version. */
winattn_status wa_models_begin(void);

#endif
