/* SPDX-License-Identifier: Apache-2.0
 * A team of work-items of a GPU (*_local.cl): how its tiles divide a work
 * tile, and what compilers have to be told so that the tiles stay in
 * registers. No matrix units, no sub-groups.
 *
 * Loops over a team's work make the same number of rounds for every work-item,
 * which also made them faster on an H200 (0.34 to 0.39 of copy bandwidth).
 *
 *   TEAM          work-items that share one work tile
 *   STAGE_DIMS    channels that are in local memory at once; a multiple of 4
 *   SCORE_ROWS, SCORE_COLS  a work-item's tile of logits
 *   OUT_ROWS      rows of a work-item's tile of a product with the
 *                 attention matrix, one quad of channels wide; a team covers
 *                 BLOCK_ROWS x STAGE_DIMS
 *   SUB_GROUP     Intel: work-items of a hardware thread, which share its
 *                 registers; 0: the compiler's choice
 *   LIMITS_REGISTERS  NVIDIA: 1 where the host limits them
 *
 * The file that includes this one says what its kernel needs:
 *
 *   LISTS_TOKENS  1: a team keeps its tokens in local memory
 *   SCALES_ROWS   1: staged rows may have factors of their own
 *   LOADS_AHEAD   rows that a work-item loads before it stores the first
 *   SUMS_STAY     1: sums live in registers while rows are copied */
#include "common/problem.cl"
#include "local/team_extents.h"

REQUIRE(BLOCK_ROWS)
#if VARIANT != SLIDING
REQUIRE(NQ)
#endif
REQUIRE(TEAM)
REQUIRE(STAGE_DIMS)
REQUIRE(SCORE_ROWS)
REQUIRE(SCORE_COLS)
REQUIRE(OUT_ROWS)
REQUIRE(SUB_GROUP)
REQUIRE(LIMITS_REGISTERS)

/* Always 0, but Intel's compiler cannot know. It unrolls loops of a known
 * number of rounds although it is told not to (ocloc 22.43 forgets that of
 * loops with calls), moves what a round needs out of the loops around it, and
 * runs out of registers. */
#if SUB_GROUP
#define UNKNOWN_ZERO(args) ((int)((args).flags >> 24))
#else
#define UNKNOWN_ZERO(args) 0
#endif
/* NVIDIA's compiler heeds a limit of registers, which the host then gives it,
 * only where no size of work-groups is demanded. */
#if LIMITS_REGISTERS
#define TEAM_SIZE
#else
#define TEAM_SIZE __attribute__((reqd_work_group_size(TEAM, 1, 1)))
#endif

/* Lets the compiler forget a work-item's number, but for its range on NVIDIA.
 * LLVM for AMD else computes before all loops what they need of it, keeps each
 * comparison in a pair of scalar registers, and runs out of these; that for
 * NVIDIA keeps addresses of kept tokens, so that other registers are spilled;
 * Intel's runs out of registers for addresses, compiles again without
 * unrolling, and then sums are in memory. */
#ifdef __AMDGCN__
#define HIDE_FROM_OPTIMIZER(lane) __asm__ volatile("" : "+v"(lane))
#elif LISTS_TOKENS && (defined(__NVPTX__) || defined(__NV_CL_C_VERSION))
#define HIDE_FROM_OPTIMIZER(lane)                                             \
    __asm__ volatile("" : "+r"(lane));                                        \
    lane = (int)min((uint)(lane), TEAM - 1u)
#elif SUB_GROUP && defined(cl_intel_subgroups_char) /* not Mesa's compiler */
#define HIDE_FROM_OPTIMIZER(lane) __asm__ volatile("" : "+rw"(lane))
#else
#define HIDE_FROM_OPTIMIZER(lane)
#endif

#define EXP2(x) exp2(x) /* of weights (weights.h) */
