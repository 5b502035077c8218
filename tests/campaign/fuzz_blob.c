/* SPDX-License-Identifier: Apache-2.0
 * winattn_programs_import: a blob is taken or refused as one; plans can be
 * made all the same, and a blob exported that is taken again. The last byte of
 * the input says what of the blob is put right first, since no change hits a
 * checksum: 1: checksums of records; 2: the blob's size, too. */
#include <string.h>

#include "fuzz.h"
#include "kit/cache_record_layout.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "standin.h"

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

static void mend_checksums(unsigned char *blob, size_t size)
{
    size_t at = WA_BLOB_HEADER;
    while (at + RECORD_HEADER <= size) {
        unsigned char *entry = blob + at;
        const uint64_t left = size - at - RECORD_HEADER;
        const uint64_t key = get(entry + RECORD_KEY_SIZE_AT, 4);
        const uint64_t binary = get(entry + RECORD_BINARY_SIZE_AT, 8);
        if (key > left || binary > left - key)
            return;
        wa_hash hash = wa_hash_start();
        wa_hash_add(&hash, entry, RECORD_CHECKSUM_AT);
        wa_hash_add(&hash, entry + RECORD_HEADER, (size_t)(key + binary));
        hash = wa_hash_end(hash);
        put(entry + RECORD_CHECKSUM_AT, hash.a, 8);
        put(entry + RECORD_CHECKSUM_AT + 8, hash.b, 8);
        at += RECORD_HEADER + (size_t)(key + binary);
    }
}

/* A plan, and the blob that is exported after it, to be freed; with room for
 * another byte. */
static unsigned char *plan_and_export(winattn_programs *programs,
                                      cl_context context, cl_device_id id,
                                      size_t *size)
{
    const winattn_desc desc = case_desc_of("windows=5", 3);
    winattn_plan *plan;
    EXPECT(winattn_plan_create(context, id, &desc, &plan) == 0,
           winattn_last_reason());
    EXPECT(winattn_programs_export(programs, 0, NULL, size) == 0,
           winattn_last_reason());
    unsigned char *blob = malloc(*size + 1);
    EXPECT(winattn_programs_export(programs, *size, blob, NULL) == 0,
           winattn_last_reason());
    winattn_plan_destroy(plan);
    return blob;
}

static winattn_programs *new_programs(cl_context *context, cl_device_id *id)
{
    winattn_programs *programs;
    setenv("WINATTN_CACHE", "0", 1);
    *id = standin_device(made_up_device("PoCL"));
    *context = standin_context(1, id);
    EXPECT(winattn_programs_create(*context, *id, &programs) == 0,
           winattn_last_reason());
    return programs;
}

/* With the byte that says what is put right. */
void add_first_inputs(void)
{
    cl_device_id id;
    cl_context context;
    size_t size;
    winattn_programs *programs = new_programs(&context, &id);
    unsigned char *blob = plan_and_export(programs, context, id, &size);
    for (int i = 0; i < 3; i++) {
        blob[size] = (unsigned char)i;
        add_input(blob, size + 1);
    }
    free(blob);
    winattn_programs_destroy(programs);
    clReleaseContext(context);
}

/* A key may be made to stand before another program's binary. */
static bool is_excused(const char *wrong)
{
    return !wrong || strncmp(wrong, "a binary of options ", 20) == 0;
}

void fuzz_one(const uint8_t *data, size_t size)
{
    static unsigned long runs;
    cl_device_id id;
    cl_context context;
    if (size < 2)
        return;
    size--;
    unsigned char *blob = malloc(size);
    EXPECT(blob, "memory");
    standin_quiet = true;
    memcpy(blob, data, size);
    if (data[size] >= 2 && size >= WA_BLOB_HEADER)
        put(blob + BLOB_SIZE_AT, size, 8);
    if (data[size] >= 1)
        mend_checksums(blob, size);
    winattn_programs *programs = new_programs(&context, &id);
    const winattn_status status =
        winattn_programs_import(programs, size, blob);
    EXPECT(status == WINATTN_SUCCESS || status == WINATTN_INVALID_BLOB,
           winattn_last_reason());
    EXPECT((status == WINATTN_SUCCESS) == !winattn_last_reason()[0],
           winattn_last_reason());
    free(blob);
    blob = plan_and_export(programs, context, id, &size);
    EXPECT(winattn_programs_import(programs, size, blob) == 0,
           winattn_last_reason());
    free(blob);
    winattn_programs_destroy(programs);
    clReleaseContext(context);
    EXPECT(!standin_alive(), standin_alive());
    EXPECT(is_excused(standin_wrong(NULL)), standin_wrong(NULL));
    if (++runs % FORGET_RUNS == 0)
        standin_reset();
}
