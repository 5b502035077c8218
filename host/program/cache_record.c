/* SPDX-License-Identifier: Apache-2.0
 * Writes and reads kept programs. Reading believes no number before it was
 * compared with the size of what there is. */
#include "program/cache_record.h"

#include <string.h>

#define MAGIC_SIZE 8
/* A bit more than 7 and both line ends show what a text transfer spoils. */
static const char record_magic[MAGIC_SIZE + 1] = "\x89WAprg\r\n";
static const char blob_magic[MAGIC_SIZE + 1] = "\x89WAset\r\n";

/* Where the numbers of a record's header are. */
enum {
    FORMAT_AT = MAGIC_SIZE,
    KEY_SIZE_AT = FORMAT_AT + 4,
    BINARY_SIZE_AT = KEY_SIZE_AT + 4,
    CHECKSUM_AT = BINARY_SIZE_AT + 8,
    HEADER_SIZE = CHECKSUM_AT + 16
};

static void put(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

/* ---- Hash ---- */

/* Two lanes in the manner of FNV-1a, with different multipliers and the bytes
 * at different places, so that they do not collide together. */
wa_hash wa_hash_start(void)
{
    const wa_hash hash = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
    return hash;
}

void wa_hash_add(wa_hash *hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t a = hash->a, b = hash->b;
    for (size_t i = 0; i < size; i++) {
        a = (a ^ at[i]) * 0x100000001b3u;
        b = ((b ^ (uint64_t)at[i] << 24) * 0xd6e8feb86659fd93u);
        b ^= b >> 32;
    }
    hash->a = a;
    hash->b = b;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

wa_hash wa_hash_end(wa_hash hash)
{
    const wa_hash end = {mix(hash.a), mix(hash.b)};
    return end;
}

/* ---- Entry ---- */

/* Over all but the checksum itself. */
static wa_hash checksum(const unsigned char *bytes, size_t size)
{
    wa_hash hash = wa_hash_start();
    wa_hash_add(&hash, bytes, CHECKSUM_AT);
    wa_hash_add(&hash, bytes + HEADER_SIZE, size - HEADER_SIZE);
    return wa_hash_end(hash);
}

size_t wa_cache_record_size(const wa_cache_record *record)
{
    return HEADER_SIZE + record->key_size + record->binary_size;
}

void wa_cache_record_write(const wa_cache_record *record, unsigned char *to)
{
    memcpy(to, record_magic, MAGIC_SIZE);
    put(to + FORMAT_AT, WA_CACHE_RECORD_FORMAT, 4);
    put(to + KEY_SIZE_AT, record->key_size, 4);
    put(to + BINARY_SIZE_AT, record->binary_size, 8);
    memcpy(to + HEADER_SIZE, record->key, record->key_size);
    memcpy(to + HEADER_SIZE + record->key_size, record->binary,
           record->binary_size);
    const wa_hash sum = checksum(to, wa_cache_record_size(record));
    put(to + CHECKSUM_AT, sum.a, 8);
    put(to + CHECKSUM_AT + 8, sum.b, 8);
}

/* All of wa_cache_record_read but the checksum. */
static const char *find_parts(const unsigned char *bytes, size_t size,
                              wa_cache_record *record)
{
    if (size < HEADER_SIZE)
        return "it ends early";
    if (memcmp(bytes, record_magic, MAGIC_SIZE) != 0)
        return "it is no compiled program of winattn";
    if (get(bytes + FORMAT_AT, 4) != WA_CACHE_RECORD_FORMAT)
        return "its format is of another version";
    const uint64_t key_size = get(bytes + KEY_SIZE_AT, 4);
    const uint64_t binary_size = get(bytes + BINARY_SIZE_AT, 8);
    if (key_size == 0 || key_size > WA_CACHE_RECORD_MOST_KEY ||
        binary_size == 0 || binary_size > WA_CACHE_RECORD_MOST_BINARY)
        return "a size in it is impossible";
    if (key_size + binary_size > size - HEADER_SIZE)
        return "it ends early";
    record->key = (const char *)bytes + HEADER_SIZE;
    record->key_size = (size_t)key_size;
    record->binary = bytes + HEADER_SIZE + key_size;
    record->binary_size = (size_t)binary_size;
    return NULL;
}

const char *wa_cache_record_read(const unsigned char *bytes, size_t size,
                                 wa_cache_record *record)
{
    const char *wrong = find_parts(bytes, size, record);
    if (wrong)
        return wrong;
    const wa_hash sum = checksum(bytes, wa_cache_record_size(record));
    if (sum.a != get(bytes + CHECKSUM_AT, 8) ||
        sum.b != get(bytes + CHECKSUM_AT + 8, 8))
        return "its checksum is wrong";
    return NULL;
}

/* ---- Blob ---- */

void wa_blob_write_header(unsigned char *to, uint32_t count, size_t size)
{
    memcpy(to, blob_magic, MAGIC_SIZE);
    put(to + MAGIC_SIZE, WA_CACHE_RECORD_FORMAT, 4);
    put(to + MAGIC_SIZE + 4, count, 4);
    put(to + MAGIC_SIZE + 8, size, 8);
}

const char *wa_blob_read(const unsigned char *bytes, size_t size,
                         wa_cache_record_visitor *visit, void *data)
{
    if (size < WA_BLOB_HEADER)
        return "it ends early";
    if (memcmp(bytes, blob_magic, MAGIC_SIZE) != 0)
        return "it is no blob of winattn";
    if (get(bytes + MAGIC_SIZE, 4) != WA_CACHE_RECORD_FORMAT)
        return "its format is of another version";
    const uint64_t count = get(bytes + MAGIC_SIZE + 4, 4);
    if (get(bytes + MAGIC_SIZE + 8, 8) != size)
        return "its size is not what it says";
    for (int visiting = 0; visiting < 2; visiting++) {
        size_t at = WA_BLOB_HEADER;
        for (uint64_t i = 0; i < count; i++) {
            wa_cache_record record;
            const char *wrong =
                visiting
                    ? find_parts(bytes + at, size - at, &record)
                    : wa_cache_record_read(bytes + at, size - at, &record);
            if (!wrong && visiting)
                wrong = visit(data, &record);
            if (wrong)
                return wrong;
            at += wa_cache_record_size(&record);
        }
        if (at != size)
            return "it holds more than it says";
    }
    return NULL;
}
