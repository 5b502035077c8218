/* SPDX-License-Identifier: Apache-2.0
 * The bytes of records and blobs: no damage is taken for sound. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "kit/cache_record_layout.h"

/* A record of a few hundred bytes, to be freed. */
static unsigned char *small_entry(size_t *size)
{
    unsigned char binary[150];
    for (size_t i = 0; i < sizeof binary; i++)
        binary[i] = (unsigned char)(i * 37);
    const char *key = "winattn: 1\noptions: -DX=1\n";
    const wa_cache_record record = {key, strlen(key), binary, sizeof binary};
    *size = wa_cache_record_size(&record);
    assert_int_equal(*size, RECORD_HEADER + strlen(key) + sizeof binary);
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    wa_cache_record_write(&record, bytes);
    return bytes;
}

/* A copy of its own, so that a sanitizer sees each read past the end. */
static const char *read_copy(const unsigned char *bytes, size_t size,
                             const char *(*read)(const unsigned char *,
                                                 size_t))
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    const char *wrong = read(copy, size);
    free(copy);
    return wrong;
}

static const char *read_entry(const unsigned char *bytes, size_t size)
{
    wa_cache_record record;
    const char *wrong = wa_cache_record_read(bytes, size, &record);
    return !wrong && wa_cache_record_size(&record) != size ? "size" : wrong;
}

static const char *ignore_entry(void *data, const wa_cache_record *record)
{
    (void)record;
    ++*(int *)data;
    return NULL;
}

static const char *read_blob(const unsigned char *bytes, size_t size)
{
    int count = 0;
    const char *wrong = wa_blob_read(bytes, size, ignore_entry, &count);
    if (wrong)
        assert_int_equal(count, 0);
    return wrong;
}

/* No part and no altered copy of the bytes is taken for sound. */
static void refuses_damage(const unsigned char *bytes, size_t size,
                           const char *(*read)(const unsigned char *, size_t))
{
    unsigned char *bad = malloc(size + 64);
    assert_non_null(bad);
    assert_null(read_copy(bytes, size, read));
    for (size_t length = 0; length < size; length++)
        assert_non_null(read_copy(bytes, length, read));
    memcpy(bad, bytes, size);
    memset(bad + size, 0, 64);
    assert_non_null(read_copy(bad, size + 1, read));
    assert_non_null(read_copy(bad, size + 64, read));
    for (size_t bit = 0; bit < size * 8; bit++) {
        memcpy(bad, bytes, size);
        bad[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (!read_copy(bad, size, read))
            fail_msg("bit %zu is not noticed", bit);
    }
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint64_t state = seed;
        memcpy(bad, bytes, size);
        const uint32_t changes = 1 + random_below(&state, 20);
        for (uint32_t i = 0; i < changes; i++)
            bad[random_below(&state, (uint32_t)size)] =
                (unsigned char)random_below(&state, 256);
        size_t length = size;
        if (random_below(&state, 2))
            length = random_below(&state, (uint32_t)size + 1);
        if ((length != size || memcmp(bad, bytes, size) != 0) &&
            !read_copy(bad, length, read))
            fail_msg("damage of seed %llu is not noticed",
                     (unsigned long long)seed);
    }
    free(bad);
}

static void entries_are_checked(void **state)
{
    (void)state;
    size_t size;
    wa_cache_record record;
    unsigned char *bytes = small_entry(&size);
    assert_null(wa_cache_record_read(bytes, size, &record));
    assert_int_equal(record.binary_size, 150);
    assert_int_equal(record.binary[2], 74);
    assert_memory_equal(record.key, "winattn: 1\n", 11);
    refuses_damage(bytes, size, read_entry);
    free(bytes);
}

static void blobs_are_checked(void **state)
{
    (void)state;
    unsigned char blob[2048];
    size_t size;
    unsigned char *bytes = small_entry(&size);
    for (uint32_t count = 0; count <= 3; count++) {
        const size_t all = WA_BLOB_HEADER + count * size;
        wa_blob_write_header(blob, count, all);
        for (uint32_t i = 0; i < count; i++)
            memcpy(blob + WA_BLOB_HEADER + i * size, bytes, size);
        refuses_damage(blob, all, read_blob);
        /* a count or a size that does not fit what is there */
        wa_blob_write_header(blob, count + 1, all);
        assert_non_null(read_copy(blob, all, read_blob));
        wa_blob_write_header(blob, UINT32_MAX, all);
        assert_non_null(read_copy(blob, all, read_blob));
        wa_blob_write_header(blob, count, SIZE_MAX);
        assert_non_null(read_copy(blob, all, read_blob));
    }
    free(bytes);
}

/* Impossible sizes, in headers that are otherwise good. */
static void sizes_are_not_believed(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0,
                                     1,
                                     100,
                                     UINT32_MAX,
                                     (uint64_t)UINT32_MAX + 1,
                                     INT64_MAX,
                                     UINT64_MAX,
                                     UINT64_MAX - 63,
                                     UINT64_MAX - 200};
    size_t size;
    unsigned char *bytes = small_entry(&size);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            for (int byte = 0; byte < 4; byte++)
                bytes[RECORD_KEY_SIZE_AT + byte] =
                    (unsigned char)(sizes[i] >> 8 * byte);
            for (int byte = 0; byte < 8; byte++)
                bytes[RECORD_BINARY_SIZE_AT + byte] =
                    (unsigned char)(sizes[j] >> 8 * byte);
            assert_non_null(read_copy(bytes, size, read_entry));
        }
    free(bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(entries_are_checked),
    cmocka_unit_test(blobs_are_checked),
    cmocka_unit_test(sizes_are_not_believed),
};
const test_group cache_bytes = TEST_GROUP(NULL, tests);
