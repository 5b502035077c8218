/* SPDX-License-Identifier: Apache-2.0
 * Where the numbers of a kept program stand in its bytes, which
 * host/program/entry.c keeps to itself; for tests that spoil them. */
#ifndef KIT_ENTRY_LAYOUT_H
#define KIT_ENTRY_LAYOUT_H

#include "program/entry.h"

enum {
    ENTRY_KEY_SIZE_AT = 12,    /* 4 bytes */
    ENTRY_BINARY_SIZE_AT = 16, /* 8 */
    ENTRY_CHECKSUM_AT = 24,    /* 16 */
    ENTRY_HEADER = 40,
    BLOB_SIZE_AT = WA_BLOB_HEADER - 8 /* 8 */
};

#endif
