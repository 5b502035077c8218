/* SPDX-License-Identifier: Apache-2.0
 * Prints what tests/offline/run compiles: for each target, kernel, workload
 * and dtype, or TF32, one line with tabs between
 *
 *   compiler, target, kernel file, workload, dtype, work-group size, local
 *   bytes of the plan, local bytes of the device, build options
 *
 * in the configuration that the planner chooses for a made-up device of that
 * kind: the kernels for local memory, and those for each matrix unit that the
 * device has. Without the argument `all`, a target gets every second workload
 * in one dtype, the next target the others, and each workload gets all dtypes;
 * of the backward pass and the matrix units, whose kernels take long to
 * compile, it gets every sixteenth and fourth. Of the workloads on grids it
 * gets all in one dtype, but one for matrix units, and the backward pass of
 * every third. sm_89 differs from sm_80 in its local memory only, and gets the
 * matrix unit.
 *
 * Kernels with wgmma each target gets of all workloads that they compute, in
 * one type, with `all` in both. Linear layers and kernels of rows
 * (winattn_models) each target gets in one type, with `all` in each.
 *
 *   offline_plans [all] [TARGET]     TARGET: those of this one only
 *   offline_plans --source KERNEL    prints the kernel's program
 *   offline_plans --ptx              rewrites PTX as the library does, from
 *                                    the input to the output */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/matrix_unit.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "kit/workloads.h"
#include "models/linear_plan.h"
#include "models/rows.h"
#include "plan/family.h"
#include "program/ptx.h"
#include "program/source.h"

/* CMakeLists.txt makes a test of each. */
static const struct {
    const char *compiler, *name; /* of the target */
    const char *device;          /* made-up */
} targets[] = {
    {"amd", "gfx90a", "gfx90a (MI210)"},
    {"amd", "gfx942", "gfx942 (MI300X)"},
    {"amd", "gfx1030", "gfx1030 (RX 6800)"},
    {"amd", "gfx1100", "gfx1100 (RX 7900 XTX)"},
    {"amd", "gfx1201", "gfx1201 (RX 9070 XT)"},
    {"intel", "tgllp", "Iris Xe (TGL)"},
    {"intel", "adlp", "Iris Xe (ADL-P)"},
    {"intel", "dg2", "Arc A770"},
    {"intel", "pvc", "Max 1100 (PVC)"},
    {"nvidia", "sm_75", "RTX 2080 Ti"},
    {"nvidia", "sm_80", "A100"},
    {"nvidia", "sm_89", "RTX 4090"},
    {"nvidia", "sm_90", "H200"},
};
#define TARGETS (sizeof targets / sizeof *targets)

/* Feature maps as they are, with padding, shift and table. */
static const workload_row grids[] = {
    {"swin-t-800-s1-image", "grid=2 batch=2 size=200x334 window=7x7 shift=3x3 "
                            "heads=3 dim=32 bias=table_same mask=shift "
                            "pads=3"},
    {"swinv2-t-800-s2-image", "variant=cosine logit_scale=2.3 grid=2 batch=2 "
                              "size=100x167 window=8x8 shift=4x4 heads=6 "
                              "dim=32 bias=table_fp32 mask=shift "
                              "padding=hidden"},
    {"video-swin-t-clip", "grid=3 size=9x30x40 window=8x7x7 shift=4x3x3 "
                          "heads=6 dim=32 bias=table_same mask=shift pads=3"},
};
#define GRIDS (sizeof grids / sizeof *grids)

/* What kernels of windows with wgmma compute, and else nobody is asked. */
static const workload_row windows[] = {
    {"swinv2-w16", "variant=cosine windows=1024 heads=6 queries=256 dim=32 "
                   "bias=same"},
    {"swinv2-w24", "variant=cosine windows=256 heads=6 queries=576 dim=32 "
                   "bias=same"},
    {"window-odd", "windows=100 heads=3 queries=300 keys=259 dim=32"},
    {"window-225", "windows=100 heads=6 queries=225 keys=250 dim=32 "
                   "bias=same"},
    {"window-64", "windows=100 heads=6 queries=256 dim=64 bias=same"},
    {"window-121", "windows=100 heads=6 queries=121 dim=32 bias=same"},
    {"window-169", "windows=100 heads=6 queries=169 dim=32 bias=same"},
    {"window-169-v2",
     "variant=cosine windows=100 heads=6 queries=169 dim=32 bias=same"},
    {"window-196", "windows=100 heads=6 queries=196 dim=32 bias=same"},
    {"window-392", "windows=100 heads=6 queries=392 dim=32 bias=same "
                   "mask=regions mask_windows=4"},
    {"swinv2-w16-map", "variant=cosine grid=2 batch=16 size=64x64 "
                       "window=16x16 shift=8x8 heads=6 dim=32 "
                       "bias=table_same mask=shift layout=packed"},
};
#define WINDOWS (sizeof windows / sizeof *windows)

/* What is printed of a kernel besides what it computes. */
typedef struct line {
    const char *compiler, *target, *workload, *dtype;
    const wa_device *device;
} line;

static void print_line(const line *l, const char *kernel, uint32_t work_group,
                       uint32_t local_bytes, const char *defines)
{
    printf("%s\t%s\t%s\t%s\t%s\t%u\t%u\t%u\t%s\n", l->compiler, l->target,
           kernel, l->workload, l->dtype, work_group, local_bytes,
           l->device->local_bytes, defines);
}

static const wa_exclusions none;

/* The pass's kernels; nothing if the planner prefers another tier. */
static winattn_status print_pass(const wa_problem *problem, const line *l,
                                 wa_pass pass, const wa_exclusions *exclusions,
                                 winattn_tier tier)
{
    wa_plan plan;
    WA_TRY(wa_plan_make(problem, l->device, pass, exclusions, &plan));
    for (int i = WA_STEP_FIRST; i <= WA_STEP_LAST && plan.tier == tier; i++) {
        const wa_step *kernel = &plan.step[i];
        if (kernel->kernel)
            print_line(l, kernel->kernel, kernel->work_group,
                       kernel->local_bytes, kernel->defines);
    }
    return WINATTN_SUCCESS;
}

/* Both passes on each matrix unit of the device, if there are any; the
 * backward pass where the planner would choose it if the unit were proven. */
static winattn_status print_matrix(const wa_problem *problem, const line *l)
{
    static const wa_exclusions no_wgmma = {.reason[WA_ENGINE_SPECIAL] =
                                               "print_wgmma has them"};
    wa_device device = *l->device;
    wa_problem demanded = *problem, free_choice = *problem;
    line of_unit = *l;
    demanded.tier = WINATTN_TIER_MATRIX;
    free_choice.tier = WINATTN_TIER_AUTO;
    of_unit.device = &device;
    for (int i = 0; i < WA_MATRIX_UNITS; i++) {
        wa_matrix_unit unit = wa_matrix_units[i];
        unit.proven = true;
        device.matrix_unit = &unit;
        if (!wa_matrix_unit_suits(&unit, l->device) ||
            (problem->dtype == WINATTN_FP32 && !unit.has_tf32))
            continue;
        WA_TRY(print_pass(&demanded, &of_unit, WA_FORWARD, &no_wgmma,
                          WINATTN_TIER_MATRIX));
        WA_TRY(print_pass(&free_choice, &of_unit, WA_BACKWARD, &no_wgmma,
                          WINATTN_TIER_MATRIX));
    }
    return WINATTN_SUCCESS;
}

/* Of either pass nothing if the device or the problem has none. */
static winattn_status print_wgmma(const wa_problem *problem, const line *l)
{
    wa_device device = *l->device;
    wa_problem demanded = *problem;
    line of_unit = *l;
    demanded.tier = WINATTN_TIER_MATRIX;
    device.matrix_unit = wa_matrix_unit_of(&device);
    of_unit.device = &device;
    for (int pass = WA_FORWARD; pass <= WA_BACKWARD; pass++) {
        wa_plan plan;
        wa_plan_begin((wa_pass)pass, &plan);
        if (wa_plan_engine(&demanded, &device, WA_ENGINE_SPECIAL, &plan))
            WA_TRY(print_pass(&demanded, &of_unit, (wa_pass)pass, &none,
                              WINATTN_TIER_MATRIX));
    }
    return WINATTN_SUCCESS;
}

static int rewrite_ptx(void)
{
    unsigned char *text = malloc(WA_PTX_MOST_BYTES), *result;
    size_t size;
    if (!text)
        return 1;
    size = fread(text, 1, WA_PTX_MOST_BYTES, stdin);
    const winattn_status status =
        wa_ptx_rewrite(text, size, NULL, &result, &size);
    free(text);
    if (status != WINATTN_SUCCESS) {
        fprintf(stderr, "%s\n", winattn_last_reason());
        return 1;
    }
    const bool written = fwrite(result, 1, size, stdout) == size;
    free(result);
    return !written;
}

static int print_source(const char *kernel)
{
    char *source;
    if (wa_source_of_kernel(kernel, &source) != WINATTN_SUCCESS || !source)
        return 1;
    fputs(source, stdout);
    free(source);
    return 0;
}

/* ---- What a target gets ---- */

enum { TF32 = 3, TYPES };
static const char *const types[TYPES] = {"fp32", "fp16", "bf16", "tf32"};

/* Kernels that are printed of a target, a workload and a type. */
typedef struct selection {
    bool local, local_backward, matrix, wgmma;
} selection;

static line line_of(size_t target, const char *workload, size_t type,
                    const wa_device *device)
{
    return (line){targets[target].compiler, targets[target].name, workload,
                  types[type], device};
}

/* Without `all`: see above. */
static selection select_kernels(size_t target, size_t workload, size_t type)
{
    const size_t both = target + workload;
    const size_t other = type == TF32 ? both + 2 : both;
    const bool on_grid = workload >= workload_count;
    selection s;
    s.local = type == both % 3 && (on_grid || both % 2 == 0) &&
              strcmp(targets[target].name, "sm_89") != 0;
    s.local_backward =
        s.local && (on_grid ? type == target / 3 % 3 : both % 16 == 0);
    s.matrix = on_grid ? other % 3 == 0 && type == 1 + target % 2
                       : other % 4 == 0 &&
                             (type == TF32 || type == 1 + other / 4 % 2);
    s.wgmma = type == 1 + workload % 2;
    return s;
}

static winattn_status print_kernels(const workload_row *row, size_t type,
                                    const selection *s, const line *l)
{
    test_case c = case_default();
    wa_problem problem;
    if (!l->device || !case_parse(row->text, &c, NULL))
        return wa_fail(WINATTN_INVALID_ARGUMENT, "bad table");
    c.tf32 = type == TF32;
    c.dtype = c.tf32 ? WINATTN_FP32 : (int)type;
    c.tier = WINATTN_TIER_LOCAL;
    winattn_desc desc = case_desc(&c);
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    WA_TRY(wa_problem_read(&desc, &problem));
    if (s->local)
        WA_TRY(print_pass(&problem, l, WA_FORWARD, &none, WINATTN_TIER_LOCAL));
    if (s->local_backward)
        WA_TRY(
            print_pass(&problem, l, WA_BACKWARD, &none, WINATTN_TIER_LOCAL));
    if (s->matrix)
        WA_TRY(print_matrix(&problem, l));
    return s->wgmma ? print_wgmma(&problem, l) : WINATTN_SUCCESS;
}

/* ---- Linear layers ---- */

static const struct {
    const char *name;
    wa_linear_problem problem;
} linears[] = {
    {"linear-96-288",
     {.in = 96, .out = 288, .layer_norm = true, .has_bias = true}},
    {"linear-384-1536",
     {.in = 384,
      .out = 1536,
      .layer_norm = true,
      .has_bias = true,
      .activation = WINATTN_ACTIVATION_GELU}},
    {"linear-3072-768",
     {.in = 3072, .out = 768, .has_bias = true, .has_residual = true}},
    /* weights that stay, where a row of the tuning table says so */
    {"linear-96-96",
     {.in = 96, .out = 96, .has_bias = true, .has_residual = true}},
    {"linear-384-1152-found",
     {.in = 384, .out = 1152, .has_bias = true, .norms = WA_FINDS_STATISTICS}},
    {"linear-384-192-merges",
     {.in = 384, .out = 192, .norms = WA_FINDS_STATISTICS, .merges = true}},
    /* by wgmma alone */
    {"mlp-96-384",
     {.in = 96,
      .out = 96,
      .hidden = 384,
      .has_bias = true,
      .has_residual = true,
      .norms = WA_FINDS_STATISTICS | WA_GIVES_STATISTICS}},
    {"mlp-192-768",
     {.in = 192,
      .out = 192,
      .hidden = 768,
      .has_bias = true,
      .has_residual = true,
      .norms = WA_NORMALISES}},
    {"linear-48-96",
     {.in = 48, .out = 96, .has_bias = true, .norms = WA_NORMALISES}},
};
#define LINEARS (sizeof linears / sizeof *linears)

static void print_layout(const wa_linear_problem *problem,
                         wa_linear_planner *planner, const line *l)
{
    wa_linear_layout layout;
    memset(&layout, 0, sizeof layout);
    if (planner(problem, l->device, NULL, &layout))
        return;
    wa_linear_write_norm(problem, l->device, &layout);
    for (int i = 0; i < WA_LINEAR_KERNELS; i++) {
        const wa_linear_kernel *kernel = &layout.kernel[i];
        if (kernel->name[0])
            print_line(l, kernel->name, kernel->work_group,
                       (uint32_t)kernel->local_bytes, kernel->defines);
    }
}

static void print_linear(size_t target, size_t row, size_t type)
{
    wa_linear_problem problem = linears[row].problem;
    wa_device device = *made_up_device(targets[target].device);
    const line l = line_of(target, linears[row].name, type, &device);
    problem.allow_tf32 = type == TF32;
    problem.dtype = type == TF32 ? WINATTN_FP32 : (winattn_dtype)type;
    problem.tier = WINATTN_TIER_MATRIX;
    if (type != TF32 && !problem.norms && !problem.merges)
        print_layout(&problem, wa_linear_plan_local, &l);
    for (int i = 0; i < WA_MATRIX_UNITS; i++) {
        device.matrix_unit = &wa_matrix_units[i];
        device.ignores_special = false;
        for (int k = 0; k < 2; k++) { /* by wgmma, and by fragments */
            if (wa_matrix_unit_suits(device.matrix_unit, &device))
                print_layout(&problem, wa_linear_plan_matrix, &l);
            device.ignores_special = true;
        }
    }
}

/* ---- Rows ---- */

static const struct {
    const char *name;
    wa_row_desc desc;
} rows[] = {
    {"norm-96", {.job = WA_ROW_NORM, .row_size = 96}},
    {"norm-add-768", {.job = WA_ROW_NORM_ADD, .row_size = 768}},
    {"merge-norm-384", {.job = WA_ROW_MERGE_NORM, .row_size = 384}},
    {"merge-norm-3072", {.job = WA_ROW_MERGE_NORM, .row_size = 3072}},
    {"merge-768", {.job = WA_ROW_MERGE, .row_size = 768}},
    {"pool-768", {.job = WA_ROW_POOL, .row_size = 768}},
    {"pool-1536", {.job = WA_ROW_POOL, .row_size = 1536}},
    {"embed-bytes",
     {.job = WA_ROW_EMBED,
      .row_size = 48,
      .picture = WINATTN_PICTURES_BYTES,
      .picture_channels = 3,
      .patch = {4, 4}}},
    {"embed-planes",
     {.job = WA_ROW_EMBED,
      .row_size = 18,
      .picture = WINATTN_PICTURES_PLANES,
      .picture_channels = 3,
      .patch = {2, 3}}},
};
#define ROWS (sizeof rows / sizeof *rows)

/* Statistics of each work-item, and where tokens are averaged, the sums of all
 * teams but one. */
static uint32_t row_local_bytes(const wa_row_plan *plan)
{
    const uint32_t statistics =
        plan->team > 1 ? plan->team * plan->teams * 8 : 0;
    return plan->desc.job == WA_ROW_POOL
               ? statistics + (plan->teams - 1) * plan->desc.row_size * 4
               : statistics;
}

static void print_row(size_t target, size_t row, size_t type)
{
    const wa_device *device = made_up_device(targets[target].device);
    const line l = line_of(target, rows[row].name, type, device);
    wa_row_desc desc = rows[row].desc;
    wa_row_plan plan;
    char defines[WA_DEFINES_SIZE];
    desc.dtype = (winattn_dtype)type;
    const char *kernel =
        wa_row_lay_out(&desc, device, &plan, defines, sizeof defines);
    const bool has_teams =
        desc.job != WA_ROW_MERGE && desc.job != WA_ROW_EMBED;
    print_line(&l, kernel,
               has_teams ? plan.team * plan.teams : plan.flat_group,
               has_teams ? row_local_bytes(&plan) : 0, defines);
}

/* All workloads in all types; false, with the reason said, if one fails. */
static bool print_target(size_t target, bool all)
{
    const size_t all_grids = workload_count + GRIDS;
    for (size_t i = 0; i < (all_grids + WINDOWS) * TYPES; i++) {
        const size_t workload = i / TYPES;
        const size_t type = i % TYPES;
        const workload_row *row =
            workload < workload_count ? &workload_rows[workload]
            : workload < all_grids    ? &grids[workload - workload_count]
                                      : &windows[workload - all_grids];
        const line l = line_of(target, row->name, type,
                               made_up_device(targets[target].device));
        const selection everything = {.local = type != TF32,
                                      .local_backward = type != TF32,
                                      .matrix = type != WINATTN_FP32,
                                      .wgmma = true};
        selection s =
            all ? everything : select_kernels(target, workload, type);
        if (workload >= all_grids)
            s = (selection){.wgmma = s.wgmma};
        if (print_kernels(row, type, &s, &l) != WINATTN_SUCCESS) {
            fprintf(stderr, "%s, %s: %s\n", l.target, l.workload,
                    winattn_last_reason());
            return false;
        }
    }
    for (size_t row = 0; row < LINEARS; row++)
        for (size_t type = 0; type < TYPES; type++)
            if (all || type == (target + row) % TYPES)
                print_linear(target, row, type);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t type = 0; type < TF32; type++)
            if (all || type == (target + row) % 3)
                print_row(target, row, type);
    return true;
}

int main(int count, char **arguments)
{
    if (count > 2 && strcmp(arguments[1], "--source") == 0)
        return print_source(arguments[2]);
    if (count == 2 && strcmp(arguments[1], "--ptx") == 0)
        return rewrite_ptx();
    const bool all = count > 1 && strcmp(arguments[1], "all") == 0;
    const char *only = count > 1 + all ? arguments[1 + all] : NULL;
    bool found = false;
    for (size_t t = 0; t < TARGETS; t++) {
        if (only && strcmp(only, targets[t].name) != 0)
            continue;
        found = true;
        if (!print_target(t, all))
            return 1;
    }
    if (!found)
        fprintf(stderr, "no such target: %s\n", only);
    return !found;
}
