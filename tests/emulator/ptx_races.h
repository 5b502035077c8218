/* SPDX-License-Identifier: Apache-2.0
 * Who may touch which memory when. Every access is stamped with the work-item
 * that makes it and with its wave's epoch, a number that grows whenever the
 * wave synchronizes. A clock says of each work-item up to which epoch its
 * accesses have happened before; an access must know those that it conflicts
 * with.
 *
 * What makes lanes of a wave wait for each other (shfl.sync, mma.sync, ...)
 * does not show to one what another has written: only bar.warp.sync does (PTX
 * ISA, "Memory Consistency Model"). But what a lane has read before is read,
 * as a wave's accesses to local memory are made in order. So epochs come in
 * rounds, which such instructions end.
 *
 * Copies are made by engines, of which each work-item has one, and each
 * barrier in local memory has one for boxes: an engine's accesses are known
 * to who waits for them, not to who asked for them. */
#ifndef TESTS_EMULATOR_PTX_RACES_H
#define TESTS_EMULATOR_PTX_RACES_H

#include "ptx_code.h"

enum { MOST_PART = 32, MOST_PARTS = 64, MOST_MBARRIERS = 256 };

/* Up to which epoch the accesses of each agent are known: of work-items, their
 * engines, barriers' engines. `all`: of each part, to the least of its
 * work-items. */
typedef struct ptx_clock {
    uint32_t all[MOST_PARTS];
    uint32_t of[];
} ptx_clock;

/* What a wave knows. */
typedef struct ptx_knowledge {
    ptx_clock *common;           /* all lanes */
    ptx_clock *lane[MOST_LANES]; /* what some lanes know more */
    lane_mask differ;            /* these */
    uint32_t epoch;
    uint32_t version;            /* of `common` */
    uint32_t copies;             /* number of the last copy */
    uint32_t copied[MOST_LANES]; /* up to which a lane has waited for its */
} ptx_knowledge;

typedef struct ptx_mbarrier {
    uint64_t address;
    ptx_clock *pending, *done; /* of the present phase; of the last ones */
    uint32_t phase;
    const ptx_knowledge *joined; /* whose common clock is in `pending` */
    uint32_t version;            /* ... as it was then */
} ptx_mbarrier;

/* A piece of memory that is always written as a whole. */
typedef struct ptx_cell {
    uint32_t epoch, who, line; /* of the last write */
    uint64_t readers;          /* since: a bit for each part */
} ptx_cell;

/* By a part: when and by which. */
typedef struct ptx_reading {
    uint32_t epoch, lanes;
} ptx_reading;

typedef struct ptx_races {
    uint32_t items, agents;
    /* work-items that follow each other, of one wave unless there are more
     * than MOST_PARTS of them; and how many such parts there are */
    uint32_t part, parts;
    uint32_t base;  /* this work-group's first epoch */
    unsigned shift; /* a cell is 1 << shift bytes */
    ptx_cell *cells;
    ptx_reading *readings; /* [cell][part] */
    ptx_knowledge waves[MOST_WAVES];
    ptx_mbarrier mbarriers[MOST_MBARRIERS];
    unsigned mbarrier_count;
    ptx_clock *joined; /* scratch */
} ptx_races;

enum { ROUND = 16 };

/* Set in `line` of what is a copy of what nobody has set. */
#define IS_UNSET 0x80000000u
/* Set in `who` of what atomic instructions write. */
#define BY_ATOMIC 0x80000000u

/* ---- Clocks: ptx_clocks.c ---- */

ptx_races *ptx_races_new(const ptx_group *group);
void ptx_races_free(ptx_races *races);
void ptx_races_start(ptx_group *group);

/* What a lane knows. */
static inline const ptx_clock *ptx_known(const ptx_knowledge *k, unsigned lane)
{
    return k->differ >> lane & 1 ? k->lane[lane] : k->common;
}
/* A lane's number in clocks. */
static inline uint32_t ptx_agent(const ptx_wave *wave, unsigned lane)
{
    return wave->number * wave->group->width + lane;
}
/* Does a lane know of a later round of the wave of `reader` than an epoch? */
bool ptx_is_round_over(const ptx_wave *wave, unsigned lane, uint32_t reader,
                       uint32_t epoch);
/* Is a write known to a lane? */
bool ptx_is_known(const ptx_wave *wave, unsigned lane, uint32_t who,
                  uint32_t epoch);

/* All lanes of a wave; all waves that wait at a barrier. */
ptx_function run_sync_wave;
void ptx_sync_waves(ptx_group *group, int barrier);
/* A copy begins: its number. */
uint32_t ptx_begin_copy(ptx_wave *wave);
void ptx_await_copy(ptx_wave *wave, unsigned lane, uint32_t number);
/* Barriers in local memory: made; a lane's arrival, of which it is to be told
 * before the barrier is; an arrival after all of its copies so far, when it is
 * asked for; the end of a phase; and lanes that have seen one. */
void ptx_make_mbarrier(ptx_wave *wave, uint64_t address);
void ptx_release(ptx_wave *wave, unsigned lane, uint64_t address);
void ptx_release_copies(ptx_wave *wave, unsigned lane, uint64_t address);
void ptx_end_phase(ptx_group *group, uint64_t address);
void ptx_acquire(ptx_wave *wave, lane_mask lanes, const uint64_t *addresses);
/* What a product knows that is issued now; it is the caller's to free. */
ptx_clock *ptx_snapshot(ptx_wave *wave);
/* The last epoch of a round is as long as it must be. */
void ptx_next_epoch(ptx_wave *wave);
void ptx_next_round(ptx_wave *wave);

/* ---- Local memory: ptx_races.c ---- */

/* True: some of it nobody has written. */
bool ptx_local_read(ptx_wave *wave, unsigned lane, size_t offset,
                    size_t bytes);
/* `changes`: other bytes are there than before. */
void ptx_local_write(ptx_wave *wave, unsigned lane, size_t offset,
                     size_t bytes, bool changes);
void ptx_local_unset(ptx_wave *wave, size_t offset, size_t bytes);
void ptx_local_atomic(ptx_wave *wave, unsigned lane, size_t offset,
                      size_t bytes);
/* Bytes that a copy will write, or a box that a barrier is told of. */
void ptx_copy_writes(ptx_wave *wave, unsigned lane, uint64_t to, size_t bytes,
                     uint32_t number);
void ptx_box_writes(ptx_wave *wave, unsigned lane, uint64_t to, size_t bytes,
                    uint64_t filled);
/* A product of a wave that knew what `known` says reads. */
void ptx_product_reads(ptx_wave *wave, const ptx_clock *known, size_t offset,
                       size_t bytes);
/* An operation at a barrier there: is it made, as far as the lane knows? */
void ptx_mbarrier_used(ptx_wave *wave, unsigned lane, uint64_t address);

/* ---- Global memory: ptx_global.c ---- */

/* NULL: out of memory. */
struct ptx_global *ptx_global_new(const ptx_launch *launch);
void ptx_global_free(struct ptx_global *global);

void ptx_global_read(ptx_wave *wave, unsigned lane, const unsigned char *at,
                     size_t bytes);
void ptx_global_write(ptx_wave *wave, unsigned lane, const unsigned char *at,
                      size_t bytes);
void ptx_global_atomic(ptx_wave *wave, unsigned lane, const unsigned char *at,
                       size_t bytes);

/* ---- Any memory: ptx_memory.c ---- */

/* Whoever resolved the address just before writes. */
void ptx_writes(ptx_wave *wave, unsigned lane, const unsigned char *at,
                size_t bytes, bool changes);

#endif
