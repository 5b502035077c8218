/* SPDX-License-Identifier: Apache-2.0
 * The interpreter of PTX: what instructions compute, and that it notices what
 * hardware forgives only sometimes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ptx_code.h"
#include "ptx_test.h"

/* ---- One lane ---- */

typedef struct calculation {
    const char *instruction; /* of %r10 and %r11 to %r12 */
    uint32_t a, b, want;
} calculation;

static const calculation calculations[] = {
    {"add.s32 %r12, %r10, %r11", 0xffffffff, 3, 2},
    {"sub.s32 %r12, %r10, -1", 5, 0, 6},
    {"mul.lo.s32 %r12, %r10, %r11", 0xffffffff, 7, 0xfffffff9},
    {"mul.hi.u32 %r12, %r10, %r11", 0x80000000, 6, 3},
    {"mul.hi.s32 %r12, %r10, %r11", 0xffffffff, 6, 0xffffffff},
    {"div.u32 %r12, %r10, %r11", 0xfffffffe, 2, 0x7fffffff},
    {"rem.u32 %r12, %r10, %r11", 17, 5, 2},
    {"min.u32 %r12, %r10, %r11", 0xffffffff, 4, 4},
    {"min.s32 %r12, %r10, %r11", 0xffffffff, 4, 0xffffffff},
    {"max.s32 %r12, %r10, %r11", 0xffffffff, 4, 4},
    {"max.u16x2 %r12, %r10, %r11", 0x0001ffff, 0x00020003, 0x0002ffff},
    {"max.s16x2 %r12, %r10, %r11", 0x0001ffff, 0x00020003, 0x00020003},
    {"min.u16x2 %r12, %r10, %r11", 0x0001ffff, 0x00020003, 0x00010003},
    {"min.s16x2 %r12, %r10, %r11", 0x0001ffff, 0x00020003, 0x0001ffff},
    {"add.s16x2 %r12, %r10, %r11", 0x0001ffff, 0x7fff0003, 0x80000002},
    {"shl.b32 %r12, %r10, %r11", 1, 32, 0},
    {"shr.u32 %r12, %r10, %r11", 0x80000000, 31, 1},
    {"shr.s32 %r12, %r10, %r11", 0x80000000, 40, 0xffffffff},
    {"bfe.u32 %r12, %r10, 4, 8", 0xabcd, 0, 0xbc},
    {"bfe.s32 %r12, %r10, 4, 8", 0xabcd, 0, 0xffffffbc},
    {"bfe.s32 %r12, %r10, 7, 1", 0x80, 0, 0xffffffff},
    {"bfi.b32 %r12, %r10, %r11, 4, 8", 0xff, 0x1000, 0x1ff0},
    {"not.b32 %r12, %r10", 0xff, 0, 0xffffff00},
    {"popc.b32 %r12, %r10", 0xf0f, 0, 8},
    {"clz.b32 %r12, %r10", 0x10, 0, 27},
    {"mad.lo.s32 %r12, %r10, %r11, -1", 3, 4, 11},
    {"add.rn.f32 %r12, %r10, %r11", 0x3f800000, 0x40000000, 0x40400000},
    {"max.f32 %r12, %r10, %r11", 0x7fffffff, 0x40000000, 0x40000000},
    {"ex2.approx.ftz.f32 %r12, %r10", 0xc3000000, 0, 0},
    {"ex2.approx.ftz.f32 %r12, %r10", 0x40400000, 0, 0x41000000},
    {"abs.f32 %r12, %r10", 0xbf800000, 0, 0x3f800000},
    {"neg.f32 %r12, %r10", 0, 0, 0x80000000},
    {"cvt.rn.f16x2.f32 %r12, %r10, %r11", 0x3f800000, 0xc0000000, 0x3c00c000},
    {"cvt.rn.bf16x2.f32 %r12, %r10, %r11", 0x3f808000, 0x3f818000, 0x3f803f82},
    {"cvt.rzi.s32.f32 %r12, %r10", 0xc0200000, 0, 0xfffffffe},
    {"cvt.rni.f32.f32 %r12, %r10", 0x40200000, 0, 0x40000000},
    {"cvt.rn.f32.u32 %r12, %r10", 0xffffffff, 0, 0x4f800000},
    {"cvt.rn.f32.s32 %r12, %r10", 0xffffffff, 0, 0xbf800000},
    {"cvt.rna.tf32.f32 %r12, %r10", 0x3f801000, 0, 0x3f802000},
    {"mul.rn.f16x2 %r12, %r10, %r11", 0x3c004000, 0x42003c00, 0x42004000},
    {"fma.rn.f16x2 %r12, %r10, %r11, %r11", 0x3c004000, 0x42003c00,
     0x46004200},
    {"fma.rn.bf16x2 %r12, %r10, %r11, %r11", 0x3f804000, 0x40403f80,
     0x40c04040},
    {"setp.lt.f32 %p1, %r10, %r11; selp.b32 %r12, 1, 0, %p1", 0x7fffffff, 0,
     0},
    {"setp.ltu.f32 %p1, %r10, %r11; selp.b32 %r12, 1, 0, %p1", 0x7fffffff, 0,
     1},
    {"setp.gt.s32 %p1, %r10, %r11; selp.b32 %r12, 1, 0, %p1", 0, 0xffffffff,
     1},
    {"setp.gt.u32 %p1, %r10, %r11; selp.b32 %r12, 1, 0, %p1", 0, 0xffffffff,
     0},
    {"mov.b64 %rd7, {%r10, %r11}; shr.u64 %rd7, %rd7, 16; "
     "cvt.u32.u64 %r12, %rd7",
     0x12345678, 0x9abcdef0, 0xdef01234},
};

static void calculates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calculations / sizeof *calculations; i++) {
        const calculation *c = &calculations[i];
        static uint32_t words[MOST_WORDS];
        char body[512];
        snprintf(body, sizeof body,
                 "mov.b32 %%r10, %u;\nmov.b32 %%r11, %u;\n%s;\n"
                 "st.global.u32 [%%rd2], %%r12;\n",
                 c->a, c->b, c->instruction);
        assert_string_equal(run(body, 1, 0, words, 1), "");
        if (words[0] != c->want)
            fail_msg("%s: %#x in place of %#x", c->instruction, words[0],
                     c->want);
    }
}

/* ---- Lanes and waves ---- */

/* Lanes leave a loop one by one, and meet again. */
static void diverges(void **state)
{
    (void)state;
    static uint32_t words[MOST_WORDS];
    const char *body = "mov.b32 %r10, 0;\nmov.b32 %r11, 0;\n"
                       "again:\nsetp.ge.u32 %p1, %r10, %r1;\n"
                       "@%p1 bra done;\nadd.s32 %r10, %r10, 1;\n"
                       "add.s32 %r11, %r11, %r10;\nbra.uni again;\ndone:\n"
                       "shfl.sync.bfly.b32 %r12, %r11, 1, 31, 0xffffffff;\n"
                       "st.global.u32 [%rd2], %r12;\n";
    assert_string_equal(run(body, 64, 0, words, 1), "");
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t n = i ^ 1;
        assert_int_equal(words[i], n * (n + 1) / 2);
    }
}

static void waits_for_ever(void **state)
{
    (void)state;
    assert_fails("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra done;\nbar.sync 1, 64;\n"
                 "done:\n",
                 64, "waves wait for ever");
    assert_fails("setp.eq.u32 %p1, %r1, 0;\n"
                 "@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n"
                 "@!%p1 bra again;\n",
                 32, "waves wait for ever");
    /* loops may have other instructions, too */
    assert_fails("setp.eq.u32 %p1, %r1, 0;\n"
                 "@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n"
                 "mov.b32 %r10, 0;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n"
                 "add.s32 %r10, %r10, 1;\nadd.s32 %r10, %r10, 1;\n"
                 "@!%p1 bra again;\n",
                 1024, "waves wait for ever");
    assert_fails("mbarrier.arrive.shared::cta.b64 _, [%r2];\n", 1,
                 "no barrier at");
}

/* The lane that others wait for is behind them in the text. */
static void goes_on_in_each_lane(void **state)
{
    (void)state;
    static uint32_t words[MOST_WORDS];
    const char *body =
        "setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n"
        "@%p1 bra arrives;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;\n"
        "@!%p2 bra again;\nst.global.u32 [%rd2], %r1;\nbra.uni done;\n"
        "arrives:\nmbarrier.arrive.shared::cta.b64 _, [%r2];\n"
        "bra.uni again;\ndone:\n";
    assert_string_equal(run(body, 64, 0, words, 1), "");
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(words[i], i);
}

/* ---- Memory ---- */

static void checks_addresses(void **state)
{
    (void)state;
    assert_fails("st.global.u32 [%rd0+32768], %r1;\n", 1,
                 "outside of all buffers");
    assert_fails("st.global.u32 [%rd0+-4], %r1;\n", 1,
                 "outside of all buffers");
    assert_fails("st.global.u32 [%rd0+2], %r1;\n", 1, "4 bytes at");
    assert_fails("ld.shared.u32 %r10, [%r2+16384];\n", 1,
                 "outside of local memory");
    assert_fails("ld.shared.u32 %r10, [%r2+2];\n", 1, "4 bytes at");
    assert_fails("madd.u32 %r10, %r10, %r10;\n", 1,
                 "\"madd.u32\" is not known");
    assert_fails("add.s32 %r10, %x1, %r10;\n", 1, "\"%x1\" is not known");
}

/* Something near to what is asked for is not computed instead. */
static void refuses_other_forms(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "add.sat.s32 %r10, %r10, %r10",
        "sub.u16x2 %r10, %r10, %r10",
        "fma.rz.f16x2 %r10, %r10, %r10, 0",
        "fma.rz.bf16x2 %r10, %r10, %r10, 0",
        "fma.rn.bf16 %r10, %r10, %r10, 0",
        "add.rz.f32 %f1, %f1, %f1",
        "mul.rn.f64 %rd5, %rd5, %rd5",
        "ex2.approx.f16 %r10, %r10",
        "abs.f16x2 %r10, %r10",
        "vote.sync.uni.pred %p1, %p1, -1",
        "atom.global.max.f32 %f1, [%rd0], %f1",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char body[128];
        snprintf(body, sizeof body, "%s;\n", forms[i]);
        assert_fails(body, 1, "is not known");
    }
}

/* What is not read is filled with zeros. */
static void fills_with_zeros(void **state)
{
    (void)state;
    static uint32_t words[MOST_WORDS];
    for (uint32_t i = 0; i < 4; i++)
        words[i] = i + 1;
    const char *body =
        "mov.b32 %r13, 8;\n"
        "cp.async.cg.shared.global [%r2], [%rd0], 16, %r13;\n"
        "mov.b32 %r13, 0;\n"
        "cp.async.cg.shared.global [%r2+16], [%rd0+1048576], 16, %r13;\n"
        "cp.async.wait_all;\n"
        "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r2];\n"
        "ld.shared.u32 %r14, [%r2+16];\n"
        "st.global.v4.u32 [%rd0], {%r10, %r11, %r12, %r13};\n"
        "st.global.u32 [%rd0+16], %r14;\n";
    assert_string_equal(run(body, 1, 0, words, 1), "");
    static const uint32_t want[5] = {1, 2, 0, 0, 0};
    assert_memory_equal(words, want, sizeof want);
    assert_fails("cp.async.cg.shared.global [%r2], [%rd0+2], 16, 0;\n", 1,
                 "a copy of 16 bytes");
}

/* ---- Products ---- */

enum { PRODUCT_ITEMS = 128, OPERAND_WORDS = 2560, SUMS = 4096 };

/* Element (row, k) of the left operand, (k, column) of the right one: whole
 * numbers, so sums are exact. */
static int left(unsigned row, unsigned k)
{
    return (int)(row * 3 + k) % 7 - 3;
}
static int right(unsigned column, unsigned k)
{
    return (int)(column + 5 * k) % 9 - 4;
}

/* fp16, or fp32 that TF32 cuts off. */
static void put_number(uint32_t *words, uint32_t offset, unsigned size, int x)
{
    const uint32_t address = offset ^ (offset / 128 % 8) * 16;
    const uint32_t bits =
        size == 2 ? ptx_to_half(x) : (uint32_t)bits_of((float)x) | 0x1fff;
    memcpy((unsigned char *)words + address, &bits, size);
}

/* 64 rows of 128 bytes; then 8 columns as rows, or 16 rows of the columns. */
static void put_operands(uint32_t *words, unsigned size, bool down)
{
    memset(words, 0, OPERAND_WORDS * sizeof *words);
    for (unsigned k = 0; k < 32 / size; k++) {
        for (unsigned row = 0; row < 64; row++)
            put_number(words, row * 128 + size * k, size, left(row, k));
        for (unsigned column = 0; column < 8; column++)
            put_number(words,
                       8192 + (down ? k * 128 + size * column
                                    : column * 128 + size * k),
                       size, right(column, k));
    }
}

/* Operands to local memory; then the product, with these parts. */
static const char *multiply(uint32_t *words, const char *fence,
                            const char *product, const char *wait)
{
    char body[8192];
    int length = 0;
    for (unsigned i = 0; i < OPERAND_WORDS / PRODUCT_ITEMS; i++)
        length += snprintf(body + length, sizeof body - (size_t)length,
                           "ld.global.u32 %%r10, [%%rd2+%u];\n"
                           "st.shared.u32 [%%r4+%u], %%r10;\n",
                           i * 512, i * 512);
    snprintf(body + length, sizeof body - (size_t)length,
             "%sbar.sync 0;\nshr.u32 %%r11, %%r2, 4;\n"
             "cvt.u64.u32 %%rd4, %%r11;\n"
             "add.s64 %%rd4, %%rd4, 0x4000004000010000;\n"
             "add.s64 %%rd5, %%rd4, 512;\nsetp.ne.b32 %%p1, 1, 0;\n"
             "mov.f32 %%f0, 0f3f800000;\nmov.f32 %%f1, %%f0;\n"
             "mov.f32 %%f2, %%f0;\nmov.f32 %%f3, %%f0;\n"
             "wgmma.fence.sync.aligned;\n%s"
             "wgmma.commit_group.sync.aligned;\n%s"
             "shl.b32 %%r12, %%r1, 4;\ncvt.u64.u32 %%rd6, %%r12;\n"
             "add.s64 %%rd6, %%rd0, %%rd6;\n"
             "st.global.v4.f32 [%%rd6+%u], {%%f0, %%f1, %%f2, %%f3};\n",
             fence, product, wait, SUMS * 4);
    memset(words + SUMS, 0, 4 * PRODUCT_ITEMS * sizeof *words);
    return run(body, PRODUCT_ITEMS, 0, words, 3);
}

static bool is_product(const uint32_t *words, unsigned depth)
{
    bool all = true;
    for (unsigned item = 0; item < PRODUCT_ITEMS; item++)
        for (unsigned n = 0; n < 4; n++) {
            const unsigned lane = item % 32;
            const unsigned row = item / 32 * 16 + lane / 4 + n / 2 * 8;
            int sum = 1;
            for (unsigned k = 0; k < depth; k++)
                sum += left(row, k) * right(2 * (lane % 4) + n % 2, k);
            all = all && float_of(words[SUMS + item * 4 + n]) == (float)sum;
        }
    return all;
}

#define SHOW "fence.proxy.async.shared::cta;\n"
#define TYPED_PRODUCT(type, operands, signs)                                  \
    "wgmma.mma_async.sync.aligned.m64n8" type                                 \
    " {%f0, %f1, %f2, %f3}, " operands ", %p1, " signs ";\n"
#define PRODUCT(operands, last)                                               \
    TYPED_PRODUCT("k16.f32.f16.f16", operands, "1, 1, " last)
#define TF32_PRODUCT(type, signs) TYPED_PRODUCT(type, "%rd4, %rd5", signs)
#define OF_MEMORY PRODUCT("%rd4, %rd5", "0, 0")
#define AWAIT "wgmma.wait_group.sync.aligned 0;\n"

/* Rows in registers, as ldmatrix brings them: lane l asks for row l % 16 of
 * its wave, and for the chunk l / 16. */
#define LOAD_ROWS                                                             \
    "and.b32 %r20, %r1, 15;\nshr.u32 %r21, %r1, 5;\nshl.b32 %r21, %r21, 4;\n" \
    "add.s32 %r20, %r20, %r21;\nshl.b32 %r21, %r20, 7;\n"                     \
    "bfe.u32 %r22, %r1, 4, 1;\nand.b32 %r23, %r20, 7;\n"                      \
    "xor.b32 %r22, %r22, %r23;\nshl.b32 %r22, %r22, 4;\n"                     \
    "add.s32 %r21, %r21, %r22;\nadd.s32 %r21, %r21, %r2;\n"                   \
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r30, %r31, %r32, %r33}, "     \
    "[%r21];\n"
#define HELD "{%r30, %r31, %r32, %r33}, %rd5"

/* What is around the product; why it fails, or NULL. */
static const struct {
    const char *before, *product, *behind, *why;
} products[] = {
    {SHOW, OF_MEMORY, AWAIT, NULL},
    {"", OF_MEMORY, AWAIT, "a product reads what it was not shown"},
    {SHOW, OF_MEMORY, "", "a register that a product computes"},
    {SHOW, OF_MEMORY, "wgmma.wait_group.sync.aligned 1;\n",
     "a register that a product computes"},
    /* shown by who multiplies, behind the barrier that who wrote waits at */
    {"", "bar.sync 0;\n" SHOW OF_MEMORY, AWAIT, NULL},
    /* ... but not by another wave before it */
    {"setp.lt.u32 %p2, %r1, 64;\n@%p2 " SHOW, OF_MEMORY, AWAIT,
     "a product reads what it was not shown"},
    {SHOW "add.s32 %r2, %r2, 8192;\n", OF_MEMORY, AWAIT,
     "a product reads what nobody has written"},
    {SHOW, LOAD_ROWS PRODUCT(HELD, "0"), AWAIT, NULL},
    {SHOW, LOAD_ROWS PRODUCT(HELD, "0") "mov.b32 %r31, 0;\n", AWAIT,
     "a register that a product reads"},
};

static void multiplies(void **state)
{
    (void)state;
    static uint32_t words[MOST_WORDS];
    put_operands(words, 2, false);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const char *why = products[i].why;
        const char *said = multiply(words, products[i].before,
                                    products[i].product, products[i].behind);
        if (why ? !strstr(said, why) : *said || !is_product(words, 16))
            fail_msg("product %zu: \"%s\"", i, said);
    }
    /* the right operand down its columns */
    put_operands(words, 2, true);
    assert_string_equal(
        multiply(words, SHOW, PRODUCT("%rd4, %rd5", "0, 1"), AWAIT), "");
    assert_true(is_product(words, 16));
    assert_string_equal(multiply(words, SHOW, OF_MEMORY, AWAIT), "");
    assert_false(is_product(words, 16));
}

static void multiplies_tf32(void **state)
{
    (void)state;
    static uint32_t words[MOST_WORDS];
    static const struct {
        const char *product, *why;
    } tried[] = {
        {TF32_PRODUCT("k8.f32.tf32.tf32", "1, 1"), NULL},
        {LOAD_ROWS TYPED_PRODUCT("k8.f32.tf32.tf32", HELD, "1, 1"), NULL},
        {TF32_PRODUCT("k8.f32.tf32.tf32", "1, 1, 0, 0"), "not understood"},
        {TF32_PRODUCT("k16.f32.tf32.tf32", "1, 1"), "not understood"},
        {TF32_PRODUCT("k8.f32.f16.f16", "1, 1, 0, 0"), "not understood"},
        {TF32_PRODUCT("k8.f32.tf32.tf32", "1, -1"), "another sign"}};
    put_operands(words, 4, false);
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        const char *why = tried[i].why;
        const char *said = multiply(words, SHOW, tried[i].product, AWAIT);
        if (why ? !strstr(said, why) : *said || !is_product(words, 8))
            fail_msg("product %zu: \"%s\"", i, said);
    }
}

/* ---- Boxes that come by tensor maps ---- */

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
        cmocka_unit_test(calculates),
        cmocka_unit_test(diverges),
        cmocka_unit_test(waits_for_ever),
        cmocka_unit_test(goes_on_in_each_lane),
        cmocka_unit_test(checks_addresses),
        cmocka_unit_test(refuses_other_forms),
        cmocka_unit_test(fills_with_zeros),
        cmocka_unit_test(multiplies),
        cmocka_unit_test(multiplies_tf32),
        cmocka_unit_test(fetches_boxes),
        cmocka_unit_test(boxes_have_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
