/* SPDX-License-Identifier: Apache-2.0
 * Planning for devices that nobody here owns: the choices are legal, stand
 * in a table, and do not depend on what must not compile anew. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/text.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "kit/planned.h"
#include "kit/workloads.h"
#include "plan/defines.h"
#include "plan/matrix_tiling.h"
#include "plan/planner.h"
#include "plan/schedule.h"
#include "plan/tuning.h"

/* The made-up devices with their matrix units, as wa_device_query adds them.
 */
#define MOST_DEVICES 64
static wa_device devices[MOST_DEVICES];

static void find_units(void)
{
    for (size_t i = 0; i < made_up_count && i < MOST_DEVICES; i++) {
        devices[i] = made_up_devices[i];
        devices[i].unit = wa_unit_of(&devices[i]);
    }
}

static const wa_device *device_named(const char *name)
{
    const wa_device *device = made_up_device(name);
    assert_non_null(device);
    return &devices[device - made_up_devices];
}

static wa_problem problem_of(const char *text)
{
    test_case c = case_default();
    wa_problem p;
    char bad[64];
    if (!case_parse(text, &c, bad))
        fail_msg("%s in \"%s\"", bad, text);
    const winattn_desc d = case_desc(&c);
    if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
        fail_msg("%s: %s", text, winattn_last_reason());
    return p;
}

static wa_plan plan_of(const wa_problem *p, const wa_device *device)
{
    static const wa_exclusions none;
    wa_plan plan;
    if (wa_plan_make(p, device, WA_FORWARD, &none, &plan) != WINATTN_SUCCESS)
        fail_msg("%s: %s", device->name, winattn_last_reason());
    return plan;
}

/* Has the device a unit that is taken unasked? */
static bool has_proven_unit(const wa_device *device)
{
    return device->unit && device->unit->proven;
}

/* Does tier matrix compute such problems on the device? */
static bool suits_matrix(const wa_problem *p, const wa_device *device)
{
    return device->unit && p->variant != WINATTN_SLIDING &&
           (p->dtype != WINATTN_FP32 ||
            (p->allows_tf32 && device->unit->has_tf32));
}

/* A device that ends loops early computes small problems only, and says so. */
static bool plan_or_refusal(const wa_problem *p, const wa_device *device,
                            wa_plan *plan)
{
    static const wa_exclusions none;
    if (wa_plan_make(p, device, WA_FORWARD, &none, plan) == WINATTN_SUCCESS)
        return true;
    if (p->tier == WINATTN_TIER_MATRIX && !suits_matrix(p, device) &&
        strstr(winattn_last_reason(), "tier matrix: "))
        return false;
    if (device->loop_limit == 0 || !strstr(winattn_last_reason(), "loops"))
        fail_msg("%s: %s", device->name, winattn_last_reason());
    return false;
}

/* ---- Expected choices ---- */

static const struct {
    const char *device, *problem, *tier;
    uint32_t work_group, local_bytes, block_rows;
} expected[] = {
#include "expected_plans.inc"
};

static void table(void **state)
{
    (void)state;
    size_t seen = 0;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < sizeof expected / sizeof *expected; j++) {
            if (strcmp(expected[j].device, devices[i].name) != 0)
                continue;
            const wa_problem p = problem_of(expected[j].problem);
            const wa_plan plan = plan_of(&p, &devices[i]);
            seen++;
            if (strcmp(wa_tier_name(plan.tier), expected[j].tier) != 0 ||
                plan.step[WA_STEP_FORWARD].work_group !=
                    expected[j].work_group ||
                plan.step[WA_STEP_FORWARD].local_bytes !=
                    expected[j].local_bytes ||
                plan.step[WA_STEP_FORWARD].block_rows !=
                    expected[j].block_rows)
                fail_msg("%s, %s: now %s %u %u %u\n%s", expected[j].device,
                         expected[j].problem, wa_tier_name(plan.tier),
                         plan.step[WA_STEP_FORWARD].work_group,
                         plan.step[WA_STEP_FORWARD].local_bytes,
                         plan.step[WA_STEP_FORWARD].block_rows,
                         plan.step[WA_STEP_FORWARD].defines);
        }
    assert_int_equal(seen, sizeof expected / sizeof *expected);
    /* every device stands in the table */
    assert_true(seen >= 3 * made_up_count);
}

/* ---- Legality ---- */

static bool power_of_two(uint32_t x) { return x != 0 && (x & (x - 1)) == 0; }

/* Remembers what is not so. */
#define REQUIRE(condition)                                                    \
    if (!(condition))                                                         \
    broken = #condition

/* NULL if the shape is one that cl/matrix/forward_matrix.cl computes right. */
static const char *broken_matrix(const wa_problem *p, const wa_device *device,
                                 const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_unit *unit = device->unit;
    const wa_matrix_shape *s = &plan->shape.matrix;
    const uint32_t waves = s->team_waves * s->teams;
    REQUIRE(suits_matrix(p, device) && p->tier != WINATTN_TIER_LOCAL);
    REQUIRE(unit->proven || p->tier == WINATTN_TIER_MATRIX);
    REQUIRE(strstr(plan->step[WA_STEP_FORWARD].kernel, "forward_matrix_") ==
            plan->step[WA_STEP_FORWARD].kernel);
    REQUIRE(
        strcmp(plan->step[WA_STEP_FORWARD].kernel + strlen("forward_matrix_"),
               unit->name) == 0);
    REQUIRE(waves * unit->wave == plan->step[WA_STEP_FORWARD].work_group);
    REQUIRE(plan->schedule.units_per_group == s->teams);
    REQUIRE(plan->step[WA_STEP_FORWARD].block_rows == s->block_rows);
    REQUIRE(plan->step[WA_STEP_FORWARD].block_keys == s->block_keys);
    REQUIRE(s->block_rows == p->queries || s->block_rows % unit->queries == 0);
    REQUIRE(s->block_keys == p->keys || s->block_keys % unit->tile == 0);
    REQUIRE(s->block_keys <= p->keys && s->block_rows <= p->queries);
    REQUIRE(s->pass_keys >= 1 && s->pass_keys % unit->tile == 0);
    REQUIRE(s->stages >= 1 && s->teams <= 15);
    REQUIRE(s->stages == 1 || unit->copies_async);
    REQUIRE(!s->keeps_terms || p->bias != WINATTN_BIAS_NONE ||
            p->mask != WINATTN_MASK_NONE);
    /* the ring alone */
    REQUIRE(plan->step[WA_STEP_FORWARD].local_bytes >=
            s->teams * s->stages * (s->block_rows + 2 * s->block_keys) *
                p->head_dim * (p->dtype == WINATTN_FP32 ? 4 : 2));
    REQUIRE(plan->schedule.resident >= 1);
    REQUIRE(plan->schedule.groups >= 1);
    REQUIRE(plan->schedule.groups < 65536 ||
            plan->schedule.groups == plan->schedule.row_blocks * p->heads);
    REQUIRE((uint64_t)plan->schedule.groups *
                plan->step[WA_STEP_FORWARD].work_group <=
            2147483647u);
    /* every round of a launch but the last gives each team a window */
    REQUIRE(plan->schedule.windows_per_launch >= 1);
    REQUIRE(plan->schedule.windows_per_launch % s->teams == 0);
    return broken;
}

/* What the kernels rely on, written down a second time. */
static void assert_legal(const wa_problem *p, const wa_device *device,
                         const wa_plan *plan, const char *what)
{
    const char *broken = NULL;
    REQUIRE(plan->step[WA_STEP_FORWARD].work_group >= 1);
    REQUIRE(plan->step[WA_STEP_FORWARD].work_group <= device->max_work_group);
    REQUIRE(plan->step[WA_STEP_FORWARD].local_bytes <= device->local_bytes);
    REQUIRE(plan->step[WA_STEP_FORWARD].block_rows >= 1);
    REQUIRE(plan->schedule.row_blocks *
                (uint64_t)plan->step[WA_STEP_FORWARD].block_rows >=
            p->queries);
    REQUIRE((plan->schedule.row_blocks - 1) *
                (uint64_t)plan->step[WA_STEP_FORWARD].block_rows <
            p->queries);
    REQUIRE(plan->schedule.units_per_launch >= 1);
    REQUIRE(plan->reason[0] != 0);
    REQUIRE(strlen(plan->step[WA_STEP_FORWARD].defines) + 1 <
            sizeof plan->step[WA_STEP_FORWARD].defines);
    REQUIRE(plan->refusals[plan->tier][0] == 0);
    if (plan->tier == WINATTN_TIER_CPU) {
        const wa_cpu_shape *s = &plan->shape.cpu;
        REQUIRE(s->lanes == 4 || s->lanes == 8 || s->lanes == 16);
        REQUIRE(plan->step[WA_STEP_FORWARD].block_keys %
                    (s->lanes * s->tile_vecs) ==
                0);
        REQUIRE(s->out_vecs >= 1 && s->tile_rows >= 1);
        REQUIRE(plan->step[WA_STEP_FORWARD].work_group == 1 &&
                plan->step[WA_STEP_FORWARD].local_bytes == 0);
        REQUIRE(plan->schedule.groups == 0);
    } else if (plan->tier == WINATTN_TIER_MATRIX) {
        const char *of_matrix = broken_matrix(p, device, plan);
        broken = of_matrix ? of_matrix : broken;
    } else {
        const wa_local_shape *s = &plan->shape.local;
        REQUIRE(s->team * s->teams == plan->step[WA_STEP_FORWARD].work_group);
        REQUIRE(s->stage_dims % 4 == 0);
        REQUIRE(s->stage_keys % 4 == 0 ||
                s->stage_keys == plan->step[WA_STEP_FORWARD].block_keys);
        REQUIRE(s->stage_keys <= plan->step[WA_STEP_FORWARD].block_keys);
        REQUIRE(power_of_two(s->row_items) && s->team % s->row_items == 0);
        REQUIRE(
            wa_ceil_div(plan->step[WA_STEP_FORWARD].block_rows, s->out_rows) *
                (s->stage_dims / 4) <=
            s->team);
        REQUIRE(s->teams == 1 || p->variant != WINATTN_SLIDING);
        REQUIRE(plan->step[WA_STEP_FORWARD].local_bytes >
                plan->step[WA_STEP_FORWARD].block_rows *
                    plan->step[WA_STEP_FORWARD].block_keys * 4);
        REQUIRE(plan->schedule.groups == 0);
    }
    if (broken)
        fail_msg("%s on %s: not %s\n%s", what, device->name, broken,
                 plan->step[WA_STEP_FORWARD].defines);
}

static winattn_tier best_tier(const wa_problem *p, const wa_device *device)
{
    return device->is_cpu ? WINATTN_TIER_CPU
           : has_proven_unit(device) && suits_matrix(p, device)
               ? WINATTN_TIER_MATRIX
               : WINATTN_TIER_LOCAL;
}

static void workloads(void **state)
{
    (void)state;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t w = 0; w < workload_count; w++)
            for (int dtype = 0; dtype <= WINATTN_BF16; dtype++)
                for (int tier = 0; tier < WA_TIERS; tier++) {
                    wa_problem p = problem_of(workload_rows[w].text);
                    p.dtype = (winattn_dtype)dtype;
                    p.allows_tf32 = dtype == WINATTN_FP32 && w % 2;
                    p.tier = (winattn_tier)tier;
                    wa_plan plan;
                    if (!plan_or_refusal(&p, &devices[i], &plan))
                        continue;
                    assert_legal(&p, &devices[i], &plan,
                                 workload_rows[w].name);
                    if (tier != WINATTN_TIER_AUTO)
                        assert_int_equal(plan.tier, tier);
                    else if (devices[i].loop_limit == 0)
                        assert_int_equal(plan.tier,
                                         best_tier(&p, &devices[i]));
                }
}

static void random_problems(void **state)
{
    (void)state;
    random_state r = random_seeded(1);
    for (int round = 0; round < 100; round++) {
        test_case c = case_default();
        c.variant = random_int(&r, 0, 2);
        c.dtype = random_int(&r, 0, 2);
        c.tf32 = c.dtype == WINATTN_FP32 && round % 4 < 2;
        c.queries = random_int(&r, 1, round % 2 ? 64 : 1000);
        c.keys = random_int(&r, 1, round % 2 ? 64 : 1000);
        c.dim = random_int(&r, 1, 256);
        c.heads = c.kv_heads = random_int(&r, 1, 32);
        if (c.variant == WINATTN_SLIDING)
            c.block = random_int(&r, 1, 100);
        else
            c.bias = random_int(&r, 0, 2);
        const winattn_desc d = case_desc(&c);
        wa_problem p;
        assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
        char text[256];
        case_print(&c, text, sizeof text);
        for (size_t i = 0; i < made_up_count; i++)
            for (int tier = 0; tier < WA_TIERS; tier++) {
                p.tier = (winattn_tier)tier;
                wa_plan plan;
                if (plan_or_refusal(&p, &devices[i], &plan))
                    assert_legal(&p, &devices[i], &plan, text);
            }
    }
}

/* ---- Purity ---- */

/* Nothing compiles in either pass for a cache of keys that has grown. */
static void assert_cache_may_grow(const wa_device *device)
{
    static const wa_exclusions none;
    const wa_problem caches[] = {
        problem_of(
            "variant=sliding block=16 queries=16 keys=32 query_offset=16"),
        problem_of("variant=sliding block=16 queries=48 keys=9000 "
                   "query_offset=800 window_blocks=3 sink=4")};
    wa_plan backward[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            wa_plan_make(&caches[i], device, WA_BACKWARD, &none, &backward[i]),
            WINATTN_SUCCESS);
    assert_string_equal(
        plan_of(&caches[0], device).step[WA_STEP_FORWARD].defines,
        plan_of(&caches[1], device).step[WA_STEP_FORWARD].defines);
    for (int k = 0; k < WA_STEPS; k++)
        assert_string_equal(backward[0].step[k].defines,
                            backward[1].step[k].defines);
}

/* Another batch, another view of the same tensors, another scale: nothing
 * compiles. */
static void same_program(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "windows=1",      "windows=100000",  "scale=-3",
        "mask_windows=7", "region_value=-5", "layout=packed",
    };
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        const wa_problem p =
            problem_of("bias=fp32 mask=regions mask_windows=3");
        const wa_plan plan = plan_of(&p, device);
        for (size_t j = 0; j < sizeof changes / sizeof *changes; j++) {
            char text[128];
            snprintf(text, sizeof text,
                     "bias=fp32 mask=regions mask_windows=3 %s", changes[j]);
            const wa_problem other = problem_of(text);
            assert_string_equal(
                plan_of(&other, device).step[WA_STEP_FORWARD].defines,
                plan.step[WA_STEP_FORWARD].defines);
        }
        const wa_problem more_keys =
            problem_of("keys=50 bias=fp32 mask=regions mask_windows=3");
        assert_string_not_equal(
            plan_of(&more_keys, device).step[WA_STEP_FORWARD].defines,
            plan.step[WA_STEP_FORWARD].defines);
        /* the number of rounds of a loop may not grow */
        if (!device->loop_limit)
            assert_cache_may_grow(device);
    }
}

static void exclusions(void **state)
{
    (void)state;
    const wa_device *h200 = device_named("H200");
    wa_exclusions without;
    wa_plan plan;
    wa_problem p = problem_of("");
    memset(&without, 0, sizeof without);
    strcpy(without.reason[WINATTN_TIER_LOCAL], "did not build");
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_string_equal(plan.refusals[WINATTN_TIER_LOCAL], "did not build");
    strcpy(without.reason[WINATTN_TIER_CPU], "neither");
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_non_null(strstr(winattn_last_reason(), "did not build"));
    p.tier = WINATTN_TIER_CPU;
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "neither"));
}

/* ---- Matrix units ---- */

/* NVIDIA's from compute capability 8.0 on have one that was run, and AUTO
 * takes it for what it computes. */
static void units_are_found(void **state)
{
    (void)state;
    size_t found = 0;
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        if (device->vendor != WA_VENDOR_NVIDIA)
            continue;
        assert_int_equal(device->unit == wa_unit_named("mma"),
                         device->compute_capability >= 80);
        found += has_proven_unit(device);
    }
    assert_true(found >= 4);
    assert_null(wa_unit_named("none"));
    const wa_device *h200 = device_named("H200");
    const struct {
        const char *problem;
        winattn_tier tier;
    } choices[] = {
        {"dtype=fp16", WINATTN_TIER_MATRIX},
        {"dtype=bf16 variant=cosine bias=same", WINATTN_TIER_MATRIX},
        {"dtype=fp16 mask=regions mask_windows=2 dim=20", WINATTN_TIER_MATRIX},
        {"dtype=fp32", WINATTN_TIER_LOCAL},
        {"tf32=1", WINATTN_TIER_MATRIX},
        {"tf32=1 variant=sliding block=16", WINATTN_TIER_LOCAL},
        {"dtype=fp16 variant=sliding block=16", WINATTN_TIER_LOCAL},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const wa_problem p = problem_of(choices[i].problem);
        assert_int_equal(plan_of(&p, h200).tier, choices[i].tier);
    }
}

static void assert_matrix_refused(const char *text, const wa_device *device,
                                  const char *why)
{
    static const wa_exclusions none;
    wa_problem p = problem_of(text);
    wa_plan plan = plan_of(&p, device);
    assert_int_not_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_non_null(strstr(plan.refusals[WINATTN_TIER_MATRIX], why));
    p.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(wa_plan_make(&p, device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "tier matrix: "));
    assert_non_null(strstr(winattn_last_reason(), why));
}

static void matrix_refuses(void **state)
{
    (void)state;
    const wa_device *h200 = device_named("H200");
    assert_matrix_refused("dtype=fp32", h200, "TF32, which must be allowed");
    assert_matrix_refused("tf32=1", device_named("gfx942 (MI300X)"),
                          "no TF32");
    assert_matrix_refused("dtype=fp16 variant=sliding block=16", h200,
                          "sliding");
    assert_matrix_refused("dtype=fp16", device_named("RTX 2080 Ti"),
                          "no matrix unit");
    assert_matrix_refused("dtype=fp16", device_named("Mali-G78"),
                          "no matrix unit");
    wa_device poor = *h200;
    poor.local_bytes = poor.local_capacity = 2048;
    assert_matrix_refused("dtype=fp16 dim=128", &poor, "local memory");
    poor = *h200;
    poor.max_work_group = 16; /* less than a wave */
    assert_matrix_refused("dtype=fp16", &poor, "no shape fits");
}

/* Nobody has seen it work: whoever wants it must say so. */
static void unproven_units_are_demanded(void **state)
{
    (void)state;
    wa_unit unit = *wa_unit_named("mma");
    wa_device device = *device_named("H200");
    unit.proven = false;
    device.unit = &unit;
    wa_problem p = problem_of("dtype=fp16");
    wa_plan plan = plan_of(&p, &device);
    assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
    assert_non_null(
        strstr(plan.refusals[WINATTN_TIER_MATRIX], "must be demanded"));
    p.tier = WINATTN_TIER_MATRIX;
    plan = plan_of(&p, &device);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal(&p, &device, &plan, "unproven");
}

/* The way from a failed self-test to the next tier. */
static void failed_units_are_left(void **state)
{
    (void)state;
    static const char *const reason =
        "self-test of unit mma failed: score of query 0 and key 3 is 5, not 7";
    const wa_device *h200 = device_named("H200");
    wa_exclusions without;
    wa_plan plan;
    char text[4096];
    wa_problem p = problem_of("dtype=fp16 bias=same");
    memset(&without, 0, sizeof without);
    snprintf(without.reason[WINATTN_TIER_MATRIX], WA_REASON_SIZE, "%s",
             reason);
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
    assert_legal(&p, h200, &plan, "without its unit");
    text[0] = 0;
    wa_plan_describe(&plan, text, sizeof text);
    const char *line = strstr(text, "tier matrix not taken: ");
    assert_non_null(line);
    assert_non_null(strstr(line, reason));
    p.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), reason));
}

/* Counts how often each window of each owner, a block of rows of a head, is
 * computed, as launches and work-groups take them. False if a work-group has
 * several owners. */
static bool walk_windows(const wa_plan *plan, uint64_t owners,
                         uint64_t windows, unsigned char *seen)
{
    const uint64_t teams = plan->schedule.units_per_group,
                   groups = plan->schedule.groups;
    bool keeps_owners = true;
    for (uint64_t first = 0; first < windows;
         first += plan->schedule.windows_per_launch) {
        const uint64_t left = windows - first;
        const uint64_t launched = left < plan->schedule.windows_per_launch
                                      ? left
                                      : plan->schedule.windows_per_launch;
        const uint64_t rounds = (launched + teams - 1) / teams;
        for (uint64_t group = 0; group < groups; group++) {
            const uint64_t from = rounds * owners * group / groups;
            const uint64_t to = rounds * owners * (group + 1) / groups;
            keeps_owners &= from == to || from / rounds == (to - 1) / rounds;
            for (uint64_t i = from * teams; i < to * teams; i++) {
                const uint64_t owner = i / (rounds * teams);
                const uint64_t window = i % (rounds * teams);
                if (window < launched)
                    seen[owner * windows + first + window]++;
            }
        }
    }
    return keeps_owners;
}

/* Each window is computed once, whatever their number. Work-groups have one
 * owner, unless more than a tenth of those that the device holds would
 * idle; then there are as many as it holds and as there are rounds for. */
static void windows_are_dealt(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 7, 131, 1000, 4096};
    static const char *const problems[] = {
        "dtype=fp16 heads=3 bias=same", "dtype=bf16 queries=256 heads=32",
        "dtype=fp16 queries=1000 heads=2", "dtype=fp16 heads=24"};
    char defines[WA_DEFINES_SIZE];
    size_t shared = 0;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < 24; j++) {
            const wa_device *device = &devices[i];
            const int windows = counts[j % 6];
            char text[128];
            snprintf(text, sizeof text, "%s windows=%d tier=matrix",
                     problems[j / 6], windows);
            const wa_problem p = problem_of(text);
            wa_plan plan;
            if (!plan_or_refusal(&p, device, &plan))
                continue;
            const uint64_t owners =
                (uint64_t)plan.schedule.row_blocks * p.heads;
            const size_t units = (size_t)(owners * (uint64_t)windows);
            unsigned char *seen = calloc(units, 1);
            assert_non_null(seen);
            const bool keeps_owners =
                walk_windows(&plan, owners, (uint64_t)windows, seen);
            for (size_t k = 0; k < units; k++)
                if (seen[k] != 1)
                    fail_msg("%s on %s: unit %zu is computed %d times", text,
                             device->name, k, seen[k]);
            free(seen);
            const uint64_t held =
                (uint64_t)plan.schedule.resident * device->compute_units;
            const uint64_t rounds =
                owners *
                wa_ceil_div((uint32_t)windows, plan.schedule.units_per_group);
            const uint64_t of_last = plan.schedule.groups % held;
            if (plan.schedule.shares_owners)
                assert_int_equal(plan.schedule.groups,
                                 held < rounds ? held : rounds);
            else
                assert_true(keeps_owners &&
                            plan.schedule.groups % owners == 0);
            assert_true(plan.schedule.groups == rounds || of_last == 0 ||
                        (held - of_last) * 10 <=
                            plan.schedule.groups - of_last + held);
            /* the number of windows compiles nothing */
            if (j % 6 == 0)
                strcpy(defines, plan.step[WA_STEP_FORWARD].defines);
            assert_string_equal(plan.step[WA_STEP_FORWARD].defines, defines);
            shared += plan.schedule.shares_owners;
        }
    assert_true(shared > 0);
}

static void poor_devices(void **state)
{
    (void)state;
    static const wa_exclusions none;
    wa_plan plan;
    wa_problem p = problem_of("");
    const wa_device *mali = device_named("Mali-G78");
    wa_device device = *mali;
    device.has_int64 = false;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_non_null(strstr(winattn_last_reason(), "64-bit"));
    device = *mali;
    device.compiles = false;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    device = *mali;
    device.opencl = 101;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    /* 1 KiB of local memory, the least of an embedded profile */
    device = *mali;
    device.local_bytes = device.local_capacity = 1024;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_non_null(strstr(plan.refusals[WINATTN_TIER_LOCAL], "1024"));
}

/* A launch lasts at most about a fifth of a second at a tenth of what these
 * devices were seen or said to reach, and a slow one is still busy. */
static void launches(void **state)
{
    (void)state;
    const wa_problem p = problem_of(
        "variant=sliding windows=1 heads=24 kv_heads=8 queries=48600 dim=128 "
        "block=12150 window_blocks=4");
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        wa_plan plan;
        if (!plan_or_refusal(&p, device, &plan))
            continue;
        const double operations = wa_problem_row_operations(&p) *
                                  plan.step[WA_STEP_FORWARD].block_rows *
                                  plan.schedule.units_per_launch;
        const double peak = device->compute_units * 256.0 *
                            (device->clock_mhz ? device->clock_mhz : 500) *
                            1e6;
        assert_true(operations < 0.2 * peak ||
                    plan.schedule.units_per_launch <=
                        4 * device->compute_units *
                            plan.schedule.units_per_group);
    }
}

/* ---- Backward ---- */

static bool has_define(const char *defines, const char *name, unsigned value)
{
    char text[64];
    snprintf(text, sizeof text, "-D%s=%u ", name, value);
    return strstr(defines, text) != NULL;
}

/* 0 if the options do not have it. */
static uint32_t define_of(const char *defines, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "-D%s=", name);
    const char *at = strstr(defines, text);
    return at ? (uint32_t)strtoul(at + strlen(text), NULL, 10) : 0;
}

/* What a kernel's options say of teams, for either side of a pair: blocks of
 * `down` of `rows` run down tiles, those of `across` of `keys` across. */
static const char *broken_side(const wa_unit *unit, const wa_step *kernel,
                               uint32_t down, uint32_t rows, uint32_t across,
                               uint32_t keys)
{
    const char *broken = NULL;
    const char *options = kernel->defines;
    const uint32_t team_waves = define_of(options, "TEAM_WAVES");
    const uint32_t teams = define_of(options, "TEAMS");
    const uint32_t stages = define_of(options, "STAGES");
    const uint32_t pass_keys = define_of(options, "PASS_KEYS");
    REQUIRE(down >= 1 && down <= rows && across >= 1 && across <= keys);
    REQUIRE(down == rows || down % unit->queries == 0);
    REQUIRE(across == keys || across % unit->tile == 0);
    REQUIRE(team_waves >= 1 && teams >= 1 && teams <= 15);
    REQUIRE(team_waves * teams * unit->wave == kernel->work_group);
    REQUIRE(stages == 1 || (stages == 2 && unit->copies_async));
    REQUIRE(pass_keys >= 1 && pass_keys % unit->tile == 0);
    REQUIRE(define_of(options, "KEEPS_TERMS") != 2);
    return broken;
}

/* NULL if the kernels are what cl/matrix/backward_rows_matrix.cl and
 * cl/matrix/backward_keys_matrix.cl compute right. */
static const char *broken_pair(const wa_problem *p, const wa_unit *unit,
                               const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *first = &plan->step[WA_STEP_ROWS];
    const wa_step *last = &plan->step[WA_STEP_KEYS];
    const bool has_bias = p->bias != WINATTN_BIAS_NONE;
    const uint32_t keeps_dbias = define_of(first->defines, "KEEPS_DBIAS");
    const uint32_t row_waves = define_of(first->defines, "TEAM_WAVES");
    const uint32_t row_tiles = wa_ceil_div(first->block_rows, unit->queries);
    const bool streams = first->block_keys < p->keys;
    const char *of_rows = broken_side(unit, first, first->block_rows,
                                      p->queries, first->block_keys, p->keys);
    const char *of_keys = broken_side(unit, last, last->block_keys, p->keys,
                                      last->block_rows, p->queries);
    REQUIRE(!of_rows && !of_keys);
    REQUIRE(strcmp(first->kernel, unit->rows_kernel) == 0);
    REQUIRE(strcmp(last->kernel, unit->keys_kernel) == 0);
    REQUIRE(!plan->step[WA_STEP_STATISTICS].kernel);
    /* o comes where delta may be taken from it */
    const bool takes_o =
        unit->votes && p->queries > unit->tile && p->keys > unit->tile &&
        (first->block_keys >= p->keys || plan->schedule.row_teams == 1);
    REQUIRE(has_define(first->defines, "ROW_PLANES", takes_o ? 3 : 2));
    REQUIRE(plan->schedule.row_blocks ==
            wa_ceil_div(p->queries, first->block_rows));
    REQUIRE(plan->schedule.key_blocks ==
            wa_ceil_div(p->keys, last->block_keys));
    REQUIRE(plan->schedule.row_teams == define_of(first->defines, "TEAMS"));
    REQUIRE(plan->schedule.teams == define_of(last->defines, "TEAMS"));
    REQUIRE(row_waves >= row_tiles ||
            (!streams && keeps_dbias != 1)); /* waves take tiles in turn */
    REQUIRE(row_waves <= row_tiles || row_waves % row_tiles == 0);
    REQUIRE(keeps_dbias <= 2 && (keeps_dbias == 0 || has_bias));
    REQUIRE(keeps_dbias != 1 || !streams);
    REQUIRE(keeps_dbias == 1 || !has_bias || plan->schedule.row_teams == 1);
    REQUIRE(wa_ceil_div(last->block_keys, unit->queries) <=
            define_of(last->defines, "TEAM_WAVES"));
    REQUIRE(define_of(last->defines, "KEEPS_TERMS") == 0 || !has_bias ||
            p->heads == p->kv_heads);
    REQUIRE(plan->schedule.row_slots >= 1);
    REQUIRE(plan->schedule.row_slots <= plan->schedule.windows_per_launch);
    REQUIRE(plan->workspace.statistics >=
            plan->schedule.windows_per_launch * p->heads * p->queries * 16);
    REQUIRE(plan->workspace.bias >= (has_bias
                                         ? 4ull * plan->schedule.row_slots *
                                               p->heads * p->queries * p->keys
                                         : 0));
    return broken;
}

/* NULL if the kernel is one that cl/matrix/backward_matrix.cl computes right.
 */
static const char *broken_whole(const wa_problem *p, const wa_unit *unit,
                                const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *kernel = &plan->step[WA_STEP_KEYS];
    const char *options = kernel->defines;
    const uint32_t rows = kernel->block_rows;
    const uint32_t team_waves = define_of(options, "TEAM_WAVES");
    const uint32_t teams = define_of(options, "TEAMS");
    const uint32_t stages = define_of(options, "STAGES");
    const uint32_t keeps_terms = define_of(options, "KEEPS_TERMS");
    const uint32_t keeps_dbias = define_of(options, "KEEPS_DBIAS");
    const bool one_visit = p->heads == p->kv_heads && rows >= p->queries;
    const bool has_bias = p->bias != WINATTN_BIAS_NONE;
    const char *of_side = broken_side(unit, kernel, rows, p->queries,
                                      kernel->block_keys, p->keys);
    REQUIRE(!of_side && kernel->block_keys == p->keys);
    REQUIRE(strcmp(kernel->kernel, unit->backward_kernel) == 0);
    REQUIRE(plan->schedule.key_blocks == 1 && plan->schedule.teams == teams);
    REQUIRE(plan->schedule.row_slots == 0);
    REQUIRE(plan->schedule.row_blocks == wa_ceil_div(p->queries, rows));
    REQUIRE(wa_ceil_div(rows, unit->queries) <= team_waves);
    REQUIRE(has_define(options, "ONE_VISIT", one_visit));
    REQUIRE(keeps_terms == 0 || one_visit);
    REQUIRE(keeps_dbias <= 1 && (!keeps_dbias || (has_bias && one_visit)));
    REQUIRE(keeps_dbias || !has_bias || teams == 1);
    /* the ring alone */
    REQUIRE(kernel->local_bytes >=
            teams * stages * 2 * (rows + p->keys) * p->head_dim * 2);
    /* every round of a launch but the last gives each team a window */
    REQUIRE(plan->schedule.windows_per_launch == p->windows ||
            plan->schedule.windows_per_launch %
                    (plan->schedule.slots * teams) ==
                0);
    REQUIRE(plan->schedule.slots == 1 ||
            plan->schedule.slots * p->kv_heads <= plan->schedule.busy_groups);
    return broken;
}

static const char *broken_gradients(const wa_problem *p,
                                    const wa_device *device,
                                    const wa_plan *plan)
{
    const char *broken = NULL;
    REQUIRE(suits_matrix(p, device) && p->dtype != WINATTN_FP32);
    REQUIRE(p->tier != WINATTN_TIER_LOCAL);
    REQUIRE(device->unit->proven || p->tier == WINATTN_TIER_MATRIX);
    if (broken)
        return broken;
    return plan->whole ? broken_whole(p, device->unit, plan)
                       : broken_pair(p, device->unit, plan);
}

static void assert_legal_backward(const wa_problem *p, const wa_device *device,
                                  const wa_plan *plan, const char *what)
{
    const char *broken = NULL;
    const wa_step *last = &plan->step[WA_STEP_KEYS];
    const uint64_t logits = (uint64_t)p->heads * p->queries * p->keys;
    for (int i = WA_STEP_STATISTICS; i <= WA_STEP_LAST; i++) {
        const wa_step *kernel = &plan->step[i];
        if (!kernel->kernel)
            continue;
        REQUIRE(kernel->work_group <= device->max_work_group);
        REQUIRE(kernel->local_bytes <= device->local_bytes);
        REQUIRE(strlen(kernel->defines) + 1 < sizeof kernel->defines);
        REQUIRE(has_define(kernel->defines, "BLOCK_KEYS", kernel->block_keys));
        REQUIRE((plan->tier == WINATTN_TIER_LOCAL) ==
                (strstr(kernel->kernel, "_local") != NULL));
        REQUIRE(
            (strstr(kernel->defines, "-cl-opt-disable") != NULL) ==
            (device->miscompiles_barriers && plan->tier != WINATTN_TIER_CPU));
    }
    if (plan->tier == WINATTN_TIER_MATRIX) {
        const char *of_matrix = broken_gradients(p, device, plan);
        broken = of_matrix ? of_matrix : broken;
    }
    REQUIRE(last->kernel != NULL);
    REQUIRE(plan->whole == (plan->step[WA_STEP_ROWS].kernel == NULL));
    REQUIRE(!plan->whole || last->block_keys >= p->keys);
    REQUIRE(!plan->whole || plan->workspace.statistics == 0);
    REQUIRE((uint64_t)plan->schedule.key_blocks * last->block_keys >= p->keys);
    REQUIRE(plan->schedule.slots >= 1);
    REQUIRE(plan->schedule.slots <= plan->schedule.windows_per_launch);
    const uint64_t bias_slots = plan->schedule.row_slots
                                    ? plan->schedule.row_slots
                                    : plan->schedule.slots;
    REQUIRE(bias_slots == 1 || p->bias == WINATTN_BIAS_NONE ||
            bias_slots * logits * 4 <= (plan->tier == WINATTN_TIER_MATRIX
                                            ? WA_MATRIX_BIAS_BYTES
                                            : WA_BACKWARD_BYTES));
    REQUIRE(plan->workspace.all ==
            plan->workspace.statistics + plan->workspace.bias +
                plan->workspace.scale + 2 * plan->workspace.pad +
                plan->workspace.dense);
    REQUIRE(plan->reason[0] != 0);
    REQUIRE(plan->refusals[plan->tier][0] == 0);
    if (broken)
        fail_msg("%s, %s: not %s", device->name, what, broken);
}

/* Every device gets a backward pass for every workload, but the one whose
 * loops end early; GPUs on a tier that was made for them. */
static void backward_is_legal(void **state)
{
    (void)state;
    static const wa_exclusions none;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < workload_count * 3; j++) {
            const wa_device *device = &devices[i];
            test_case c = case_default();
            wa_plan plan;
            wa_problem p;
            assert_true(case_parse(workload_rows[j / 3].text, &c, NULL));
            c.pass = PASS_BACKWARD;
            c.dtype = (int)(j % 3);
            const winattn_desc d = case_desc(&c);
            assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
            const winattn_status status =
                wa_plan_make(&p, device, WA_BACKWARD, &none, &plan);
            if (device->loop_limit) {
                assert_int_equal(status, WINATTN_UNSUPPORTED_DEVICE);
                assert_non_null(strstr(winattn_last_reason(), "loops"));
                continue;
            }
            if (status != WINATTN_SUCCESS)
                fail_msg("%s: %s", device->name, winattn_last_reason());
            /* large windows may not suit a matrix unit */
            if (best_tier(&p, device) == WINATTN_TIER_MATRIX && p.keys > 256 &&
                plan.refusals[WINATTN_TIER_MATRIX][0])
                assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
            else
                assert_int_equal(plan.tier, best_tier(&p, device));
            assert_legal_backward(&p, device, &plan,
                                  workload_rows[j / 3].name);
        }
}

/* Another image, shift, batch or view: nothing compiles, in either pass. */
static void same_grid_program(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const char *const changes[] = {
        "batch=9",
        "size=33x9",
        "shift=0x5",
        "pads=0",
        "region_value=-5",
        "layout=packed",
        "periodic=0x1 size=33x14",
    };
    static const char base[] =
        "grid=2 size=30x45 window=7x7 shift=3x3 "
        "mask=shift pads=3 bias=table_fp32 pass=backward";
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        const wa_problem p = problem_of(base);
        const wa_plan plan = plan_of(&p, device);
        wa_plan backward, other_backward;
        const bool has_backward = wa_plan_make(&p, device, WA_BACKWARD, &none,
                                               &backward) == WINATTN_SUCCESS;
        assert_int_equal(has_backward, device->loop_limit == 0);
        if (has_backward)
            assert_legal_backward(&p, device, &backward, base);
        assert_legal(&p, device, &plan, base);
        for (size_t j = 0; j < sizeof changes / sizeof *changes; j++) {
            char text[256];
            snprintf(text, sizeof text, "%s %s", base, changes[j]);
            const wa_problem other = problem_of(text);
            assert_string_equal(
                plan_of(&other, device).step[WA_STEP_FORWARD].defines,
                plan.step[WA_STEP_FORWARD].defines);
            if (!has_backward)
                continue;
            assert_int_equal(wa_plan_make(&other, device, WA_BACKWARD, &none,
                                          &other_backward),
                             WINATTN_SUCCESS);
            for (int k = 0; k < WA_STEPS; k++)
                assert_string_equal(other_backward.step[k].defines,
                                    backward.step[k].defines);
        }
    }
}

/* What the options say of a grid; tier cpu sees an ordinary bias, which is in
 * the workspace. */
static void grid_options(void **state)
{
    (void)state;
    static const wa_exclusions none;
    const char *text =
        "grid=2 size=30x45 window=7x6 shift=3x3 mask=shift "
        "bias=table_same dtype=fp16 heads=5 pass=backward tier=cpu";
    const uint64_t dense = 5 * 42 * 42 * 4; /* a multiple of 16 */
    const wa_device *device = device_named("H200");
    wa_problem p = problem_of(text);
    wa_plan backward;
    char table[WA_DEFINES_SIZE] = "";
    wa_plan plan = plan_of(&p, device);
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "GRID", 1));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "NQ", 42));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "WINDOW_0", 1));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "WINDOW_1", 7));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "WINDOW_2", 6));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "MASK", 4));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "PADDING", 1));
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "BIAS", 2));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "TABLE"));
    assert_true(plan.step[WA_STEP_EXPAND].kernel);
    assert_int_equal(plan.workspace.all, dense);
    wa_append_table(&p, table, sizeof table);
    assert_true(has_define(table, "TABLE", 1));
    assert_true(has_define(table, "BIAS", 1));
    assert_true(has_define(table, "TABLE_WINDOW_1", 7));
    assert_true(has_define(table, "TABLE_WINDOW_2", 6));
    assert_true(has_define(table, "TABLE_STEP_0", 143));
    assert_true(has_define(table, "TABLE_STEP_1", 11));
    assert_true(has_define(table, "TABLE_CENTER", 71));
    assert_int_equal(wa_plan_make(&p, device, WA_BACKWARD, &none, &backward),
                     WINATTN_SUCCESS);
    assert_string_equal(backward.step[WA_STEP_EXPAND].defines, table);
    assert_non_null(backward.step[WA_STEP_SUM_TABLE].kernel);
    assert_int_equal(backward.workspace.dense, dense);
    assert_int_equal(backward.workspace.pad,
                     (backward.schedule.slots * backward.schedule.key_blocks *
                          p.kv_heads * p.head_dim * 4 +
                      15) /
                         16 * 16);

    /* tier local reads the table in place */
    p = problem_of("grid=2 size=28x12 window=7x6 shift=3x3 mask=shift "
                   "bias=table_same pass=backward tier=local");
    plan = plan_of(&p, device);
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "TABLE", 1));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "PADDING"));
    assert_false(plan.step[WA_STEP_EXPAND].kernel);
    assert_int_equal(plan.workspace.all, 0);
    assert_int_equal(wa_plan_make(&p, device, WA_BACKWARD, &none, &backward),
                     WINATTN_SUCCESS);
    assert_null(backward.step[WA_STEP_EXPAND].kernel);
    assert_non_null(backward.step[WA_STEP_SUM_TABLE].kernel);
    assert_int_equal(backward.workspace.pad, 0);

    /* hidden padding needs no sums; without a grid no option names one */
    p = problem_of("grid=1 size=20 window=7 padding=hidden pass=backward "
                   "tier=cpu");
    plan = plan_of(&p, device);
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "PADDING", 2));
    assert_int_equal(wa_plan_make(&p, device, WA_BACKWARD, &none, &backward),
                     WINATTN_SUCCESS);
    assert_int_equal(backward.workspace.pad + backward.workspace.dense, 0);
    p = problem_of("bias=same mask=same mask_windows=2");
    plan = plan_of(&p, device);
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "GRID"));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "WINDOW"));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "PADDING"));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "TABLE"));
}

/* A tier that did not build is not taken again; one that is demanded is the
 * only one. */
static void backward_falls_back(void **state)
{
    (void)state;
    const wa_problem p = problem_of("pass=backward bias=same");
    const wa_problem local = problem_of("pass=backward bias=same tier=local");
    const wa_device *device = device_named("H200");
    wa_exclusions exclusions;
    wa_plan plan;
    memset(&exclusions, 0, sizeof exclusions);
    snprintf(exclusions.reason[WINATTN_TIER_LOCAL], WA_REASON_SIZE,
             "it did not build");
    assert_int_equal(wa_plan_make(&p, device, WA_BACKWARD, &exclusions, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_string_equal(plan.refusals[WINATTN_TIER_LOCAL], "it did not build");
    assert_int_equal(
        wa_plan_make(&local, device, WA_BACKWARD, &exclusions, &plan),
        WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "it did not build"));
}

/* fp32 is rounded where the caller allows it, and where that gains time: in
 * the forward pass. */
static void tf32_is_allowed(void **state)
{
    (void)state;
    static const wa_exclusions none;
    const wa_device *h200 = device_named("H200");
    const wa_problem p = problem_of("tf32=1 bias=same pass=backward");
    const wa_problem half = problem_of("dtype=fp16 bias=same");
    const wa_problem odd = problem_of("tf32=1 dim=30");
    wa_plan backward;
    const wa_plan plan = plan_of(&p, h200);
    assert_true(
        has_define(plan.step[WA_STEP_FORWARD].defines, "DTYPE", WINATTN_FP32));
    assert_non_null(strstr(plan.reason, "TF32"));
    assert_int_equal(plan.access_elements, 4);
    assert_int_equal(plan.access_bytes, 16);
    assert_int_equal(plan_of(&half, h200).access_elements, 8);
    assert_int_equal(plan_of(&odd, h200).access_elements, 0);
    assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &none, &backward),
                     WINATTN_SUCCESS);
    assert_int_equal(backward.tier, WINATTN_TIER_LOCAL);

    /* the same shape: rows are twice as long */
    const wa_matrix_shape shape = {.block_rows = 16,
                                   .block_keys = 49,
                                   .team_waves = 1,
                                   .teams = 2,
                                   .stages = 2,
                                   .pass_keys = 64,
                                   .keeps_terms = 1};
    wa_plan narrow, wide;
    assert_true(wa_plan_matrix_shape(&half, h200, &shape, &narrow));
    assert_true(wa_plan_matrix_shape(&p, h200, &shape, &wide));
    assert_int_equal(wide.step[WA_STEP_FORWARD].local_bytes,
                     2 * narrow.step[WA_STEP_FORWARD].local_bytes);
}

/* On grids, of those devices of Intel's that have them. */
static void gradients_ask_for_registers(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const struct {
        const char *device, *problem;
        bool asks;
    } cases[] = {
        {"Arc A770", "grid=2 size=21x21 window=7x7 pass=backward", true},
        {"Arc A770", "queries=144 pass=backward", false},
        {"Iris Xe (TGL)", "grid=2 size=21x21 window=7x7 pass=backward", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const wa_problem p = problem_of(cases[c].problem);
        wa_plan plan;
        assert_int_equal(wa_plan_make(&p, device_named(cases[c].device),
                                      WA_BACKWARD, &none, &plan),
                         WINATTN_SUCCESS);
        assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
        for (int i = WA_STEP_STATISTICS; i <= WA_STEP_LAST; i++)
            if (plan.step[i].kernel)
                assert_int_equal(strstr(plan.step[i].defines, "256-GRF") !=
                                     NULL,
                                 cases[c].asks);
    }
}

/* NVIDIA's compute units deal waves to four parts, of which each has its own
 * registers; what a lane keeps must find room there. */
static void lanes_have_registers(void **state)
{
    (void)state;
    const wa_device *h200 = device_named("H200");
    const wa_problem half = problem_of("dtype=fp16 bias=same");
    const wa_problem tf32 = problem_of("tf32=1 bias=same queries=64");
    assert_int_equal(wa_matrix_most_sums(&half, h200, 16), 128 - 60);
    assert_int_equal(wa_matrix_most_sums(&half, h200, 13), 128 - 60);
    assert_int_equal(wa_matrix_most_sums(&half, h200, 12), 170 - 60);
    assert_int_equal(wa_matrix_most_sums(&half, h200, 4), 255 - 60);
    assert_int_equal(wa_matrix_most_sums(&tf32, h200, 16), 128 - 88);
    assert_int_equal(wa_matrix_most_sums(&tf32, h200, 24), 0);

    /* sums of a bias and a mask that find no room in local memory */
    const wa_problem large =
        problem_of("dtype=fp16 queries=256 bias=same mask=same "
                   "mask_windows=4 windows=64 heads=4");
    const wa_device *small = device_named("RTX 4090");
    const wa_plan plan = plan_of(&large, small);
    const wa_matrix_shape *s = &plan.shape.matrix;
    const uint32_t values = 16 * 16 / 32;
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_int_equal(s->keeps_terms, 0);
    assert_true(3 * values * s->pass_keys / 16 + 2 * values <=
                wa_matrix_most_sums(&large, small, s->team_waves * s->teams));

    /* terms of TF32 in registers, where 16 waves have none left */
    const wa_plan narrow = plan_of(&tf32, h200);
    s = &narrow.shape.matrix;
    assert_true(s->keeps_terms != 2 || s->team_waves * s->teams <= 12);
}

/* What an H200 takes for gradients, and why not its unit. */
static void backward_units(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const struct {
        const char *problem, *refusal; /* NULL: tier matrix */
    } choices[] = {
        {"dtype=fp16 bias=same", NULL},
        {"dtype=bf16 variant=cosine logit_scale=1 bias=fp32 dim=64", NULL},
        {"dtype=fp16 heads=4 kv_heads=2 mask=regions mask_windows=2", NULL},
        {"dtype=fp16 queries=256 heads=4 bias=same", NULL},
        {"dtype=bf16 grid=2 size=30x45 window=7x7 shift=3x3 mask=shift "
         "pads=3 bias=table_same",
         NULL},
        {"dtype=fp32", "fp32"},
        {"tf32=1", "forward pass only"},
        {"dtype=fp16 variant=sliding block=16", "sliding"},
        {"dtype=fp16 heads=2 kv_heads=1 dim=256 queries=64", NULL},
        {"dtype=fp16 dim=256 queries=256", NULL},
        {"dtype=fp16 queries=784 heads=4 bias=same", NULL},
    };
    const wa_device *h200 = device_named("H200");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const wa_problem p = problem_of(choices[i].problem);
        const char *refusal = choices[i].refusal;
        wa_plan plan;
        assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &none, &plan),
                         WINATTN_SUCCESS);
        assert_legal_backward(&p, h200, &plan, choices[i].problem);
        if (plan.tier !=
                (refusal ? WINATTN_TIER_LOCAL : WINATTN_TIER_MATRIX) ||
            (refusal && !strstr(plan.refusals[WINATTN_TIER_MATRIX], refusal)))
            fail_msg("%s: %s, \"%s\"", choices[i].problem,
                     wa_tier_name(plan.tier),
                     plan.refusals[WINATTN_TIER_MATRIX]);
    }
    /* a unit that nobody has seen work must be demanded */
    wa_problem p = problem_of("dtype=fp16 bias=same");
    wa_unit unit = *wa_unit_named("mma");
    wa_device device = *h200;
    wa_plan plan;
    unit.proven = false;
    device.unit = &unit;
    assert_int_equal(wa_plan_make(&p, &device, WA_BACKWARD, &none, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
    assert_non_null(
        strstr(plan.refusals[WINATTN_TIER_MATRIX], "must be demanded"));
    p.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(wa_plan_make(&p, &device, WA_BACKWARD, &none, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal_backward(&p, &device, &plan, "unproven");
}

/* 132 units, three heads: 44 slots, or fewer where these have as many rounds
 * of three windows, which come sorted by mask or by place on a grid. Tables of
 * where tokens are stay where there is room. */
static void backward_is_dealt(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const struct {
        const char *problem;
        uint32_t slots;
        int keeps_tokens;
    } deals[] = {
        {"dtype=fp16 windows=4096 bias=same", 43, 0},
        {"dtype=fp16 windows=4096 bias=same mask=regions mask_windows=64", 44,
         0},
        {"dtype=fp16 grid=2 size=56x56 window=7x7 shift=3x3 mask=shift "
         "bias=table_same batch=64",
         44, 1},
        {"dtype=fp16 windows=3 bias=same", 1, 0},
        {"dtype=fp16 grid=2 size=48x48 window=12x12 shift=6x6 mask=shift "
         "bias=table_same batch=64",
         43, 0},
    };
    const wa_device *h200 = device_named("H200");
    for (size_t i = 0; i < sizeof deals / sizeof *deals; i++) {
        char text[256];
        wa_plan plan;
        snprintf(text, sizeof text, "%s heads=3 pass=backward",
                 deals[i].problem);
        const wa_problem p = problem_of(text);
        assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &none, &plan),
                         WINATTN_SUCCESS);
        assert_legal_backward(&p, h200, &plan, text);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_int_equal(plan.schedule.slots, deals[i].slots);
        assert_int_equal(
            define_of(plan.step[WA_STEP_KEYS].defines, "KEEPS_TOKENS"),
            deals[i].keeps_tokens);
    }
}

/* Demanded shapes that cl/matrix/backward_matrix.cl cannot compute. */
static void backward_shapes_are_refused(void **state)
{
    (void)state;
    static const char plain[] = "dtype=fp16 queries=50 bias=same";
    static const char masked[] =
        "dtype=fp16 queries=50 bias=same mask=regions mask_windows=2";
    static const char shifted[] =
        "dtype=fp16 grid=2 size=14x14 window=7x7 shift=3x3 mask=shift "
        "bias=table_same";
    static const struct {
        const char *problem, *shape, *refusal; /* NULL: none */
    } rows[] = {
        {plain, "50:4:3:1:64:1:1", NULL},
        {plain, "50:5:1:2:64:0:0", NULL},
        {plain, "32:2:1:1:16:0:0", NULL},
        {masked, "50:4:2:1:64:3:1", NULL},
        {shifted, "49:4:2:1:64:3:1", NULL},
        {plain, "0:4:1:1:64:0:0", "out of its bounds"},
        {plain, "50:4:1:1:20:0:0", "tiles"},
        {plain, "40:4:1:1:64:0:0", "tiles"},
        {plain, "50:3:1:1:64:0:0", "too few waves"},
        {plain, "50:4:7:1:64:0:1", "too small"},
        {plain, "50:4:1:1:64:2:1", "no room for terms"},
        {plain, "50:4:1:1:64:3:1", "no regions"},
        {plain, "32:2:1:1:64:1:0", "other terms"},
        {plain, "32:2:1:1:64:0:1", "the same logits"},
        {plain, "50:4:2:1:64:0:0", "share sums"},
        {shifted, "49:4:2:1:64:1:1", "same seams"},
        {"dtype=fp16 queries=200 dim=64 bias=fp32", "200:13:1:1:16:1:0",
         "local memory"},
        {"dtype=fp16 queries=50 keys=400 dim=8 heads=1 bias=same",
         "50:4:2:1:400:0:1", "ring"},
        /* in two kernels */
        {plain, "50:4:2:1:64:1:1:50:50:50:4:2:1:64:1", NULL},
        {masked, "32:2:1:2:16:3:2:32:16:16:1:4:2:16:3", NULL},
        {shifted, "49:2:1:1:16:3:0:49:49:49:4:2:1:64:0", NULL},
        {"dtype=fp16 queries=64 bias=same",
         "32:8:1:2:16:1:1:64:64:64:4:2:1:64:1", NULL},
        {plain, "50:4:2:1:64:1:1:50:50:0:4:2:1:64:1", "out of its bounds"},
        {plain, "50:4:2:1:64:1:1:20:50:50:4:2:1:64:1", "tiles"},
        {plain, "50:4:2:1:64:1:1:50:20:50:4:2:1:64:1", "tiles"},
        {plain, "50:3:2:1:16:1:1:50:50:50:4:2:1:64:1", "the same logits"},
        {plain, "50:4:1:1:16:1:1:32:50:50:4:2:1:64:1", "the same logits"},
        {plain, "50:3:1:1:16:1:2:32:50:50:4:2:1:64:1", "its rows"},
        {plain, "50:4:1:1:64:1:3:50:50:50:4:2:1:64:1", "no such place"},
        {plain, "50:4:2:1:64:1:2:50:50:50:4:2:1:64:1", "cannot share"},
        {plain, "50:8:1:1:16:1:1:50:50:50:4:2:1:64:1", "equal shares"},
        {plain, "50:4:1:1:64:1:1:50:50:50:3:2:1:64:1", "its keys"},
        {plain, "50:4:1:1:64:2:1:50:50:50:4:2:1:64:1", "no room for terms"},
        {plain, "50:4:1:1:64:1:1:50:50:50:4:2:1:64:3", "no regions"},
        {"dtype=fp16 queries=50 bias=same heads=2 kv_heads=1",
         "50:4:1:1:64:1:1:50:50:50:4:2:1:64:1", "other terms"},
        {shifted, "49:4:1:1:64:3:1:49:49:49:4:2:1:64:1", "same seams"},
        {"dtype=fp16 queries=512 dim=32 heads=1 bias=same",
         "128:8:1:1:64:0:2:128:64:64:4:2:1:64:0", "local memory"},
        {"queries=50", "50:4:1:1:64:0:0", "fp32"},
        {"tf32=1 queries=50", "50:4:1:1:64:0:0", "forward pass only"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wa_problem p = problem_of(rows[i].problem);
        const wa_device *h200 = device_named("H200");
        wa_matrix_gradient_shape shape;
        wa_plan plan;
        wa_plan_begin(WA_BACKWARD, &plan);
        assert_true(matrix_gradient_shape_parse(rows[i].shape, &shape));
        const bool taken =
            wa_plan_matrix_gradient_shape(&p, h200, &shape, &plan);
        const char *why = plan.refusals[WINATTN_TIER_MATRIX];
        if (taken != !rows[i].refusal ||
            (!taken && !strstr(why, rows[i].refusal)))
            fail_msg("%s %s: \"%s\"", rows[i].problem, rows[i].shape, why);
        if (!taken)
            continue;
        wa_plan_finish(&p, h200, &plan);
        snprintf(plan.reason, sizeof plan.reason, "demanded");
        assert_legal_backward(&p, h200, &plan, rows[i].shape);
    }
}

/* Half of the work-items, where their registers did not suffice. */
static void backward_has_fewer_waves(void **state)
{
    (void)state;
    const wa_problem p = problem_of("dtype=fp16 bias=same windows=1000");
    const wa_device *h200 = device_named("H200");
    wa_exclusions learnt;
    wa_plan plan;
    memset(&learnt, 0, sizeof learnt);
    for (uint32_t most = 1024; most > 32; most /= 2) {
        learnt.most_items[WINATTN_TIER_MATRIX] = most;
        assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &learnt, &plan),
                         WINATTN_SUCCESS);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_in_range(plan.step[WA_STEP_KEYS].work_group, 1, most);
        assert_legal_backward(&p, h200, &plan, "fewer waves");
    }
}

/* ---- Rows of the tuning table ---- */

static const char *parsed_row(const char *text, wa_tuned_row *row)
{
    return wa_tuned_row_parse(text, strlen(text), row);
}

/* Text, row and text again, and none twice. */
static void built_in_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < WA_BUILT_IN_ROWS; i++) {
        char text[WA_ROW_TEXT_SIZE];
        wa_tuned_row row;
        const char *why = parsed_row(wa_built_in_rows[i], &row);
        if (why)
            fail_msg("%s: %s", wa_built_in_rows[i], why);
        wa_tuned_row_print(&row, text, sizeof text);
        assert_string_equal(text, wa_built_in_rows[i]);
        for (size_t j = 0; j < i; j++) {
            wa_tuned_row other;
            assert_null(parsed_row(wa_built_in_rows[j], &other));
            assert_false(wa_tuned_rows_meet(&row, &other));
        }
    }
}

static void rows_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wrong; /* NULL: it is right */
    } rows[] = {
        {"matrix-backward NVIDIA 90 dot half bias 49 49 32 49:4:3:2:64:3:1",
         NULL},
        {"\t matrix-forward  AMD 0 any any any any 50 8 1:2:3:4:5:6:0 \r",
         NULL},
        {"local-forward \"A GPU (rev 2)\" sliding fp32 none any any 64 "
         "1:2:3:4:5:6:7:8:9:10",
         NULL},
        {"local-backward \"x\" cosine half regions 4 5 6 1:2:3:4:5:6:7:8:1",
         NULL},
        {"", "no kernel"},
        {"local", "no kernel"},
        {"\"local-forward\" NVIDIA 80", "no kernel"},
        {"local-forward", "no vendor"},
        {"local-forward nvidia 80 any", "no vendor"},
        {"local-forward NVIDIA any any", "no vendor"},
        {"local-forward NVIDIA -80 any", "no vendor"},
        {"local-forward \"x any any any", "no vendor"},
        {"local-forward \"\" any any any", "no vendor"},
        {"local-forward NVIDIA 80 dots", "no variant"},
        {"local-forward NVIDIA 80 dot fp16", "no type"},
        {"local-forward NVIDIA 80 dot half shift", "no terms"},
        {"local-forward NVIDIA 80 dot half bias 0 49 32", "no numbers"},
        {"local-forward NVIDIA 80 dot half bias 49 any any", "no numbers"},
        {"local-forward NVIDIA 80 dot half bias 49 9999999999 8",
         "no numbers"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32", "no shape"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6",
         "no shape"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:7:8",
         "no shape"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:70000",
         "no shape"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:-1",
         "no shape"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2::4:5:6:7",
         "no shape"},
        {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:7 8",
         "more than"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wa_tuned_row row;
        const char *why = parsed_row(rows[i].text, &row);
        if (!why != !rows[i].wrong || (why && !strstr(why, rows[i].wrong)))
            fail_msg("%s: \"%s\"", rows[i].text, why ? why : "");
    }
}

static void load(const char *text)
{
    if (winattn_load_tuning(text) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
}

static wa_plan backward_plan_of(const wa_problem *p, const wa_device *device)
{
    static const wa_exclusions none;
    wa_plan plan;
    if (wa_plan_make(p, device, WA_BACKWARD, &none, &plan) != WINATTN_SUCCESS)
        fail_msg("%s: %s", device->name, winattn_last_reason());
    return plan;
}

/* Loaded rows come before built-in ones, the last first; where one is not
 * allowed the next is taken, and at last the planner's own. */
static void loaded_rows(void **state)
{
    (void)state;
    const wa_problem p = problem_of("dtype=fp16 bias=same windows=1000");
    const wa_problem shifted =
        problem_of("dtype=fp16 bias=same mask=regions mask_windows=4");
    const wa_device *h200 = device_named("H200");
    assert_int_equal(plan_of(&p, h200).shape.matrix.teams, 4);

    load("matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:3:2:64:1\n"
         "# what follows is for another device, problem or kernel\n\n"
         "matrix-forward NVIDIA 100 any half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward AMD 0 any half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward \"H2000\" any half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 cosine half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any fp32 any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any half mask 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any half any 49 49 33 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any half any 49 50 32 49:49:4:2:2:64:1\n"
         "matrix-backward NVIDIA 90 any half any 49 49 32 49:4:2:1:64:1:1");
    wa_plan plan = plan_of(&p, h200);
    assert_true(plan.tuned);
    assert_non_null(strstr(plan.reason, "loaded"));
    assert_int_equal(plan.shape.matrix.teams, 3);
    const wa_plan backward = backward_plan_of(&p, h200);
    assert_true(backward.tuned);
    assert_non_null(strstr(backward.reason, "loaded"));
    assert_int_equal(backward.schedule.teams, 2);
    assert_legal_backward(&p, h200, &backward, "loaded");

    /* by name, for regions, and the same again */
    load("matrix-forward \"H200\" dot half regions 49 49 32 49:49:4:1:2:64:2\n"
         "matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:1:1:64:1\n");
    assert_int_equal(plan_of(&shifted, h200).shape.matrix.stages, 1);
    load("matrix-forward \"H200\" dot half regions 49 49 32 49:49:4:1:2:64:2");
    assert_int_equal(plan_of(&shifted, h200).shape.matrix.stages, 2);
    assert_int_equal(plan_of(&p, h200).shape.matrix.stages, 1);

    /* a wrong line adds nothing */
    assert_int_equal(
        winattn_load_tuning(
            "matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:2:2:64:1\n"
            "#\nmatrix-forward NVIDIA 90 dot half any 49 49 32 0"),
        WINATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(winattn_last_reason(), "line 3: no shape"));
    assert_int_equal(plan_of(&p, h200).shape.matrix.stages, 1);

    /* not allowed: the next row, here a built-in one */
    load(NULL);
    load("matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:9:2:64:1");
    plan = plan_of(&p, h200);
    assert_true(plan.tuned);
    assert_null(strstr(plan.reason, "loaded"));
    assert_non_null(strstr(plan.untuned, "tier matrix: "));
    assert_int_equal(plan.shape.matrix.teams, 4);

    /* seen not to build */
    wa_exclusions learnt;
    memset(&learnt, 0, sizeof learnt);
    strcpy(learnt.untuned[WINATTN_TIER_MATRIX], "it spills");
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &learnt, &plan),
                     WINATTN_SUCCESS);
    assert_false(plan.tuned);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_string_equal(plan.untuned, "tier matrix: it spills");
    load(NULL);
}

/* No shape that somebody writes into a row leads to a plan that is not legal,
 * or to none. */
static void wild_rows(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "dtype=fp16 bias=same mask=regions mask_windows=4",
        "dtype=fp16 queries=20 keys=33 dim=24",
        "variant=cosine dim=12 bias=fp32",
        "dtype=bf16 variant=sliding dim=64 block=16 queries=100",
    };
    static const char *const kernels[] = {"local-forward", "matrix-forward",
                                          "local-backward", "matrix-backward"};
    static const int numbers[] = {0, 1, 2, 3, 4, 8, 16, 20, 32, 49, 64, 65535};
    const wa_device *h200 = device_named("H200");
    random_state r = random_seeded(5);
    int taken = 0;
    for (int i = 0; i < 3000; i++) {
        wa_problem p = problem_of(problems[i % 4]);
        const int kernel = random_int(&r, 0, 3);
        char text[WA_ROW_TEXT_SIZE] = "", shape[128] = "";
        const bool matrix = kernel % 2 == 1;
        for (int n = matrix ? 7 : 10; n > 0; n--)
            wa_append(shape, sizeof shape, "%d%s",
                      numbers[random_int(&r, 0, 11)], n > 1 ? ":" : "");
        snprintf(text, sizeof text, "%s NVIDIA 90 %s any any any any %u %s",
                 kernels[kernel],
                 p.variant == WINATTN_SLIDING ? "sliding" : "any", p.head_dim,
                 shape);
        load(NULL);
        load(text);
        p.tier = matrix ? WINATTN_TIER_MATRIX : WINATTN_TIER_LOCAL;
        if (matrix && (!suits_matrix(&p, h200) ||
                       (kernel >= 2 && p.dtype == WINATTN_FP32)))
            continue;
        if (kernel < 2) {
            const wa_plan plan = plan_of(&p, h200);
            taken += plan.tuned;
            assert_in_range(plan.step[WA_STEP_FORWARD].local_bytes, 1,
                            h200->local_bytes);
            assert_in_range(plan.step[WA_STEP_FORWARD].work_group, 1,
                            h200->max_work_group);
        } else {
            const wa_plan plan = backward_plan_of(&p, h200);
            taken += plan.tuned;
            assert_legal_backward(&p, h200, &plan, text);
        }
    }
    assert_in_range(taken, 5, 3000);
    load(NULL);
}

int main(int count, char **arguments)
{
    find_units();
    if (count == 2 && strcmp(arguments[1], "--print") == 0) {
        /* makes expected_plans.inc */
        static const char *const problems[] = {
            "bias=fp32 mask=regions mask_windows=4",
            "variant=cosine queries=256 bias=same dtype=fp16",
            "queries=144 dtype=bf16",
            "variant=sliding dim=64 block=256 queries=4096",
            "tf32=1 queries=64 bias=same",
        };
        for (size_t i = 0; i < made_up_count; i++)
            for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
                const wa_problem p = problem_of(problems[j]);
                const wa_plan plan = plan_of(&p, &devices[i]);
                printf("{\"%s\", \"%s\", \"%s\", %u, %u, %u},\n",
                       devices[i].name, problems[j], wa_tier_name(plan.tier),
                       plan.step[WA_STEP_FORWARD].work_group,
                       plan.step[WA_STEP_FORWARD].local_bytes,
                       plan.step[WA_STEP_FORWARD].block_rows);
            }
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_grid_program),
        cmocka_unit_test(grid_options),
        cmocka_unit_test(backward_is_legal),
        cmocka_unit_test(backward_falls_back),
        cmocka_unit_test(tf32_is_allowed),
        cmocka_unit_test(gradients_ask_for_registers),
        cmocka_unit_test(lanes_have_registers),
        cmocka_unit_test(backward_units),
        cmocka_unit_test(backward_is_dealt),
        cmocka_unit_test(backward_shapes_are_refused),
        cmocka_unit_test(backward_has_fewer_waves),
        cmocka_unit_test(table),
        cmocka_unit_test(workloads),
        cmocka_unit_test(random_problems),
        cmocka_unit_test(same_program),
        cmocka_unit_test(exclusions),
        cmocka_unit_test(units_are_found),
        cmocka_unit_test(matrix_refuses),
        cmocka_unit_test(unproven_units_are_demanded),
        cmocka_unit_test(failed_units_are_left),
        cmocka_unit_test(windows_are_dealt),
        cmocka_unit_test(poor_devices),
        cmocka_unit_test(launches),
        cmocka_unit_test(built_in_rows),
        cmocka_unit_test(rows_are_read),
        cmocka_unit_test(loaded_rows),
        cmocka_unit_test(wild_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
