/* SPDX-License-Identifier: Apache-2.0
 * Numbers in fp16 and bf16 (host/models/levels.c): all that the types have,
 * what is between two of them, and its neighbours, against the tests' own
 * rounding.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kit/asserts.h"
#include "kit/storage.h"
#include "models/levels.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void check(winattn_dtype dtype, storage_kind kind, float x)
{
    uint16_t got, want;
    wa_store_numbers(dtype, &x, 1, &got);
    kind_write(kind, x, &want);
    if (isnan(x) ? !isnan(kind_read(kind, &got)) : got != want)
        fail_msg("%a becomes %04x, not %04x", (double)x, got, want);
}

/* Each number of the type, the middle to the next one, and the fp32 numbers
 * around both. */
static void check_all(winattn_dtype dtype, storage_kind kind)
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        const uint16_t half = (uint16_t)i, next = (uint16_t)(i + 1);
        const double here = kind_read(kind, &half);
        const double there = kind_read(kind, &next);
        const double middle = here + (there - here) / 2;
        const float points[] = {(float)here, (float)middle};
        for (size_t p = 0; p < 2; p++)
            for (int step = -1; step <= 1; step++) {
                uint32_t bits;
                memcpy(&bits, &points[p], sizeof bits);
                check(dtype, kind, float_of(bits + (uint32_t)step));
            }
    }
}

static void fp16(void **state)
{
    (void)state;
    check_all(WINATTN_FP16, KIND_FP16);
}

static void bf16(void **state)
{
    (void)state;
    check_all(WINATTN_BF16, KIND_BF16);
}

/* Numbers that fp16 cannot hold, and those of all sizes. */
static void others(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x100000; i++) {
        const float x = float_of(i * 4093u);
        check(WINATTN_FP16, KIND_FP16, x);
        check(WINATTN_BF16, KIND_BF16, x);
    }
    const float numbers[] = {1.5f, -2.25f};
    float copy[2];
    wa_store_numbers(WINATTN_FP32, numbers, 2, copy);
    assert_memory_equal(copy, numbers, sizeof copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp16),
        cmocka_unit_test(bf16),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
