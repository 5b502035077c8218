/* SPDX-License-Identifier: Apache-2.0
 * What this library shows to its sister, winattn_models (host/models/), of its
 * inner functions. */
#ifndef WINATTN_SISTER_H
#define WINATTN_SISTER_H

#include "winattn.h"

/* Stands before each function that the sister calls; tests/checks/symbols
 * finds them by it. These have no stable interface: a sister of another
 * version refuses to work (host/models/sister.c). */
#define WA_SISTER WINATTN_API

#endif
