/* SPDX-License-Identifier: Apache-2.0
 * Work-groups one after the other; of one, its waves in turns of random
 * length and order, until all have ended. */
#include "ptx_code.h"
#include "ptx_races.h"
#include "ptx_unset.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A turn ends after fewer instructions than this. */
#define MOST_OF_TURN 400
/* So many rounds in which waves only look in vain, and they do so for ever. */
#define MOST_IDLE_ROUNDS 100
/* What is at first in registers and in memory: NaNs, as each type reads it. */
#define UNSET 0xff

void ptx_fail(ptx_group *group, const char *format, ...)
{
    if (group->failed)
        return;
    group->failed = true;
    va_list arguments;
    const int start =
        snprintf(group->reason, group->reason_size,
                 "%s, work-group %zu, line %u: ", group->kernel->name,
                 group->number, group->current ? group->current->line : 0);
    va_start(arguments, format);
    if (start >= 0 && (size_t)start < group->reason_size)
        vsnprintf(group->reason + start, group->reason_size - (size_t)start,
                  format, arguments);
    va_end(arguments);
}

static uint32_t draw(ptx_group *group)
{
    group->random =
        group->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(group->random >> 33);
}

/* ---- A wave ---- */

/* Lanes that are furthest behind go on, so that others are caught up with;
 * those that have looked in vain after all others. */
static lane_mask choose_lanes(ptx_wave *wave)
{
    lane_mask ready = wave->alive & ~wave->parked;
    if (ready & ~wave->vain)
        ready &= ~wave->vain;
    else
        wave->vain = 0;
    uint32_t least = UINT32_MAX;
    lane_mask lanes = 0;
    LANE_FOR (ready) {
        if (wave->at[lane] < least) {
            least = wave->at[lane];
            lanes = 0;
        }
        lanes |= (lane_mask)(wave->at[lane] == least) << lane;
    }
    return lanes;
}

static lane_mask guarded(ptx_wave *wave, const ptx_instruction *i,
                         lane_mask lanes)
{
    lane_mask is_true = 0;
    if (i->guard < 0)
        return lanes;
    ptx_unset_guard(wave, i, lanes);
    const uint64_t *guard = register_of(wave, (uint32_t)i->guard);
    LANE_FOR (lanes)
        is_true |= (guard[lane] & 1) << lane;
    return lanes & (i->guard_is_inverse ? ~is_true : is_true);
}

static void execute(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const lane_mask meant = guarded(wave, i, lanes);
    LANE_FOR (lanes)
        wave->at[lane]++;
    if (i->is_branch) {
        LANE_FOR (meant)
            wave->at[lane] = i->target;
    } else if (i->is_end) {
        wave->alive &= ~meant;
    } else if (meant) {
        ptx_unset_spread(wave, i, meant);
        if (ptx_may_run(wave, i, meant))
            i->run(wave, i, meant);
        if (i->is_collective)
            ptx_next_round(wave);
    }
}

/* One instruction; false: the lanes wait for each other in vain. */
static bool step(ptx_wave *wave)
{
    const ptx_code *code = wave->group->kernel->code;
    lane_mask lanes = choose_lanes(wave);
    while (lanes) {
        const uint32_t at = wave->at[first_of(lanes)];
        if (at >= code->instruction_count) {
            wave->alive &= ~lanes;
            return true;
        }
        const ptx_instruction *i = &code->instructions[at];
        wave->group->current = i;
        if (!i->is_collective || lanes == wave->alive) {
            execute(wave, i, lanes);
            return true;
        }
        wave->parked |= lanes;
        lanes = choose_lanes(wave);
    }
    /* all are at collective instructions: hopefully the same */
    wave->parked = 0;
    lanes = choose_lanes(wave);
    if (lanes == wave->alive)
        return true;
    ptx_fail(wave->group, "lanes of a wave wait at different instructions");
    return false;
}

static void take_turn(ptx_wave *wave)
{
    unsigned left = 1 + draw(wave->group) % MOST_OF_TURN;
    wave->yields = false;
    while (left-- > 0 && wave->alive && wave->waits_at < 0 && !wave->yields &&
           !wave->group->failed && step(wave))
        ;
}

/* ---- A work-group ---- */

static void fill(uint64_t *lanes, const ptx_wave *wave,
                 const ptx_constant *constant)
{
    const ptx_group *group = wave->group;
    const uint64_t starts[] = {
        [FILL_NUMBER] = 0,
        [FILL_SHARED] = SHARED_START,
        [FILL_DYNAMIC] =
            SHARED_START + group->shared_bytes - group->launch->dynamic_bytes,
        [FILL_PRIVATE] = PRIVATE_START,
        [FILL_DATA] = (uintptr_t)group->kernel->code->data->bytes,
        [FILL_ITEM] = (uint64_t)wave->number * group->width,
        [FILL_GROUP] = group->number,
        [FILL_ITEMS] = group->launch->items,
        [FILL_GROUPS] = group->launch->groups,
        [FILL_ARGUMENTS] = (uintptr_t)group->launch->parameters};
    const uint64_t start = starts[constant->filling] + constant->number;
    const bool differ = constant->filling == FILL_ITEM;
    for (unsigned lane = 0; lane < group->width; lane++)
        lanes[lane] = start + differ * lane;
}

static void start_wave(ptx_group *group, unsigned number)
{
    const ptx_code *code = group->kernel->code;
    ptx_wave *wave = &group->waves[number];
    const size_t left = group->launch->items - (size_t)number * group->width;
    wave->group = group;
    wave->number = number;
    wave->alive = first_lanes(left < group->width ? left : group->width);
    wave->started = wave->alive;
    wave->parked = wave->vain = 0;
    wave->waits_at = -1;
    wave->polls = false;
    wave->shown = NEVER;
    memset(wave->at, 0, sizeof wave->at);
    memset(wave->registers, UNSET,
           code->register_count * group->width * sizeof *wave->registers);
    memset(wave->in_flight, 0, code->register_count);
    memset(wave->private_memory, UNSET,
           group->width * group->kernel->private_bytes);
    for (size_t i = 0; i < code->constant_count; i++)
        fill(register_of(wave, code->constants[i].reg), wave,
             &code->constants[i]);
    ptx_unset_start(wave);
    wave->product_count = 0;
    wave->box_count = 0;
    wave->acquired_count = 0;
    for (unsigned lane = 0; lane < group->width; lane++)
        wave->copies[lane].count = 0;
}

/* Are all waves that have not ended at the same barrier, or as many as it
 * was told? */
static void open_barriers(ptx_group *group)
{
    for (int b = 0; b < 16; b++) {
        ptx_barrier *barrier = &group->barriers[b];
        if (barrier->arrived == 0 || barrier->arrived < barrier->expected)
            continue;
        if (barrier->arrived > barrier->expected)
            ptx_fail(group, "too many work-items at barrier %d", b);
        barrier->arrived = 0;
        ptx_sync_waves(group, b);
        for (unsigned i = 0; i < group->wave_count; i++)
            if (group->waves[i].waits_at == b)
                group->waves[i].waits_at = -1;
    }
}

static void describe_waiting(ptx_group *group)
{
    char text[512];
    int length = 0;
    for (unsigned i = 0; i < group->wave_count; i++) {
        const ptx_wave *wave = &group->waves[i];
        if (!wave->alive || length < 0 || (size_t)length >= sizeof text - 40)
            continue;
        const uint32_t at = wave->at[first_of(wave->alive)];
        length += snprintf(
            text + length, sizeof text - (size_t)length, " %u: %s %u,", i,
            wave->waits_at >= 0 ? "barrier at line" : "line",
            group->kernel->code
                ->instructions[wave->waits_at >= 0 && at > 0 ? at - 1 : at]
                .line);
    }
    ptx_fail(group, "waves wait for ever:%s", text);
}

/* A turn; true: it is not all about what was looked for in vain before. */
static bool lets_move(ptx_wave *wave)
{
    const bool can_move = wave->alive && wave->waits_at < 0;
    const bool polled = wave->polls;
    wave->moved = false;
    take_turn(wave);
    return can_move && (wave->moved || !polled || !wave->polls);
}

/* One turn of each wave; false: all have ended, or cannot go on. */
static bool go_on(ptx_group *group)
{
    const unsigned count = group->wave_count, first = draw(group) % count;
    const unsigned step = draw(group) % 2 ? 1 : count - 1;
    bool any = false, moved = false;
    for (unsigned i = 0, w = first; i < count; i++, w = (w + step) % count) {
        moved |= lets_move(&group->waves[w]);
        open_barriers(group);
        any |= group->waves[w].alive != 0;
    }
    if (group->failed || !any)
        return false;
    /* copies complete when nothing else can happen, or now and then */
    if (!moved || draw(group) % 16 == 0)
        moved |= ptx_complete_any(group);
    group->idle_rounds = moved ? 0 : group->idle_rounds + 1;
    if (group->idle_rounds < MOST_IDLE_ROUNDS)
        return true;
    describe_waiting(group);
    return false;
}

static void run_group(ptx_group *group, size_t number)
{
    group->number = number;
    group->current = NULL;
    group->idle_rounds = 0;
    memset(group->barriers, 0, sizeof group->barriers);
    memset(group->shared, UNSET, group->shared_bytes);
    memset(group->written, NEVER,
           (group->shared_bytes / 2 + 1) * sizeof *group->written);
    memset(group->writer, 0, group->shared_bytes / 2 + 1);
    group->now = NEVER + 1;
    ptx_races_start(group);
    for (unsigned i = 0; i < group->wave_count; i++)
        start_wave(group, i);
    while (go_on(group))
        ;
    for (unsigned i = 0; i < group->wave_count && !group->failed; i++)
        if (group->waves[i].product_count > 0)
            ptx_fail(group, "a wave ends while it multiplies");
    for (unsigned i = 0; i < group->wave_count && !group->failed; i++)
        if (group->waves[i].box_count > 0)
            ptx_fail(group, "a work-group ends before its boxes come");
}

/* ---- A launch ---- */

static void give_back(ptx_group *group)
{
    for (unsigned i = 0; i < group->wave_count; i++) {
        ptx_wave *wave = &group->waves[i];
        for (size_t n = 0; n < wave->product_count; n++)
            free(wave->products[n].known);
        free(wave->registers);
        free(wave->in_flight);
        free(wave->private_memory);
        free(wave->products);
        free(wave->boxes);
        for (unsigned lane = 0; lane < group->width; lane++)
            free(wave->copies[lane].all);
    }
    ptx_races_free(group->races);
    ptx_global_free(group->global);
    ptx_unset_free(group->unset);
    free(group->shared);
    free(group->written);
    free(group->writer);
    free(group);
}

static bool take_memory(ptx_group *group)
{
    const ptx_kernel *kernel = group->kernel;
    const size_t registers = kernel->code->register_count + 1;
    bool ok = true;
    group->shared = malloc(group->shared_bytes + 1);
    group->written =
        malloc((group->shared_bytes / 2 + 1) * sizeof *group->written);
    group->writer = malloc(group->shared_bytes / 2 + 1);
    group->races = ptx_races_new(group);
    group->global = ptx_global_new(group->launch);
    group->unset = ptx_unset_new(group);
    for (unsigned i = 0; i < group->wave_count; i++) {
        ptx_wave *wave = &group->waves[i];
        wave->registers =
            malloc(registers * group->width * sizeof *wave->registers);
        wave->in_flight = malloc(registers);
        wave->private_memory =
            malloc(group->width * kernel->private_bytes + 1);
        ok = ok && wave->registers && wave->in_flight && wave->private_memory;
    }
    return ok && group->shared && group->written && group->writer &&
           group->races && group->global && group->unset;
}

static size_t shared_bytes(const ptx_kernel *kernel, const ptx_launch *launch)
{
    const size_t align = kernel->dynamic_align ? kernel->dynamic_align : 1;
    return (kernel->shared_bytes + align - 1) / align * align +
           launch->dynamic_bytes;
}

bool ptx_run(const ptx_kernel *kernel, const ptx_launch *launch, char *reason,
             size_t reason_size)
{
    const size_t width = launch->wave_lanes;
    const size_t waves = width ? (launch->items + width - 1) / width : 0;
    if (waves == 0 || waves > MOST_WAVES || width > MOST_LANES ||
        (kernel->required_items && kernel->required_items != launch->items)) {
        snprintf(reason, reason_size, "%s: work-groups of %zu in waves of %zu",
                 kernel->name, launch->items, width);
        return false;
    }
    ptx_group *group = calloc(1, sizeof *group);
    if (!group) {
        snprintf(reason, reason_size, "out of memory");
        return false;
    }
    group->kernel = kernel;
    group->launch = launch;
    group->shared_bytes = shared_bytes(kernel, launch);
    group->wave_count = (unsigned)waves;
    group->width = (unsigned)width;
    group->random = launch->seed * 0x9e3779b97f4a7c15u + 1;
    group->reason = reason;
    group->reason_size = reason_size;
    if (!take_memory(group))
        ptx_fail(group, "out of memory");
    for (size_t i = 0; i < launch->groups && !group->failed; i++)
        run_group(group, i);
    const bool ok = !group->failed;
    give_back(group);
    return ok;
}
