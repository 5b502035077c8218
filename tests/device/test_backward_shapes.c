/* SPDX-License-Identifier: Apache-2.0
 * The backward kernels of tier local in shapes that the planner may choose for
 * some device, whatever it chooses for this one: a table, and random shapes.
 * A failure prints the case and the shapes, which a row of the table replays.
 *
 *   test_backward_shapes fixed               the table
 *   test_backward_shapes small               its small rows
 *   test_backward_shapes rows FIRST COUNT
 *   test_backward_shapes random FIRST_SEED COUNT */
#include <string.h>

#include "kit/planned.h"
#include "kit/runner.h"

/* SMALL ones take a simulator some seconds. */
enum { BIG, SMALL };

/* Registers: enough for every shape here, so that sums of dBias stay in them
 * where a kernel can do that. Fewer: they do not. */
#define MANY 255
#define FEW 64

static const struct {
    const char *text;
    uint32_t registers;
    const char *rows, *keys; /* shapes; no rows: one kernel */
    int kind;
} table[] = {
    /* ---- One kernel, one q block ---- */
    {"windows=3 heads=1 queries=12 dim=8 bias=fp32 d_lse=1", MANY, NULL,
     "12:12:32:8:4:4:1:1:1", SMALL},
    {"windows=3 heads=1 queries=12 dim=8 bias=fp32 accumulate=31", FEW, NULL,
     "12:12:32:8:4:4:1:1:1", SMALL},
    /* the forward pass's lse */
    {"given=1 queries=12 dim=8 bias=same mask=same mask_windows=2 "
     "data=masked d_lse=1",
     FEW, NULL, "12:12:32:8:4:4:1:1:1", SMALL},
    /* tiles that divide neither rows nor keys nor channels; rows of none */
    {"queries=13 keys=11 dim=6 bias=same mask=same mask_windows=2 "
     "data=masked",
     MANY, NULL, "13:11:32:8:2:4:1:2:1", SMALL},
    /* Q and dO take turns, and K and V */
    {"queries=12 keys=10 dim=8 bias=fp32 d_lse=1", MANY, NULL,
     "12:10:32:8:4:4:1:1:0", SMALL},
    {"given=1 windows=1 queries=9 keys=14 dim=8", MANY, NULL,
     "9:14:32:8:2:4:1:2:0", SMALL},
    /* stages of channels, the last one shorter */
    {"queries=10 keys=9 dim=20 bias=same mask=regions mask_windows=1", MANY,
     NULL, "10:9:32:8:4:4:1:1:0", SMALL},
    {"given=1 queries=7 keys=9 dim=30 bias=fp32 d_lse=1 layout=strided", 130,
     NULL, "7:9:32:8:4:2:1:1:0", SMALL},
    /* ---- One kernel, several q blocks ---- */
    {"windows=3 heads=4 kv_heads=2 queries=8 keys=9 dim=8 bias=fp32", MANY,
     NULL, "8:9:32:8:4:2:1:1:1", SMALL},
    {"heads=2 kv_heads=1 queries=13 keys=10 dim=12 bias=same d_lse=1 "
     "accumulate=31",
     MANY, NULL, "5:10:32:12:2:4:1:1:1", SMALL},
    {"given=1 heads=1 queries=13 keys=10 dim=20 bias=same mask=fp32 "
     "mask_windows=2 data=masked",
     MANY, NULL, "6:10:32:12:2:4:2:1:0", SMALL},
    {"heads=2 kv_heads=1 queries=9 keys=12 dim=20", MANY, NULL,
     "5:12:32:8:2:4:1:1:0", SMALL},
    /* ---- One kernel, cosine ---- */
    {"variant=cosine logit_scale=2 windows=3 queries=12 dim=8 bias=same "
     "d_lse=1",
     MANY, NULL, "12:12:32:8:4:4:1:1:0", SMALL},
    {"variant=cosine logit_scale=1 heads=2 kv_heads=1 queries=11 keys=9 "
     "dim=20 bias=fp32 windows=3 accumulate=31",
     MANY, NULL, "6:9:32:8:2:4:1:1:0", SMALL},
    {"given=1 variant=cosine logit_scale=5 queries=9 keys=10 dim=12 "
     "data=zero",
     MANY, NULL, "9:10:32:12:4:4:1:1:0", SMALL},
    /* ---- Rows and keys in kernels of their own ---- */
    {"queries=11 keys=20 dim=8 bias=fp32 d_lse=1", MANY, "6:8:32:8:2:4:1:1:1",
     "5:8:32:8:2:4:1:1:1", SMALL},
    {"heads=2 kv_heads=1 queries=9 keys=14 dim=20 bias=same mask=same "
     "mask_windows=2 data=masked accumulate=31",
     MANY, "4:6:32:8:2:2:1:1:0", "5:7:32:12:2:4:1:2:0", SMALL},
    {"given=1 windows=1 queries=11 keys=18 dim=20 d_lse=1", MANY,
     "11:8:32:12:4:4:2:1:0", "8:8:32:12:4:4:2:1:0", SMALL},
    {"given=1 windows=1 queries=11 keys=18 dim=8 bias=same", MANY,
     "4:8:32:8:4:4:1:1:1", "8:8:32:8:4:4:1:1:1", SMALL},
    {"variant=cosine logit_scale=2 heads=2 kv_heads=1 queries=10 keys=14 "
     "dim=8 bias=fp32 d_lse=1",
     MANY, "6:8:32:8:2:4:1:1:0", "5:8:32:8:2:4:1:1:0", SMALL},
    {"given=1 variant=cosine logit_scale=1 windows=3 heads=1 queries=9 "
     "keys=12 dim=20 mask=regions mask_windows=2 accumulate=31",
     MANY, "9:6:32:8:4:4:1:1:0", "4:6:32:12:4:4:1:1:0", SMALL},
    /* ---- Sliding ---- */
    {"variant=sliding queries=20 block=6 window_blocks=2 dim=8 d_lse=1", MANY,
     "8:8:32:8:4:4:1:1:1", "8:8:32:8:4:4:1:1:1", SMALL},
    {"variant=sliding heads=2 kv_heads=1 windows=1 queries=21 keys=33 "
     "block=5 first_block=3 window_blocks=2 sink=4 query_offset=10 dim=10",
     MANY, "6:8:32:12:2:4:1:1:1", "5:9:32:12:2:4:1:1:1", SMALL},
    {"given=1 variant=sliding windows=1 queries=17 keys=20 block=3 "
     "window_blocks=1 query_offset=4 sink=2 dim=20 d_lse=1",
     MANY, "8:8:32:8:4:4:1:1:0", "4:8:32:8:4:4:1:1:0", SMALL},
    /* rows and keys that see nothing */
    {"variant=sliding queries=20 keys=8 block=4 window_blocks=1 dim=8 "
     "accumulate=7",
     MANY, "8:8:32:8:4:4:1:1:1", "6:4:32:8:4:4:1:1:0", SMALL},
    /* q blocks that no sum of d_logit_scale parts */
    {"variant=cosine heads=2 kv_heads=1 windows=3 queries=11 keys=9 dim=12",
     MANY, NULL, "6:9:32:12:2:4:1:1:0", SMALL},
    /* ---- Grids: padding, regions and tables of each kind ---- */
    {"heads=1 grid=2 size=5x7 window=3x4 shift=1x2 dim=8 mask=shift "
     "bias=table_same pads=3 d_lse=1 accumulate=127",
     MANY, NULL, "12:12:32:8:4:4:1:1:1", SMALL},
    {"variant=cosine logit_scale=1 heads=2 kv_heads=1 grid=2 size=5x7 "
     "window=3x4 shift=1x2 dim=20 bias=table_fp32 pads=3",
     MANY, NULL, "6:12:32:8:2:4:1:1:0", SMALL},
    {"given=1 heads=1 grid=2 size=5x7 window=3x4 shift=1x2 dim=8 mask=shift "
     "pads=1 d_lse=1",
     MANY, "6:8:32:8:2:4:1:1:1", "5:8:32:8:2:4:1:1:1", SMALL},
    {"heads=1 grid=1 size=17 window=12 shift=4 padding=hidden dim=20 "
     "mask=shift bias=table_fp32 entries=9 accumulate=127",
     MANY, "12:8:32:12:4:4:2:1:0", "8:8:32:12:4:4:2:1:0", SMALL},
    {"given=1 heads=1 grid=2 size=5x7 window=3x4 shift=1x2 padding=hidden "
     "dim=10 mask=shift bias=same d_lse=1",
     FEW, NULL, "12:12:32:8:4:4:1:1:0", SMALL},
    /* ---- Shapes that GPUs get ---- */
    {"bias=fp32 windows=5", MANY, NULL, "49:49:128:32:7:4:4:1:1", BIG},
    {"bias=same windows=5", 140, NULL, "49:49:64:32:7:7:7:2:0", BIG},
    {"queries=64 dim=64 bias=fp32", MANY, NULL, "64:64:256:64:4:4:4:1:1", BIG},
    {"variant=cosine logit_scale=2 queries=64 bias=fp32", MANY, NULL,
     "64:64:128:32:8:4:4:1:0", BIG},
    {"queries=144 windows=1 heads=2 kv_heads=1", MANY, NULL,
     "72:144:256:32:8:8:3:2:0", BIG},
    {"variant=sliding queries=150 block=32 window_blocks=2 dim=64", MANY,
     "64:64:128:64:8:4:8:2:1", "64:64:256:64:4:4:4:1:1", BIG},
    {"variant=sliding queries=150 block=32 dim=200 windows=1", MANY,
     "32:64:256:100:4:4:4:2:0", "32:32:256:100:4:2:4:1:0", BIG},
};
#define ROWS (sizeof table / sizeof *table)

/* Other devices than PoCL may lack the local memory for the big ones. */
static void run(const test_case *c, const demanded_backward *demand,
                bool may_be_refused)
{
    case_result result;
    char text[512], rows[128] = "", keys[128];
    case_print(c, text, sizeof text);
    if (demand->rows)
        gradient_shape_print(demand->rows, rows, sizeof rows);
    gradient_shape_print(demand->keys, keys, sizeof keys);
    announce("{\"%s\", %u, \"%s\", \"%s\"}, %u windows to a launch\n", text,
             demand->registers, rows, keys, demand->windows);
    if (planned_backward(&device, device.queue, c, demand, &result))
        return;
    if (may_be_refused && is_excused(&result))
        return;
    fail_msg("{\"%s\", %u, \"%s\", \"%s\"}, %u windows to a launch\n%s", text,
             demand->registers, rows, keys, demand->windows, result.failure);
}

static void run_table(void **state)
{
    (void)state;
    const int least_kind = part_is("small") ? SMALL : BIG;
    for (size_t i = 0; i < ROWS; i++) {
        wa_gradient_shape rows, keys;
        demanded_backward demand = {.keys = &keys,
                                    .registers = table[i].registers};
        if (table[i].kind < least_kind || !row_is_chosen(i))
            continue;
        test_case c = parsed(table[i].text);
        assert_true(gradient_shape_parse(table[i].keys, &keys));
        if (table[i].rows) {
            assert_true(gradient_shape_parse(table[i].rows, &rows));
            demand.rows = &rows;
        }
        /* of three windows, two follow each other in a split */
        demand.windows = (unsigned)c.windows;
        c.tier = WINATTN_TIER_LOCAL;
        c.pass = PASS_BACKWARD;
        c.seed = (int)i + 1;
        c.dtype = (int)i % 3;
        run(&c, &demand, table[i].kind == BIG);
    }
}

static wa_gradient_shape random_shape(random_state *r, const test_case *c,
                                      bool whole)
{
    const wa_gradient_shape shape = {
        .block_rows = random_between(r, 1, (uint32_t)c->queries),
        .block_keys = whole ? (uint32_t)c->keys : random_between(r, 1, 48),
        .team = 32 * random_between(r, 1, 4),
        .stage_dims = 4 * random_between(r, 1, ((uint32_t)c->dim + 3) / 4),
        .score_rows = random_between(r, 1, 8),
        .score_cols = random_between(r, 1, 8),
        .out_rows = random_between(r, 1, 12),
        .key_quads = random_between(r, 1, 2),
        .keeps_tiles = random_int(r, 0, 1) != 0};
    return shape;
}

/* Random shapes that fit a random case; tries until they are legal. */
static void random_shapes(random_state *r, test_case *c,
                          wa_gradient_shape *rows, wa_gradient_shape *keys,
                          demanded_backward *demand)
{
    for (;;) {
        wa_device roomy;
        wa_problem problem;
        wa_plan plan;
        *c = case_default();
        c->tier = WINATTN_TIER_LOCAL;
        c->pass = PASS_BACKWARD;
        c->variant = random_int(r, 0, 2);
        c->dtype = random_int(r, 0, 2);
        c->windows = random_int(r, 1, 3);
        c->kv_heads = random_int(r, 1, 2);
        c->heads = c->kv_heads * random_int(r, 1, 2);
        c->queries = random_int(r, 1, 50);
        c->keys = random_int(r, 1, 50);
        c->dim = random_int(r, 1, 50);
        c->layout = random_int(r, 0, 2) ? LAYOUT_CONTIGUOUS : LAYOUT_STRIDED;
        c->d_lse = random_int(r, 0, 1);
        c->given = random_int(r, 0, 1);
        c->accumulate = random_int(r, 0, 1) ? 31 : 0;
        if (c->variant == WINATTN_SLIDING) {
            c->block = random_int(r, 1, 30);
            c->window_blocks = random_int(r, 0, 2);
            c->sink = random_int(r, 0, 1) ? random_int(r, 1, 20) : 0;
            c->query_offset = random_int(r, 0, 20);
        } else {
            c->bias = random_int(r, TERM_NONE, TERM_FP32);
            c->mask = random_int(r, TERM_NONE, TERM_SHIFT - 1);
            c->mask_windows = case_mask_is_read(c) ? random_int(r, 1, 3) : 0;
        }
        if (c->variant == WINATTN_COSINE)
            c->logit_scale = random_unit(r) * 4;
        if (random_int(r, 0, 3) == 0)
            *c = case_random_grid(random_int(r, 0, 999999), WINATTN_TIER_LOCAL,
                                  PASS_BACKWARD);
        if (c->queries > 50 || c->dim > 50 || c->windows > 8)
            continue;
        const bool whole =
            c->variant != WINATTN_SLIDING && random_int(r, 0, 1);
        *rows = random_shape(r, c, false);
        *keys = random_shape(r, c, whole);
        memset(demand, 0, sizeof *demand);
        demand->rows = whole ? NULL : rows;
        demand->keys = keys;
        demand->registers = random_int(r, 0, 1) ? MANY : FEW;
        demand->windows = random_between(r, 1, 3);
        memset(&roomy, 0, sizeof roomy);
        roomy.max_work_group = 256;
        roomy.local_bytes = 30 * 1024;
        roomy.registers = demand->registers;
        wa_plan_begin(WA_BACKWARD, &plan);
        const winattn_desc desc = case_desc(c);
        if (wa_problem_read(&desc, &problem) == WINATTN_SUCCESS &&
            wa_plan_gradient_shapes(&problem, &roomy, demand->rows, keys,
                                    &plan))
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
        wa_gradient_shape rows, keys;
        demanded_backward demand;
        random_shapes(&r, &c, &rows, &keys, &demand);
        c.seed = seed;
        run(&c, &demand, false);
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
