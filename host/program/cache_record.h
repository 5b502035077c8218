/* SPDX-License-Identifier: Apache-2.0
 * The bytes in which compiled programs are kept, in files and in blobs, and
 * how they are read without trusting them.
 *
 *   record magic, format, key size, binary size, checksum; key; binary
 *   blob   magic, format, count, size of all; so many records
 *
 * Numbers are little-endian. The key is text that says what the binary was
 * made of and for; see program.h. */
#ifndef WINATTN_CACHE_RECORD_H
#define WINATTN_CACHE_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* Changes with the layout, and with the meaning of a key. */
#define WA_CACHE_RECORD_FORMAT 1u

/* Larger binaries are not kept. */
#define WA_CACHE_RECORD_MOST_BINARY ((size_t)64 << 20)
#define WA_CACHE_RECORD_MOST_KEY ((size_t)1 << 20)

/* 128 bits against accidents, not against attackers. */
typedef struct wa_hash {
    uint64_t a, b;
} wa_hash;

wa_hash wa_hash_start(void);
void wa_hash_add(wa_hash *hash, const void *bytes, size_t size);
wa_hash wa_hash_end(wa_hash hash);

/* Points into the bytes that were read; neither is terminated. */
typedef struct wa_cache_record {
    const char *key;
    size_t key_size;
    const unsigned char *binary;
    size_t binary_size;
} wa_cache_record;

size_t wa_cache_record_size(const wa_cache_record *record);
void wa_cache_record_write(const wa_cache_record *record, unsigned char *to);

/* Reads the record at the start of the bytes. NULL if it is sound, else what
 * is wrong with it. */
const char *wa_cache_record_read(const unsigned char *bytes, size_t size,
                                 wa_cache_record *record);

#define WA_BLOB_HEADER 24u
void wa_blob_write_header(unsigned char *to, uint32_t count, size_t size);

/* Visits each record of a blob after all of them were found sound. NULL, or
 * what is wrong: then nothing was visited, or visit returned this. */
typedef const char *wa_cache_record_visitor(void *data,
                                            const wa_cache_record *record);
const char *wa_blob_read(const unsigned char *bytes, size_t size,
                         wa_cache_record_visitor *visit, void *data);

#endif
