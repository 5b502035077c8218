/* SPDX-License-Identifier: Apache-2.0
 * Instructions of other vendors' units against plain products of matrices, and
 * what waves of theirs do together. Where element i of lane l lies is written
 * down here as the table of fragments has it, element by element, and not by
 * registers as in ptx_units.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_code.h"
#include "ptx_test.h"

static const char *run_wide(const char *body, size_t items, size_t lanes,
                            uint32_t *words)
{
    return run_waves(body, 1, items, lanes, 0, words, 1);
}

/* ---- Layouts ---- */

typedef int formula(int l, int i);

#define FORMULA(name, expression)                                             \
    static int name(int l, int i)                                             \
    {                                                                         \
        (void)l;                                                              \
        (void)i;                                                              \
        return expression;                                                    \
    }
FORMULA(lane_, l)
FORMULA(element, i)
FORMULA(lane_15, l & 15)
FORMULA(element_pair, i >> 1)
FORMULA(wmma11_c_m, 2 * i + (l >> 4))
FORMULA(wmma12_k, (i & 3) + 4 * (l >> 4) + 8 * (i >> 2))
FORMULA(wmma12_c_m, i + 8 * (l >> 4))
FORMULA(mfma16_k, 4 * (l >> 4) + i)
FORMULA(dpas8_a_k, 2 * l + (i & 1))

typedef struct layout {
    const char *name;
    int lanes, m, n, k;
    int a_elements, b_elements, c_elements;
    formula *a_m, *a_k, *b_k, *b_n, *c_m, *c_n;
} layout;

static const layout layouts[] = {
    {"wmma11", 32, 16, 16, 16, 16, 16, 8, lane_15, element, element, lane_15,
     wmma11_c_m, lane_15},
    {"wmma12", 32, 16, 16, 16, 8, 8, 8, lane_15, wmma12_k, wmma12_k, lane_15,
     wmma12_c_m, lane_15},
    {"mfma16", 64, 16, 16, 16, 4, 4, 4, lane_15, mfma16_k, mfma16_k, lane_15,
     mfma16_k, lane_15},
    {"dpas8", 8, 8, 8, 16, 16, 16, 8, element_pair, dpas8_a_k, element, lane_,
     element, lane_},
    {"dpas16", 16, 8, 16, 16, 8, 16, 8, element, lane_, element, lane_,
     element, lane_},
};
#define EACH_LAYOUT(u)                                                        \
    for (const layout *u = layouts;                                           \
         u < layouts + sizeof layouts / sizeof *layouts; u++)

/* ---- Products ---- */

/* Whole numbers, all results of which are exact. */
static int a_at(int m, int k) { return (m * 7 + k * 5 + m * k) % 17 - 8; }
static int b_at(int k, int n) { return (k * 3 + n * 11 + k * n) % 19 - 9; }
static int c_at(int m, int n) { return m * 40 - n * 3; }

static uint32_t stored(int x, int is_bf16)
{
    return is_bf16 ? ptx_to_bf16(x) : ptx_to_half(x);
}

/* Word w of lane l is words[w lanes + l]: of sums, of A, of B. */
static void put_operands(const layout *u, int is_bf16, uint32_t *words)
{
    const int n = u->lanes;
    uint32_t *a = words + u->c_elements * n;
    uint32_t *b = a + u->a_elements / 2 * n;
    memset(words, 0, MOST_WORDS * sizeof *words);
    for (int l = 0; l < n; l++) {
        for (int i = 0; i < u->c_elements; i++)
            words[i * n + l] =
                (uint32_t)bits_of((float)c_at(u->c_m(l, i), u->c_n(l, i)));
        for (int i = 0; i < u->a_elements; i++)
            a[i / 2 * n + l] |=
                stored(a_at(u->a_m(l, i), u->a_k(l, i)), is_bf16)
                << 16 * (i % 2);
        for (int i = 0; i < u->b_elements; i++)
            b[i / 2 * n + l] |=
                stored(b_at(u->b_k(l, i), u->b_n(l, i)), is_bf16)
                << 16 * (i % 2);
    }
}

static char *append_list(char *to, int first, int count)
{
    for (int i = 0; i < count; i++)
        to += sprintf(to, "%s%%r%d%s", i ? ", " : "{", 10 + first + i,
                      i == count - 1 ? "}" : "");
    return to;
}

/* Loads all words, multiplies under a guard or none, stores the sums. */
static const char *multiply(const layout *u, int is_bf16, const char *guard,
                            int lanes, uint32_t *words)
{
    static char body[8192];
    char *to = body;
    const int a = u->a_elements / 2, b = u->b_elements / 2;
    to += sprintf(to, "setp.lt.u32 %%p1, %%r1, 3;\n");
    for (int w = 0; w < u->c_elements + a + b; w++)
        to += sprintf(to, "ld.global.u32 %%r%d, [%%rd2+%d];\n", 10 + w,
                      4 * u->lanes * w);
    to += sprintf(to, "%sunit.product.%s.%s ", guard, u->name,
                  is_bf16 ? "bf16" : "f16");
    to = append_list(to, 0, u->c_elements);
    to += sprintf(to, ", ");
    to = append_list(to, u->c_elements, a);
    to += sprintf(to, ", ");
    to = append_list(to, u->c_elements + a, b);
    to += sprintf(to, ";\n");
    for (int w = 0; w < u->c_elements; w++)
        to += sprintf(to, "st.global.u32 [%%rd2+%d], %%r%d;\n",
                      4 * u->lanes * w, 10 + w);
    return run_wide(body, (size_t)lanes, (size_t)lanes, words);
}

static void multiplies(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    EACH_LAYOUT(u)
    {
        for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
            put_operands(u, is_bf16, words);
            assert_string_equal(multiply(u, is_bf16, "", u->lanes, words), "");
            for (int l = 0; l < u->lanes; l++)
                for (int i = 0; i < u->c_elements; i++) {
                    const int m = u->c_m(l, i), n = u->c_n(l, i);
                    int sum = c_at(m, n);
                    for (int k = 0; k < u->k; k++)
                        sum += a_at(m, k) * b_at(k, n);
                    if (float_of(words[i * u->lanes + l]) != (float)sum)
                        fail_msg("%s: %d, %d is %g in place of %d", u->name, m,
                                 n, float_of(words[i * u->lanes + l]), sum);
                }
        }
    }
}

static void assert_refuses(const char *reason, const char *why)
{
    if (!strstr(reason, why))
        fail_msg("\"%s\" in place of \"%s\"", reason, why);
}

/* Waves of another size, or some lanes of one. */
static void wants_whole_waves(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    EACH_LAYOUT(u)
    {
        put_operands(u, 0, words);
        assert_refuses(multiply(u, 0, "@%p1 ", u->lanes, words),
                       "a product of 3 lanes");
        assert_refuses(multiply(u, 0, "", u->lanes == 8 ? 16 : 8, words),
                       "a product of");
        assert_refuses(multiply(u, 0, "", u->lanes / 2, words),
                       "a product of");
    }
}

/* What the unit of RDNA3 reads in both halves of a wave. */
static void wants_both_halves(void **state)
{
    static uint32_t words[MOST_WORDS];
    const layout *u = &layouts[0];
    (void)state;
    for (int of_b = 0; of_b < 2; of_b++) {
        put_operands(u, 0, words);
        words[(u->c_elements + 8 * of_b + 3) * 32 + 16 + 5] ^= 1;
        assert_refuses(multiply(u, 0, "", 32, words), "must hold the same");
    }
}

static void wants_all_operands(void **state)
{
    (void)state;
    assert_fails("unit.product.mfma16.f16 {%r10, %r11, %r12, %r13}, "
                 "{%r14, %r15}, {%r16};\n",
                 32, "operands are missing");
    assert_fails("unit.product.mfma16.f32 {%r10, %r11, %r12, %r13}, "
                 "{%r14, %r15}, {%r16, %r17};\n",
                 32, "is not known");
}

/* ---- Lanes ---- */

#define STORE "st.global.u32 [%rd2], %r12;\n"

/* Selectors that keep order, and some that do not. */
static void permutes_rows(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    assert_string_equal(
        run_wide(
            "mul.lo.u32 %r10, %r1, 10;\n"
            "unit.permlanex16.b32 %r12, %r10, 0x76543210, 0xfedcba98;\n" STORE,
            64, 32, words),
        "");
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(words[i], 10 * (i ^ 16));
    assert_string_equal(
        run_wide(
            "unit.permlanex16.b32 %r12, %r1, 0x0000000f, 0x30000000;\n" STORE,
            32, 32, words),
        "");
    assert_int_equal(words[0], 31);
    assert_int_equal(words[1], 16);
    assert_int_equal(words[15], 19);
    assert_int_equal(words[16], 15);
    assert_int_equal(words[31], 3);
}

static void permutes_bytes(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    assert_string_equal(run_wide("xor.b32 %r10, %r1, 32;\n"
                                 "shl.b32 %r11, %r10, 2;\n"
                                 "unit.bpermute.b32 %r12, %r1, %r11;\n" STORE,
                                 64, 64, words),
                        "");
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(words[i], i ^ 32);
}

static void votes(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    assert_string_equal(run_wide("and.b32 %r10, %r1, 4;\n"
                                 "unit.ballot.b32 %r12, %r10;\n" STORE,
                                 32, 32, words),
                        "");
    assert_int_equal(words[31], 0xf0f0f0f0);
    assert_string_equal(
        run_wide("setp.gt.u32 %p1, %r1, 33;\nselp.b32 %r10, 1, 0, %p1;\n"
                 "unit.ballot.b64 %rd4, %r10;\nshr.u64 %rd4, %rd4, 32;\n"
                 "cvt.u32.u64 %r12, %rd4;\n" STORE,
                 64, 64, words),
        "");
    assert_int_equal(words[5], 0xfffffffc);
    assert_refuses(
        run_wide("unit.ballot.b32 %r12, %r1;\n" STORE, 64, 64, words),
        "a ballot of 32 lanes");
}

/* Who is not there has what the hardware has. */
static void asks_whole_waves(void **state)
{
    static const char *const instructions[] = {
        "unit.permlanex16.b32 %r12, %r1, 0, 0",
        "unit.bpermute.b32 %r12, %r1, 0", "unit.ballot.b32 %r12, %r1"};
    static uint32_t words[MOST_WORDS];
    (void)state;
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
        char body[256];
        snprintf(body, sizeof body, "setp.lt.u32 %%p1, %%r1, 16;\n@%%p1 %s;\n",
                 instructions[i]);
        assert_refuses(run_wide(body, 32, 32, words), "some lanes only");
    }
}

static void reads_arguments(void **state)
{
    static uint32_t words[MOST_WORDS];
    (void)state;
    assert_string_equal(run("mov.u64 %rd4, %kernarg;\n"
                            "ld.const.u32 %r12, [%rd4+8];\n" STORE,
                            1, 77, words, 1),
                        "");
    assert_int_equal(words[0], 77);
    assert_fails("mov.u64 %rd4, %kernarg;\nld.const.u32 %r12, [%rd4+12];\n", 1,
                 "outside of all buffers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multiplies),
        cmocka_unit_test(wants_whole_waves),
        cmocka_unit_test(wants_both_halves),
        cmocka_unit_test(wants_all_operands),
        cmocka_unit_test(permutes_rows),
        cmocka_unit_test(permutes_bytes),
        cmocka_unit_test(votes),
        cmocka_unit_test(asks_whole_waves),
        cmocka_unit_test(reads_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
