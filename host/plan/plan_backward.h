/* SPDX-License-Identifier: Apache-2.0
 * Problem x device -> the kernels of the backward pass. Pure, like plan.h. */
#ifndef WINATTN_PLAN_BACKWARD_H
#define WINATTN_PLAN_BACKWARD_H

#include "plan/plan.h"

/* In the order in which they run. */
typedef enum wa_backward_part {
    WA_BACKWARD_EXPAND,     /* a table, for kernels that know none */
    WA_BACKWARD_STATISTICS, /* lse and delta of rows (tier local) */
    WA_BACKWARD_ROWS,       /* dQ */
    WA_BACKWARD_KEYS,       /* dK, dV, partial sums; alone: everything */
    WA_BACKWARD_SUM,        /* of partial sums */
    WA_BACKWARD_SUM_TABLE,  /* of what belongs to an entry */
    WA_BACKWARD_PARTS
} wa_backward_part;
/* Those that compute gradients. */
#define WA_BACKWARD_FIRST WA_BACKWARD_STATISTICS
#define WA_BACKWARD_LAST WA_BACKWARD_KEYS

typedef struct wa_backward_kernel {
    const char *name; /* NULL: this plan has no such part */
    uint32_t block_rows, block_keys;
    uint32_t work_group;
    uint32_t local_bytes;
    char defines[WA_DEFINES_SIZE];
} wa_backward_kernel;

/* The names are those of the -D options, see cl/local/backward_local.cl. */
typedef struct wa_gradient_shape {
    uint32_t block_rows, block_keys, team, stage_dims, score_rows, score_cols,
        out_rows, key_quads;
    bool keeps_tiles;
} wa_gradient_shape;

/* The same of cl/matrix/backward_matrix.cl, whose blocks have all keys; or,
 * with block_keys, of cl/matrix/backward_rows_matrix.cl. */
typedef struct wa_matrix_gradient_shape {
    uint32_t block_rows, team_waves, teams, stages, pass_keys;
    uint32_t keeps_terms; /* as in wa_matrix_shape; not 2 */
    /* sums of dBias stay 0: in the workspace, 1: in registers, 2: in local
     * memory (with block_keys) */
    uint32_t keeps_dbias;
    uint32_t block_keys; /* 0: one kernel makes everything */
    /* With block_keys, of cl/matrix/backward_keys_matrix.cl; a pass has so
     * many rows. */
    wa_matrix_shape keys;
} wa_matrix_gradient_shape;

typedef struct wa_backward_plan {
    winattn_tier tier;
    /* One kernel makes everything of a window; else those before it leave
     * statistics of each row in the workspace. */
    bool whole;
    wa_backward_kernel kernels[WA_BACKWARD_PARTS];
    uint32_t row_blocks; /* of a window-head; units of the kernels before */
    uint32_t key_blocks;
    uint32_t teams;           /* windows that a work-group of the last kernel
                                 computes at once; 0: one */
    uint32_t busy_groups;     /* of the last kernel, that keep a device busy */
    uint32_t access_elements; /* as in wa_plan */
    uint32_t access_bytes;
    uint32_t slots; /* partial sums over windows */
    /* Where the kernel of rows walks windows too, its teams, busy groups and
     * slots, which then are those of sums of a bias and a scale; else 0. */
    uint32_t row_teams, row_groups, row_slots;
    uint32_t key_parts; /* work-groups of the last kernel that share what one
                           owns; 0: none do */
    uint64_t windows_per_launch;
    uint32_t entries_per_launch; /* of a table: those of its heads, summed */
    /* The workspace's parts, in this order: bytes. */
    uint64_t statistics_bytes, bias_bytes, scale_bytes;
    uint64_t pad_bytes;   /* of either of pad_k and pad_v */
    uint64_t dense_bytes; /* with a table: first the bias that it stands for,
                             if kernels know none, then what dbias sums */
    uint64_t workspace_bytes;
    char reason[WA_REASON_SIZE];
    bool tuned; /* these three as in wa_plan */
    uint64_t steps;
    char untuned[WA_REASON_SIZE];
    char refusals[WA_TIERS][WA_REASON_SIZE]; /* "" where not refused */
} wa_backward_plan;

winattn_status wa_backward_plan_make(const wa_problem *problem,
                                     const wa_device *device,
                                     const wa_exclusions *exclusions,
                                     wa_backward_plan *plan);

/* Slots, workspace, launches: what is left to do once there are kernels. */
void wa_backward_plan_finish(const wa_problem *problem,
                             const wa_device *device, wa_backward_plan *plan);

/* Its lines of winattn_plan_describe, appended. */
void wa_backward_plan_describe(const wa_backward_plan *plan, char *text,
                               size_t size);

/* Bytes that partial sums, and statistics of a launch, take at most; the
 * slots that follow for partial sums of a bias. */
#define WA_BACKWARD_BYTES (16u * 1024u * 1024u)
#define WA_MATRIX_BIAS_BYTES (64u * 1024u * 1024u) /* tier matrix */
uint64_t wa_most_bias_slots(const wa_problem *problem, winattn_tier tier);

/* Chooses the shapes of tier local, or leaves in plan->refusals why not.
 * (plan_backward_local.c) */
bool wa_plan_backward_local(const wa_problem *problem, const wa_device *device,
                            wa_backward_plan *plan);
/* The same with demanded shapes; without `rows` one kernel, of shape `keys`,
 * makes everything. */
bool wa_plan_backward_shapes(const wa_problem *problem,
                             const wa_device *device,
                             const wa_gradient_shape *rows,
                             const wa_gradient_shape *keys,
                             wa_backward_plan *plan);

/* As in plan.h; only of what makes everything in one kernel. */
typedef void wa_gradient_visitor(void *data, const wa_gradient_shape *shape,
                                 double cost);
uint64_t wa_visit_gradient_shapes(const wa_problem *problem,
                                  const wa_device *device,
                                  wa_gradient_visitor *visit, void *data);

/* The same of tier matrix. (plan_backward_matrix.c) */
bool wa_plan_backward_matrix(const wa_problem *problem,
                             const wa_device *device, wa_backward_plan *plan);
bool wa_plan_backward_matrix_shape(const wa_problem *problem,
                                   const wa_device *device,
                                   const wa_matrix_gradient_shape *shape,
                                   wa_backward_plan *plan);
typedef void wa_matrix_gradient_visitor(void *data,
                                        const wa_matrix_gradient_shape *shape,
                                        double cost);
uint64_t wa_visit_matrix_gradient_shapes(const wa_problem *problem,
                                         const wa_device *device,
                                         wa_matrix_gradient_visitor *visit,
                                         void *data);

/* Of that, what two kernels do. NULL if they and the device allow the shape,
 * else why not; then it can be taken. Visits shapes of which one kernel's is
 * the cheapest, all of them in that way; true if any were there, within
 * registers or not. Adds to *steps. (plan_rows_keys_matrix.c) */
const char *wa_matrix_pair_refusal(const wa_problem *problem,
                                   const wa_device *device,
                                   const wa_matrix_gradient_shape *shape);
void wa_take_matrix_pair(const wa_problem *problem, const wa_device *device,
                         const wa_matrix_gradient_shape *shape,
                         wa_backward_plan *plan);
bool wa_visit_matrix_pairs(const wa_problem *problem, const wa_device *device,
                           wa_matrix_gradient_visitor *visit, void *data,
                           uint64_t *steps);

#endif
