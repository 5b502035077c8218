/* SPDX-License-Identifier: Apache-2.0
 * Planning takes a bounded number of steps, whatever the size of a window: the
 * searches look at so many shapes and sizes of blocks at most, on every device
 * of the table, and what they choose for large windows is what they chose when
 * they walked all sizes one by one. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "family/matrix_tiling.h"
#include "kit/asserts.h"
#include "kit/devices.h"
#include "kit/shapes.h"
#include "launch/bias_table.h"

/* Of a plan of one pass; they take some 20 ms. */
#define MOST_STEPS 1000000u
#define MOST_TOKENS 0x7fffffffu

static const wa_exclusions none;
static uint64_t most_seen; /* steps */

/* ---- Devices ---- */

/* The i-th made-up device with its own matrix unit and then with each other
 * that it could have. False: there are no more. */
static bool device_with_unit(size_t i, size_t number, wa_device *device)
{
    *device = made_up_devices[i];
    device->matrix_unit = wa_matrix_unit_of(device);
    if (number == 0)
        return true;
    for (size_t u = 0; u < WA_MATRIX_UNITS; u++) {
        const bool suits =
            wa_matrix_unit_suits(&wa_matrix_units[u], &made_up_devices[i]);
        if (&wa_matrix_units[u] == device->matrix_unit || !suits)
            continue;
        if (--number == 0) {
            device->matrix_unit = &wa_matrix_units[u];
            return true;
        }
    }
    return false;
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
    wa_plan plan;
    wa_plan backward;
    winattn_status status;
    if (p->passes[WA_FORWARD]) {
        status = wa_plan_make(p, device, WA_FORWARD, &none, &plan);
        check_steps(plan.visited, status, device, what);
    }
    if (p->passes[WA_BACKWARD]) {
        status = wa_plan_make(p, device, WA_BACKWARD, &none, &backward);
        check_steps(backward.visited, status, device, what);
    }
}

#define TIER_OF_TEXT (-1)
static winattn_status read_text(const char *text, int tier, wa_problem *p)
{
    test_case c = parsed(text);
    if (tier != TIER_OF_TEXT)
        c.tier = tier;
    winattn_desc d = case_desc(&c);
    d.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    return wa_problem_read(&d, p);
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
static void plan_on(const wa_problem *p, size_t i, const char *what)
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
            wa_problem p;
            if (read_text(large[i], tier, &p) != WINATTN_SUCCESS)
                fail_msg("%s: %s", large[i], winattn_last_reason());
            for (size_t d = 0; d < made_up_count; d++)
                plan_on(&p, d, large[i]);
        }
}

/* ---- Random problems of all sizes ---- */

static uint32_t one_of(random_state *r, const uint32_t *values, size_t count)
{
    return values[random_bits(r) % count];
}
#define ONE_OF(r, ...)                                                        \
    one_of(r, (const uint32_t[]){__VA_ARGS__},                                \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* From 1 to `most`, as often between 2^n and 2^(n + 1) for each n, and often
 * just there, where blocks are even or are not. */
static uint32_t size_up_to(random_state *r, uint32_t most)
{
    uint32_t log2 = 0;
    while (log2 < 30 && most >> (log2 + 1) != 0)
        log2++;
    uint32_t size = 1u << random_bits(r) % (log2 + 1);
    if (random_bits(r) % 2 != 0)
        size += random_bits(r) % size;
    else
        size += ONE_OF(r, 0, 0, 1, 2) - (size > 1 ? random_bits(r) % 2 : 0);
    return size < most ? size : most;
}

static void add_grid(random_state *r, winattn_desc *d)
{
    uint32_t left = MOST_TOKENS;
    d->queries = d->keys = 0;
    d->windows = 0;
    d->grid.axes = 1 + random_bits(r) % WINATTN_AXES;
    d->grid.batch = ONE_OF(r, 1, 2, 64);
    d->grid.padding = (winattn_padding)(random_bits(r) % 2);
    for (uint32_t a = 0; a < d->grid.axes; a++) {
        const uint32_t window = size_up_to(r, left);
        const uint32_t most = MOST_TOKENS / window;
        const uint32_t windows = 1 + random_bits(r) % (most < 8 ? most : 8);
        d->grid.window[a] = window;
        d->grid.size[a] = windows * window - random_bits(r) % window;
        d->grid.shift[a] = ONE_OF(r, 0, window / 2);
        left /= window;
    }
    d->mask = random_bits(r) % 2 ? WINATTN_MASK_SHIFT : WINATTN_MASK_NONE;
    d->bias = (winattn_bias)ONE_OF(r, WINATTN_BIAS_NONE, WINATTN_BIAS_TABLE);
}

static void add_blocks(random_state *r, winattn_desc *d)
{
    d->block = size_up_to(r, MOST_TOKENS);
    d->window_blocks = random_bits(r) % 8;
    d->sink = random_bits(r) % 64;
    d->query_offset = random_bits(r) % (MOST_TOKENS - d->queries + 1);
}

static winattn_desc random_problem(random_state *r)
{
    winattn_desc d;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.variant = (winattn_variant)ONE_OF(r, 0, 0, 0, 1, 1, 2);
    d.dtype = (winattn_dtype)ONE_OF(r, 0, 1, 1, 2);
    d.allow_tf32 = d.dtype == WINATTN_FP32 && random_bits(r) % 2;
    d.tier = (winattn_tier)ONE_OF(r, 0, 0, 2, 3, 3);
    d.windows = ONE_OF(r, 0, 1, 3, 64, 4096, 1000000);
    d.heads = ONE_OF(r, 1, 1, 1, 2, 3, 12, 32);
    d.kv_heads = random_bits(r) % 4 ? 0 : 1;
    d.head_dim = random_bits(r) % 2
                     ? ONE_OF(r, 1, 8, 10, 16, 32, 32, 64, 80, 128, 256)
                     : 1 + random_bits(r) % 256;
    d.queries = size_up_to(r, MOST_TOKENS);
    d.keys = random_bits(r) % 2 ? d.queries : size_up_to(r, MOST_TOKENS);
    d.passes = ONE_OF(r, 1, 2, 3);
    if (d.variant == WINATTN_SLIDING)
        add_blocks(r, &d);
    else if (random_bits(r) % 3 == 0)
        add_grid(r, &d);
    else
        d.mask = (winattn_mask)ONE_OF(r, 0, 0, 1, 2);
    if (d.mask == WINATTN_MASK_ADDITIVE || d.mask == WINATTN_MASK_REGIONS)
        d.mask_windows = ONE_OF(r, 1, 4, 64);
    if (d.variant != WINATTN_SLIDING && d.grid.axes == 0)
        d.bias = (winattn_bias)(random_bits(r) % 2);
    if ((uint64_t)d.queries * d.keys > MOST_TOKENS) { /* such planes are not */
        d.bias = WINATTN_BIAS_NONE;
        d.mask =
            d.mask == WINATTN_MASK_ADDITIVE ? WINATTN_MASK_REGIONS : d.mask;
    }
    return d;
}

static void print_problem(const winattn_desc *d, size_t number, char *text,
                          size_t size)
{
    snprintf(text, size,
             "problem %u: variant %d, dtype %d, tier %d, heads %u, kv_heads "
             "%u, %u x %u x %u, bias %d, mask %d, passes %u, grid of %u, "
             "windows %u x %u x %u",
             (unsigned)number, (int)d->variant, (int)d->dtype, (int)d->tier,
             d->heads, d->kv_heads, d->queries, d->keys, d->head_dim,
             (int)d->bias, (int)d->mask, (unsigned)d->passes, d->grid.axes,
             d->grid.window[0], d->grid.window[1], d->grid.window[2]);
}

static void random_windows(void **state)
{
    (void)state;
    random_state r = random_seeded(1);
    size_t planned = 0, large_ones = 0;
    for (size_t i = 0; i < 1200; i++) {
        const winattn_desc d = random_problem(&r);
        char text[512];
        wa_problem p;
        if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
            continue;
        planned++;
        large_ones += p.queries > 65536 || p.keys > 65536;
        print_problem(&d, i, text, sizeof text);
        plan_on(&p, i % made_up_count, text);
    }
    printf("%u problems, %u of them large; %llu steps at most\n",
           (unsigned)planned, (unsigned)large_ones,
           (unsigned long long)most_seen);
    assert_true(planned > 800 && large_ones > 400);
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
        wa_device device = *made_up_device("H200");
        wa_problem p;
        device.matrix_unit = wa_matrix_unit_of(&device);
        assert_int_equal(read_text(problems[i], 0, &p), WINATTN_SUCCESS);
        for (int n = WA_LOCAL_FORWARD; n <= WA_MATRIX_BACKWARD; n++) {
            uint64_t visits = 0;
            const uint64_t steps =
                visit_shapes((wa_tuned_kernel)n, &p, &device, count, &visits);
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

/* ---- Choices ---- */

/* Chosen for large windows, at first when all sizes of blocks were walked one
 * by one; since then where formulas of local memory changed. */
static const struct {
    const char *device, *problem, *choice;
} expected[] = {
#include "expected_large_plans.inc"
};

/* The kernels of both passes, each with its blocks, work-items and local
 * bytes; false if there are none. */
static bool print_choice(const char *problem, const char *name, char *text,
                         size_t size)
{
    wa_problem p;
    wa_plan plan;
    wa_plan backward;
    wa_device device = *made_up_device(name);
    device.matrix_unit = wa_matrix_unit_of(&device);
    if (read_text(problem, TIER_OF_TEXT, &p) != WINATTN_SUCCESS ||
        wa_plan_make(&p, &device, WA_FORWARD, &none, &plan) !=
            WINATTN_SUCCESS ||
        wa_plan_make(&p, &device, WA_BACKWARD, &none, &backward) !=
            WINATTN_SUCCESS)
        return false;
    snprintf(text, size, "%s %ux%u %u %u", plan.step[WA_STEP_FORWARD].kernel,
             plan.step[WA_STEP_FORWARD].block_rows,
             plan.step[WA_STEP_FORWARD].block_keys,
             plan.step[WA_STEP_FORWARD].work_group,
             plan.step[WA_STEP_FORWARD].local_bytes);
    for (int i = WA_STEP_STATISTICS; i <= WA_STEP_LAST; i++) {
        const wa_step *kernel = &backward.step[i];
        if (kernel->kernel)
            wa_append(text, size, ", %s %ux%u %u %u", kernel->kernel,
                      kernel->block_rows, kernel->block_keys,
                      kernel->work_group, kernel->local_bytes);
    }
    return true;
}

static void large_choices(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char text[512];
        assert_true(print_choice(expected[i].problem, expected[i].device, text,
                                 sizeof text));
        if (strstr(expected[i].choice, "wgmma") && /* WINATTN_HOPPER */
            !wa_engine_name(WA_ENGINE_SPECIAL)[0])
            continue;
        if (strcmp(text, expected[i].choice) != 0)
            fail_msg("%s on %s: now %s, not %s", expected[i].problem,
                     expected[i].device, text, expected[i].choice);
    }
}

/* Makes expected_large_plans.inc. */
static void print_choices(void)
{
    static const char *const devices[] = {
        "RTX 2080 Ti", "H200",     "gfx1100 (RX 7900 XTX)",
        "Arc A770",    "Mali-G78", "PoCL",
    };
    static const char *const problems[] = {
        "dtype=fp16 heads=2 queries=65537",
        "dtype=fp16 heads=1 queries=46000 bias=same mask=regions "
        "mask_windows=2",
        "heads=1 queries=1000000 keys=100",
        "dtype=bf16 heads=1 queries=100 keys=1000000 dim=64",
        "dtype=fp16 variant=cosine heads=1 grid=2 size=300x300 "
        "window=150x150 shift=75x75 mask=shift bias=table_same",
        "dtype=fp16 variant=sliding heads=4 queries=100000 block=4680 "
        "window_blocks=7 dim=128",
        "tier=matrix dtype=bf16 heads=1 queries=20000 mask=regions "
        "mask_windows=2",
        "tier=matrix dtype=fp16 heads=1 queries=200 keys=60000 dim=16",
        "tier=matrix dtype=fp16 variant=cosine heads=1 queries=30000 keys=77 "
        "bias=fp32",
    };
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
            char text[512];
            if (print_choice(problems[i], devices[d], text, sizeof text))
                printf("{\"%s\", \"%s\",\n \"%s\"},\n", devices[d],
                       problems[i], text);
        }
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
        wa_problem p;
        wa_table_buffers buffers;
        memset(&buffers, 0, sizeof buffers);
        if (read_text(tables[i], WINATTN_TIER_AUTO, &p) != WINATTN_SUCCESS)
            fail_msg("%s: %s", tables[i], winattn_last_reason());
        assert_int_equal(
            wa_table_buffers_make(NULL, made_up_device("H200"), &p, &buffers),
            WINATTN_SUCCESS);
        assert_null(buffers.index);
        assert_null(buffers.starts);
        assert_null(buffers.order);
    }
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--print") == 0) {
        print_choices();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_sizes),     cmocka_unit_test(large_windows),
        cmocka_unit_test(random_windows), cmocka_unit_test(visits_are_steps),
        cmocka_unit_test(large_choices),  cmocka_unit_test(large_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
