/* SPDX-License-Identifier: Apache-2.0
 * What lanes of a wave do together, and waves of a work-group. */
#include "ptx_code.h"
#include "ptx_races.h"

void run_nothing(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    (void)wave;
    (void)i;
    (void)lanes;
}

/* ---- Barriers ---- */

/* Number, and for how many work-items. */
void run_barrier(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    ptx_group *group = wave->group;
    const unsigned lane = first_of(lanes);
    const uint64_t number = lanes_of(wave, i, 0)[lane];
    unsigned count = group->wave_count * group->width;
    if (i->operand_count > 1)
        count = (unsigned)lanes_of(wave, i, 1)[lane];
    if (number >= 16 || count == 0 || count % group->width) {
        ptx_fail(group, "barrier %llu of %u work-items",
                 (unsigned long long)number, count);
        return;
    }
    if (i->operand_count == 1 && wave->alive != wave->started)
        ptx_fail(group, "a barrier of all, but work-item %u has ended",
                 wave->number * group->width +
                     first_of(wave->started & ~wave->alive));
    ptx_barrier *barrier = &group->barriers[number];
    if (barrier->arrived > 0 && barrier->expected != count)
        ptx_fail(group, "barrier %llu of %u and of %u work-items",
                 (unsigned long long)number, barrier->expected, count);
    barrier->expected = count;
    barrier->arrived += group->width;
    wave->waits_at = (int)number;
}

/* One in local memory is a word: a mark that it is one, the phase's parity,
 * how many arrivals end a phase, how many are missing, and how many bytes. */
#define MARK ((uint64_t)0x5a5)
#define MOST_ARRIVALS 0xffff
#define MOST_BYTES 0xfffff
#define WORD(parity, all, missing)                                            \
    (MARK << 53 | (uint64_t)(parity) << 52 | (uint64_t)(all) << 36 |          \
     (uint64_t)(missing) << 20)
#define PARITY(word) ((word) >> 52 & 1)
#define ALL(word) ((word) >> 36 & MOST_ARRIVALS)
#define MISSING(word) ((word) >> 20 & MOST_ARRIVALS)
#define BYTES(word) ((word)&MOST_BYTES)

void run_barrier_make(ptx_wave *wave, const ptx_instruction *i,
                      lane_mask lanes)
{
    LANE_FOR (lanes) {
        const uint64_t count = cut(lanes_of(wave, i, 1)[lane], 32);
        const uint64_t word = WORD(0, count, count);
        unsigned char *at = ptx_resolve(wave, SPACE_SHARED,
                                        address_of(wave, i, 0, lane), 8, lane);
        if (count == 0 || count > MOST_ARRIVALS)
            ptx_fail(wave->group, "a barrier of %llu arrivals",
                     (unsigned long long)count);
        if (!at)
            return;
        memcpy(at, &word, sizeof word);
        ptx_local_write(wave, lane, (size_t)(at - wave->group->shared),
                        sizeof word, true);
        ptx_make_mbarrier(wave, address_of(wave, i, 0, lane));
    }
}

/* Where it is, and its word; NULL: there is none. */
static unsigned char *find_barrier(ptx_group *group, uint64_t address,
                                   uint64_t *word)
{
    unsigned char *at = ptx_shared(group, address, sizeof *word);
    if (!at)
        return NULL;
    memcpy(word, at, sizeof *word);
    if (address % 8 == 0 && *word >> 53 == MARK)
        return at;
    ptx_fail(group, "no barrier at %#llx", (unsigned long long)address);
    return NULL;
}

/* A phase ends when nothing is missing. */
static void keep_barrier(ptx_group *group, uint64_t address, unsigned char *at,
                         uint64_t word)
{
    if (MISSING(word) == 0 && BYTES(word) == 0) {
        word = WORD(!PARITY(word), ALL(word), ALL(word));
        ptx_end_phase(group, address);
    }
    memcpy(at, &word, sizeof word);
}

void ptx_arrive(ptx_group *group, uint64_t address)
{
    uint64_t word;
    unsigned char *at = find_barrier(group, address, &word);
    if (!at)
        return;
    if (MISSING(word) == 0) {
        ptx_fail(group, "too many arrivals at %#llx",
                 (unsigned long long)address);
        return;
    }
    keep_barrier(group, address, at, word - ((uint64_t)1 << 20));
}

void ptx_bytes_came(ptx_group *group, uint64_t address, unsigned bytes)
{
    uint64_t word;
    unsigned char *at = find_barrier(group, address, &word);
    if (at && BYTES(word) < bytes)
        ptx_fail(group, "bytes that no barrier at %#llx expects",
                 (unsigned long long)address);
    else if (at)
        keep_barrier(group, address, at, word - bytes);
}

static void arrive(ptx_wave *wave, unsigned lane, uint64_t address)
{
    ptx_mbarrier_used(wave, lane, address);
    ptx_release(wave, lane, address);
    ptx_arrive(wave->group, address);
}

void run_barrier_arrive(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    LANE_FOR (lanes)
        arrive(wave, lane, address_of(wave, i, 1, lane));
    ptx_next_epoch(wave);
}

/* The same, and bytes are to come. */
void run_barrier_expect(ptx_wave *wave, const ptx_instruction *i,
                        lane_mask lanes)
{
    LANE_FOR (lanes) {
        const uint64_t address = address_of(wave, i, 1, lane);
        const uint64_t bytes = cut(lanes_of(wave, i, 2)[lane], 32);
        uint64_t word;
        unsigned char *at = find_barrier(wave->group, address, &word);
        if (!at)
            return;
        if (bytes > MOST_BYTES - BYTES(word)) {
            ptx_fail(wave->group, "a barrier that expects %llu bytes more",
                     (unsigned long long)bytes);
            return;
        }
        word += bytes;
        memcpy(at, &word, sizeof word);
        arrive(wave, lane, address);
    }
    ptx_next_epoch(wave);
}

/* Is the phase of this parity complete? Lanes that look in vain do not keep
 * others from going on, who may be those that they wait for. */
void run_barrier_try(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    uint64_t *to = lanes_of(wave, i, 0), addresses[MOST_LANES];
    const uint64_t *parity = lanes_of(wave, i, 2);
    lane_mask failed = 0;
    LANE_FOR (lanes) {
        uint64_t word;
        addresses[lane] = address_of(wave, i, 1, lane);
        if (!find_barrier(wave->group, addresses[lane], &word))
            return;
        ptx_mbarrier_used(wave, lane, addresses[lane]);
        to[lane] = PARITY(word) != (parity[lane] & 1);
        failed |= (lane_mask)!to[lane] << lane;
    }
    if (lanes & ~failed)
        ptx_acquire(wave, lanes & ~failed, addresses);
    wave->vain |= failed;
    wave->yields = failed && !(wave->alive & ~wave->parked & ~wave->vain);
    wave->polls = wave->yields;
    wave->moved |= failed == 0;
}

/* ---- A wave's lanes ---- */

unsigned ptx_shuffled(ptx_wave *wave, const ptx_instruction *i,
                      lane_mask lanes, unsigned lane, unsigned which)
{
    const unsigned from = i->kind == 'b'   ? lane ^ which
                          : i->kind == 'i' ? which
                          : i->kind == 'u' ? lane - which
                                           : lane + which;
    if (from < wave->group->width && (lanes >> from & 1))
        return from;
    if (i->kind != 'u' && i->kind != 'd')
        ptx_fail(wave->group, "lane %u asks lane %u", lane, from);
    return lane;
}

/* to, from, which lane, ... */
void run_shuffle(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    uint64_t given[MOST_LANES];
    memcpy(given, lanes_of(wave, i, 1), wave->group->width * sizeof *given);
    const uint64_t *which = lanes_of(wave, i, 2);
    LANE_FOR (lanes)
        lanes_of(wave, i, 0)[lane] =
            given[ptx_shuffled(wave, i, lanes, lane, (unsigned)which[lane])];
}

void run_vote(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    lane_mask is_true = 0;
    LANE_FOR (lanes)
        is_true |= (lanes_of(wave, i, 1)[lane] & 1) << lane;
    const uint64_t result = i->kind == 'A'   ? is_true == lanes
                            : i->kind == 'E' ? is_true != 0
                                             : is_true;
    LANE_FOR (lanes)
        lanes_of(wave, i, 0)[lane] = result;
}

void run_reduce(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const uint64_t *from = lanes_of(wave, i, 1);
    uint64_t x = from[first_of(lanes)];
    LANE_FOR (lanes &(lanes - 1))
        x = ptx_combined(i, x, from[lane]);
    LANE_FOR (lanes)
        lanes_of(wave, i, 0)[lane] = cut(x, i->width.bits);
}
