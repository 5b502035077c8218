/* SPDX-License-Identifier: Apache-2.0
 * Memory: loads, stores, atomics, and copies that complete later. */
#include "ptx_code.h"
#include "ptx_races.h"
#include "ptx_unset.h"

#include <stdlib.h>

/* ---- Addresses ---- */

unsigned char *ptx_shared(ptx_group *group, uint64_t address, size_t bytes)
{
    const size_t size = group->shared_bytes;
    if (address < SHARED_START || bytes > size ||
        address - SHARED_START > size - bytes) {
        ptx_fail(group, "%zu bytes at %#llx, outside of local memory", bytes,
                 (unsigned long long)address);
        return NULL;
    }
    return group->shared + (address - SHARED_START);
}

static bool is_within(const ptx_range *range, const unsigned char *at,
                      size_t bytes)
{
    return range->start && at >= range->start && bytes <= range->bytes &&
           (size_t)(at - range->start) <= range->bytes - bytes;
}

static unsigned char *global(ptx_group *group, uint64_t address, size_t bytes)
{
    unsigned char *at = (unsigned char *)(uintptr_t)address;
    const ptx_data *data = group->kernel->code->data;
    const ptx_range constants = {data->bytes, data->size};
    if (is_within(&group->recent, at, bytes) ||
        is_within(&constants, at, bytes))
        return at;
    for (size_t i = 0; i < group->launch->range_count; i++)
        if (is_within(&group->launch->ranges[i], at, bytes)) {
            group->recent = group->launch->ranges[i];
            return at;
        }
    const ptx_range arguments = {
        (unsigned char *)(uintptr_t)group->launch->parameters,
        group->kernel->parameter_bytes};
    if (is_within(&arguments, at, bytes))
        return at;
    ptx_fail(group, "%zu bytes at %#llx, outside of all buffers", bytes,
             (unsigned long long)address);
    return NULL;
}

void ptx_note_write(ptx_wave *wave, const unsigned char *to, size_t bytes)
{
    ptx_group *group = wave->group;
    const ptx_range local = {group->shared, group->shared_bytes};
    if (!is_within(&local, to, bytes))
        return;
    const size_t first = (size_t)(to - group->shared);
    for (size_t n = first / 2; n <= (first + bytes - 1) / 2; n++) {
        group->written[n] = group->now;
        group->writer[n] = (unsigned char)wave->number;
    }
}

static unsigned char *private_memory(ptx_wave *wave, uint64_t address,
                                     size_t bytes, unsigned lane)
{
    const size_t size = wave->group->kernel->private_bytes;
    const uint64_t at = address - PRIVATE_START;
    if (address >= PRIVATE_START && bytes <= size && at <= size - bytes)
        return wave->private_memory + lane * size + at;
    ptx_fail(wave->group, "%zu bytes at %#llx, outside of private memory",
             bytes, (unsigned long long)address);
    return NULL;
}

unsigned char *ptx_resolve(ptx_wave *wave, ptx_space space, uint64_t address,
                           size_t bytes, unsigned lane)
{
    ptx_group *group = wave->group;
    const size_t parameters = group->kernel->parameter_bytes;
    if (address % bytes) {
        ptx_fail(group, "%zu bytes at %#llx", bytes,
                 (unsigned long long)address);
        return NULL;
    }
    if (space == SPACE_GENERIC)
        space = address >= PRIVATE_START ? SPACE_LOCAL
                : address < (1 << 20)    ? SPACE_SHARED
                                         : SPACE_GLOBAL;
    switch (space) {
    case SPACE_SHARED:
        return ptx_shared(group, (uint32_t)address, bytes);
    case SPACE_LOCAL:
        return private_memory(wave, address, bytes, lane);
    case SPACE_PARAM:
        if (bytes <= parameters && address <= parameters - bytes)
            return (unsigned char *)(uintptr_t)group->launch->parameters +
                   address;
        ptx_fail(group, "outside of all parameters");
        return NULL;
    default:
        return global(group, address, bytes);
    }
}

/* ---- Accesses, to whom they are of concern ---- */

static bool is_local(const ptx_group *group, const unsigned char *at)
{
    return at >= group->shared && at < group->shared + group->shared_bytes;
}

static bool is_global(const ptx_group *group, const unsigned char *at)
{
    return group->recent.start && at >= group->recent.start &&
           (size_t)(at - group->recent.start) < group->recent.bytes;
}

/* Whoever resolved the address just before reads: a bit for each `size` bytes
 * of which nobody has written any. */
static unsigned note_reads(ptx_wave *wave, unsigned lane,
                           const unsigned char *at, size_t size,
                           unsigned count)
{
    const ptx_group *group = wave->group;
    unsigned unset = 0;
    if (is_local(group, at)) {
        const size_t offset = (size_t)(at - group->shared);
        for (unsigned n = 0; n < count; n++)
            unset |=
                (unsigned)ptx_local_read(wave, lane, offset + n * size, size)
                << n;
    } else if (is_global(group, at)) {
        ptx_global_read(wave, lane, at, size * count);
    } else {
        for (unsigned n = 0; n < count; n++)
            unset |= (unsigned)ptx_private_is_unset(wave, at + n * size, size)
                     << n;
    }
    return unset;
}

void ptx_writes(ptx_wave *wave, unsigned lane, const unsigned char *at,
                size_t bytes, bool changes)
{
    const ptx_group *group = wave->group;
    if (is_local(group, at))
        ptx_local_write(wave, lane, (size_t)(at - group->shared), bytes,
                        changes);
    else if (is_global(group, at))
        ptx_global_write(wave, lane, at, bytes);
}

static void note_changes(ptx_wave *wave, unsigned lane,
                         const unsigned char *at, size_t bytes)
{
    const ptx_group *group = wave->group;
    if (is_local(group, at))
        ptx_local_atomic(wave, lane, (size_t)(at - group->shared), bytes);
    else if (is_global(group, at))
        ptx_global_atomic(wave, lane, at, bytes);
}

/* ---- Loads and stores ---- */

static uint64_t extended(const ptx_instruction *i, uint64_t x)
{
    return i->width.type == TYPE_SIGNED ? (uint64_t)signed_of(x, i->width.bits)
                                        : x;
}

void run_load(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const size_t size = i->width.bits / 8;
    LANE_FOR (lanes) {
        const unsigned char *from =
            ptx_resolve(wave, i->space, address_of(wave, i, i->count, lane),
                        size * i->count, lane);
        const unsigned unset =
            from ? note_reads(wave, lane, from, size, i->count) : 0;
        for (unsigned n = 0; n < i->count && from; n++) {
            uint64_t x = 0;
            if (unset >> n & 1)
                ptx_unset_loaded(wave, i, n, lane);
            memcpy(&x, from + n * size, size);
            lanes_of(wave, i, n)[lane] = extended(i, x);
        }
    }
}

void run_store(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const size_t size = i->width.bits / 8;
    LANE_FOR (lanes) {
        unsigned char *to =
            ptx_resolve(wave, i->space, address_of(wave, i, 0, lane),
                        size * i->count, lane);
        if (!to)
            return;
        bool changes = false;
        for (unsigned n = 0; n < i->count; n++) {
            const uint64_t x = lanes_of(wave, i, 1 + n)[lane];
            changes = changes || memcmp(to + n * size, &x, size) != 0;
            memcpy(to + n * size, &x, size);
        }
        ptx_note_write(wave, to, size * i->count);
        ptx_writes(wave, lane, to, size * i->count, changes);
        for (unsigned n = 0; n < i->count; n++)
            ptx_unset_stored(wave, i, 1 + n, lane, to + n * size, size);
    }
}

uint64_t ptx_combined(const ptx_instruction *i, uint64_t was, uint64_t x)
{
    const unsigned bits = i->width.bits;
    const bool is_signed = i->width.type == TYPE_SIGNED;
    const bool is_less = is_signed ? signed_of(x, bits) < signed_of(was, bits)
                                   : cut(x, bits) < cut(was, bits);
    switch (i->kind) {
    case '+':
        return i->width.type == TYPE_FLOAT
                   ? bits_of(float_of(was) + float_of(x))
                   : was + x;
    case 'm':
        return is_less ? x : was;
    case 'M':
        return is_less ? was : x;
    case '&':
        return was & x;
    case '|':
        return was | x;
    case '^':
        return was ^ x;
    default:
        return x;
    }
}

void run_atomic(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const size_t size = i->width.bits / 8;
    LANE_FOR (lanes) {
        uint64_t was = 0, x = lanes_of(wave, i, 2)[lane];
        unsigned char *to = ptx_resolve(
            wave, i->space, address_of(wave, i, 1, lane), size, lane);
        if (!to)
            return;
        memcpy(&was, to, size);
        if (i->kind != '?')
            x = ptx_combined(i, was, x);
        else if (was == cut(x, i->width.bits))
            x = lanes_of(wave, i, 3)[lane];
        else
            x = was;
        memcpy(to, &x, size);
        ptx_note_write(wave, to, size);
        note_changes(wave, lane, to, size);
        lanes_of(wave, i, 0)[lane] = was;
    }
}

/* ---- Copies ---- */

static void add_copy(ptx_wave *wave, unsigned lane, ptx_copy copy)
{
    const ptx_knowledge *known = &wave->group->races->waves[wave->number];
    ptx_copies *copies = &wave->copies[lane];
    copy.group = copies->group;
    copy.number = known->copies;
    copies->all = ptx_grown(copies->all, copies->count, &copies->room,
                            sizeof *copies->all);
    copies->all[copies->count++] = copy;
}

/* to, from, bytes; and of these how many to read, with zeros for the rest. */
void run_copy(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const uint32_t number = ptx_begin_copy(wave);
    LANE_FOR (lanes) {
        const unsigned bytes = (unsigned)lanes_of(wave, i, 2)[lane];
        unsigned read = bytes;
        if (i->operand_count > 3)
            read = (unsigned)lanes_of(wave, i, 3)[lane];
        const uint64_t to = address_of(wave, i, 0, lane);
        const uint64_t from = address_of(wave, i, 1, lane);
        if ((bytes != 4 && bytes != 8 && bytes != 16) || read > bytes ||
            from % bytes) {
            ptx_fail(wave->group, "a copy of %u bytes", bytes);
            return;
        }
        if (!ptx_resolve(wave, SPACE_SHARED, to, bytes, lane) ||
            (read && !ptx_resolve(wave, SPACE_GLOBAL, from, read, lane)))
            return;
        if (read)
            ptx_global_read(wave, lane, (void *)(uintptr_t)from, read);
        ptx_copy_writes(wave, lane, to, bytes, number);
        add_copy(wave, lane,
                 (ptx_copy){.to = to,
                            .from = (const unsigned char *)(uintptr_t)from,
                            .bytes = read,
                            .zeros = bytes - read});
    }
}

void run_copy_arrive(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    LANE_FOR (lanes) {
        const uint64_t to = address_of(wave, i, 0, lane);
        ptx_mbarrier_used(wave, lane, to);
        ptx_release_copies(wave, lane, to);
        add_copy(wave, lane, (ptx_copy){.to = to, .is_arrival = true});
    }
    ptx_next_epoch(wave);
}

void run_copy_commit(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    (void)i;
    LANE_FOR (lanes)
        wave->copies[lane].group++;
}

static void complete(ptx_wave *wave, const ptx_copy *copy)
{
    ptx_group *group = wave->group;
    if (copy->is_arrival) {
        ptx_arrive(group, copy->to);
        return;
    }
    unsigned char *to = ptx_shared(group, copy->to, copy->bytes + copy->zeros);
    if (to) {
        memcpy(to, copy->from, copy->bytes);
        memset(to + copy->bytes, 0, copy->zeros);
        ptx_note_write(wave, to, copy->bytes + copy->zeros);
    }
}

static void complete_first(ptx_wave *wave, unsigned lane, size_t count)
{
    ptx_copies *copies = &wave->copies[lane];
    for (size_t n = 0; n < count; n++)
        complete(wave, &copies->all[n]);
    copies->count -= count;
    memmove(copies->all, copies->all + count,
            copies->count * sizeof *copies->all);
}

void run_copy_wait(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    LANE_FOR (lanes) {
        ptx_copies *copies = &wave->copies[lane];
        size_t count = copies->count;
        uint32_t awaited = wave->group->races->waves[wave->number].copies;
        if (i->operand_count > 0) {
            const unsigned newer = (unsigned)lanes_of(wave, i, 0)[lane];
            while (count > 0 &&
                   copies->all[count - 1].group + newer >= copies->group)
                awaited = copies->all[--count].number - 1;
        }
        ptx_await_copy(wave, lane, awaited);
        complete_first(wave, lane, count);
    }
}

bool ptx_complete_any(ptx_group *group)
{
    bool any = false;
    for (unsigned w = 0; w < group->wave_count && !any; w++) {
        any = ptx_complete_box(&group->waves[w]);
        for (unsigned lane = 0; lane < group->width; lane++) {
            const ptx_copies *copies = &group->waves[w].copies[lane];
            size_t count = 0;
            while (count < copies->count && !copies->all[count].is_arrival)
                count++;
            if (copies->count > 0) {
                complete_first(&group->waves[w], lane,
                               count < copies->count ? count + 1 : count);
                any = true;
            }
        }
    }
    return any;
}
