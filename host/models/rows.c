/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rows.h"

#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "launch/arguments.h"
#include "models/levels.h"
#include "models/options.h"
#include "plan/defines.h"

#include "../cl/models/row_args.h"

/* Work-items of a group on a GPU, about; elements that one has in registers,
 * and work-items of a row, at most. */
#define GROUP_ITEMS 128u
#define ITEM_ELEMENTS 32u
#define MOST_TEAM 64u
#define MOST_TEAM_OF_FEW 128u /* where work-items have few registers */
/* Local memory that sums of tokens may take. */
#define MOST_SUM_BYTES 24576u
/* A work-item of a CPU takes so many rows, unless others then had none. */
#define CPU_ROWS 64u
/* Work-items of a group of jobs that share nothing. */
#define FLAT_GROUP 64u

static const struct {
    const char *kernel;
    bool has_team;   /* shares rows between work-items */
    bool has_weight; /* and a bias */
    uint8_t rows;  /* that it reads and writes for each, of the model's type */
    uint8_t bytes; /* besides, of another type */
} jobs[] = {[WA_ROW_NORM] = {"norm_rows", true, true, 2, 0},
            [WA_ROW_NORM_ADD] = {"norm_rows", true, true, 3, 0},
            [WA_ROW_MERGE] = {"merge_patches", false, false, 2, 0},
            [WA_ROW_MERGE_NORM] = {"norm_rows", true, true, 2, 0},
            [WA_ROW_STATISTICS] = {"row_statistics", true, false, 1, 8},
            [WA_ROW_POOL] = {"pool_rows", true, true, 1, 0},
            [WA_ROW_EMBED] = {"embed_patches", false, false, 1, 0}};

/* ---- Shape ---- */

static bool merges(wa_row_job job)
{
    return job == WA_ROW_MERGE || job == WA_ROW_MERGE_NORM;
}

/* A chunk lies in one neighbour, and on a GPU has 16 bytes at most. */
static uint32_t choose_access(const wa_row_desc *desc)
{
    const uint32_t part =
        merges(desc->job) ? desc->row_size / 4 : desc->row_size;
    const uint32_t most = desc->on_cpu || desc->dtype != WINATTN_FP32 ? 8 : 4;
    uint32_t access = part % 8 == 0 ? 8 : part % 4 == 0 ? 4 : 1;
    return access < most ? access : most;
}

static void choose_team(const wa_row_desc *desc, const wa_device *device,
                        wa_row_plan *plan)
{
    const uint32_t chunks = desc->row_size / plan->access;
    const uint32_t most = device->max_work_group;
    const uint32_t most_team =
        device->registers >= 100 ? MOST_TEAM : MOST_TEAM_OF_FEW;
    uint32_t group = GROUP_ITEMS < most ? GROUP_ITEMS : most;
    plan->team = plan->teams = 1;
    if (desc->on_cpu)
        return;
    while (plan->team * 2 <= most_team && plan->team * 2 <= group &&
           plan->team * (ITEM_ELEMENTS / plan->access) < chunks)
        plan->team *= 2;
    plan->teams = group / plan->team;
    while (desc->job == WA_ROW_POOL && plan->teams > 1 &&
           (uint64_t)(plan->teams - 1) * desc->row_size * sizeof(float) >
               MOST_SUM_BYTES)
        plan->teams /= 2;
}

bool wa_row_on_cpu(const wa_session *session, winattn_tier tier)
{
    return tier == WINATTN_TIER_CPU ||
           (tier == WINATTN_TIER_AUTO && wa_session_device(session)->is_cpu);
}

static void write_defines(const wa_row_plan *plan, const wa_device *device,
                          char *text, size_t size)
{
    const wa_row_desc *desc = &plan->desc;
    text[0] = 0;
    wa_append_option(text, size, WA_OPTION(DTYPE), desc->dtype);
    wa_append_option(text, size, WA_OPTION(HAS_FMA), device->has_fma);
    if (desc->job == WA_ROW_EMBED) {
        wa_append_option(text, size, WA_OPTION(PICTURE), desc->picture);
        wa_append_option(text, size, WA_OPTION(PICTURE_CHANNELS),
                         desc->picture_channels);
        wa_append_option(text, size, WA_OPTION(PATCH_HEIGHT), desc->patch[0]);
        wa_append_option(text, size, WA_OPTION(PATCH_WIDTH), desc->patch[1]);
    }
    wa_append_half_vectors(device, desc->dtype, text, size);
    if (desc->job == WA_ROW_EMBED)
        return;
    wa_append_option(text, size, WA_OPTION(ROW_SIZE), desc->row_size);
    wa_append_option(text, size, WA_OPTION(ROW_ACCESS), plan->access);
    if (!jobs[desc->job].has_team)
        return;
    wa_append_option(text, size, WA_OPTION(TEAM), plan->team);
    wa_append_option(text, size, WA_OPTION(TEAMS), plan->teams);
    if (!desc->on_cpu && device->sub_group)
        wa_append_option(text, size, WA_OPTION(SUB_GROUP), device->sub_group);
    if (desc->job != WA_ROW_POOL && desc->job != WA_ROW_STATISTICS) {
        wa_append_option(text, size, WA_OPTION(NEIGHBOURS),
                         desc->job == WA_ROW_MERGE_NORM);
        wa_append_option(text, size, WA_OPTION(ADDS),
                         desc->job == WA_ROW_NORM_ADD);
    }
    if (device->miscompiles_barriers && plan->team * plan->teams > 1)
        wa_append(text, size, "-cl-opt-disable ");
}

const char *wa_row_lay_out(const wa_row_desc *desc, const wa_device *device,
                           wa_row_plan *plan, char *defines, size_t size)
{
    memset(plan, 0, sizeof *plan);
    plan->desc = *desc;
    plan->compute_units = device->compute_units ? device->compute_units : 1;
    plan->access = desc->job != WA_ROW_EMBED ? choose_access(desc)
                   : desc->patch[1] == 4     ? 4
                                             : 1;
    plan->flat_group = device->max_work_group < FLAT_GROUP
                           ? device->max_work_group
                           : FLAT_GROUP;
    choose_team(desc, device, plan);
    write_defines(plan, device, defines, size);
    return jobs[desc->job].kernel;
}

/* ---- Kernels ---- */

/* Rows that do not exist. */
static winattn_status call_first(const void *plan, cl_mem zeros, cl_mem out,
                                 wa_kernel_chain *chain)
{
    const wa_row_call call = {.from.buffer = zeros,
                              .other.buffer = zeros,
                              .weight.buffer = zeros,
                              .bias.buffer = zeros,
                              .to.buffer = out};
    return wa_row_append(plan, &call, chain);
}

winattn_status wa_row_plan_make(wa_session *session, const wa_row_desc *desc,
                                wa_row_plan *plan)
{
    const wa_device *device = wa_session_device(session);
    char defines[WA_DEFINES_SIZE];
    const char *name =
        wa_row_lay_out(desc, device, plan, defines, sizeof defines);
    WA_TRY(wa_session_kernel(session, name, defines,
                             desc->build_options ? desc->build_options : "",
                             &plan->kernel));
    plan->desc.build_options = NULL; /* the caller's memory */
    WA_TRY(wa_session_check_kernel(session, plan->kernel,
                                   plan->team * plan->teams, NULL));
    return wa_keep_kernels(session, &plan->kernel, 1,
                           (size_t)desc->row_size * 4 + 64, call_first, plan);
}

void wa_row_plan_release(wa_row_plan *plan)
{
    if (plan->kernel)
        clReleaseKernel(plan->kernel);
    memset(plan, 0, sizeof *plan);
}

/* ---- Launches ---- */

/* Can all chunks be accessed as such? Rows without gaps start on multiples of
 * a chunk. */
static bool is_aligned(const wa_row_plan *plan, const wa_kernel_chain *chain,
                       const winattn_tensor *const *at, size_t count)
{
    uint32_t bytes = plan->access * wa_element_size(plan->desc.dtype);
    bytes = bytes < 16 ? bytes : 16;
    for (size_t i = 0; i < count; i++)
        if (!wa_is_aligned(at[i], chain->start, bytes))
            return false;
    return plan->access > 1;
}

static winattn_status set_arguments(const wa_row_plan *plan, const void *args,
                                    size_t size,
                                    const winattn_tensor *const *tensors,
                                    size_t count)
{
    WA_TRY(wa_set_arg(plan->kernel, 0, size, args));
    for (size_t i = 0; i < count; i++)
        WA_TRY(wa_set_arg(plan->kernel, (cl_uint)i + 1, sizeof(cl_mem),
                          &tensors[i]->buffer));
    return WINATTN_SUCCESS;
}

/* Rows of a work-group: as many as it has at once, on a CPU more. */
static uint32_t group_rows(const wa_row_plan *plan, uint64_t rows)
{
    if (!plan->desc.on_cpu)
        return plan->teams;
    const uint64_t share = rows / (4ull * plan->compute_units);
    return share < 1 ? 1 : share < CPU_ROWS ? (uint32_t)share : CPU_ROWS;
}

static winattn_status append_norm(const wa_row_plan *plan,
                                  const wa_row_call *call,
                                  wa_kernel_chain *chain)
{
    const bool pools = plan->desc.job == WA_ROW_POOL;
    const bool measures = plan->desc.job == WA_ROW_STATISTICS;
    const bool adds = plan->desc.job == WA_ROW_NORM_ADD;
    const uint32_t size = wa_element_size(plan->desc.dtype);
    const uint32_t stride = call->stride ? call->stride : plan->desc.row_size;
    const winattn_tensor *tensors[5];
    size_t count = 0;
    tensors[count++] = &call->from;
    if (!pools && !measures) /* kernels that add nothing do not read it */
        tensors[count++] = adds ? &call->other : &call->from;
    if (!measures) {
        tensors[count++] = &call->weight;
        tensors[count++] = &call->bias;
    }
    tensors[count++] = &call->to;
    const norm_args args = {
        .rows = call->rows,
        .tokens = call->tokens,
        .from = call->from.offset / size,
        .other = adds ? call->other.offset / size : 0,
        .to = call->to.offset / (measures ? 2 * sizeof(float) : size),
        .weight = call->weight.offset / size,
        .bias = call->bias.offset / size,
        .group_rows = pools ? 1 : group_rows(plan, call->rows),
        .height = call->height,
        .width = call->width,
        .eps = call->eps,
        .flags = is_aligned(plan, chain, tensors, count) &&
                         stride % plan->access == 0
                     ? ROW_ALIGNED
                     : 0,
        .stride = stride};
    const uint64_t groups =
        (call->rows + args.group_rows - 1) / args.group_rows;
    const size_t items = (size_t)plan->team * plan->teams;
    WA_TRY(set_arguments(plan, &args, sizeof args, tensors, count));
    return wa_chain_append(chain, plan->kernel, (groups ? groups : 1) * items,
                           items);
}

static winattn_status append_merge(const wa_row_plan *plan,
                                   const wa_row_call *call,
                                   wa_kernel_chain *chain)
{
    const uint32_t size = wa_element_size(plan->desc.dtype);
    const winattn_tensor *tensors[] = {&call->from, &call->to};
    const merge_args args = {
        .rows = call->rows,
        .from = call->from.offset / size,
        .to = call->to.offset / size,
        .height = call->height,
        .width = call->width,
        .flags = is_aligned(plan, chain, tensors, 2) ? ROW_ALIGNED : 0};
    const uint64_t items = call->rows * (plan->desc.row_size / plan->access);
    WA_TRY(set_arguments(plan, &args, sizeof args, tensors, 2));
    return wa_chain_append(chain, plan->kernel, items ? items : 1,
                           plan->flat_group);
}

static winattn_status append_embed(const wa_row_plan *plan,
                                   const wa_row_call *call,
                                   wa_kernel_chain *chain)
{
    const wa_row_desc *desc = &plan->desc;
    const winattn_tensor *tensors[] = {&call->from, &call->to};
    embed_args args = {
        .items = call->rows * desc->picture_channels * desc->patch[0],
        .from = call->from.offset / (desc->picture == 0 ? 1 : sizeof(float)),
        .to = call->to.offset / wa_element_size(desc->dtype),
        .height = call->height,
        .width = call->width,
        .down = call->down,
        .across = call->across,
        .flags = is_aligned(plan, chain, &tensors[1], 1) ? ROW_ALIGNED : 0};
    memcpy(args.factor, call->factor, sizeof args.factor);
    memcpy(args.shift, call->shift, sizeof args.shift);
    WA_TRY(set_arguments(plan, &args, sizeof args, tensors, 2));
    return wa_chain_append(chain, plan->kernel, args.items ? args.items : 1,
                           plan->flat_group);
}

winattn_status wa_row_append(const wa_row_plan *plan, const wa_row_call *call,
                             wa_kernel_chain *chain)
{
    switch (plan->desc.job) {
    case WA_ROW_MERGE:
        return append_merge(plan, call, chain);
    case WA_ROW_EMBED:
        return append_embed(plan, call, chain);
    default:
        return append_norm(plan, call, chain);
    }
}

uint64_t wa_row_bytes(const wa_row_plan *plan, uint64_t rows)
{
    const wa_row_desc *desc = &plan->desc;
    const uint64_t row =
        (uint64_t)desc->row_size * wa_element_size(desc->dtype);
    uint64_t other = jobs[desc->job].bytes;
    if (desc->job == WA_ROW_EMBED)
        other = (desc->picture == 0 ? 1 : sizeof(float)) * desc->row_size;
    return rows * (jobs[desc->job].rows * row + other) +
           (jobs[desc->job].has_weight ? 2 * row : 0);
}

void wa_row_describe(const wa_row_plan *plan, const char *name, uint64_t rows,
                     char *text, size_t size)
{
    wa_append(text, size, "%s: %s, %u work-items to a row, %u elements each\n",
              name, jobs[plan->desc.job].kernel, plan->team, plan->access);
    wa_append(text, size, "%s bytes: %llu\n", name,
              (unsigned long long)wa_row_bytes(plan, rows));
}
