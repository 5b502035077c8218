/* SPDX-License-Identifier: Apache-2.0
 * What each kernel declares first: which wave of which team a work-item is in,
 * and the local memory that all these kernels have. */
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

/* What every kernel has in local memory: the teams' rings, which start with a
 * line of 128 bytes for units that swizzle rows; of gradients, each wave's
 * output staging; the bias cache. */
#if BACKWARD
#define OUT_STAGING_CHUNKS (OUT_SIZE / CHUNK)
#define DECLARE_OUT_STAGING                                                   \
    __local uint4                                                             \
        out_staging[WINDOWS_PER_GROUP * WAVES_PER_WINDOW][OUT_STAGING_CHUNKS] \
        __attribute__((aligned(128)));
#else
#define DECLARE_OUT_STAGING
#endif
#if HAS_LOCAL_BIAS_CACHE
#define DECLARE_BIAS_CACHE                                                    \
    __local cached_bias bias_cache[BIAS_CACHE_SIZE]                           \
        __attribute__((aligned(16)));
#else
#define DECLARE_BIAS_CACHE __local cached_bias *bias_cache = 0;
#endif
#define DECLARE_LOCAL_MEMORY                                                  \
    __local uint4 rings[WINDOWS_PER_GROUP][STAGES * STAGE_SIZE / CHUNK]       \
        __attribute__((aligned(128)));                                        \
    DECLARE_OUT_STAGING                                                       \
    DECLARE_BIAS_CACHE
