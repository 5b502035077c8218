/* SPDX-License-Identifier: Apache-2.0
 * The functions of winattn.h, and scenarios in which they are called. */
#include "subjects.h"

/* Calls the pass that has this number. */
static winattn_status call_pass(world *w, size_t pass)
{
    const level_desc desc = {.of = levels, .u.core = w->desc};
    return world_call(w, &desc, w->plan, &levels->kinds[pass]);
}

static winattn_status enqueue_forward(world *w) { return call_pass(w, 0); }

static winattn_status enqueue_backward(world *w) { return call_pass(w, 1); }

const subject subjects[] = {
    {"plan_create", {NULL}, create_plan, 1},
    {"plan_create, programs kept", {create_programs}, create_plan, 1},
    {"plan_create, imported", {create_programs, import_blob}, create_plan, 1},
    {"plan_create, rows loaded", {load_rows}, create_plan, 1},
    {"plan_describe", {create_plan}, describe_plan, 1},
    {"plan_workspace_size", {create_plan}, workspace_size, 1},
    {"enqueue_forward", {create_plan}, enqueue_forward, 1},
    {"enqueue_backward", {create_plan}, enqueue_backward, 1},
    {"programs_create", {NULL}, create_programs, 1},
    {"programs_import", {create_programs}, import_blob, 1},
    {"programs_export", {create_programs, create_plan}, export_blob, 1},
    {"programs_export, imported",
     {create_programs, import_blob},
     export_blob,
     1},
    {"load_tuning", {NULL}, load_rows, 1},
    {"load_tuning, again", {load_rows}, load_rows, 1},
    {"set_cache_dir", {NULL}, set_folder, 1},
};
const size_t subject_count = sizeof subjects / sizeof *subjects;

const subject subject_of_blob = {
    "blob", {create_programs, create_plan, create_other_plan}, NULL, 1};

bool subject_applies(const scenario *is, const subject *of)
{
    return of->call != enqueue_backward ||
           (is->passes & WINATTN_PASS_BACKWARD) != 0;
}

/* Nothing of the library's can do without an allocation or a call where there
 * is no cache, nobody exports, no unit is remembered and nothing is refused.
 */
bool subject_needs_all(const world *w, const subject *of)
{
    return !w->is->has_cache && !w->is->refused &&
           w->desc.variant == WINATTN_SLIDING && !of->prepare[0];
}

void subjects_begin(const char *folder) { (void)folder; }

void subjects_end(world *w) { forget_rows(w); }

/* ---- Scenarios ---- */

#define BOTH (WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)

const scenario scenarios[] = {
    {.name = "PoCL, table with an index",
     .device = "PoCL",
     .problem = "windows=100 heads=4 bias=table_same entries=10",
     .passes = BOTH},
    {.name = "H200, matrix, grid with a table and a shift",
     .device = "H200",
     .problem = "variant=cosine dtype=fp16 heads=4 grid=2 size=30x45 "
                "window=7x7 shift=3x3 batch=3 bias=table_same mask=shift",
     .passes = BOTH},
    {.name = "MI210, sliding, queue out of order",
     .device = "gfx90a (MI210)",
     .problem = "variant=sliding heads=4 queries=1000 dim=64 block=64 "
                "window_blocks=4",
     .passes = BOTH,
     .out_of_order = true},
    {.name = "H200, matrix demanded, cold cache",
     .device = "H200",
     .problem = "tier=matrix dtype=bf16 windows=64 heads=3 queries=64 dim=64 "
                "bias=same",
     .passes = BOTH,
     .has_cache = true},
    {.name = "PoCL, cosine, regions, warm cache",
     .device = "PoCL",
     .problem = "variant=cosine windows=64 heads=3 queries=64 dim=64 "
                "mask=regions mask_windows=4",
     .passes = BOTH,
     .has_cache = true,
     .is_warm = true},
    {.name = "A100, matrix does not build",
     .device = "A100",
     .problem = "dtype=fp16 windows=64 heads=3 queries=300",
     .passes = BOTH,
     .refused = "-DWAVES_PER_WINDOW="},
    {.name = "Arc, window in parts",
     .device = "Arc A770",
     .problem = "dtype=fp16 windows=4 queries=500 keys=600 dim=40 mask=same "
                "mask_windows=2",
     .passes = BOTH,
     .out_of_order = true},
    {.name = "llvmpipe, probed loops",
     .device = "llvmpipe",
     .problem = "windows=3 queries=20 dim=8",
     .passes = WINATTN_PASS_FORWARD},
};
const size_t scenario_count = sizeof scenarios / sizeof *scenarios;
