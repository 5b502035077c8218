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
 *   offline_plans [all]
 *   offline_plans --source KERNEL    prints the kernel's program */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/matrix_unit.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "kit/workloads.h"
#include "plan/planner.h"
#include "program/source.h"

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

static winattn_status print_forward(const wa_problem *problem, const line *l)
{
    static const wa_exclusions none;
    wa_plan plan;
    WA_TRY(wa_plan_make(problem, l->device, WA_FORWARD, &none, &plan));
    print_line(l, plan.step[WA_STEP_FORWARD].kernel,
               plan.step[WA_STEP_FORWARD].work_group,
               plan.step[WA_STEP_FORWARD].local_bytes,
               plan.step[WA_STEP_FORWARD].defines);
    return WINATTN_SUCCESS;
}

/* Nothing if the planner prefers another tier. */
static winattn_status print_backward(const wa_problem *problem, const line *l,
                                     winattn_tier tier)
{
    static const wa_exclusions none;
    wa_plan plan;
    WA_TRY(wa_plan_make(problem, l->device, WA_BACKWARD, &none, &plan));
    if (plan.tier != tier)
        return WINATTN_SUCCESS;
    for (int i = WA_STEP_STATISTICS; i <= WA_STEP_LAST; i++) {
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
    wa_device device = *l->device;
    wa_problem demanded = *problem;
    line of_unit = *l;
    wa_problem free_choice = *problem;
    demanded.tier = WINATTN_TIER_MATRIX;
    free_choice.tier = WINATTN_TIER_AUTO;
    of_unit.device = &device;
    if (problem->variant == WINATTN_SLIDING)
        return WINATTN_SUCCESS;
    for (int i = 0; i < WA_MATRIX_UNITS; i++) {
        wa_matrix_unit unit = wa_matrix_units[i];
        unit.proven = true;
        device.matrix_unit = &unit;
        if (!wa_matrix_unit_suits(&unit, l->device) ||
            (problem->dtype == WINATTN_FP32 && !unit.has_tf32))
            continue;
        WA_TRY(print_forward(&demanded, &of_unit));
        WA_TRY(print_backward(&free_choice, &of_unit, WINATTN_TIER_MATRIX));
    }
    return WINATTN_SUCCESS;
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

int main(int count, char **arguments)
{
    enum { TF32 = 3, TYPES };
    static const char *const types[TYPES] = {"fp32", "fp16", "bf16", "tf32"};
    if (count > 2 && strcmp(arguments[1], "--source") == 0)
        return print_source(arguments[2]);
    const bool all = count > 1 && strcmp(arguments[1], "all") == 0;
    const size_t rows = workload_count + GRIDS;
    for (size_t i = 0; i < TARGETS * rows * TYPES; i++) {
        const size_t t = i / (rows * TYPES);
        const size_t w = i / TYPES % rows;
        const size_t type = i % TYPES;
        const bool on_grid = w >= workload_count;
        const workload_row *row =
            on_grid ? &grids[w - workload_count] : &workload_rows[w];
        const line l = {targets[t].compiler, targets[t].name, row->name,
                        types[type], made_up_device(targets[t].device)};
        test_case c = case_default();
        wa_problem problem;
        const bool has_local =
            type != TF32 &&
            (all || (type == (w + t) % 3 && (on_grid || (w + t) % 2 == 0) &&
                     strcmp(targets[t].name, "sm_89") != 0));
        const bool has_backward =
            has_local &&
            (all || (on_grid ? type == t / 3 % 3 : (w + t) % 16 == 0));
        const size_t other = type == TF32 ? w + t + 2 : w + t;
        const bool has_matrix =
            type != WINATTN_FP32 &&
            (all || (on_grid ? other % 3 == 0 && type == 1 + t % 2
                             : other % 4 == 0 && (type == TF32 ||
                                                  type == 1 + other / 4 % 2)));
        if (!has_local && !has_matrix)
            continue;
        if (!l.device || !case_parse(row->text, &c, NULL)) {
            fprintf(stderr, "bad table: %s, %s\n", targets[t].device,
                    row->name);
            return 1;
        }
        c.tf32 = type == TF32;
        c.dtype = c.tf32 ? WINATTN_FP32 : (int)type;
        c.tier = WINATTN_TIER_LOCAL;
        winattn_desc desc = case_desc(&c);
        desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
        if (wa_problem_read(&desc, &problem) != WINATTN_SUCCESS ||
            (has_local && print_forward(&problem, &l) != WINATTN_SUCCESS) ||
            (has_backward &&
             print_backward(&problem, &l, WINATTN_TIER_LOCAL) !=
                 WINATTN_SUCCESS) ||
            (has_matrix && print_matrix(&problem, &l) != WINATTN_SUCCESS)) {
            fprintf(stderr, "%s, %s: %s\n", targets[t].name, row->name,
                    winattn_last_reason());
            return 1;
        }
    }
    return 0;
}
