/* SPDX-License-Identifier: Apache-2.0
 * The tier `matrix` on each matrix unit that the device has. Every way
 * to cut a problem: several passes and blocks of keys, several waves to a
 * window, several windows at a time, rings of one to three stages.
 *
 *   test_matrix UNIT fixed          the tables, in each dtype
 *   test_matrix UNIT each           each row in one
 *   test_matrix UNIT small          its small cases, for slow simulators
 *   test_matrix UNIT few            each third row of these in one dtype,
 *                                   other ones for the next unit
 *   test_matrix UNIT rows FIRST N   some of the table's rows
 *   test_matrix UNIT shared         the second table
 *   test_matrix UNIT random SEED N  N random shapes */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kit/planned.h"
#include "kit/runner.h"
#include "session/self_test.h"
#include "session/session.h"

/* A shape of 0 is the planner's. Tiles of matrix units differ, so rows, keys
 * and subtiles count tiles: 0 is all of them. */
static const struct {
    const char *text, *shape;
    bool small;
} table[] = {
    /* one tile, filled and not */
    {"queries=16 keys=16 dim=16 windows=1 heads=1 kv_heads=1", "", true},
    {"queries=3 keys=5 dim=7 windows=1 heads=1 kv_heads=1 bias=fp32", "",
     true},
    /* several windows for a work-group, the last of a team repeated */
    {"queries=9 keys=20 dim=8 windows=5 heads=1 kv_heads=1 bias=same",
     "0:0:1:2:2:1:1", true},
    {"queries=20 keys=18 dim=24 windows=3 heads=2 kv_heads=1 bias=fp32 "
     "mask=same mask_windows=2",
     "0:0:2:1:2:1:2", true},
    /* a ring of three stages, keys in blocks, rows in blocks */
    {"queries=40 keys=70 dim=16 windows=3 heads=1 kv_heads=1 bias=same "
     "mask=regions mask_windows=1",
     "1:1:1:1:3:1:1", true},
    {"queries=40 keys=50 dim=16 windows=2 heads=1 kv_heads=1 bias=same lse=1",
     "2:2:1:2:2:2:0", false},
    {"variant=cosine logit_scale=1 queries=20 keys=35 dim=20 windows=3 "
     "heads=2 kv_heads=1 bias=fp32 lse=1",
     "0:0:2:1:1:1:2", true},
    {"variant=cosine logit_scale=5 queries=20 keys=35 dim=40 windows=2 "
     "heads=1 kv_heads=1 bias=same",
     "1:1:1:2:2:1:0", false},
    /* a bias whose rows are copied, but where these are not whole chunks */
    {"queries=20 keys=32 dim=32 windows=3 heads=1 kv_heads=1 bias=same "
     "layout=padded",
     "0:0:1:2:2:1:1", false},
    {"queries=20 keys=32 dim=32 windows=3 heads=1 kv_heads=1 bias=same",
     "1:0:1:2:2:1:1", true},
    {"queries=32 dim=32 windows=3 heads=1 kv_heads=1 bias=same mask=regions "
     "mask_windows=2",
     "0:0:2:1:3:1:3", false},
    /* scores that later keys exceed by far, in passes and in blocks */
    {"scale=9 queries=20 keys=70 dim=16 windows=2 heads=1 kv_heads=1 lse=1",
     "0:0:1:1:1:1:0", true},
    {"scale=9 queries=20 keys=70 dim=16 windows=2 heads=1 kv_heads=1 lse=1",
     "0:1:1:1:2:1:0", false},
    /* what users have */
    {"queries=49 dim=32 windows=3 heads=1 kv_heads=1 bias=same mask=regions "
     "mask_windows=2",
     "", false},
    {"queries=49 dim=32 windows=2 heads=2 kv_heads=2 bias=same mask=same "
     "mask_windows=2 data=masked lse=1",
     "", false},
    {"variant=cosine logit_scale=2 queries=64 dim=32 windows=2 heads=1 "
     "kv_heads=1 bias=same layout=packed",
     "", false},
    {"queries=30 dim=80 windows=2 heads=1 kv_heads=1 layout=strided", "",
     false},
    {"queries=49 dim=32 windows=2 heads=1 kv_heads=1 mask=same "
     "mask_windows=1 data=lowest lse=1",
     "", false},
    {"queries=49 dim=32 windows=2 heads=1 kv_heads=1 bias=same data=nan", "",
     false},
    {"queries=20 dim=32 windows=2 heads=1 kv_heads=1 data=huge scale=0.001",
     "", false},
    /* the maximum's rounding must not become a weight that fp16 lacks */
    {"queries=20 dim=8 windows=2 heads=1 kv_heads=1 data=huge scale=4", "",
     true},
    {"queries=20 dim=32 windows=2 heads=1 kv_heads=1 scale=-2 data=tiny", "",
     false},
    {"variant=cosine queries=20 dim=32 windows=2 heads=1 kv_heads=1 "
     "data=zero",
     "", false},
    {"queries=20 dim=256 windows=2 heads=1 kv_heads=1 bias=same", "", false},
    {"queries=60 dim=32 windows=1 heads=1 kv_heads=1 bias=fp32",
     "0:0:4:1:2:2:1", false},
    {"queries=40 keys=52 dim=32 windows=5 heads=1 kv_heads=1 bias=same "
     "mask=regions mask_windows=3 layout=padded",
     "2:2:1:2:2:1:3", false},
    {"variant=cosine queries=33 dim=16 windows=3 heads=1 kv_heads=1 "
     "mask=regions mask_windows=2 region_value=-inf lse=1",
     "0:0:2:1:2:1:3", true},
    /* so many windows that they come sorted by their regions */
    {"queries=40 keys=52 dim=32 windows=12 heads=2 kv_heads=1 bias=same "
     "mask=regions mask_windows=3 layout=padded",
     "2:2:1:2:2:1:3", false},
    {"queries=18 dim=16 windows=7 heads=1 kv_heads=1 mask=regions "
     "mask_windows=7",
     "0:0:2:1:2:1:3", true},
    /* on grids: bias and mask in registers, regions compared, bias and mask
     * kept by window, padding of each kind; many grids, so that windows come
     * sorted */
    {"grid=2 size=10x13 window=4x5 shift=1x2 mask=shift bias=table_same "
     "pads=3 heads=1 kv_heads=1 dim=16 lse=1",
     "0:0:2:2:2:2:2", false},
    {"grid=2 size=4x5 window=3x3 shift=1x1 mask=shift bias=table_fp32 "
     "padding=hidden heads=1 kv_heads=1 dim=16 batch=9 layout=packed",
     "0:0:1:2:2:1:2", true},
    {"grid=3 size=3x6x7 window=2x3x4 shift=1x1x2 mask=shift bias=table_same "
     "pads=2 variant=cosine logit_scale=2 heads=1 kv_heads=1 dim=8",
     "1:1:1:2:2:1:3", false},
    {"grid=1 size=50 window=20 shift=7 mask=shift region_value=-inf heads=1 "
     "kv_heads=1 dim=10 layout=strided padding=hidden lse=1",
     "0:0:2:1:1:2:0", false},
    {"grid=2 size=7x9 window=4x4 mask=same mask_windows=3 bias=fp32 heads=1 "
     "kv_heads=1 dim=16 batch=3",
     "0:0:1:2:1:1:1", false},
    {"grid=2 size=8x9 window=4x4 shift=1x2 mask=shift pads=1 heads=2 "
     "kv_heads=1 dim=80 batch=5",
     "0:0:1:2:2:2:3", false},
    /* rows that are words and no chunks: as many as a wave's lanes share, more
     * than it has lanes, padding, and such as do not start with a word */
    {"queries=20 keys=18 dim=30 windows=3 heads=2 kv_heads=1 bias=same",
     "0:0:2:2:2:1:1", true},
    {"queries=20 keys=37 dim=100 windows=2 heads=1 kv_heads=1 lse=1",
     "1:1:1:2:2:1:0", false},
    {"grid=2 size=5x7 window=3x4 shift=1x2 mask=shift pads=3 heads=2 "
     "kv_heads=2 dim=30 batch=2 layout=packed",
     "0:0:1:2:2:1:3", false},
    {"queries=20 keys=18 dim=30 windows=3 heads=2 kv_heads=2 layout=padded",
     "0:0:2:1:2:1:0", false},
    /* what rows carry from window to window where lse is not wanted: folded
     * into bias and mask or not, in a subtile or several, and where it does
     * not serve */
    {"queries=18 dim=8 windows=5 heads=1 kv_heads=1 bias=same lse=0",
     "0:0:2:1:2:2:2", true},
    {"queries=36 dim=32 windows=24 heads=1 kv_heads=1 bias=same lse=0",
     "0:0:3:1:2:3:2", false},
    {"variant=cosine queries=20 keys=36 dim=16 windows=20 heads=1 kv_heads=1 "
     "bias=fp32 lse=0",
     "0:0:2:2:1:1:1", false},
    {"queries=20 dim=32 windows=60 heads=1 kv_heads=1 bias=same mask=regions "
     "mask_windows=2 data=swinging lse=0",
     "0:0:2:1:2:2:2", false},
    {"variant=cosine logit_scale=4 queries=36 dim=16 windows=40 heads=1 "
     "kv_heads=1 bias=same data=swinging lse=0",
     "0:0:3:1:1:1:1", false},
    {"queries=18 keys=40 dim=16 windows=9 heads=1 kv_heads=1 data=swinging",
     "0:1:2:1:2:1:0", false},
    {"queries=34 keys=40 dim=16 windows=12 heads=1 kv_heads=1 bias=same "
     "mask=same mask_windows=3 data=masked lse=0",
     "0:0:3:1:2:1:1", false},
    /* from windows at one position to those at others */
    {"grid=2 size=20x26 window=4x4 shift=1x2 mask=shift bias=table_same "
     "pads=3 heads=1 kv_heads=1 dim=16 batch=7 layout=packed lse=1",
     "0:0:1:2:2:2:2", false},
    /* rows that see one key get its v, whatever their base is */
    {"queries=20 dim=32 windows=20 heads=1 kv_heads=1 bias=same "
     "mask=regions mask_windows=1 region_value=-inf data=alone lse=0",
     "0:0:2:1:2:1:2", false},
    {"queries=36 dim=16 windows=20 heads=1 kv_heads=1 "
     "mask=regions mask_windows=1 region_value=-inf data=alone lse=0",
     "0:0:3:1:2:1:1", false},
    {"queries=20 keys=60 dim=16 windows=9 heads=1 kv_heads=1 "
     "bias=fp32 mask=regions mask_windows=1 region_value=-inf data=alone",
     "0:1:2:1:2:1:3", false},
    {"grid=2 size=7x9 window=4x4 mask=same mask_windows=18 bias=fp32 heads=1 "
     "kv_heads=1 dim=16 batch=9",
     "0:0:1:2:1:1:1", false},
    {"grid=2 size=8x12 window=4x4 shift=1x2 mask=shift bias=table_same "
     "heads=1 kv_heads=1 dim=16 batch=30 layout=packed data=swinging lse=0",
     "0:0:1:1:2:1:2", false},
    /* the same where weights have two parts */
    {"scale=40 queries=3 keys=70 dim=16 windows=4 heads=1 kv_heads=1 lse=1",
     "0:0:1:1:1:1:0", true},
    /* sliding: blocks that tiles divide and others, ragged ends, the sink
     * before the window and inside it, decoding, grouped queries */
    {"variant=sliding queries=40 keys=40 dim=16 windows=2 heads=2 kv_heads=1 "
     "block=16 window_blocks=2 lse=1",
     "1:1:1:1:1:1:0", true},
    {"variant=sliding queries=75 keys=75 dim=24 windows=1 heads=2 kv_heads=1 "
     "block=20 first_block=7 window_blocks=2 sink=9 lse=1",
     "2:2:2:1:2:1:0", true},
    {"variant=sliding queries=20 keys=90 dim=40 windows=2 heads=3 kv_heads=3 "
     "block=20 window_blocks=3 query_offset=70 sink=5 lse=1 scale=-0.3",
     "2:2:1:1:3:2:0", false},
    {"variant=sliding queries=70 keys=90 dim=33 windows=2 heads=1 kv_heads=1 "
     "block=5 window_blocks=65 query_offset=20 sink=30 sink_in_window=1",
     "4:4:2:1:2:2:0", false},
    {"variant=sliding queries=50 keys=50 dim=64 windows=1 heads=2 kv_heads=2 "
     "block=10 layout=strided data=nan",
     "2:1:2:1:2:1:0", true},
    {"variant=sliding queries=64 keys=64 dim=20 windows=1 heads=1 kv_heads=1 "
     "block=64 window_blocks=1 scale=0 lse=1 layout=packed",
     "", false},
    /* scores that grow along the keys, beyond any base */
    {"variant=sliding queries=60 keys=90 dim=16 windows=1 heads=1 kv_heads=1 "
     "block=30 query_offset=30 data=rising scale=9 lse=1",
     "2:1:2:1:3:1:0", true},
    {"variant=sliding queries=40 keys=60 dim=32 windows=1 heads=1 kv_heads=1 "
     "block=12 query_offset=20 data=huge scale=0.5 lse=1",
     "2:2:1:1:2:1:0", false},
    {"variant=sliding queries=33 keys=33 dim=200 windows=1 heads=1 "
     "kv_heads=1 block=8 window_blocks=2 sink=3",
     "", false},
};
#define ROWS (sizeof table / sizeof *table)

/* So many work-groups, which the device holds at once, go on from one block of
 * rows and one head to others. */
static const struct {
    const char *text, *shape;
    bool small;
    uint32_t held_groups;
} shared[] = {
    {"queries=20 keys=18 dim=8 windows=5 heads=3 kv_heads=3 bias=same lse=1",
     "1:0:1:2:2:1:1", true, 4},
    {"queries=20 keys=32 dim=32 windows=5 heads=3 kv_heads=3 bias=same",
     "1:0:1:2:2:1:1", true, 4},
    /* more work-groups than a launch has rounds */
    {"queries=20 dim=10 windows=5 heads=2 kv_heads=1 bias=same "
     "layout=strided",
     "1:0:1:1:2:1:1", false, 7},
    {"queries=40 keys=20 dim=24 windows=5 heads=5 kv_heads=1 bias=fp32 lse=1",
     "1:1:1:2:3:1:1", false, 6},
    /* of a mask and a bias the sum: in local memory, in registers */
    {"queries=20 keys=18 dim=16 windows=5 heads=3 kv_heads=1 bias=same "
     "mask=same mask_windows=2",
     "1:0:1:1:1:2:1", true, 4},
    {"queries=20 keys=18 dim=16 windows=14 heads=5 kv_heads=5 bias=fp32 "
     "mask=regions mask_windows=2 data=swinging lse=1",
     "0:0:2:1:2:1:2", false, 3},
    /* a head's scale; regions */
    {"variant=cosine logit_scale=2 queries=20 keys=35 dim=20 windows=5 "
     "heads=4 kv_heads=2 bias=same mask=regions mask_windows=2 lse=1",
     "1:0:1:2:2:1:3", false, 5},
    /* a key head's channels of the padding */
    {"grid=2 size=7x8 window=4x4 shift=1x2 mask=shift bias=table_same pads=3 "
     "heads=3 kv_heads=3 dim=8 batch=5 layout=packed lse=1",
     "0:0:1:2:2:1:3", false, 2},
    {"grid=2 size=6x10 window=4x4 shift=1x1 mask=shift bias=table_fp32 "
     "padding=hidden heads=5 kv_heads=5 dim=16 batch=9",
     "0:0:1:2:2:1:2", false, 2},
};
#define SHARED_ROWS (sizeof shared / sizeof *shared)

static void run(const test_case *c, const demanded_plan *demand)
{
    const wa_matrix_shape *shape = demand->matrix;
    case_result result;
    char text[512], shape_text[128] = "";
    if (planned_run(&device, device.queue, c, demand, &result))
        return;
    /* a kernel may need the registers of more work-items than it has */
    if (shape && is_excused(&result))
        return;
    case_print(c, text, sizeof text);
    if (shape)
        matrix_shape_print(shape, shape_text, sizeof shape_text);
    fail_msg("%s {\"%s\", \"%s\"}\n%s", chosen.matrix_unit->name, text,
             shape_text, result.failure);
}

/* Of the operands' types: fp32 is TF32. */
static int first_dtype(void)
{
    return chosen.matrix_unit->has_tf32 ? WINATTN_FP32 : WINATTN_FP16;
}

/* A row of a table, in each type; every third in launches of two windows, but
 * for those without lse, whose maxima are reused from window to window. */
static void run_row(size_t i, const char *text, const char *shape_text,
                    demanded_plan demand)
{
    const wa_matrix_unit *unit = chosen.matrix_unit;
    const bool in_one_type = part_is("few") || part_is("each");
    test_case c = parsed(text);
    wa_matrix_shape shape;
    demand.matrix_unit = unit;
    c.tier = WINATTN_TIER_MATRIX;
    c.seed = (int)i + 1;
    for (int dtype = first_dtype(); dtype <= WINATTN_BF16; dtype++) {
        const int own = first_dtype() + (int)i / 3 % (3 - first_dtype());
        if (in_one_type && dtype != own)
            continue;
        c.dtype = dtype;
        c.tf32 = dtype == WINATTN_FP32;
        if (!shape_text[0]) {
            run(&c, &demand);
            continue;
        }
        assert_true(matrix_shape_parse(shape_text, &shape));
        /* numbers of tokens say nothing of sliding shapes */
        const bool slides = c.variant == WINATTN_SLIDING;
        shape.block_rows = matrix_tiles(shape.block_rows, unit->queries,
                                        slides ? INT_MAX : c.queries);
        shape.block_keys = matrix_tiles(shape.block_keys, unit->tile,
                                        slides ? INT_MAX : c.keys);
        shape.subtile_keys *= unit->tile;
        if (shape.bias_cache == 2) /* each wave has its own rows */
            shape.waves_per_window =
                (shape.block_rows + unit->queries - 1) / unit->queries;
        demand.matrix = &shape;
        demand.work_tiles_per_launch = i % 3 == 0 && c.lse ? 2 : 0;
        run(&c, &demand);
    }
}

static bool is_chosen(size_t i, bool row_is_small)
{
    const bool few = part_is("few");
    return (row_is_small || !(few || part_is("small"))) &&
           (!few ||
            (i + (size_t)(chosen.matrix_unit - wa_matrix_units)) % 3 == 0);
}

static void run_table(void **state)
{
    (void)state;
    static const demanded_plan any;
    for (size_t i = 0; i < ROWS; i++)
        if (is_chosen(i, table[i].small) && row_is_chosen(i))
            run_row(i, table[i].text, table[i].shape, any);
}

static void run_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHARED_ROWS; i++) {
        const demanded_plan demand = {.held_groups = shared[i].held_groups,
                                      .persistent_multi_block = true};
        if (is_chosen(i, shared[i].small))
            run_row(i, shared[i].text, shared[i].shape, demand);
    }
}

/* A random shape that fits a random case; tries until one is legal. */
static void random_shape(random_state *r, test_case *c, wa_matrix_shape *s)
{
    const wa_matrix_unit *unit = chosen.matrix_unit;
    for (;;) {
        wa_device roomy;
        wa_problem problem;
        wa_plan plan;
        *c = case_random_matrix(r, PASS_FORWARD, first_dtype());
        memset(s, 0, sizeof *s);
        s->block_rows =
            matrix_tiles(random_between(r, 0, 3), unit->queries, c->queries);
        s->block_keys =
            matrix_tiles(random_between(r, 0, 3), unit->tile, c->keys);
        s->waves_per_window = random_between(r, 1, 4);
        s->windows_per_group = random_between(r, 1, 3);
        s->stages = random_between(r, 1, 3);
        s->subtile_keys = unit->tile * random_between(r, 1, 4);
        s->bias_cache = random_between(r, 0, 3);
        if (c->variant == WINATTN_SLIDING) {
            s->block_rows =
                unit->queries * s->waves_per_window * random_between(r, 1, 2);
            s->block_keys = unit->tile * random_between(r, 1, 4);
            s->windows_per_group = 1;
            s->bias_cache = 0;
        }
        memset(&roomy, 0, sizeof roomy);
        roomy.max_work_group = 256;
        roomy.local_bytes = 60 * 1024;
        roomy.matrix_unit = unit;
        wa_plan_begin(WA_FORWARD, &plan);
        const winattn_desc desc = case_desc(c);
        /* regions are compared or kept, those of a shift not in local memory
         */
        if (wa_problem_read(&desc, &problem) == WINATTN_SUCCESS &&
            wa_plan_matrix_shape(&problem, &roomy, s, &plan))
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
        wa_matrix_shape shape;
        char text[512], shape_text[128];
        random_shape(&r, &c, &shape);
        c.seed = seed;
        case_print(&c, text, sizeof text);
        matrix_shape_print(&shape, shape_text, sizeof shape_text);
        announce("%d {\"%s\", \"%s\"}\n", seed, text, shape_text);
        demanded_plan demand = {.matrix_unit = chosen.matrix_unit,
                                .matrix = &shape};
        demand.work_tiles_per_launch = random_between(&r, 0, 3);
        demand.held_groups = random_between(&r, 0, 5);
        run(&c, &demand);
    }
}

static const struct CMUnitTest fixed_tests[] = {cmocka_unit_test(run_table),
                                                cmocka_unit_test(run_shared)};
static const struct CMUnitTest row_tests[] = {cmocka_unit_test(run_table)};
static const struct CMUnitTest shared_tests[] = {cmocka_unit_test(run_shared)};
static const struct CMUnitTest random_tests[] = {cmocka_unit_test(run_random)};

static const test_group groups[] = {
    TEST_GROUP("random", random_tests), TEST_GROUP("rows", row_tests),
    TEST_GROUP("shared", shared_tests), TEST_GROUP(NULL, fixed_tests)};

int main(int count, char **arguments)
{
    const test_program program = {
        .words = {WORD_UNIT, WORD_PART, WORD_FIRST, WORD_COUNT},
        .part = "fixed",
        TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
