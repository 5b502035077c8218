/* SPDX-License-Identifier: Apache-2.0
 * What each kernel declares first: which wave of which team a work-item is in,
 * and the local memory that all these kernels have. */
#ifndef WAVES_CL
#define WAVES_CL
#include "matrix/matrix_bias.cl"

/* Where a work-item is: in the work-group, in its team. */
typedef struct work_item {
    int id;   /* in the work-group */
    int team; /* its number */
    int lane; /* in the team */
    int wave; /* in the team */
} work_item;

INLINE work_item this_work_item(void)
{
    work_item me;
    me.id = (int)get_local_id(0);
    me.team = me.id / TEAM;
    me.lane = me.id % TEAM;
    me.wave = me.lane / WAVE;
    return me;
}

/* In local memory, for emulated units: what waves exchange data through. */
#if EMULATED
#define DECLARE_EXCHANGES(name)                                               \
    __local uint name[TEAMS * TEAM_WAVES][EXCHANGE_WORDS];
#else
#define DECLARE_EXCHANGES(name) __local uint(*const name)[1] = 0;
#endif
#if EMULATED
INLINE wave wave_of(const work_item *me,
                    __local uint (*exchanges)[EXCHANGE_WORDS])
{
    const wave w = {.lane = me->id % WAVE,
                    .exchange = exchanges[me->id / WAVE],
                    .exchanges = exchanges[0],
                    .waves = TEAMS * TEAM_WAVES};
    return w;
}
#else
INLINE wave wave_of(const work_item *me, __local uint (*exchanges)[1])
{
    const wave w = {.lane = me->id % WAVE};
    return w;
}
#endif
/* What every kernel has in local memory: the teams' rings, which start with a
 * line of 128 bytes for units that swizzle rows; of gradients, each wave's
 * rows that leave; terms. */
#if BACKWARD
#define OUT_ROW_CHUNKS (UNIT_QUERIES * OUT_PITCH / CHUNK)
#define DECLARE_OUT_ROWS                                                      \
    __local uint4 out_rows[TEAMS * TEAM_WAVES][OUT_ROW_CHUNKS]                \
        __attribute__((aligned(128)));
#else
#define DECLARE_OUT_ROWS
#endif
#if HAS_LOCAL_TERMS
#define DECLARE_KEPT                                                          \
    __local kept_term kept[ROW_TILES * ALL_KEY_TILES * TERM_TILE]             \
        __attribute__((aligned(16)));
#else
#define DECLARE_KEPT
#endif
#define DECLARE_LOCAL_MEMORY                                                  \
    __local uint4 rings[TEAMS][STAGES * STAGE_SIZE / CHUNK]                   \
        __attribute__((aligned(128)));                                        \
    DECLARE_OUT_ROWS                                                          \
    DECLARE_KEPT

#endif
