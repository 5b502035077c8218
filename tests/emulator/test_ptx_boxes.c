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
static const char *fetch(uint32_t *words, const char *acquire,
                         const char *over, const char *bytes,
                         const char *channel)
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
#define ACQUIRE "fence.proxy.tensormap::generic.acquire.gpu [" MAP "], 128;\n"

/* Rows from 1 on, chunks of 16 bytes swizzled, zeros outside of the tensor. */
static void fetches_boxes(void **state)
{
    (void)state;
    static ON_LINES uint32_t words[MOST_WORDS];
    for (uint32_t i = 0; i < 24; i++)
        words[i] = 100 + i;
    write_map(words);
    assert_string_equal(fetch(words, ACQUIRE, "", "8192", "0"), "");
    for (uint32_t row = 0; row < 64; row++)
        for (uint32_t i = 0; i < BOX_ROW; i++) {
            const uint32_t at = (i / 4 ^ row % 8) * 4 + i % 4;
            assert_int_equal(words[BOX_AT + row * BOX_ROW + at],
                             row < 2 && i < 8 ? 100 + 8 * (row + 1) + i : 0);
        }
}

#define OVER "@%p1 st.shared.u32 [%r2], %r1;\n"
#define SHOW "fence.proxy.async.shared::cta;\n"

static void boxes_have_rules(void **state)
{
    static const struct {
        const char *acquire, *over, *bytes, *channel, *why;
        uint32_t rows; /* of a box, less 1 */
    } rules[] = {
        {"", "", "8192", "0", "a map that was not acquired", 63},
        {ACQUIRE, "", "8190", "0", "bytes that no barrier", 63},
        {ACQUIRE, "", "8194", "0", "waves wait for ever", 63},
        {ACQUIRE, OVER, "8192", "0", "over what was not shown", 63},
        {ACQUIRE, OVER SHOW, "8192", "0", "", 63},
        {ACQUIRE, "", "8192", "1", "begins at channel 1", 63},
        {ACQUIRE, "", "8192", "0", "a map of another form", 62},
    };
    static ON_LINES uint32_t words[MOST_WORDS];
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        write_map(words);
        words[MAP_AT + 14] = rules[i].rows;
        const char *said = fetch(words, rules[i].acquire, rules[i].over,
                                 rules[i].bytes, rules[i].channel);
        if (rules[i].why[0] ? !strstr(said, rules[i].why) : *said)
            fail_msg("\"%s\" in place of \"%s\"", said, rules[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetches_boxes),
        cmocka_unit_test(boxes_have_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
