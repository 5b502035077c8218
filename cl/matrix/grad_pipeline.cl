/* SPDX-License-Identifier: Apache-2.0
 * What a gradient kernel's START_COPIES copies to the ring (pipeline.cl): rows
 * of q, dO, k and v, and what else is known of rows. */
#ifndef GRAD_PIPELINE_CL
#define GRAD_PIPELINE_CL
#include "matrix/grad_tiles.cl"
#include "matrix/pipeline.cl"

/* What is known of rows, `count` numbers. */
INLINE void copy_numbers(__local float *to, __global const float *from,
                         int count, int lane)
{
    for (int i = lane; i < count; i += TEAM)
        copy_4(to + i, from + i);
}

/* Starts the copies of rows of a plane of a head, in a kernel's START_COPIES:
 * `number` of four of which each may have a wave of its own, whose lanes then
 * count from 0. */
#define COPY_LANE (COPIES_APART ? lane & (WAVE - 1) : lane)
#define COPY(number, to, name, layout, head, pad, first, count, rows, wide)   \
    if (!COPIES_APART || lane / COPIERS == (number))                          \
    copy_rows(to, name + plane(&(layout), there.place.grid, head),            \
              chunk_of(&(layout), COPY_LANE), &(layout), &forward->grid,      \
              &there.place, pad, first, count, rows, COPY_LANE, wide)
/* `count` keys of head kv, from `first` on. */
#define COPY_KEYS(to, first, count, wide)                                     \
    COPY(2, (to) + K_PLACE, k, forward->k, kv, KEPT_PAD(pad_rows, 0), first,  \
         count, BLOCK_KEYS, wide);                                            \
    COPY(3, (to) + V_PLACE, v, forward->v, kv, KEPT_PAD(pad_rows, 1), first,  \
         count, BLOCK_KEYS, wide)
/* `count` rows of q and dO of a head, from `first` on. */
#define COPY_ROWS(to, first, count, wide)                                     \
    COPY(0, (to) + Q_PLACE, q, forward->q, head, 0, first, count, BLOCK_ROWS, \
         wide);                                                               \
    COPY(1, (to) + D_O_PLACE, d_o, args.d_o, head, 0, first, count,           \
         BLOCK_ROWS, wide)
/* One branch for all of them: copy(wide). */
#define COPY_WIDE_OR_NOT(copy)                                                \
    if (wide) {                                                               \
        copy(1);                                                              \
    } else {                                                                  \
        copy(0);                                                              \
    }

/* A work-item and the head of keys, for copies: where things lie is found anew
 * each time, as registers are worth more. */
#define DECLARE_COPIER                                                        \
    int lane = lane_of_team;                                                  \
    uint kv = kv_head;                                                        \
    FORGET(lane);                                                             \
    FORGET(kv);

/* Starts the copies of one visit, a block of rows of one head, with the first
 * also those of the keys first_key .. first_key + key_count, unless these come
 * late; after the last of a window, walks on. COPY_NUMBERS() is the kernel's,
 * for what else rows bring. */
#define COPY_VISIT(wide)                                                      \
    COPY_ROWS(to, first, count, wide);                                        \
    if (!LATE_KEYS && number == 0) {                                          \
        COPY_KEYS(keys_to, first_key, key_count, wide);                       \
    }
#define START_VISIT(item)                                                     \
    if ((item) < items) {                                                     \
        const uint number = (item) % visits;                                  \
        const uint row_block = number % CEIL_DIV(NQ, BLOCK_ROWS);             \
        const uint first = row_block * BLOCK_ROWS;                            \
        const int count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first);       \
        __local ushort *to = ring + (item) % STAGES * STAGE_SIZE;             \
        __local ushort *keys_to = ring + KEY_STAGE((item) / visits % STAGES); \
        DECLARE_COPIER                                                        \
        const uint head =                                                     \
            kv * heads_each + number / CEIL_DIV(NQ, BLOCK_ROWS);              \
        if (there.exists) {                                                   \
            COPY_WIDE_OR_NOT(COPY_VISIT)                                      \
            if (!LATE_KEYS) {                                                 \
                COPY_NUMBERS(item);                                           \
            }                                                                 \
        }                                                                     \
        if (number + 1 == visits)                                             \
            walk_on(&there, forward, team);                                   \
    }                                                                         \
    END_COPIES()

/* lse of rows first .. first + count of a window. */
INLINE void copy_lse(__local float *to, __global const float *plane,
                     const tensor_layout *layout, const grid_layout *grid,
                     const window_place *place, uint first, int count,
                     int lane)
{
    UNROLL_FOR (int done = 0; done < BLOCK_DOWN; done += TEAM) {
        const int i = done + lane;
        ulong at;
        if (i >= count)
            continue;
        if (find_row(&at, layout, grid, place, first + i))
            copy_4(to + i, plane + at);
        else
            to[i] = -INFINITY;
    }
}

#endif
