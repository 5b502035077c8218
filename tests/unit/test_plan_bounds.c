/* SPDX-License-Identifier: Apache-2.0
 * Planning takes a bounded number of steps, whatever the size of a window: the
 * searches look at so many shapes and sizes of blocks at most, on every device
 * of the table; and what they choose is legal. Campaigns have random
 * problems. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "family/matrix_tiling.h"
#include "kit/shapes.h"
#include "launch/bias_table.h"
#include "plan_made.h"

/* Of a plan of one pass; they take some 20 ms. */
#define MOST_STEPS 1000000u
#define MOST_TOKENS 0x7fffffff

static const wa_exclusions none;

/* ---- What must hold ---- */

static void check_steps(uint64_t steps, winattn_status status,
                        const wa_device *device, const char *what)
{
    if (steps > MOST_STEPS)
        fail_msg("%s on %s, unit %s: %llu steps", what, device->name,
                 device->matrix_unit ? device->matrix_unit->name : "none",
                 (unsigned long long)steps);
    if (status != WINATTN_SUCCESS && !winattn_last_reason()[0])
        fail_msg("%s on %s: refused for no reason", what, device->name);
    wa_forget_failure();
}

/* Plans all passes, whether or not a kernel fits. */
static void plan_all(const wa_problem *p, const wa_device *device,
                     const char *what)
{
    for (int pass = 0; pass < WA_PASSES; pass++) {
        wa_plan plan;
        if (!p->passes[pass])
            continue;
        const winattn_status status =
            wa_plan_make(p, device, (wa_pass)pass, &none, &plan);
        check_steps(plan.visited, status, device, what);
        if (status == WINATTN_SUCCESS)
            assert_legal(p, device, &plan, what);
    }
}

static wa_problem read_text(const char *text, int tier)
{
    const test_case c = parsed(text);
    winattn_desc d = case_desc(&c);
    wa_problem p;
    d.tier = (winattn_tier)tier;
    d.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
        fail_msg("%s: %s", text, winattn_last_reason());
    return p;
}

/* ---- Large windows ---- */

/* What took from seconds to more than an hour, and what is largest in some
 * other way. */
static const char *const large[] = {
    "dtype=fp16 heads=1 queries=1 keys=2147483646",
    "dtype=fp16 heads=1 queries=2147483646 keys=1",
    "dtype=fp16 heads=1 queries=49 keys=16777216",
    "dtype=fp16 heads=1 queries=1048576",
    "dtype=fp16 heads=1 queries=33554432 dim=64",
    "dtype=bf16 heads=1 queries=2147483647 dim=8",
    "heads=1 queries=2147483647 keys=1",
    "heads=1 queries=1073741824 keys=49",
    "tf32=1 heads=1 queries=1048576 dim=4",
    "dtype=bf16 variant=cosine heads=1 grid=3 size=12x131071x12 "
    "window=12x131071x12 dim=10",
    "dtype=fp16 heads=1 grid=1 size=31 window=2139095040 padding=hidden "
    "dim=1",
    "dtype=fp16 heads=1 grid=1 size=46340 window=46340 bias=table_same",
    "dtype=fp16 heads=1 queries=46337 keys=46337 bias=fp32 mask=regions "
    "mask_windows=1 dim=1",
    "dtype=bf16 heads=8 kv_heads=1 queries=45989 keys=45989 bias=same "
    "mask=same mask_windows=2 dim=16",
    "dtype=fp16 heads=1 queries=32771 dim=256 bias=fp32",
    "variant=sliding dtype=fp16 heads=1 queries=2147483647 block=1",
    "variant=sliding heads=1 queries=1073741824 block=1073741823 dim=256",
    "variant=sliding dtype=bf16 heads=1 queries=4097 keys=2147483647 "
    "block=4680 window_blocks=7 query_offset=2147479550",
};

/* On the i-th device with each unit that it could have, where the tier that is
 * demanded asks for one. */
static void plan_everywhere(const wa_problem *p, size_t i, const char *what)
{
    const bool has_unit =
        p->tier == WINATTN_TIER_AUTO || p->tier == WINATTN_TIER_MATRIX;
    wa_device device;
    for (size_t u = 0; device_with_unit(&devices[i], u, &device); u++)
        if (u == 0 || has_unit)
            plan_all(p, &device, what);
}

static void large_windows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int tier = 0; tier < WA_TIERS; tier++) {
            const wa_problem p = read_text(large[i], tier);
            for (size_t d = 0; d < made_up_count; d++)
                plan_everywhere(&p, d, large[i]);
        }
}

/* ---- Visitors ---- */

static void count(void *data, const wa_tuned_shape *shape, double cost)
{
    (void)shape;
    assert_true(cost > 0);
    ++*(uint64_t *)data;
}

/* A shape that is visited is a step, so what plans count is no less than what
 * others see. */
static void visits_are_steps(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "dtype=fp16 queries=49 bias=same",
        "dtype=fp16 queries=4096 mask=regions mask_windows=3",
        "dtype=fp16 heads=1 queries=1 keys=2147483646",
        "dtype=bf16 heads=1 queries=2147483647 keys=1",
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const wa_device *device = device_named("H200");
        const wa_problem p = read_text(problems[i], WINATTN_TIER_AUTO);
        for (int n = WA_LOCAL_FORWARD; n <= WA_MATRIX_BACKWARD; n++) {
            uint64_t visits = 0;
            const uint64_t steps =
                visit_shapes((wa_tuned_kernel)n, &p, device, count, &visits);
            if (steps > MOST_STEPS || visits > steps)
                fail_msg("%s, search %d: %llu visits, %llu steps", problems[i],
                         n, (unsigned long long)visits,
                         (unsigned long long)steps);
            /* without a window that is too large all searches find some */
            assert_true(visits > 0 || i > 0);
        }
    }
}

/* ---- Sizes of blocks ---- */

/* All sizes that share a number evenly, from the largest on, and each where it
 * is asked for. */
static void even_sizes(void **state)
{
    (void)state;
    for (uint32_t all = 1; all <= 400; all++) {
        uint32_t largest = 0; /* up to `most` */
        assert_int_equal(wa_even_size(all, 0), 0);
        for (uint32_t most = 1; most <= all + 2; most++) {
            for (uint32_t blocks = 1; blocks <= all; blocks++)
                if (wa_ceil_div(all, blocks) == most)
                    largest = most;
            assert_int_equal(wa_even_size(all, most), largest);
        }
    }
    assert_int_equal(wa_even_size(MOST_TOKENS, MOST_TOKENS), MOST_TOKENS);
    assert_int_equal(wa_even_size(MOST_TOKENS, MOST_TOKENS - 1), 1u << 30);
    assert_int_equal(wa_even_size(MOST_TOKENS, 128), 128);
    assert_int_equal(wa_even_size(129, 128), 65);
}

/* ---- Tables ---- */

/* Lists of pairs are made of what is small, or has an index: here they would
 * take gigabytes, and an OpenCL context. */
static void large_tables(void **state)
{
    (void)state;
    static const char *const tables[] = {
        "heads=1 grid=1 size=46340 window=46340 bias=table_same",
        "heads=1 grid=2 size=25x41 window=25x41 bias=table_fp32",
        "heads=1 queries=1 table=1073741823 sliced=1 bias=table_fp32",
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const wa_problem p = read_text(tables[i], WINATTN_TIER_AUTO);
        wa_table_buffers buffers;
        memset(&buffers, 0, sizeof buffers);
        assert_int_equal(
            wa_table_buffers_make(NULL, made_up_device("H200"), &p, &buffers),
            WINATTN_SUCCESS);
        assert_null(buffers.index);
        assert_null(buffers.starts);
        assert_null(buffers.order);
    }
}

/* ---- Numbers of 32 bits ---- */

/* What kernels could not number is refused. */
static void too_many_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *device, *problem, *reason; /* NULL: none */
    } rows[] = {
        {"PoCL", "heads=32768 queries=1 keys=33554432 dim=1",
         "blocks of keys"},
        {"A100", "dtype=fp16 heads=65536 queries=16777216 keys=1",
         "blocks of queries"},
        {"PoCL", "heads=65536 queries=1 keys=1048576 dim=1 bias=fp32",
         "of a bias"},
        {"PoCL", "heads=32768 queries=1 keys=1048576 dim=1 bias=fp32", NULL},
        {"PoCL", "heads=65536 kv_heads=1 queries=1 keys=16777216 dim=1", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wa_problem p = read_text(rows[i].problem, WINATTN_TIER_AUTO);
        wa_plan plan;
        const winattn_status status = wa_plan_make(
            &p, device_named(rows[i].device), WA_BACKWARD, &none, &plan);
        if (status != (rows[i].reason ? WINATTN_UNSUPPORTED_PROBLEM
                                      : WINATTN_SUCCESS) ||
            (rows[i].reason && !strstr(winattn_last_reason(), rows[i].reason)))
            fail_msg("%s: %s", rows[i].problem, winattn_last_reason());
        wa_forget_failure();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_sizes),       cmocka_unit_test(large_windows),
        cmocka_unit_test(visits_are_steps), cmocka_unit_test(large_tables),
        cmocka_unit_test(too_many_blocks),
    };
    find_units();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
