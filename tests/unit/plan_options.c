/* SPDX-License-Identifier: Apache-2.0
 * What the options of kernels say, and that they do not say what must not
 * compile anew. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "plan_groups.h"
#include "plan_made.h"

/* ---- Words ---- */

#define TABLE                                                                 \
    "grid=2 size=30x45 window=7x6 shift=3x3 mask=shift bias=table_same "      \
    "dtype=fp16 heads=5 "
#define ROLLED                                                                \
    "grid=2 window=7x7 shift=3x3 mask=shift roll_first=1 tier=local size="

static const struct {
    const char *device, *problem;
    wa_step_id step;
    /* switches, or parts of others, that are there; NULL: there is no such
     * step. And a part that is not. */
    const char *words, *lacks;
} rows[] = {
    /* tier cpu sees an ordinary bias, which is in the workspace */
    {"H200", TABLE "tier=cpu", WA_STEP_FORWARD,
     "GRID=1 NQ=42 NK=42 WINDOW_1=7 WINDOW_2=6 MASK=4 PADDING=1 BIAS=2",
     "TABLE"},
    {"H200", TABLE "tier=cpu", WA_STEP_EXPAND,
     "TABLE=1 BIAS=1 TABLE_WINDOW_1=7 TABLE_WINDOW_2=6 TABLE_STEP_0=143 "
     "TABLE_STEP_1=11 TABLE_CENTER=71",
     "-cl"},
    {"H200", TABLE "tier=cpu pass=backward", WA_STEP_EXPAND,
     "TABLE=1 BIAS=1 TABLE_WINDOW_1=7 TABLE_WINDOW_2=6 TABLE_STEP_0=143 "
     "TABLE_STEP_1=11 TABLE_CENTER=71",
     "-cl"},
    /* tier local reads the table in place */
    {"H200", TABLE "size=28x12 tier=local", WA_STEP_FORWARD, "TABLE=1",
     "PADDING"},
    {"H200", TABLE "tier=local", WA_STEP_EXPAND, NULL, NULL},
    {"H200", TABLE "tier=local pass=backward", WA_STEP_EXPAND, NULL, NULL},
    {"H200", "grid=1 size=20 window=7 padding=hidden tier=cpu",
     WA_STEP_FORWARD, "PADDING=2", "TABLE"},
    /* the order of roll and padding is compiled in, where it matters */
    {"H200", ROLLED "20x21", WA_STEP_FORWARD, "GRID=2", "TABLE"},
    {"H200", ROLLED "21x21", WA_STEP_FORWARD, "GRID=1", "TABLE"},
    {"H200", "bias=same mask=same mask_windows=2", WA_STEP_FORWARD, "BIAS=1",
     "GRID"},
    {"H200", "bias=same mask=same mask_windows=2", WA_STEP_FORWARD, "NQ=49",
     "WINDOW"},
    /* on grids, of those devices of Intel's that have them */
    {"Arc A770", "grid=2 size=21x21 window=7x7 pass=backward", WA_STEP_KEYS,
     "GRID=1 256-GRF", "BIAS=1"},
    {"Arc A770", "queries=144 pass=backward", WA_STEP_KEYS, "NK=144",
     "256-GRF"},
    {"Iris Xe (TGL)", "grid=2 size=21x21 window=7x7 pass=backward",
     WA_STEP_KEYS, "GRID=1", "256-GRF"},
};

static void assert_words(const char *defines, const char *words)
{
    char list[256];
    snprintf(list, sizeof list, "%s", words);
    for (char *word = strtok(list, " "); word; word = strtok(NULL, " ")) {
        char option[64];
        snprintf(option, sizeof option, strchr(word, '=') ? "-D%s " : "%s",
                 word);
        if (!strstr(defines, option))
            fail_msg("no %s in %s", word, defines);
    }
}

static void words_of_options(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wa_problem p = problem_of(rows[i].problem);
        const wa_plan plan = plan_of(&p, device_named(rows[i].device));
        const wa_step *step = &plan.step[rows[i].step];
        if (!step->kernel != !rows[i].words)
            fail_msg("%s: kernel %s", rows[i].problem,
                     step->kernel ? step->kernel : "none");
        if (!rows[i].words)
            continue;
        assert_words(step->defines, rows[i].words);
        if (strstr(step->defines, rows[i].lacks))
            fail_msg("%s: %s", rows[i].problem, step->defines);
    }
}

/* ---- What compiles nothing ---- */

/* Each base has the same kernels and options, whichever change is made. */
static const struct {
    const char *bases[7], *changes[8];
} groups[] = {
    /* another batch, another view of the same tensors, another scale */
    {{"bias=fp32 mask=regions mask_windows=3",
      "variant=cosine dtype=fp16 queries=256 bias=same mask=regions "
      "mask_windows=3"},
     {"windows=9", "windows=1", "windows=100000", "scale=-3", "mask_windows=7",
      "region_value=-5", "layout=packed"}},
    /* another image or shift */
    {{"grid=2 size=30x45 window=7x7 shift=3x3 mask=shift pads=3 "
      "bias=table_fp32"},
     {"batch=1", "batch=9", "size=33x9", "shift=0x5", "pads=0",
      "region_value=-5", "layout=packed", "periodic=0x1 size=33x14"}},
    /* a cache of keys as it grows */
    {{"dtype=fp32 dim=32", "dtype=fp16 dim=16", "dtype=fp16 dim=64",
      "dtype=bf16 dim=80", "dtype=bf16 dim=128", "dtype=fp16 dim=200"},
     {"variant=sliding block=16 queries=16 keys=32 query_offset=16",
      "variant=sliding block=16 queries=1 keys=1",
      "variant=sliding block=16 queries=63 keys=63 query_offset=700",
      "variant=sliding block=16 queries=64 keys=64",
      "variant=sliding block=500 queries=1000 keys=9000 query_offset=8000 "
      "window_blocks=3 sink=4",
      "variant=sliding block=31 sink=5 queries=200 keys=70000 windows=3 "
      "heads=5 query_offset=69000"}},
};

static void assert_same_programs(const wa_plan *one, const wa_plan *other,
                                 const char *what)
{
    for (int i = 0; i < WA_STEPS; i++) {
        const wa_step *a = &one->step[i], *b = &other->step[i];
        if (!a->kernel != !b->kernel ||
            (a->kernel && strcmp(a->kernel, b->kernel) != 0) ||
            strcmp(a->defines, b->defines) != 0)
            fail_msg("%s: %s, not %s", what, b->defines, a->defines);
    }
}

static void check_changes(const wa_device *device, const char *base,
                          const char *const *changes, int pass)
{
    static const wa_exclusions none;
    wa_plan first;
    for (size_t i = 0; i < 8 && changes[i]; i++) {
        char text[256];
        wa_plan plan;
        snprintf(text, sizeof text, "%s %s", base, changes[i]);
        const wa_problem p = problem_of(text);
        /* loops may end early, and the number of their rounds may not grow */
        if (device->loop_limit &&
            (pass == WA_BACKWARD || p.variant == WINATTN_SLIDING))
            return;
        if (wa_plan_make(&p, device, (wa_pass)pass, &none, &plan) !=
            WINATTN_SUCCESS)
            fail_msg("%s, %s: %s", device->name, text, winattn_last_reason());
        if (i == 0)
            first = plan;
        assert_same_programs(&first, &plan, text);
    }
}

static void nothing_is_compiled(void **state)
{
    (void)state;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (size_t b = 0; groups[g].bases[b]; b++)
                for (int pass = 0; pass < WA_PASSES; pass++)
                    check_changes(&devices[i], groups[g].bases[b],
                                  groups[g].changes, pass);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(words_of_options),
    cmocka_unit_test(nothing_is_compiled),
};
const test_group plan_options = TEST_GROUP(NULL, tests);
