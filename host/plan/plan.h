/* SPDX-License-Identifier: Apache-2.0
 * Problem x device -> kernel, defines, sizes. Pure: no OpenCL calls, so that
 * devices nobody here owns can be planned for in a test. */
#ifndef WINATTN_PLAN_H
#define WINATTN_PLAN_H

#include "device/device.h"
#include "problem/problem.h"

#define WA_DEFINES_SIZE 1024
#define WA_REASON_SIZE 256
#define WA_TIERS (WINATTN_TIER_MATRIX + 1) /* index: winattn_tier */

/* Shapes of the kernels; the names are those of the -D options and are
 * explained at the head of cl/<tier>/forward_<tier>.cl. */
typedef struct wa_cpu_shape {
    uint32_t lanes, tile_rows, tile_vecs, out_vecs;
} wa_cpu_shape;

typedef struct wa_local_shape {
    uint32_t block_rows, block_keys, team, teams, stage_keys, stage_dims,
        score_rows, score_cols, out_rows, row_items;
} wa_local_shape;

typedef struct wa_matrix_shape {
    uint32_t block_rows, block_keys, team_waves, teams, stages, pass_keys;
    /* 0: nowhere, 1: in local memory, 2: in registers, 3: the bias in local
     * memory, regions compared */
    uint32_t keeps_terms;
} wa_matrix_shape;

typedef struct wa_plan {
    winattn_tier tier;
    const char *kernel;  /* function name; the file is <kernel>.cl */
    uint32_t block_rows; /* query rows of a unit of work */
    uint32_t block_keys; /* keys that one softmax step takes */
    bool streaming;
    union {
        wa_cpu_shape cpu;
        wa_local_shape local;
        wa_matrix_shape matrix;
    } shape;
    uint32_t units_per_group;
    uint32_t work_group;
    uint32_t local_bytes;
    uint32_t row_blocks;       /* units of a window-head */
    uint32_t units_per_launch; /* at most */
    /* Where work-groups walk windows (tier matrix; else 0): how many of them
     * share those of all row blocks of all heads, and windows of a launch */
    uint32_t groups, windows_per_launch;
    bool shares_owners;       /* a work-group may have several row blocks */
    uint32_t resident;        /* such work-groups that a compute unit holds */
    uint32_t access_elements; /* of a vector access; 0: element by element */
    uint32_t access_bytes;    /* its alignment; 0: that of an element */
    uint64_t workspace_bytes;
    /* The kernel knows no tables: cl/reduce/expand_table.cl runs before it and
     * leaves an ordinary bias at the start of the workspace. */
    bool expands_table;
    char defines[WA_DEFINES_SIZE]; /* and other build options */
    char reason[WA_REASON_SIZE];
    bool tuned;     /* the shape was measured (tuning.h) */
    uint64_t steps; /* shapes and sizes of blocks that searches looked at */
    char untuned[WA_REASON_SIZE]; /* why a measured one was not taken, or "" */
    char refusals[WA_TIERS][WA_REASON_SIZE]; /* "" where not refused */
} wa_plan;

/* Tiers that must not be taken, with the reason: what an earlier attempt to
 * build them taught. Zeroed at first. */
typedef struct wa_exclusions {
    char reason[WA_TIERS][WA_REASON_SIZE];
    /* work-items that the tier's kernel was seen to allow; 0: not seen */
    uint32_t most_items[WA_TIERS];
    /* why measured shapes of the tier are not taken; "": they are */
    char untuned[WA_TIERS][WA_REASON_SIZE];
} wa_exclusions;

/* Fails if the device lacks what kernels of every tier need. */
winattn_status wa_check_device(const wa_device *device);

winattn_status wa_plan_make(const wa_problem *problem, const wa_device *device,
                            const wa_exclusions *exclusions, wa_plan *plan);

const char *wa_tier_name(winattn_tier tier);

/* What the planners of all passes do with tiers. The order in which they are
 * tried, best first. */
#define WA_TIER_CHOICES 3
const winattn_tier *wa_tier_order(bool for_cpu);
/* May it be tried? If not, `refusal` says why. */
bool wa_tier_is_open(const wa_problem *problem,
                     const wa_exclusions *exclusions, winattn_tier tier,
                     char *refusal);
/* The device as a tier's planner sees it after what was learnt. */
wa_device wa_device_for_tier(const wa_device *device,
                             const wa_exclusions *exclusions,
                             winattn_tier tier);
/* Keeps the first reason why a measured shape of a tier was not taken. */
void wa_note_untuned(char untuned[WA_REASON_SIZE], winattn_tier tier,
                     const char *why);
/* Fails with the refusal of the demanded tier, else of the best. */
winattn_status wa_fail_no_tier(const wa_problem *problem,
                               const wa_device *device, const char *kernel,
                               winattn_tier best,
                               char (*refusals)[WA_REASON_SIZE]);

/* The lines of winattn_plan_describe. */
void wa_plan_describe(const wa_plan *plan, const wa_device *device, char *text,
                      size_t size);

/* One kernel kind each: fill plan's shape, sizes and reason, or leave in
 * plan->refusals why not. (plan_cpu.c, plan_local.c, plan_matrix.c) */
bool wa_plan_cpu(const wa_problem *problem, const wa_device *device,
                 wa_plan *plan);
bool wa_plan_local(const wa_problem *problem, const wa_device *device,
                   wa_plan *plan);

bool wa_plan_matrix(const wa_problem *problem, const wa_device *device,
                    wa_plan *plan);

/* Takes one shape of cl/matrix/forward_matrix.cl; false, with a refusal, if
 * the kernel or the device does not allow it. */
bool wa_plan_matrix_shape(const wa_problem *problem, const wa_device *device,
                          const wa_matrix_shape *shape, wa_plan *plan);

/* Takes one shape of cl/local/forward_local.cl; false, with a refusal, if the
 * kernel or the device does not allow it. */
bool wa_plan_local_shape(const wa_problem *problem, const wa_device *device,
                         const wa_local_shape *shape, wa_plan *plan);

/* Call visit for every shape that the planner chooses from, with what its
 * model expects: cycles for each logit (local), or a relative time (matrix).
 * They return the steps that this took, as in wa_plan. */
typedef void wa_local_visitor(void *data, const wa_local_shape *shape,
                              double cost);
uint64_t wa_visit_local_shapes(const wa_problem *problem,
                               const wa_device *device,
                               wa_local_visitor *visit, void *data);
/* The device must have a unit that computes the problem. */
typedef void wa_matrix_visitor(void *data, const wa_matrix_shape *shape,
                               double cost);
uint64_t wa_visit_matrix_shapes(const wa_problem *problem,
                                const wa_device *device,
                                wa_matrix_visitor *visit, void *data);

/* Fills in what follows from tier and shape: defines, launch sizes. */
winattn_status wa_plan_finish(const wa_problem *problem,
                              const wa_device *device, wa_plan *plan);

/* Operations that one launch should have at most. */
double wa_launch_operations(const wa_device *device);

/* Append -D options to a text of the given size. */
void wa_append_problem(const wa_problem *problem, const wa_device *device,
                       uint32_t block_rows, uint32_t block_keys, char *text,
                       size_t size);
/* Those of cl/reduce/expand_table.cl. */
void wa_append_table(const wa_problem *problem, char *text, size_t size);
void wa_append_cpu_shape(const wa_cpu_shape *shape, char *text, size_t size);
/* The WIDE of cl/local/local.cl: elements of a vector access, 0 where there is
 * none. (plan_local.c) */
uint32_t wa_local_access_elements(const wa_problem *problem,
                                  uint32_t stage_dims);
/* What kernels for a matrix unit must know of the device and its compiler. */
void wa_append_unit_options(const wa_device *device, char *text, size_t size);
/* Those options, after the part of the shape that is not in wa_append_problem.
 */
void wa_append_matrix_shape(const wa_matrix_shape *shape,
                            const wa_device *device, char *text, size_t size);
/* What the kernels of tier local must know of the device and its compiler. */
void wa_append_local_options(const wa_problem *problem,
                             const wa_device *device, char *text, size_t size);

/* Lanes, and the tile that suits `rows` queries and `keys` keys best.
 * (plan_cpu.c) */
void wa_choose_cpu_shape(const wa_problem *problem, const wa_device *device,
                         uint32_t rows, uint32_t keys, wa_cpu_shape *shape);

/* Helpers of the planners. */
/* Blocks of keys that a unit walks at most. */
double wa_plan_key_blocks(const wa_problem *problem, uint32_t block_rows,
                          uint32_t block_keys);
static inline uint32_t wa_ceil_div(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}
/* The largest size up to `most` of blocks that share `all` evenly, that is
 * ceil(all / n) for some n; 0 for 0. All such sizes, from the largest on:
 * for (s = wa_even_size(all, all); s > 0; s = wa_even_size(all, s - 1)) */
uint32_t wa_even_size(uint32_t all, uint32_t most);
/* Appends to a text of the given size; cuts what does not fit. */
void wa_append(char *text, size_t size, const char *format, ...);

#endif
