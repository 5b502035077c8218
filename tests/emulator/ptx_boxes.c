/* SPDX-License-Identifier: Apache-2.0
 * Copies of boxes by tensor maps, which complete later and tell a barrier how
 * many bytes have come. A map is known as far as cl/matrix/tensor_maps.cl
 * writes it: four dimensions of 16-bit elements, boxes of 64 x 64. */
#include "ptx_code.h"
#include "ptx_races.h"

enum { BOX_ROWS = 64, ROW_BYTES = 128, CHUNK_BYTES = 16, MAP_BYTES = 128 };
enum { CHANNEL, ROW, HEAD, WINDOW };

/* The words that say nothing of the tensor, with bits that do cleared. */
static bool is_form_known(const uint64_t *map)
{
    const uint64_t form = map[1] & 0xffffffff;
    const uint64_t fp16 = 3 << 4 | 6 << 7 | 3 << 13 | 2 << 17;
    const uint64_t bf16 = 3 << 4 | 10 << 7 | 3 << 13 | 2 << 17;
    bool known = (form == fp16 || form == bf16) && map[3] == 0 &&
                 map[6] == (uint64_t)63 << 56 && map[7] == 63 &&
                 map[8] == (uint64_t)BOX_ROWS * ROW_BYTES && map[9] == 0x400;
    for (unsigned i = 10; i < MAP_BYTES / 8; i++)
        known = known && map[i] == 0;
    return known && map[0] % CHUNK_BYTES == 0;
}

static ptx_tensor read_map(const uint64_t *map)
{
    const ptx_tensor t = {
        .first = map[0],
        .stride = {2, (map[1] >> 32) * CHUNK_BYTES,
                   (map[2] & 0xffffffff) * CHUNK_BYTES,
                   (map[2] >> 32) * CHUNK_BYTES},
        .size = {(map[4] & 0xffffffff) + 1, (map[4] >> 32) + 1,
                 (map[5] & 0xffffffff) + 1, (map[5] >> 32) + 1}};
    return t;
}

/* ---- Maps ---- */

/* What was written before is known to the copy engine from here on. */
void run_acquire_map(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    LANE_FOR (lanes) {
        wave->acquired[wave->acquired_count % MOST_ACQUIRED] =
            address_of(wave, i, 0, lane);
        wave->acquired_count++;
    }
}

static bool is_acquired(const ptx_wave *wave, uint64_t map)
{
    for (unsigned n = 0; n < MOST_ACQUIRED && n < wave->acquired_count; n++)
        if (wave->acquired[n] == map)
            return true;
    ptx_fail(wave->group, "a map that was not acquired");
    return false;
}

/* ---- Copies ---- */

/* to, map, where in the tensor, the barrier. */
void run_copy_box(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    LANE_FOR (lanes) {
        const uint64_t at = address_of(wave, i, 1, lane);
        uint64_t words[MAP_BYTES / 8];
        ptx_box box = {.to = address_of(wave, i, 0, lane),
                       .filled = address_of(wave, i, 6, lane)};
        if (at % MAP_BYTES ||
            !ptx_resolve(wave, SPACE_GLOBAL, at, MAP_BYTES, lane) ||
            !is_acquired(wave, at)) {
            ptx_fail(wave->group, "a map at %#llx", (unsigned long long)at);
            return;
        }
        memcpy(words, (const void *)(uintptr_t)at, sizeof words);
        if (!is_form_known(words) || box.to % (8 * ROW_BYTES) != 0) {
            ptx_fail(wave->group, "a box by a map of another form, to %#llx",
                     (unsigned long long)box.to);
            return;
        }
        box.tensor = read_map(words);
        for (unsigned axis = CHANNEL; axis <= WINDOW; axis++)
            box.at[axis] = (uint32_t)lanes_of(wave, i, 2 + axis)[lane];
        if (box.at[CHANNEL] * 2 % CHUNK_BYTES != 0) {
            ptx_fail(wave->group, "a box that begins at channel %u",
                     box.at[CHANNEL]);
            return;
        }
        if (!ptx_shared(wave->group, box.to, BOX_ROWS * ROW_BYTES))
            return;
        ptx_mbarrier_used(wave, lane, box.filled);
        ptx_box_writes(wave, lane, box.to, BOX_ROWS * ROW_BYTES, box.filled);
        wave->boxes = ptx_grown(wave->boxes, wave->box_count, &wave->box_room,
                                sizeof *wave->boxes);
        wave->boxes[wave->box_count++] = box;
    }
}

/* Where an element is, or 0: outside of the tensor. */
static uint64_t find_element(const ptx_box *box, unsigned row,
                             unsigned channel)
{
    const uint64_t at[] = {(uint64_t)box->at[CHANNEL] + channel,
                           (uint64_t)box->at[ROW] + row, box->at[HEAD],
                           box->at[WINDOW]};
    uint64_t address = box->tensor.first;
    for (unsigned axis = CHANNEL; axis <= WINDOW; axis++) {
        if (at[axis] >= box->tensor.size[axis])
            return 0;
        address += at[axis] * box->tensor.stride[axis];
    }
    return address;
}

/* What ordinary instructions wrote there must have been shown, or it may come
 * after the box. */
static bool may_overwrite(ptx_group *group, const unsigned char *to)
{
    const size_t n = (size_t)(to - group->shared) / 2;
    const uint32_t written = group->written[n];
    if (written == NEVER || written == BY_ENGINE ||
        written < group->waves[group->writer[n]].shown)
        return true;
    ptx_fail(group, "a box over what was not shown");
    return false;
}

static bool copy_element(ptx_wave *wave, const ptx_box *box, unsigned row,
                         unsigned channel)
{
    ptx_group *group = wave->group;
    const uint64_t from = find_element(box, row, channel);
    const uint64_t chunk = (channel * 2 / CHUNK_BYTES) ^ (row % 8);
    unsigned char *to =
        ptx_shared(group,
                   box->to + row * ROW_BYTES + chunk * CHUNK_BYTES +
                       channel * 2 % CHUNK_BYTES,
                   2);
    if (!to || !may_overwrite(group, to) ||
        (from && !ptx_resolve(wave, SPACE_GLOBAL, from, 2, 0)))
        return false;
    memset(to, 0, 2);
    if (from) {
        memcpy(to, (const void *)(uintptr_t)from, 2);
        ptx_global_read(wave, 0, (const void *)(uintptr_t)from, 2);
    }
    group->written[(size_t)(to - group->shared) / 2] = BY_ENGINE;
    return true;
}

bool ptx_complete_box(ptx_wave *wave)
{
    if (wave->box_count == 0)
        return false;
    /* in no order */
    const size_t n = wave->group->now % wave->box_count;
    const ptx_box box = wave->boxes[n];
    wave->boxes[n] = wave->boxes[--wave->box_count];
    for (unsigned row = 0; row < BOX_ROWS; row++)
        for (unsigned channel = 0; channel < ROW_BYTES / 2; channel++)
            if (!copy_element(wave, &box, row, channel))
                return true; /* it has failed */
    ptx_bytes_came(wave->group, box.filled, BOX_ROWS * ROW_BYTES);
    return true;
}
