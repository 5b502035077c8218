/* SPDX-License-Identifier: Apache-2.0
 * Races in global memory: of each cell who wrote it last, and who has read it
 * last. Work-groups run one after the other here, each in epochs of its own
 * (ptx_races.h), so an epoch says whether it was this one. */
#include "ptx_races.h"

#include <stdlib.h>

/* Set in `reader` of what several work-groups have read. */
#define BY_SEVERAL 0x80000000u

typedef struct cell {
    uint32_t epoch, who, line; /* of the last write; epoch 0: of none */
    uint32_t read, reader;     /* when, and by whom */
} cell;

/* Memory of one buffer or several that overlap. */
typedef struct region {
    const unsigned char *start, *end;
    cell *cells; /* NULL: nobody has touched it */
} region;

typedef struct ptx_global {
    region *regions;
    size_t count, recent;
} ptx_global;

static int by_start(const void *a, const void *b)
{
    const region *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

struct ptx_global *ptx_global_new(const ptx_launch *launch)
{
    ptx_global *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->regions = calloc(launch->range_count + 1, sizeof *made->regions);
    if (!made->regions) {
        free(made);
        return NULL;
    }
    for (size_t n = 0; n < launch->range_count; n++)
        made->regions[n] =
            (region){.start = launch->ranges[n].start,
                     .end = launch->ranges[n].start + launch->ranges[n].bytes};
    qsort(made->regions, launch->range_count, sizeof *made->regions, by_start);
    for (size_t n = 0; n < launch->range_count; n++) {
        const region next = made->regions[n];
        region *last = made->count ? &made->regions[made->count - 1] : NULL;
        if (last && next.start < last->end)
            last->end = next.end > last->end ? next.end : last->end;
        else
            made->regions[made->count++] = next;
    }
    return made;
}

void ptx_global_free(struct ptx_global *global)
{
    for (size_t n = 0; global && n < global->count; n++)
        free(global->regions[n].cells);
    if (global)
        free(global->regions);
    free(global);
}

/* ---- Cells ---- */

/* Of what is in buffers, as whoever resolved the address has found. Buffers
 * start at multiples of a cell's size or share their first cell with nobody.
 */
static region *find(ptx_wave *wave, const unsigned char *at)
{
    ptx_global *global = wave->group->global;
    region *r = &global->regions[global->recent];
    for (size_t n = 0; n < global->count && (at < r->start || at >= r->end);
         n++)
        r = &global->regions[global->recent = n];
    if (r->cells)
        return r;
    const unsigned shift = wave->group->races->shift;
    r->cells =
        calloc(((size_t)(r->end - r->start) >> shift) + 2, sizeof *r->cells);
    if (r->cells)
        return r;
    ptx_fail(wave->group, "out of memory");
    return NULL;
}

/* `c` is the cell, `address` where it is. */
#define CELL_FOR(wave, at, bytes)                                             \
    const unsigned shift = (wave)->group->races->shift;                       \
    region *const in = find(wave, at);                                        \
    const size_t first = in ? (size_t)((at)-in->start) >> shift : 0;          \
    const size_t end =                                                        \
        in ? (((size_t)((at)-in->start) + (bytes)-1) >> shift) + 1 : 0;       \
    for (size_t n = first; n < end; n++)                                      \
        for (cell *c = &in->cells[n], *once = c; once; once = NULL)

static void report(ptx_wave *wave, unsigned lane, const char *does,
                   const region *in, const cell *c)
{
    const ptx_races *r = wave->group->races;
    const size_t offset = (size_t)(c - in->cells) << r->shift;
    const uint32_t item = ptx_agent(wave, lane);
    const uint32_t who = c->who & ~BY_ATOMIC;
    if (c->epoch < r->base)
        ptx_fail(wave->group,
                 "work-item %u %s byte %zu of a buffer, which another "
                 "work-group%s wrote at line %u",
                 item, does, offset, c->who & BY_ATOMIC ? "'s atomic" : "",
                 c->line);
    else
        ptx_fail(wave->group,
                 "work-item %u %s byte %zu of a buffer, which work-item %u "
                 "wrote at line %u: nothing orders these",
                 item, does, offset, who, c->line);
}

static bool is_ordered(const ptx_wave *wave, unsigned lane, const cell *c)
{
    return c->epoch == 0 ||
           (c->epoch >= wave->group->races->base &&
            ptx_is_known(wave, lane, c->who & ~BY_ATOMIC, c->epoch));
}

static bool may_write(ptx_wave *wave, unsigned lane, const char *does,
                      const region *in, const cell *c)
{
    const ptx_races *r = wave->group->races;
    if (!is_ordered(wave, lane, c)) {
        report(wave, lane, does, in, c);
        return false;
    }
    if (c->read == 0 || (!(c->reader & BY_SEVERAL) && c->read >= r->base &&
                         (ptx_is_known(wave, lane, c->reader, c->read) ||
                          ptx_is_round_over(wave, lane, c->reader, c->read))))
        return true;
    const uint32_t item = ptx_agent(wave, lane);
    const size_t offset = (size_t)(c - in->cells) << r->shift;
    if (c->read < r->base || (c->reader & BY_SEVERAL))
        ptx_fail(wave->group,
                 "work-item %u %s byte %zu of a buffer, which another "
                 "work-group reads",
                 item, does, offset);
    else
        ptx_fail(
            wave->group,
            "work-item %u %s byte %zu of a buffer, which work-item %u may "
            "still read: nothing orders these",
            item, does, offset, c->reader);
    return false;
}

/* ---- Accesses ---- */

void ptx_global_read(ptx_wave *wave, unsigned lane, const unsigned char *at,
                     size_t bytes)
{
    const ptx_races *r = wave->group->races;
    const uint32_t epoch = r->waves[wave->number].epoch;
    const uint32_t item = ptx_agent(wave, lane);
    CELL_FOR(wave, at, bytes)
    {
        if (!is_ordered(wave, lane, c))
            report(wave, lane, "reads", in, c);
        const bool by_others = c->read != 0 && c->read < r->base;
        c->reader =
            item | (c->reader & BY_SEVERAL) | (by_others ? BY_SEVERAL : 0);
        c->read = epoch;
    }
}

void ptx_global_write(ptx_wave *wave, unsigned lane, const unsigned char *at,
                      size_t bytes)
{
    const ptx_races *r = wave->group->races;
    const cell now = {.epoch = r->waves[wave->number].epoch,
                      .who = ptx_agent(wave, lane),
                      .line = wave->group->current->line};
    CELL_FOR(wave, at, bytes)
    if (may_write(wave, lane, "writes", in, c))
        *c = now;
}

void ptx_global_atomic(ptx_wave *wave, unsigned lane, const unsigned char *at,
                       size_t bytes)
{
    const ptx_races *r = wave->group->races;
    CELL_FOR(wave, at, bytes)
    {
        const bool follows = c->epoch != 0 && (c->who & BY_ATOMIC);
        if (!follows && !may_write(wave, lane, "changes", in, c))
            return;
        c->epoch = r->waves[wave->number].epoch;
        c->who = ptx_agent(wave, lane) | BY_ATOMIC;
        c->line = wave->group->current->line;
    }
}
