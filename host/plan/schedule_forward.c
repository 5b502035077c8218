/* SPDX-License-Identifier: Apache-2.0
 * The forward pass: work tiles of a launch, and work-groups that iterate over
 * windows. */
#include "plan/schedule.h"

#include "device/matrix_unit.h"
#include "plan/defines.h"
#include "plan/family.h"

/* Of a launch, whatever its kernel. */
#define MOST_ITEMS 2147483647.0

static double speed_of(const wa_problem *problem, const wa_device *device,
                       const wa_plan *plan)
{
    if (plan->family->speed == 0)
        return 1.0;
    /* channels that there are not are multiplied as well */
    const uint32_t tile = device->matrix_unit->tile;
    const uint32_t dims = wa_ceil_div(problem->head_dim, tile) * tile;
    return plan->family->speed * problem->head_dim / dims;
}

/* A desktop GPU resets a kernel after about two seconds, and it must draw in
 * between: aim at a tenth of a second on a device that reaches a twentieth of
 * its fp32 peak, assuming 16 FMA lanes per compute unit where nothing better
 * is known. A launch also stays below 2^31 work-items. */
double wa_launch_operations(const wa_problem *problem, const wa_device *device,
                            const wa_plan *plan)
{
    const double lanes = device->is_cpu                       ? 16.0
                         : device->vendor == WA_VENDOR_NVIDIA ? 128.0
                         : device->vendor == WA_VENDOR_AMD    ? 64.0
                                                              : 16.0;
    const double clock = (device->clock_mhz ? device->clock_mhz : 500) * 1e6;
    const double rate = device->compute_units * lanes * 2.0 * clock / 20.0;
    return 0.1 * rate * speed_of(problem, device, plan);
}

static uint32_t work_tiles_per_launch(const wa_problem *problem,
                                      const wa_device *device,
                                      const wa_plan *plan)
{
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const uint32_t per_group = plan->schedule.work_tiles_per_group;
    const double operations =
        wa_problem_row_operations(problem) * step->block_rows;
    const double by_time =
        wa_launch_operations(problem, device, plan) / operations;
    const double by_items = MOST_ITEMS / step->work_group * per_group / 2.0;
    double most = by_time < by_items ? by_time : by_items;
    /* enough for every compute unit to be busy */
    const double least = 4.0 * device->compute_units * per_group;
    most = most > least ? most : least;
    return most < 1e9 ? (uint32_t)most : 1000000000u;
}

/* Work-groups that share head blocks, of which there are then so few that
 * their rounds are less than 2^32 (cl/matrix/persistent.cl). */
#define MOST_SHARING 65535u

/* Work-groups, as many as the device holds at once, share the windows of the
 * blocks of rows of the heads, the head blocks. Each has one head block,
 * unless more than a tenth would idle then: to go on to another takes
 * registers, which cost a twentieth of the time on an H200. Each has a round
 * (cl/matrix/tile_scheduler.cl) of a launch at least, and all have as many
 * where a launch holds that many. */
void wa_share_windows(const wa_problem *problem, const wa_device *device,
                      uint32_t resident, wa_plan *plan)
{
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_schedule *s = &plan->schedule;
    const uint64_t head_blocks =
        (uint64_t)wa_ceil_div(problem->queries, step->block_rows) *
        problem->heads;
    const uint64_t compute_units =
        device->compute_units ? device->compute_units : 1;
    const uint64_t all = compute_units * resident;
    const uint64_t held = all < MOST_SHARING ? all : MOST_SHARING;
    const uint64_t turns = (head_blocks + held - 1) / held;
    const uint64_t splits = held > head_blocks ? held / head_blocks : 1;
    s->persistent_multi_block = 10 * splits * head_blocks < 9 * turns * held;
    s->groups =
        (uint32_t)(s->persistent_multi_block ? held : splits * head_blocks);
    wa_step_switch(step, WA_SWITCH(PERSISTENT_MULTI_BLOCK),
                   s->persistent_multi_block);
}

/* The windows of a launch, and no more work-groups than those need. */
static void schedule_windows(const wa_problem *problem, wa_schedule *s)
{
    const uint64_t head_blocks = (uint64_t)s->row_blocks * problem->heads;
    const uint64_t windows_per_group = s->work_tiles_per_group;
    uint64_t groups = s->groups;
    const uint64_t even =
        s->persistent_multi_block ? groups : groups / head_blocks;
    const uint64_t wanted =
        (problem->windows + windows_per_group - 1) / windows_per_group;
    uint64_t rounds =
        s->work_tiles_per_launch / (head_blocks * windows_per_group);
    if (rounds * head_blocks < groups)
        rounds = (groups + head_blocks - 1) / head_blocks;
    if (rounds > even)
        rounds -= rounds % even;
    s->windows_per_launch = (uint32_t)(rounds * windows_per_group);
    rounds = rounds < wanted ? rounds : wanted;
    groups = groups < rounds * head_blocks ? groups : rounds * head_blocks;
    s->groups = groups ? (uint32_t)groups : 1;
}

void wa_schedule_forward(const wa_problem *problem, const wa_device *device,
                         wa_plan *plan)
{
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    plan->schedule.row_blocks =
        wa_ceil_div(problem->queries, step->block_rows);
    plan->schedule.work_tiles_per_launch =
        work_tiles_per_launch(problem, device, plan);
    if (plan->schedule.groups)
        schedule_windows(problem, &plan->schedule);
    if (plan->step[WA_STEP_EXPAND].kernel)
        plan->workspace.dense = plan->workspace.all =
            (wa_problem_dense_bias_bytes(problem) + 15) / 16 * 16;
}
