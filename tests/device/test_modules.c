/* SPDX-License-Identifier: Apache-2.0
 * What the modules that people train compute (golden/make_modules.py), forward
 * and gradients, in every storage type, whose numbers the inputs are.
 *
 *   test_modules oracle             the oracle against the modules
 *   test_modules TARGET TYPE [ROW]  a tier, or tier matrix on a unit of the
 *                                   device's own, against the oracle; in fp32
 *                                   (as TF32) a unit has a forward pass only
 *
 * TYPE: fp32, fp16, bf16, all, or each (for each row one of them). ROW: the
 * name of one.
 *
 * The oracle agrees with each number of a module but for its rounding to fp32,
 * so that what agrees with the oracle agrees with the module, and the
 * oracle knows the sums that errors are measured by. Gradients are computed
 * with o and lse NULL, and with those that the same tier's forward pass left.
 * Each line shows errors as fractions of what is allowed, NULL/given. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/demand.h"
#include "kit/golden.h"
#include "kit/outputs.h"
#include "kit/runner.h"
#include "kit/verdict.h"

#define FOLDER GOLDEN_FOLDER "/modules"

/* What a module computes, as a case. Where no token is of the padding,
 * gradients of its keys and values are not asked for. */
typedef struct module_row {
    const char *name, *text;
} module_row;

static const module_row rows[] = {
    {"torchvision_v1", "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift "
                       "bias=table_same pads=3 heads=1 dim=32 layout=packed"},
    /* it drops the bias of the keys, so their padding is 0 */
    {"torchvision_v2", "variant=cosine logit_scale=1 grid=2 size=11x16 "
                       "window=7x7 shift=3x3 mask=shift bias=table_same "
                       "pads=2 dim=16 outputs=95 layout=packed"},
    {"torchvision_3d", "grid=3 size=4x9x9 window=3x8x8 bias=table_same pads=3 "
                       "heads=1 dim=16 layout=packed"},
    {"monai_7x7x7", "grid=3 size=7x7x8 window=7x7x7 shift=3x3x3 mask=shift "
                    "bias=table_same pads=3 heads=1 dim=16 layout=packed"},
    {"monai_clipped", "grid=3 size=5x14x7 window=5x7x7 shift=3x3x3 mask=shift "
                      "bias=table_same table=7x7x7 sliced=1 heads=1 dim=16 "
                      "outputs=31 layout=packed"},
    {"timm_v1_padded", "grid=2 size=10x16 window=7x7 bias=table_same pads=3 "
                       "dim=16 layout=packed"},
    {"timm_v1_rolled", "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift "
                       "roll_first=1 bias=table_same pads=3 heads=1 dim=16 "
                       "layout=packed"},
    /* one window, which is shifted, covers the first axis */
    {"timm_v1_partition", "grid=2 size=2x10 window=7x7 shift=3x3 mask=shift "
                          "roll_first=1 bias=table_same pads=3 dim=16 "
                          "layout=packed"},
    {"timm_v2_rolled", "variant=cosine logit_scale=1 grid=2 size=11x13 "
                       "window=8x8 shift=4x4 mask=shift roll_first=1 "
                       "bias=table_same pads=2 heads=1 dim=16 outputs=95 "
                       "layout=packed"},
    {"timm_v1_shifted", "grid=2 size=14x14 window=7x7 shift=3x3 mask=shift "
                        "bias=table_same heads=1 dim=32 outputs=31"},
    {"timm_v2", "variant=cosine logit_scale=1 grid=2 size=16x16 window=8x8 "
                "shift=4x4 mask=shift bias=table_same dim=16 outputs=31"},
    {"timm_v2_w24", "variant=cosine logit_scale=1 grid=2 size=24x24 "
                    "window=24x24 bias=table_same heads=1 dim=16 outputs=31"},
    {"timm_v2_cr", "variant=cosine logit_scale=1 grid=2 size=14x14 window=7x7 "
                   "shift=3x3 mask=shift bias=same dim=16 outputs=31"},
    {"hf_swin", "grid=2 size=9x17 window=7x7 shift=3x3 mask=shift "
                "bias=table_same pads=3 heads=1 dim=32"},
    /* it adds its mask twice; its keys have no bias */
    {"hf_swinv2", "variant=cosine logit_scale=1 grid=2 size=9x13 window=8x8 "
                  "shift=4x4 mask=shift region_value=-200 bias=table_same "
                  "pads=2 dim=16 outputs=95"},
    {"swinir", "grid=2 size=16x16 window=8x8 shift=4x4 mask=shift "
               "bias=table_same heads=1 dim=30 outputs=31 layout=padded"},
    /* keys that overlap: unfolded here */
    {"hat_ocab", "windows=2 heads=1 queries=256 keys=576 dim=16 "
                 "bias=table_same entries=1521 outputs=31"},
    /* Aurora pads on both sides, which the grid does not: a size that
     * divides */
    {"aurora", "grid=3 size=4x6x24 window=2x6x12 shift=1x3x6 periodic=0x0x1 "
               "mask=shift heads=1 dim=16 outputs=31 layout=packed"},
};
#define ROWS (sizeof rows / sizeof *rows)

static const wa_matrix_unit *unit; /* of tier matrix */
static const char *const type_names[] = {"fp32", "fp16", "bf16"};
static int runs, refusals;

/* ---- HAT's overlapping windows ---- */

/* Windows of 16 x 16 queries, one above the other, that see 24 x 24 keys
 * around them, on a map of 32 x 16 tokens; beyond the map, zeros. */
enum { OCAB_ROWS = 32, OCAB_WINDOW = 16, OCAB_KEYS = 24, OCAB_EDGE = 4 };

static bool is_ocab(const module_row *row)
{
    return strcmp(row->name, "hat_ocab") == 0;
}

/* The token of the map that row `row` of a window is; -1: none. */
static int ocab_token(tensor_id id, int window, int row)
{
    const bool keys = id == T_K || id == T_V || id == T_DK || id == T_DV;
    const int wide = keys ? OCAB_KEYS : OCAB_WINDOW;
    const int edge = keys ? OCAB_EDGE : 0;
    const int y = window * OCAB_WINDOW - edge + row / wide;
    const int x = row % wide - edge;
    const bool inside = y >= 0 && y < OCAB_ROWS && x >= 0 && x < OCAB_WINDOW;
    return inside ? y * OCAB_WINDOW + x : -1;
}

/* The entry of HAT's table: its index is negative for some, which PyTorch
 * counts from the table's end. */
static int ocab_entry(int query, int key, int entries)
{
    const int first = OCAB_WINDOW - OCAB_KEYS + 1;
    const int y = key / OCAB_KEYS - query / OCAB_WINDOW + first;
    const int x = key % OCAB_KEYS - query % OCAB_WINDOW + first;
    return (y * (OCAB_WINDOW + OCAB_KEYS - 1) + x + entries) % entries;
}

/* The map that a tensor of windows is of. */
static tensor_data ocab_map(const tensor_data *t)
{
    tensor_data map = *t;
    map.extent[0] = 1;
    map.extent[2] = OCAB_ROWS * OCAB_WINDOW;
    return map;
}

/* From a map to its windows, or adds what windows have to the map. */
static void ocab_move(tensor_id id, const tensor_data *t, double *map,
                      double *windows, bool fold)
{
    const size_t dim = t->extent[3];
    for (size_t w = 0; w < t->extent[0]; w++)
        for (size_t r = 0; r < t->extent[2]; r++) {
            const int token = ocab_token(id, (int)w, (int)r);
            double *here = windows + data_index(t, w, 0, r, 0);
            for (size_t x = 0; x < dim; x++)
                if (fold && token >= 0)
                    map[(size_t)token * dim + x] += here[x];
                else if (!fold)
                    here[x] = token >= 0 ? map[(size_t)token * dim + x] : 0;
        }
}

/* What golden_fill does for maps. */
static const char *ocab_fill(const char *name, case_buffers *d)
{
    for (size_t i = 0; i < golden_count; i++) {
        const golden_tensor *g = &golden_tensors[i];
        tensor_data *t = &d->tensor[g->id];
        if (!t->used || t->is_output)
            continue;
        const tensor_data map = g->id == T_BIAS ? *t : ocab_map(t);
        double *value = golden_read(FOLDER, name, g, &map);
        if (!value)
            return g->name;
        if (g->id == T_BIAS)
            memcpy(t->value, value, sizeof *value * data_count(t));
        else
            ocab_move(g->id, t, value, t->value, false);
        free(value);
    }
    for (int i = 0; i < d->c.queries * d->c.keys; i++)
        d->entry[i] = ocab_entry(i / d->c.keys, i % d->c.keys, d->c.entries);
    return NULL;
}

/* ---- Data ---- */

static case_buffers *make_case(const module_row *row, int dtype, int pass,
                               int given)
{
    test_case c = parsed(row->text);
    c.dtype = dtype;
    c.tier = chosen.tier;
    c.pass = pass;
    c.given = given;
    c.tf32 = unit && dtype == WINATTN_FP32;
    case_buffers *d = data_make(&c);
    assert_non_null(d);
    const char *missing = is_ocab(row) ? ocab_fill(row->name, d)
                                       : golden_fill(FOLDER, row->name, d);
    if (missing)
        fail_msg("%s_%s.npy cannot be read", row->name, missing);
    data_write(d);
    return d;
}

/* ---- The oracle ---- */

/* Each number is the module's, as fp32 holds it. */
static void compare(const module_row *row, const char *name, const double *got,
                    const double *want, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <=
              ldexp(fabs(want[i]), -24) + 1e-12 * largest))
            fail_msg("%s: number %zu of %s is %.9g, the oracle says %.9g",
                     row->name, i, name, want[i], got[i]);
}

static void compare_tensor(const module_row *row, const golden_tensor *g,
                           const tensor_data *t, double *got)
{
    const bool folds = is_ocab(row) && g->id != T_DBIAS;
    const tensor_data map = folds ? ocab_map(t) : *t;
    double *want = golden_read(FOLDER, row->name, g, &map);
    double *own = calloc(data_count(&map), sizeof *own);
    assert_non_null(own);
    if (!want)
        fail_msg("%s_%s.npy cannot be read", row->name, g->name);
    if (folds)
        ocab_move(g->id, t, own, got, true);
    else
        memcpy(own, got, sizeof *own * data_count(t));
    compare(row, g->name, own, want, data_count(&map));
    free(own);
    free(want);
}

static void check_oracle(const module_row *row)
{
    for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++) {
        case_buffers *d = make_case(row, WINATTN_FP32, pass, 0);
        case_truth truth = truth_of(d);
        int compared = 0;
        for (size_t i = 0; i < golden_count; i++) {
            const golden_tensor *g = &golden_tensors[i];
            double *value = truth.value.value[g->id];
            if (!value)
                continue;
            compare_tensor(row, g, &d->tensor[g->id], value);
            compared++;
        }
        assert_true(compared >= (pass == PASS_FORWARD ? 1 : 3));
        truth_free(&truth);
        data_free(d);
    }
}

/* Inputs are the same numbers in every type. */
static void check_types(const module_row *row)
{
    case_buffers *as[3];
    for (int dtype = 0; dtype < 3; dtype++)
        as[dtype] = make_case(row, dtype, PASS_BACKWARD, 0);
    for (int id = 0; id < T_DQ; id++)
        for (int dtype = 1; as[0]->tensor[id].used && dtype < 3; dtype++)
            assert_memory_equal(
                as[dtype]->tensor[id].value, as[0]->tensor[id].value,
                sizeof(double) * data_count(&as[0]->tensor[id]));
    for (int dtype = 0; dtype < 3; dtype++)
        data_free(as[dtype]);
}

/* ---- Tiers ---- */

/* Calls the pass once and compares it with the oracle. out: what it wrote.
 * False: the tier does not take this case. */
static bool run_pass(const module_row *row, const case_buffers *d,
                     case_result *result, case_outputs *out)
{
    const demand demanded = {.unit = unit};
    device_buffers b;
    memset(result, 0, sizeof *result);
    assert_true(buffers_create(&device, d, &b));
    const bool done =
        unit ? demand_run_buffers(&device, d, &b, &demanded, result)
             : buffers_run(&device, d, &b, 1, result);
    /* PoCL has every tier but for some cases of tier matrix */
    const bool may_refuse = unit || !device_is_pocl();
    if (!done && !(result->refused && may_refuse))
        fail_msg("%s: %s", row->name, result->failure);
    if (done)
        buffers_check(device.queue, d, &b, result);
    if (done && out)
        assert_true(outputs_read(device.queue, d, &b, out));
    buffers_release(&b);
    return done;
}

/* Gradients, with the forward pass's o and lse or NULL. */
static bool run_backward(const module_row *row, int dtype,
                         const case_outputs *given, case_result *result)
{
    static const tensor_id left[] = {T_O, T_LSE};
    case_buffers *d = make_case(row, dtype, PASS_BACKWARD, given != NULL);
    for (size_t i = 0; given && i < 2; i++) {
        tensor_data *t = &d->tensor[left[i]];
        memcpy(t->value, given->value[left[i]],
               sizeof *t->value * data_count(t));
    }
    data_write(d);
    const bool done = run_pass(row, d, result, NULL);
    data_free(d);
    return done;
}

typedef struct row_errors {
    case_result forward, computed, given; /* o and lse: NULL, given */
    bool has_gradients;
} row_errors;

static void show_error(const char *name, double error)
{
    printf("%s%.3f%s", name, error, error <= 1 ? "" : "!");
}

static void show_errors(const module_row *row, int dtype, const row_errors *e)
{
    printf("%-15s %s ", row->name, type_names[dtype]);
    show_error(" o ", e->forward.error[T_O]);
    show_error("  lse ", e->forward.error[T_LSE]);
    for (int id = T_DQ; e->has_gradients && id < TENSORS; id++) {
        if (e->computed.error[id] == 0 && e->given.error[id] == 0)
            continue;
        printf("  %s ", tensor_names[id]);
        show_error("", e->computed.error[id]);
        show_error("/", e->given.error[id]);
    }
    printf("\n");
}

/* What the caller gives to save work must not cost accuracy: where an error is
 * more than what is promised of the result alone, it is at most twice what it
 * is with NULL. Single rows may hold nothing but what cancelled, and of single
 * numbers the error with NULL may be next to none by chance, so of gradients
 * that are judged so a tenth of what is allowed will do. */
static void compare_given(const row_errors *e, int variant, char *failures,
                          size_t size)
{
    for (int id = T_DQ; e->has_gradients && id < TENSORS; id++) {
        const double given = e->given.error[id];
        const double computed = e->computed.error[id];
        const size_t used = strlen(failures);
        const bool is_little = gradient_goes_by_row(variant, (tensor_id)id) ||
                               id == T_D_LOGIT_SCALE;
        const double enough = is_little ? 0.1 : 0;
        if (given <= fmax(2 * computed, enough) ||
            e->given.plain_error[id] <= 1)
            continue;
        snprintf(failures + used, size - used,
                 "%s with o and lse given: at %.3g of the allowed error, with "
                 "NULL at %.3g (of what its norm alone allows: %.3g, %.3g)\n",
                 tensor_names[id], given, computed, e->given.plain_error[id],
                 e->computed.plain_error[id]);
    }
}

/* False: the tier does not take the row in this type. */
static bool run_type(const module_row *row, int dtype, row_errors *e)
{
    memset(e, 0, sizeof *e);
    case_buffers *d = make_case(row, dtype, PASS_FORWARD, 0);
    case_outputs out = outputs_make(d);
    bool done = run_pass(row, d, &e->forward, &out);
    e->has_gradients = done && !d->c.tf32;
    if (e->has_gradients)
        done = e->has_gradients =
            run_backward(row, dtype, NULL, &e->computed) &&
            run_backward(row, dtype, &out, &e->given);
    outputs_free(&out);
    data_free(d);
    return done;
}

static void check_type(const module_row *row, int dtype, char *failures,
                       size_t size)
{
    static const char *const names[] = {"forward", "gradients",
                                        "gradients with o and lse given"};
    row_errors e;
    if (!run_type(row, dtype, &e)) {
        printf("%-15s refused: %s%s%s\n", row->name, e.forward.failure,
               e.computed.failure, e.given.failure);
        refusals++;
        return;
    }
    runs++;
    show_errors(row, dtype, &e);
    const case_result *const results[] = {&e.forward, &e.computed, &e.given};
    for (int i = 0; i < 3; i++) {
        const size_t used = strlen(failures);
        if (results[i]->failure[0])
            snprintf(failures + used, size - used, "%s: %s\n", names[i],
                     results[i]->failure);
    }
    compare_given(&e, parsed(row->text).variant, failures, size);
}

/* False: it failed, and that was printed. */
static bool check_tier(const module_row *row)
{
    const size_t number = (size_t)(row - rows);
    /* one type for each row: of a unit those that have gradients */
    const size_t own = unit ? 1 + number % 2 : number % 3;
    const char *type = chosen.extent;
    char failures[4096] = "";
    for (size_t dtype = 0; dtype < 3; dtype++)
        if (strcmp(type, "all") == 0 || strcmp(type, type_names[dtype]) == 0 ||
            (strcmp(type, "each") == 0 && own == dtype))
            check_type(row, (int)dtype, failures, sizeof failures);
    if (failures[0])
        printf("%s\n%s", row->name, failures);
    return !failures[0];
}

/* ---- Program ---- */

static void oracle_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        check_types(&rows[i]);
        check_oracle(&rows[i]);
    }
}

static void tier_is_right(void **state)
{
    winattn_programs *kept = NULL;
    int failed = 0;
    (void)state;
    if (chosen.tier == WINATTN_TIER_MATRIX)
        unit = chosen.matrix_unit;
    /* so that three calls of a row compile once */
    winattn_programs_create(device.context, device.id, &kept);
    for (size_t i = 0; i < ROWS; i++)
        if (part_is("all") || part_is(rows[i].name))
            failed += !check_tier(&rows[i]);
    winattn_programs_destroy(kept);
    printf("%d rows and types ran, %d were refused\n", runs, refusals);
    if (failed)
        fail_msg("%d rows failed", failed);
    assert_true(runs > 0);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest of_oracle[] = {cmocka_unit_test(oracle_is_right)};
    const struct CMUnitTest of_tier[] = {cmocka_unit_test(tier_is_right)};
    const test_group oracle = TEST_GROUP(NULL, of_oracle);
    const test_group groups[] = {TEST_GROUP(NULL, of_tier)};
    const test_program program = {
        .words = {WORD_TARGET, WORD_EXTENT, WORD_PART},
        .part = "all",
        TEST_GROUPS(groups)};
    if (count < 2 || strcmp(arguments[1], "oracle") == 0)
        return runner_run(&oracle, 1);
    return runner_main(&program, count, arguments);
}
