/* SPDX-License-Identifier: Apache-2.0
 * Problem x device -> the plan of a pass: which kernels run, how their work is
 * distributed to work-groups and launches, and what lies in the workspace.
 * Pure: no OpenCL calls, so that devices nobody here owns can be planned for
 * in a test.
 */
#ifndef WINATTN_PLAN_H
#define WINATTN_PLAN_H

#include "base/sister.h"
#include "device/device.h"
#include "problem/problem.h"

#define WA_DEFINES_SIZE 1024
#define WA_REASON_SIZE 256

/* Passes up why something cannot be, where `call` says so. */
#define WA_REFUSE(call)                                                       \
    do {                                                                      \
        const char *wa_refuse_why = (call);                                   \
        if (wa_refuse_why)                                                    \
            return wa_refuse_why;                                             \
    } while (0)
#define WA_TIERS (WINATTN_TIER_MATRIX + 1) /* index: winattn_tier */

/* What computes, the simplest first: of each tier that of its number, and on
 * tier matrix families that want more of a device than a unit, have a name of
 * their own and are compared with plain kernels before they are taken. What
 * was learnt against one of these counts for those behind it. */
typedef enum wa_engine {
    WA_ENGINE_CPU = WINATTN_TIER_CPU, /* 1 */
    WA_ENGINE_LOCAL = WINATTN_TIER_LOCAL,
    WA_ENGINE_MATRIX = WINATTN_TIER_MATRIX, /* fragments */
    WA_ENGINE_SPECIAL,
    WA_ENGINE_MORE_SPECIAL,
    WA_ENGINES
} wa_engine;

/* In the order in which they run. */
typedef enum wa_step_id {
    WA_STEP_EXPAND, /* a table, for kernels that know none */
    /* The forward pass: o and lse. */
    WA_STEP_FORWARD,
    /* The backward pass. Either WA_STEP_KEYS alone makes all gradients of a
     * window, or those before it leave what it must know of each row. */
    WA_STEP_GIVEN,      /* what the next finds, from o and lse if given */
    WA_STEP_STATISTICS, /* lse and delta of rows, where no step before did */
    WA_STEP_ROWS,       /* dQ */
    WA_STEP_KEYS,       /* dK, dV, partial sums; alone: everything */
    WA_STEP_SUM,        /* of partial sums */
    WA_STEP_SUM_TABLE,  /* of what belongs to an entry of a table */
    /* If there are any, in place of WA_STEP_ROWS and WA_STEP_KEYS for calls
     * whose tensors do not start at access_bytes. */
    WA_STEP_UNALIGNED_ROWS,
    WA_STEP_UNALIGNED_KEYS,
    WA_STEPS
} wa_step_id;
/* Those that compute on windows. */
#define WA_STEP_FIRST WA_STEP_FORWARD
#define WA_STEP_LAST WA_STEP_KEYS

typedef struct wa_step {
    const char *kernel;  /* function name; NULL: the pass has no such step */
    uint32_t block_rows; /* query rows of a work tile */
    uint32_t block_keys; /* keys that one softmax step takes */
    uint32_t work_group;
    uint32_t local_bytes;
    char defines[WA_DEFINES_SIZE]; /* and other build options */
} wa_step;

/* How the work is distributed; what a pass or tier has no use for is 0. */
typedef struct wa_schedule {
    uint32_t row_blocks; /* of a window-head */
    uint32_t key_blocks; /* of a window-head, of WA_STEP_KEYS */
    /* Blocks of rows of a window-head for which WA_STEP_STATISTICS leaves
     * bounds (sliding gradients on a matrix unit). */
    uint32_t bound_blocks;

    /* The forward pass: work tiles, a block of rows each. */
    uint32_t work_tiles_per_group;
    uint32_t idle_teams;            /* of a work-group, which have none */
    uint32_t work_tiles_per_launch; /* at most */
    /* Where work-groups iterate over windows (tier matrix): how many of them
     * share those of all row blocks of all heads. */
    uint32_t groups;
    bool persistent_multi_block; /* a work-group may have several row blocks */
    /* Where work-groups take one work tile after the other: so many of them
     * share those of a launch; 0: each has its own. */
    uint32_t sharing_groups;

    /* Where work-groups iterate over windows: those of a launch. */
    uint64_t windows_per_launch;

    /* The backward pass: WA_STEP_KEYS. */
    uint32_t
        windows_per_group; /* windows that a work-group computes at once */
    uint32_t busy_groups;  /* work-groups that keep a device busy */
    uint32_t splits;       /* partial sums over windows */
    uint32_t key_parts;    /* work-groups that share what one owns */
    /* Where WA_STEP_ROWS iterates over windows too, the same of it; its splits
     * then are those of sums of a bias and a scale. */
    uint32_t row_windows_per_group, row_groups, row_splits;
    uint32_t entries_per_launch; /* of a table: those of its heads, summed */
} wa_schedule;

/* Bytes of the workspace's parts, in this order. */
typedef struct wa_workspace {
    uint64_t statistics, bias, scale;
    uint64_t bounds; /* of sliding gradients on a matrix unit */
    uint64_t maps;   /* what the plan's family has for itself */
    uint64_t pad;    /* of either of pad_k and pad_v */
    uint64_t dense;  /* with a table: first the bias that it stands for, if
                        kernels know none, then what dbias sums */
    uint64_t all;
} wa_workspace;

typedef struct wa_plan {
    wa_pass pass;
    winattn_tier tier;
    const struct wa_family *family; /* whose kernels they are (family.h) */
    wa_step step[WA_STEPS];
    bool streams; /* forward: the softmax takes several steps */
    bool fused;   /* backward: one kernel makes everything of a window */
    uint32_t access_elements; /* of a vector access; 0: element by element */
    uint32_t access_bytes;    /* its alignment; 0: that of an element */
    wa_schedule schedule;
    wa_workspace workspace;
    char reason[WA_REASON_SIZE];
    bool tuned;       /* the shape was measured (tuning.h) */
    uint64_t visited; /* shapes and sizes of blocks that searches looked at */
    char untuned[WA_REASON_SIZE]; /* why a measured one was not taken, or "" */
    /* why an engine is not taken; "" where it is, was not asked, or where
     * nobody expects it */
    char refusals[WA_ENGINES][WA_REASON_SIZE];
} wa_plan;

/* The step whose kernel computes the most: what is told of a plan and, on a
 * matrix unit, what must not spill. */
static inline wa_step_id wa_main_step(wa_pass pass)
{
    return pass == WA_FORWARD ? WA_STEP_FORWARD : WA_STEP_KEYS;
}

/* Engines that must not be taken, with the reason: what an earlier attempt to
 * build their kernels taught. Zeroed at first. */
typedef struct wa_exclusions {
    char reason[WA_ENGINES][WA_REASON_SIZE];
    /* work-items that the engine's kernel was seen to allow; 0: not seen */
    uint32_t most_items[WA_ENGINES];
    /* why its measured shapes are not taken; "": they are */
    char untuned[WA_ENGINES][WA_REASON_SIZE];
} wa_exclusions;

/* Tries the tiers, best first. */
winattn_status wa_plan_make(const wa_problem *problem, const wa_device *device,
                            wa_pass pass, const wa_exclusions *exclusions,
                            wa_plan *plan);

/* An empty plan, for who then takes a shape (planner.h) and completes it. */
void wa_plan_begin(wa_pass pass, wa_plan *plan);
/* Fills in what follows from the steps: schedule, workspace, options. */
winattn_status wa_plan_finish(const wa_problem *problem,
                              const wa_device *device, wa_plan *plan);

WA_SISTER const char *wa_tier_name(winattn_tier tier);
winattn_tier wa_engine_tier(wa_engine engine);
/* What its families compute with, "" if they have no name of their own. */
const char *wa_engine_name(wa_engine engine);

/* NULL if kernels of a tier can be right on the device, whatever they compute,
 * else why not. */
WA_SISTER const char *wa_tier_refusal(const wa_device *device,
                                      winattn_tier tier);

/* Appends its lines of winattn_plan_describe. */
void wa_plan_describe(const wa_plan *plan, char *text, size_t size);

#endif
