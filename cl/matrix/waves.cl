/* SPDX-License-Identifier: Apache-2.0
 * What each kernel declares first: which wave of which team a work-item is in,
 * and the local memory that all these kernels have. */
#ifndef WAVES_CL
#define WAVES_CL
#include "matrix/matrix_bias.cl"

/* What a kernel needs of that: declares exchanges, item_id, team,
 * lane_of_team, wave_of_team and w, this work-item's wave. */
#if EMULATED
#define DECLARE_EXCHANGES                                                     \
    __local uint exchanges[TEAMS * TEAM_WAVES][EXCHANGE_WORDS];
#define OWN_EXCHANGE                                                          \
    , .exchange = exchanges[item_id / WAVE], .exchanges = exchanges[0],       \
      .waves = TEAMS * TEAM_WAVES
#else
#define DECLARE_EXCHANGES
#define OWN_EXCHANGE
#endif
#define DECLARE_WAVE                                                          \
    DECLARE_EXCHANGES                                                         \
    const int item_id = (int)get_local_id(0);                                 \
    const int team = item_id / TEAM;                                          \
    int lane_of_team = item_id % TEAM;                                        \
    const int wave_of_team = lane_of_team / WAVE;                             \
    wave wave_here = {.lane = item_id % WAVE OWN_EXCHANGE};                   \
    const wave *w = &wave_here;

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
