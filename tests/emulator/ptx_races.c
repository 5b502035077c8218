/* SPDX-License-Identifier: Apache-2.0
 * Races in local memory: of each cell who wrote it last, and who has read it
 * since. */
#include "ptx_races.h"

/* Who makes an access. */
typedef struct access {
    ptx_wave *wave;
    unsigned lane;
    uint32_t item, epoch;
    const ptx_clock *known;
} access;

static access access_of(ptx_wave *wave, unsigned lane)
{
    const ptx_knowledge *k = &wave->group->races->waves[wave->number];
    return (access){.wave = wave,
                    .lane = lane,
                    .item = ptx_agent(wave, lane),
                    .epoch = k->epoch,
                    .known = ptx_known(k, lane)};
}

/* ---- What is reported ---- */

static const char *agent_name(const ptx_races *r, uint32_t who)
{
    return who & BY_ATOMIC      ? "an atomic of work-item"
           : who < r->items     ? "work-item"
           : who < 2 * r->items ? "a copy of work-item"
                                : "boxes of barrier";
}

static uint32_t agent_number(const ptx_races *r, uint32_t who)
{
    who &= ~BY_ATOMIC;
    return who < 2 * r->items
               ? who % r->items
               : (uint32_t)(r->mbarriers[who - 2 * r->items].address -
                            SHARED_START);
}

static void report_write(const access *a, size_t cell, const char *does)
{
    const ptx_races *r = a->wave->group->races;
    const ptx_cell *c = &r->cells[cell];
    ptx_fail(a->wave->group,
             "work-item %u %s byte %zu of local memory, which %s %u wrote at "
             "line %u: nothing orders these",
             a->item, does, cell << r->shift, agent_name(r, c->who),
             agent_number(r, c->who), c->line & ~IS_UNSET);
}

static void report_reading(const access *a, size_t cell, uint32_t reader)
{
    const ptx_races *r = a->wave->group->races;
    ptx_fail(a->wave->group,
             "work-item %u writes byte %zu of local memory, which work-item "
             "%u may still read: nothing orders these",
             a->item, cell << r->shift, reader);
}

/* ---- Cells ---- */

static bool is_ordered(const access *a, const ptx_cell *c)
{
    const uint32_t who = c->who & ~BY_ATOMIC;
    return who == a->item || c->epoch <= a->known->of[who] ||
           c->epoch < a->wave->group->races->base ||
           ptx_is_known(a->wave, a->lane, who, c->epoch);
}

/* Have all who read it since it was written done so before? */
static bool are_readings_ordered(const access *a, size_t cell)
{
    const ptx_races *r = a->wave->group->races;
    const ptx_reading *readings = &r->readings[cell * r->parts];
    for (uint64_t left = r->cells[cell].readers; left; left &= left - 1) {
        const uint32_t part = (uint32_t)__builtin_ctzll(left);
        const ptx_reading *reading = &readings[part];
        if (reading->epoch <= a->known->all[part])
            continue;
        for (uint32_t lanes = reading->lanes; lanes; lanes &= lanes - 1) {
            const uint32_t reader =
                part * r->part + (uint32_t)__builtin_ctz(lanes);
            if (reader == a->item || a->known->of[reader] >= reading->epoch)
                continue;
            if (ptx_is_round_over(a->wave, a->lane, reader, reading->epoch))
                break;
            report_reading(a, cell, reader);
            return false;
        }
    }
    return true;
}

/* Of readings in several rounds, or that are known to each other, the last is
 * kept; of others all, as if they were of the first one's epoch. */
static void note_reading(ptx_races *r, const access *a, size_t cell)
{
    const uint32_t part = a->item / r->part;
    ptx_reading *reading = &r->readings[cell * r->parts + part];
    if (!(r->cells[cell].readers >> part & 1) ||
        reading->epoch <= a->known->all[part] ||
        reading->epoch / ROUND != a->epoch / ROUND)
        *reading = (ptx_reading){.epoch = a->epoch};
    r->cells[cell].readers |= (uint64_t)1 << part;
    reading->lanes |= 1u << a->item % r->part;
}

/* The cells of so many bytes from `offset` on. */
#define CELL_FOR(races, offset, bytes)                                        \
    for (size_t cell = (offset) >> (races)->shift,                            \
                end_ = ((offset) + (bytes)-1) >> (races)->shift;              \
         cell <= end_; cell++)

/* What other work-groups did: the cell is as if nobody had written it. */
static void forget_others(const ptx_races *r, ptx_cell *c)
{
    if (c->epoch + 1 < r->base)
        *c = (ptx_cell){.epoch = r->base - 1};
}

bool ptx_local_read(ptx_wave *wave, unsigned lane, size_t offset, size_t bytes)
{
    ptx_races *r = wave->group->races;
    const access a = access_of(wave, lane);
    bool unset = false;
    CELL_FOR(r, offset, bytes)
    {
        ptx_cell *c = &r->cells[cell];
        if (c->epoch < r->base) {
            forget_others(r, c);
            unset = true;
        } else if (!is_ordered(&a, c)) {
            report_write(&a, cell, "reads");
        }
        unset |= (c->line & IS_UNSET) != 0;
        note_reading(r, &a, cell);
    }
    return unset;
}

static bool may_write(const access *a, size_t cell, const char *does)
{
    const ptx_races *r = a->wave->group->races;
    ptx_cell *c = &r->cells[cell];
    forget_others(r, c);
    if (!is_ordered(a, c)) {
        report_write(a, cell, does);
        return false;
    }
    return are_readings_ordered(a, cell);
}

static void write(const access *a, size_t offset, size_t bytes, uint32_t who,
                  uint32_t epoch)
{
    ptx_group *group = a->wave->group;
    ptx_races *r = group->races;
    const ptx_cell now = {
        .epoch = epoch, .who = who, .line = group->current->line};
    CELL_FOR(r, offset, bytes)
    if (may_write(a, cell, "writes"))
        r->cells[cell] = now;
}

/* Work-items may write the same in the same instruction: a flag that several
 * waves raise. */
static bool is_repeated(const access *a, size_t offset, size_t bytes)
{
    const ptx_races *r = a->wave->group->races;
    const uint32_t line = a->wave->group->current->line;
    bool all = true;
    CELL_FOR(r, offset, bytes)
    all = all && r->cells[cell].epoch >= r->base &&
          r->cells[cell].line == line; /* and it was set */
    return all;
}

void ptx_local_write(ptx_wave *wave, unsigned lane, size_t offset,
                     size_t bytes, bool changes)
{
    const access a = access_of(wave, lane);
    if (changes || !is_repeated(&a, offset, bytes))
        write(&a, offset, bytes, a.item, a.epoch);
}

void ptx_local_unset(ptx_wave *wave, size_t offset, size_t bytes)
{
    ptx_races *r = wave->group->races;
    CELL_FOR(r, offset, bytes)
    r->cells[cell].line |= IS_UNSET;
}

/* Atomics do not race with each other. They are noted as readers, too, so
 * that who writes there must know all of them; who reads, only the last. */
void ptx_local_atomic(ptx_wave *wave, unsigned lane, size_t offset,
                      size_t bytes)
{
    ptx_races *r = wave->group->races;
    const access a = access_of(wave, lane);
    CELL_FOR(r, offset, bytes)
    {
        ptx_cell *c = &r->cells[cell];
        const bool follows = c->epoch >= r->base && (c->who & BY_ATOMIC);
        if (!follows && !may_write(&a, cell, "changes"))
            return;
        *c = (ptx_cell){.epoch = a.epoch,
                        .who = a.item | BY_ATOMIC,
                        .line = wave->group->current->line,
                        .readers = follows ? c->readers : 0};
        note_reading(r, &a, cell);
    }
}

/* ---- Engines ---- */

void ptx_copy_writes(ptx_wave *wave, unsigned lane, uint64_t to, size_t bytes,
                     uint32_t number)
{
    const access a = access_of(wave, lane);
    write(&a, (size_t)(to - SHARED_START), bytes,
          wave->group->races->items + a.item, number);
}

void ptx_box_writes(ptx_wave *wave, unsigned lane, uint64_t to, size_t bytes,
                    uint64_t filled)
{
    const ptx_races *r = wave->group->races;
    const access a = access_of(wave, lane);
    for (unsigned m = 0; m < r->mbarrier_count; m++)
        if (r->mbarriers[m].address == (uint32_t)filled)
            write(&a, (size_t)(to - SHARED_START), bytes, 2 * r->items + m,
                  r->mbarriers[m].phase);
}

void ptx_product_reads(ptx_wave *wave, const ptx_clock *known, size_t offset,
                       size_t bytes)
{
    ptx_races *r = wave->group->races;
    const access a = access_of(wave, 0);
    CELL_FOR(r, offset, bytes)
    {
        const ptx_cell *c = &r->cells[cell];
        if (known->of[c->who & ~BY_ATOMIC] < c->epoch)
            report_write(&a, cell, "multiplies");
        note_reading(r, &a, cell);
    }
}

void ptx_mbarrier_used(ptx_wave *wave, unsigned lane, uint64_t address)
{
    const ptx_races *r = wave->group->races;
    const access a = access_of(wave, lane);
    const size_t cell = (size_t)(address - SHARED_START) >> r->shift;
    if (address >= SHARED_START &&
        address - SHARED_START < wave->group->shared_bytes &&
        !is_ordered(&a, &r->cells[cell]))
        report_write(&a, cell, "uses a barrier at");
}
