/* SPDX-License-Identifier: Apache-2.0
 * Every way the tier `local` can cut a problem: several stages of keys and
 * channels, several work-items to a row, several teams to a work-group, blocks
 * of keys that stream, sizes that divide nothing. What a planner would choose
 * on this device does not matter here.
 *
 *   test_shapes fixed          the table
 *   test_shapes small          its small cases, for slow simulators
 *   test_shapes written        those of them that compute nothing from padding
 *                              that nobody wrote, not even what is not stored
 *   test_shapes random SEED N  N random shapes */
#include <string.h>

#include "kit/planned.h"
#include "kit/runner.h"

enum { BIG, SMALL, WRITTEN };
static const struct {
    const char *text, *shape;
    int kind;
} table[] = {
    /* whole matrix, one stage */
    {"queries=12 dim=8 bias=fp32", "12:12:32:1:12:8:4:4:1:2", WRITTEN},
    /* tiles that divide neither rows nor keys */
    {"queries=13 keys=11 dim=6 bias=same mask=same mask_windows=2",
     "13:11:32:1:11:8:4:8:1:2", WRITTEN},
    /* stages of keys, the last one shorter */
    {"queries=10 keys=22 dim=8 mask=regions mask_windows=1",
     "10:22:32:1:8:8:2:4:1:2", WRITTEN},
    /* stages of channels, the last one shorter */
    {"queries=9 keys=9 dim=20 bias=fp32", "9:9:32:1:9:8:4:4:1:2", WRITTEN},
    /* both, for the cosine variant */
    {"variant=cosine logit_scale=1 queries=9 keys=14 dim=20 bias=fp32",
     "9:14:32:1:8:8:4:4:1:2", WRITTEN},
    /* teams, of which the last has no unit */
    {"windows=3 heads=1 queries=8 dim=8", "8:8:32:2:8:8:2:4:1:4", WRITTEN},
    {"windows=3 heads=1 variant=cosine queries=8 dim=8",
     "4:8:32:4:8:8:2:4:1:8", WRITTEN},
    /* rows in blocks, work-items of a row in eights */
    {"queries=14 keys=18 dim=4", "4:18:32:1:18:4:2:2:1:8", SMALL},
    /* streaming */
    {"queries=9 keys=20 dim=8 bias=same", "5:8:32:1:8:8:4:4:1:4", WRITTEN},
    {"queries=9 keys=20 dim=12 bias=same", "5:8:32:1:4:8:4:4:1:4", WRITTEN},
    {"variant=sliding queries=20 block=6 window_blocks=2 dim=8",
     "8:8:32:1:8:8:4:4:1:4", WRITTEN},
    {"variant=sliding queries=20 block=3 sink=2 window_blocks=2 dim=10 "
     "data=nan",
     "8:8:32:1:4:4:4:4:1:4", WRITTEN},
    /* rows that see no block of keys */
    {"variant=sliding queries=20 keys=8 block=4 window_blocks=1 dim=8",
     "8:8:32:1:8:8:4:4:1:4", WRITTEN},
    /* grids: padding, regions and tables of each kind */
    {"heads=1 grid=2 size=5x7 window=3x4 shift=1x2 dim=8 mask=shift "
     "bias=table_same pads=3",
     "12:12:32:1:12:8:4:4:1:2", WRITTEN},
    {"heads=1 grid=2 size=7x5 window=4x3 shift=2x1 padding=hidden dim=20 "
     "mask=shift bias=table_fp32 region_value=-inf",
     "12:12:32:2:8:8:4:4:2:1", WRITTEN},
    {"variant=cosine logit_scale=1 heads=1 grid=3 size=3x4x5 window=2x3x2 "
     "shift=1x1x1 dim=12 mask=shift bias=table_fp32 entries=5 pads=2",
     "6:12:32:1:12:8:2:4:1:4", WRITTEN},
    {"grid=1 size=30 window=20 shift=6 padding=hidden dim=8 mask=shift",
     "5:8:32:1:8:8:4:4:1:4", WRITTEN},
    {"grid=1 size=30 window=20 shift=6 dim=6 bias=fp32 "
     "layout=strided pads=3",
     "5:8:32:1:4:8:4:4:1:4", WRITTEN},
    /* several work-items' rows in turn */
    {"queries=40 keys=16 dim=8", "40:16:32:1:16:8:8:4:5:1", BIG},
    {"queries=100 keys=50 dim=8 bias=fp32", "100:50:64:1:50:8:7:7:4:1", BIG},
    /* shapes that GPUs get */
    {"queries=49 bias=fp32 mask=regions mask_windows=1",
     "49:49:64:1:49:32:7:7:7:1", BIG},
    {"queries=64 dim=64 bias=fp32", "64:64:128:1:64:64:4:8:8:2", BIG},
    {"queries=196 windows=1 heads=1", "98:196:128:1:100:32:7:7:7:1", BIG},
    {"variant=cosine logit_scale=2 queries=256 windows=1 heads=1",
     "64:256:128:1:256:32:8:8:4:2", BIG},
    {"variant=sliding queries=200 block=64 window_blocks=2 dim=64",
     "64:128:128:1:128:64:8:8:8:2", BIG},
    {"variant=sliding queries=200 block=64 dim=200 windows=1",
     "16:64:128:1:32:100:4:8:4:8", BIG},
    {"queries=144 windows=1", "48:144:96:1:144:32:6:6:4:2", BIG},
};
#define ROWS (sizeof table / sizeof *table)

/* Other devices than PoCL may lack the local memory for the big ones. */
static void run(const test_case *c, const wa_local_shape *shape,
                bool may_be_refused)
{
    const demanded_plan demand = {.shape = shape};
    case_result result;
    char text[512], shape_text[128];
    if (planned_run(&device, device.queue, c, &demand, &result))
        return;
    if (may_be_refused && is_excused(&result))
        return;
    case_print(c, text, sizeof text);
    shape_print(shape, shape_text, sizeof shape_text);
    fail_msg("{\"%s\", \"%s\"}\n%s", text, shape_text, result.failure);
}

static void run_table(void **state)
{
    (void)state;
    const int least_kind = part_is("written") ? WRITTEN
                           : part_is("small") ? SMALL
                                              : BIG;
    for (size_t i = 0; i < ROWS; i++) {
        wa_local_shape shape;
        if (table[i].kind < least_kind)
            continue;
        test_case c = parsed(table[i].text);
        assert_true(shape_parse(table[i].shape, &shape));
        c.tier = WINATTN_TIER_LOCAL;
        c.seed = (int)i + 1;
        c.dtype = (int)i % 3;
        run(&c, &shape, table[i].kind == BIG);
    }
}

/* A random shape that fits a random case; tries until one is legal. */
static void random_shape(random_state *r, test_case *c, wa_local_shape *s)
{
    static const uint32_t tiles[] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (;;) {
        wa_device roomy;
        wa_problem problem;
        wa_plan plan;
        *c = case_default();
        c->tier = WINATTN_TIER_LOCAL;
        c->variant = random_int(r, 0, 2);
        c->dtype = random_int(r, 0, 2);
        c->windows = random_int(r, 1, 3);
        c->heads = c->kv_heads = random_int(r, 1, 2);
        c->queries = random_int(r, 1, 70);
        c->keys = random_int(r, 1, 70);
        c->dim = random_int(r, 1, 70);
        c->layout = random_int(r, 0, 2) ? LAYOUT_CONTIGUOUS : LAYOUT_STRIDED;
        if (c->variant == WINATTN_SLIDING) {
            c->block = random_int(r, 1, 40);
            c->window_blocks = random_int(r, 0, 2);
            c->sink = random_int(r, 0, 1) ? random_int(r, 1, 30) : 0;
            c->query_offset = random_int(r, 0, 20);
        } else {
            c->bias = random_int(r, TERM_NONE, TERM_FP32);
            c->mask = random_int(r, TERM_NONE, TERM_SHIFT - 1);
            c->mask_windows = case_mask_is_read(c) ? random_int(r, 1, 3) : 0;
        }
        if (random_int(r, 0, 3) == 0)
            *c = case_random_grid(random_int(r, 0, 999999), WINATTN_TIER_LOCAL,
                                  PASS_FORWARD);
        if (c->queries > 70 || c->dim > 70 || c->windows > 8)
            continue;
        memset(s, 0, sizeof *s);
        s->block_rows = random_between(r, 1, (uint32_t)c->queries);
        s->block_keys = random_int(r, 0, 1) && c->variant != WINATTN_SLIDING
                            ? (uint32_t)c->keys
                            : 4 * random_between(r, 1, 12);
        s->team = 32 * random_between(r, 1, 4);
        s->teams = random_int(r, 0, 2) ? 1 : random_between(r, 2, 3);
        s->stage_keys =
            random_int(r, 0, 1) ? s->block_keys : 4 * random_between(r, 1, 12);
        s->stage_dims = 4 * random_between(r, 1, ((uint32_t)c->dim + 3) / 4);
        s->score_rows = tiles[random_int(r, 0, 7)];
        s->score_cols = tiles[random_int(r, 0, 7)];
        s->out_rows = random_between(r, 1, 12);
        s->row_items = 1u << random_int(r, 0, 4);
        memset(&roomy, 0, sizeof roomy);
        roomy.max_work_group = 256;
        roomy.local_bytes = 30 * 1024;
        wa_plan_begin(WA_FORWARD, &plan);
        const winattn_desc desc = case_desc(c);
        if (wa_problem_read(&desc, &problem) == WINATTN_SUCCESS &&
            wa_plan_local_shape(&problem, &roomy, s, &plan))
            return;
    }
}

static void run_random(void **state)
{
    (void)state;
    for (int i = 0; i < chosen.count; i++) {
        const int seed = chosen.first + i;
        random_state r = random_seeded((unsigned long long)seed);
        test_case c;
        wa_local_shape shape;
        char text[512], shape_text[128];
        random_shape(&r, &c, &shape);
        c.seed = seed;
        case_print(&c, text, sizeof text);
        shape_print(&shape, shape_text, sizeof shape_text);
        announce("%d {\"%s\", \"%s\"}\n", seed, text, shape_text);
        run(&c, &shape, false);
    }
}

static const struct CMUnitTest fixed_tests[] = {cmocka_unit_test(run_table)};
static const struct CMUnitTest random_tests[] = {cmocka_unit_test(run_random)};

static const test_group groups[] = {TEST_GROUP("random", random_tests),
                                    TEST_GROUP(NULL, fixed_tests)};

int main(int count, char **arguments)
{
    const test_program program = {.words = {WORD_PART, WORD_FIRST, WORD_COUNT},
                                  .part = "fixed",
                                  .has_barriers = true,
                                  TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
