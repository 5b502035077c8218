/* SPDX-License-Identifier: Apache-2.0
 * The interpreter of PTX: boxes that come by tensor maps, and the rules of who
 * asks for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_test.h"

/* Words from MAP_AT on: a map of 3 rows of 16 channels, the first word of
 * memory being their first; from BOX_AT on the box will be. */
enum { MAP_AT = 1024, BOX_AT = 2048, BOX_ROW = 32 };
#define MAP "%rd0+4096"
/* Of memory that has a map: maps fill lines of 128 bytes. */
#define ON_LINES _Alignas(128)

static void write_map(uint32_t *words)
{
    uint64_t map[16] = {0, (uint64_t)2 << 32 | 3 << 4 | 6 << 7 | 3 << 13 |
                               2 << 17};
    map[4] = 15 | (uint64_t)2 << 32;
    map[6] = (uint64_t)63 << 56;
    map[7] = 63;
    map[8] = 8192;
    map[9] = 0x400;
    map[0] = (uint64_t)(uintptr_t)words;
    memcpy(words + MAP_AT, map, sizeof map);
}

/* By lane 0, what is said of one box, and the box as it lies there. */
static const char *fetch_from(const char *channel, uint32_t *words,
                              const char *acquire, const char *over,
                              const char *bytes)
{
    static char body[2048];
    snprintf(body, sizeof body,
             "add.s32 %%r13, %%r2, 15360;\nsetp.eq.u32 %%p1, %%r1, 0;\n"
             "@%%p1 mbarrier.init.shared::cta.b64 [%%r13], 1;\n%s"
             "bar.sync 0;\n@!%%p1 bra again;\n%s"
             "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r13], %s;\n"
             "mov.b32 %%r10, 0;\nmov.b32 %%r11, 1;\nmov.b32 %%r14, %s;\n"
             "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
             ".mbarrier::complete_tx::bytes [%%r2], "
             "[%%rd0+4096, {%%r14, %%r11, %%r10, %%r10}], [%%r13];\nagain:\n"
             "mbarrier.try_wait.parity.shared::cta.b64 %%p2, [%%r13], 0;\n"
             "@!%%p2 bra again;\nmov.b32 %%r14, 0;\nall:\n"
             "shl.b32 %%r11, %%r14, 7;\nshl.b32 %%r10, %%r1, 2;\n"
             "add.s32 %%r11, %%r11, %%r10;\nadd.s32 %%r12, %%r2, %%r11;\n"
             "cvt.u64.u32 %%rd5, %%r11;\nadd.s64 %%rd6, %%rd0, %%rd5;\n"
             "ld.shared.u32 %%r12, [%%r12];\n"
             "st.global.u32 [%%rd6+8192], %%r12;\n"
             "add.s32 %%r14, %%r14, 1;\nsetp.lt.u32 %%p2, %%r14, 64;\n"
             "@%%p2 bra all;\n",
             over, acquire, bytes, channel);
    return run(body, 32, 0, words, 1);
}
static const char *fetch(uint32_t *words, const char *acquire,
                         const char *over, const char *bytes)
{
    return fetch_from("0", words, acquire, over, bytes);
}
#define ACQUIRE "fence.proxy.tensormap::generic.acquire.gpu [" MAP "], 128;\n"

/* Rows from 1 on, chunks of 16 bytes swizzled, zeros outside of the tensor. */
static void fetches_boxes(void **state)
{
    (void)state;
    static ON_LINES uint32_t words[MOST_WORDS];
    for (uint32_t i = 0; i < 24; i++)
        words[i] = 100 + i;
    write_map(words);
    assert_string_equal(fetch(words, ACQUIRE, "", "8192"), "");
    for (uint32_t row = 0; row < 64; row++)
        for (uint32_t i = 0; i < BOX_ROW; i++) {
            const uint32_t at = (i / 4 ^ row % 8) * 4 + i % 4;
            assert_int_equal(words[BOX_AT + row * BOX_ROW + at],
                             row < 2 && i < 8 ? 100 + 8 * (row + 1) + i : 0);
        }
}

static void boxes_have_rules(void **state)
{
    (void)state;
    static ON_LINES uint32_t words[MOST_WORDS];
    const char *over = "@%p1 st.shared.u32 [%r2], %r1;\n";
    char shown[128];
    write_map(words);
    assert_non_null(
        strstr(fetch(words, "", "", "8192"), "a map that was not acquired"));
    assert_non_null(
        strstr(fetch(words, ACQUIRE, "", "8190"), "bytes that no barrier"));
    assert_non_null(
        strstr(fetch(words, ACQUIRE, "", "8194"), "waves wait for ever"));
    assert_non_null(strstr(fetch(words, ACQUIRE, over, "8192"),
                           "over what was not shown"));
    snprintf(shown, sizeof shown, "%sfence.proxy.async.shared::cta;\n", over);
    assert_string_equal(fetch(words, ACQUIRE, shown, "8192"), "");
    assert_non_null(strstr(fetch_from("1", words, ACQUIRE, "", "8192"),
                           "begins at channel 1"));
    words[MAP_AT + 14] = 62; /* rows of a box */
    assert_non_null(
        strstr(fetch(words, ACQUIRE, "", "8192"), "a map of another form"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetches_boxes),
        cmocka_unit_test(boxes_have_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
