/* SPDX-License-Identifier: Apache-2.0
 * Where the numbers of a kept program stand in its bytes, which
 * host/program/cache_record.c keeps to itself; for tests that spoil them. */
#ifndef KIT_CACHE_RECORD_LAYOUT_H
#define KIT_CACHE_RECORD_LAYOUT_H

#include "program/cache_record.h"

enum {
    RECORD_KEY_SIZE_AT = 12,    /* 4 bytes */
    RECORD_BINARY_SIZE_AT = 16, /* 8 */
    RECORD_CHECKSUM_AT = 24,    /* 16 */
    RECORD_HEADER = 40,
    BLOB_SIZE_AT = WA_BLOB_HEADER - 8 /* 8 */
};

#endif
