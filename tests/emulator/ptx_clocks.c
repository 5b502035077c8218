/* SPDX-License-Identifier: Apache-2.0
 * Clocks: what happened before what, by barriers and waits. */
#include "ptx_races.h"

#include <stdlib.h>

/* Engines' numbers in clocks. */
static uint32_t engine_of(const ptx_races *r, uint32_t item)
{
    return r->items + item;
}
static uint32_t engine_at(const ptx_races *r, const ptx_mbarrier *m)
{
    return 2 * r->items + (uint32_t)(m - r->mbarriers);
}

/* ---- Clocks ---- */

static size_t clock_bytes(const ptx_races *r)
{
    return sizeof(ptx_clock) + r->agents * sizeof(uint32_t);
}

static void join(const ptx_races *r, ptx_clock *to, const ptx_clock *from)
{
    for (uint32_t i = 0; i < r->parts; i++)
        to->all[i] = to->all[i] > from->all[i] ? to->all[i] : from->all[i];
    for (uint32_t i = 0; i < r->agents; i++)
        to->of[i] = to->of[i] > from->of[i] ? to->of[i] : from->of[i];
}

/* Finds `all` anew. */
static void settle(const ptx_races *r, ptx_clock *clock)
{
    for (uint32_t part = 0; part < r->parts; part++) {
        uint32_t least = UINT32_MAX;
        for (uint32_t i = part * r->part;
             i < (part + 1) * r->part && i < r->items; i++)
            least = clock->of[i] < least ? clock->of[i] : least;
        clock->all[part] = least;
    }
}

static void reset(const ptx_races *r, ptx_clock *clock)
{
    for (uint32_t i = 0; i < r->parts; i++)
        clock->all[i] = r->base - 1;
    for (uint32_t i = 0; i < r->agents; i++)
        clock->of[i] = r->base - 1;
}

/* A lane's own accesses, and copies that it has waited for. */
static void add_own(const ptx_wave *wave, unsigned lane, ptx_clock *to)
{
    const ptx_races *r = wave->group->races;
    const ptx_knowledge *k = &r->waves[wave->number];
    const uint32_t item = ptx_agent(wave, lane);
    to->of[item] = k->epoch;
    if (to->of[engine_of(r, item)] < k->copied[lane])
        to->of[engine_of(r, item)] = k->copied[lane];
}

bool ptx_is_known(const ptx_wave *wave, unsigned lane, uint32_t who,
                  uint32_t epoch)
{
    const ptx_races *r = wave->group->races;
    const ptx_knowledge *k = &r->waves[wave->number];
    const uint32_t item = ptx_agent(wave, lane);
    return who == item || ptx_known(k, lane)->of[who] >= epoch ||
           (who == engine_of(r, item) && k->copied[lane] >= epoch);
}

bool ptx_is_round_over(const ptx_wave *wave, unsigned lane, uint32_t reader,
                       uint32_t epoch)
{
    const uint32_t width = wave->group->width, first = reader / width * width;
    const ptx_knowledge *k = &wave->group->races->waves[wave->number];
    const uint32_t *of = ptx_known(k, lane)->of + first;
    uint32_t most = reader / width == wave->number ? k->epoch : 0;
    for (uint32_t i = 0; i < width; i++)
        most = of[i] > most ? of[i] : most;
    return most / ROUND > epoch / ROUND;
}

void ptx_next_epoch(ptx_wave *wave)
{
    ptx_knowledge *k = &wave->group->races->waves[wave->number];
    if (k->epoch % ROUND < ROUND - 1)
        k->epoch++;
}

void ptx_next_round(ptx_wave *wave)
{
    ptx_knowledge *k = &wave->group->races->waves[wave->number];
    k->epoch += ROUND - k->epoch % ROUND;
}

/* ---- Memory ---- */

static unsigned cell_shift(const ptx_code *code)
{
    unsigned bytes = 4;
    for (size_t n = 0; n < code->instruction_count; n++) {
        const ptx_instruction *i = &code->instructions[n];
        if (i->run == run_store_matrices && bytes > 2)
            bytes = 2;
        if ((i->run == run_store || i->run == run_atomic) &&
            i->width.bits / 8 < bytes)
            bytes = i->width.bits / 8;
    }
    return bytes >= 4 ? 2 : bytes == 2 ? 1 : 0;
}

ptx_races *ptx_races_new(const ptx_group *group)
{
    ptx_races *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->items = group->wave_count * group->width;
    r->part = group->width < MOST_PART ? group->width : MOST_PART;
    while (r->part * MOST_PARTS < r->items)
        r->part *= 2;
    r->parts = (r->items + r->part - 1) / r->part;
    r->agents = 2 * r->items + MOST_MBARRIERS;
    r->shift = cell_shift(group->kernel->code);
    const size_t cells = (group->shared_bytes >> r->shift) + 1;
    r->cells = calloc(cells, sizeof *r->cells);
    r->readings = calloc(cells * r->parts, sizeof *r->readings);
    r->joined = malloc(clock_bytes(r));
    bool ok = r->cells && r->readings && r->joined;
    for (unsigned w = 0; w < group->wave_count; w++) {
        r->waves[w].common = malloc(clock_bytes(r));
        ok = ok && r->waves[w].common;
    }
    if (ok)
        return r;
    ptx_races_free(r);
    return NULL;
}

void ptx_races_free(ptx_races *r)
{
    for (unsigned w = 0; r && w < MOST_WAVES; w++) {
        free(r->waves[w].common);
        for (unsigned lane = 0; lane < MOST_LANES; lane++)
            free(r->waves[w].lane[lane]);
    }
    for (unsigned m = 0; r && m < MOST_MBARRIERS; m++) {
        free(r->mbarriers[m].pending);
        free(r->mbarriers[m].done);
    }
    if (r) {
        free(r->cells);
        free(r->readings);
        free(r->joined);
    }
    free(r);
}

/* All that other work-groups did has smaller epochs than this one's. */
void ptx_races_start(ptx_group *group)
{
    ptx_races *r = group->races;
    uint32_t last = r->base;
    for (unsigned w = 0; w < group->wave_count; w++) {
        const ptx_knowledge *k = &r->waves[w];
        last = k->epoch > last ? k->epoch : last;
        last = k->copies > last ? k->copies : last;
    }
    for (unsigned m = 0; m < r->mbarrier_count; m++)
        if (r->mbarriers[m].phase > last)
            last = r->mbarriers[m].phase;
    r->base = (last / ROUND + 1) * ROUND;
    r->mbarrier_count = 0;
    for (unsigned w = 0; w < group->wave_count; w++) {
        ptx_knowledge *k = &r->waves[w];
        k->epoch = r->base;
        k->copies = r->base - 1;
        k->differ = 0;
        k->version++;
        reset(r, k->common);
        for (unsigned lane = 0; lane < MOST_LANES; lane++)
            k->copied[lane] = r->base - 1;
    }
}

/* ---- Waves ---- */

/* What all lanes know, and that they know it of each other. */
static void gather(ptx_wave *wave, ptx_clock *to)
{
    const ptx_races *r = wave->group->races;
    const ptx_knowledge *k = &r->waves[wave->number];
    LANE_FOR (k->differ)
        join(r, to, k->lane[lane]);
    LANE_FOR (first_lanes(wave->group->width))
        add_own(wave, lane, to);
    const uint32_t first = ptx_agent(wave, 0) / r->part;
    for (uint32_t n = 0; n * r->part < wave->group->width; n++)
        to->all[first + n] = k->epoch;
    if (r->part > wave->group->width) /* other waves have some of it */
        settle(r, to);
}

/* The mask is of all lanes, see is_collective. */
void run_sync_wave(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    (void)i;
    (void)lanes;
    ptx_knowledge *k = &wave->group->races->waves[wave->number];
    gather(wave, k->common);
    k->differ = 0;
    k->version++;
    ptx_next_round(wave);
}

void ptx_sync_waves(ptx_group *group, int barrier)
{
    ptx_races *r = group->races;
    reset(r, r->joined);
    for (unsigned w = 0; w < group->wave_count; w++)
        if (group->waves[w].waits_at == barrier) {
            join(r, r->joined, r->waves[w].common);
            gather(&group->waves[w], r->joined);
        }
    for (unsigned w = 0; w < group->wave_count; w++)
        if (group->waves[w].waits_at == barrier) {
            ptx_knowledge *k = &r->waves[w];
            memcpy(k->common, r->joined, clock_bytes(r));
            k->differ = 0;
            k->version++;
            ptx_next_round(&group->waves[w]);
        }
}

/* ---- Copies ---- */

uint32_t ptx_begin_copy(ptx_wave *wave)
{
    return ++wave->group->races->waves[wave->number].copies;
}

void ptx_await_copy(ptx_wave *wave, unsigned lane, uint32_t number)
{
    wave->group->races->waves[wave->number].copied[lane] = number;
}

/* ---- Barriers in local memory ---- */

static ptx_mbarrier *find(ptx_group *group, uint64_t address)
{
    ptx_races *r = group->races;
    for (unsigned m = 0; m < r->mbarrier_count; m++)
        if (r->mbarriers[m].address == (uint32_t)address)
            return &r->mbarriers[m];
    return NULL;
}

void ptx_make_mbarrier(ptx_wave *wave, uint64_t address)
{
    ptx_races *r = wave->group->races;
    ptx_mbarrier *m = find(wave->group, address);
    if (!m && r->mbarrier_count == MOST_MBARRIERS) {
        ptx_fail(wave->group, "too many barriers");
        return;
    }
    if (!m)
        m = &r->mbarriers[r->mbarrier_count++];
    if (!m->pending) {
        m->pending = malloc(clock_bytes(r));
        m->done = malloc(clock_bytes(r));
    }
    if (!m->pending || !m->done) {
        ptx_fail(wave->group, "out of memory");
        return;
    }
    m->address = (uint32_t)address;
    m->phase = r->base;
    m->joined = NULL;
    reset(r, m->pending);
    reset(r, m->done);
}

void ptx_release(ptx_wave *wave, unsigned lane, uint64_t address)
{
    const ptx_races *r = wave->group->races;
    const ptx_knowledge *k = &r->waves[wave->number];
    ptx_mbarrier *m = find(wave->group, address);
    if (!m)
        return; /* which fails */
    if (k->differ >> lane & 1) {
        join(r, m->pending, k->lane[lane]);
    } else if (m->joined != k || m->version != k->version) {
        join(r, m->pending, k->common);
        m->joined = k;
        m->version = k->version;
    }
    add_own(wave, lane, m->pending);
}

/* The phase cannot end before these copies have. */
void ptx_release_copies(ptx_wave *wave, unsigned lane, uint64_t address)
{
    const ptx_races *r = wave->group->races;
    const uint32_t copies = r->waves[wave->number].copies;
    ptx_mbarrier *m = find(wave->group, address);
    if (!m)
        return;
    ptx_release(wave, lane, address);
    m->pending->of[engine_of(r, ptx_agent(wave, lane))] = copies;
}

void ptx_end_phase(ptx_group *group, uint64_t address)
{
    const ptx_races *r = group->races;
    ptx_mbarrier *m = find(group, address);
    if (!m)
        return;
    m->pending->of[engine_at(r, m)] = m->phase++;
    settle(r, m->pending);
    join(r, m->done, m->pending);
}

/* Lanes that know more than others have a clock of their own. */
static void learn(ptx_wave *wave, unsigned lane, const ptx_clock *what)
{
    const ptx_races *r = wave->group->races;
    ptx_knowledge *k = &wave->group->races->waves[wave->number];
    if (!k->lane[lane])
        k->lane[lane] = malloc(clock_bytes(r));
    if (!k->lane[lane]) {
        ptx_fail(wave->group, "out of memory");
        return;
    }
    if (!(k->differ >> lane & 1))
        memcpy(k->lane[lane], k->common, clock_bytes(r));
    k->differ |= (lane_mask)1 << lane;
    join(r, k->lane[lane], what);
}

void ptx_acquire(ptx_wave *wave, lane_mask lanes, const uint64_t *addresses)
{
    const ptx_races *r = wave->group->races;
    ptx_knowledge *k = &wave->group->races->waves[wave->number];
    const uint64_t address = addresses[first_of(lanes)];
    const ptx_mbarrier *common = find(wave->group, address);
    LANE_FOR (lanes)
        if (addresses[lane] != address)
            common = NULL;
    if (common && lanes == wave->alive) {
        join(r, k->common, common->done);
        LANE_FOR (k->differ)
            join(r, k->lane[lane], common->done);
        k->version++;
        return;
    }
    LANE_FOR (lanes) {
        const ptx_mbarrier *m = find(wave->group, addresses[lane]);
        if (m)
            learn(wave, lane, m->done);
    }
}

/* ---- Products ---- */

ptx_clock *ptx_snapshot(ptx_wave *wave)
{
    const ptx_races *r = wave->group->races;
    ptx_clock *made = malloc(clock_bytes(r));
    if (!made) {
        ptx_fail(wave->group, "out of memory");
        return NULL;
    }
    memcpy(made, r->waves[wave->number].common, clock_bytes(r));
    gather(wave, made);
    ptx_next_epoch(wave);
    return made;
}
