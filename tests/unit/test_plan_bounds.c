/* SPDX-License-Identifier: Apache-2.0
 * Planning takes a bounded number of steps, whatever the size of a window: the
 * searches look at so many shapes and sizes of blocks at most, on every device
 * of the table; and what they choose is legal. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "family/matrix_tiling.h"
#include "kit/shapes.h"
#include "launch/bias_table.h"
#include "plan_legal.h"
#include "plan_made.h"

/* Of a plan of one pass; they take some 20 ms. */
#define MOST_STEPS 1000000u
#define MOST_TOKENS 0x7fffffff

static const wa_exclusions none;
static uint64_t most_seen; /* steps */

/* ---- Devices ---- */

/* The i-th made-up device with its own matrix unit and then with each other
 * that it could have. False: there are no more. */
static bool device_with_unit(size_t i, size_t number, wa_device *device)
{
    *device = devices[i];
    for (size_t u = 0; number > 0 && u < WA_MATRIX_UNITS; u++)
        if (&wa_matrix_units[u] != devices[i].matrix_unit &&
            wa_matrix_unit_suits(&wa_matrix_units[u], &devices[i]) &&
            --number == 0)
            device->matrix_unit = &wa_matrix_units[u];
    return number == 0;
}

/* ---- What must hold ---- */

static void check_steps(uint64_t steps, winattn_status status,
                        const wa_device *device, const char *what)
{
    most_seen = steps > most_seen ? steps : most_seen;
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
    for (size_t u = 0; device_with_unit(i, u, &device); u++)
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

/* ---- Random problems of all sizes ---- */

/* From 1 to `most`, as often between 2^n and 2^(n + 1) for each n, and often
 * just there, where blocks are even or are not. */
static int size_up_to(random_state *r, int most)
{
    int log2 = 0;
    while (log2 < 30 && most >> (log2 + 1) != 0)
        log2++;
    unsigned size = 1u << random_int(r, 0, log2);
    if (random_int(r, 0, 1))
        size += random_bits(r) % size;
    else if (size > 1)
        size += (unsigned)random_int(r, -1, 2);
    return size < (unsigned)most ? (int)size : most;
}

/* Maps have up to 8 windows along each axis. */
static void stretch_grid(random_state *r, test_case *c)
{
    int left = MOST_TOKENS;
    for (int a = 0; a < c->grid; a++) {
        const int window = size_up_to(r, left);
        const int most = MOST_TOKENS / window;
        const int windows = random_int(r, 1, most < 8 ? most : 8);
        c->window[a] = window;
        c->size[a] =
            windows * window - (int)(random_bits(r) % (unsigned)window);
        c->shift[a] = random_int(r, 0, 1) ? window / 2 : 0;
        c->periodic[a] = c->table[a] = 0;
        left /= window;
    }
    c->sliced = c->entries = 0;
    case_derive(c);
}

/* A case of any other generator, with sizes of its own. */
static test_case random_problem(random_state *r, int seed)
{
    static const int windows[] = {0, 1, 3, 64, 4096, 1000000};
    const int pass = random_int(r, PASS_FORWARD, PASS_BACKWARD);
    test_case c = seed % 4 ? case_random(seed, WINATTN_TIER_AUTO)
                           : case_random_grid(seed, WINATTN_TIER_AUTO, pass);
    c.pass = pass;
    c.tier = random_int(r, WINATTN_TIER_AUTO, WINATTN_TIER_MATRIX);
    c.tf32 = c.dtype == WINATTN_FP32 && random_int(r, 0, 1);
    if (c.grid) {
        stretch_grid(r, &c);
        return c;
    }
    c.windows = windows[random_int(r, 0, 5)];
    c.queries = size_up_to(r, MOST_TOKENS);
    c.keys = random_int(r, 0, 1) ? c.queries : size_up_to(r, MOST_TOKENS);
    if (c.variant == WINATTN_SLIDING)
        c.query_offset %= MOST_TOKENS - c.queries + 1;
    if (c.block)
        c.block = size_up_to(r, MOST_TOKENS);
    if ((uint64_t)c.queries * (uint64_t)c.keys > MOST_TOKENS) {
        c.bias = TERM_NONE; /* such planes are not */
        c.mask = case_mask_is_array(&c) ? TERM_REGIONS : c.mask;
    }
    return c;
}

static void random_windows(void **state)
{
    (void)state;
    random_state r = random_seeded(1);
    size_t planned = 0, large_ones = 0;
    for (size_t i = 0; i < 1600; i++) {
        const test_case c = random_problem(&r, (int)i);
        const winattn_desc d = case_desc(&c);
        char text[512];
        wa_problem p;
        if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
            continue;
        planned++;
        large_ones += p.queries > 65536 || p.keys > 65536;
        case_print(&c, text, sizeof text);
        plan_everywhere(&p, i % made_up_count, text);
    }
    printf("%u problems, %u of them large; %llu steps at most\n",
           (unsigned)planned, (unsigned)large_ones,
           (unsigned long long)most_seen);
    assert_true(planned > 1000 && large_ones > 500);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_sizes),     cmocka_unit_test(large_windows),
        cmocka_unit_test(random_windows), cmocka_unit_test(visits_are_steps),
        cmocka_unit_test(large_tables),
    };
    find_units();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
