/* SPDX-License-Identifier: Apache-2.0
 * Linear layer x device -> kernels and their shapes. Pure: no OpenCL calls. */
#ifndef WINATTN_LINEAR_PLAN_H
#define WINATTN_LINEAR_PLAN_H

#include "device/device.h"
#include "models/rows.h"
#include "plan/plan.h"
#include "plan/tuning.h"
#include "winattn_models.h"

/* ---- Shapes (linear_shapes.c) ---- */

/* What a layer does about norms beside it, in bits, of which a plan has those
 * of one line: x is normalised on the way, in calls of few rows
 * (cl/models/linear_matrix.cl); or of many (cl/hopper/linear_wgmma.cl), where
 * statistics are known; an mlp in one launch finds those of its y; sums are
 * normalised before a residual is added. */
enum {
    WA_FINDS_STATISTICS = 1,
    WA_TAKES_STATISTICS = 2,
    WA_GIVES_STATISTICS = 4,
    WA_NORMALISES = 8
};

/* The descriptor, checked, with nothing left to defaults. */
typedef struct wa_linear_problem {
    winattn_dtype dtype;
    winattn_tier tier;
    bool allow_tf32, layer_norm, has_bias, has_residual;
    winattn_activation activation;
    uint32_t in, out;
    /* No descriptor has these: norms; numbers of a hidden layer with GELU, of
     * which W is then (cl/hopper/mlp_wgmma.cl; 0: there is none); x is a map,
     * and a row four neighbours (cl/models/linear_ring.cl), in calls of few.
     */
    unsigned norms;
    uint32_t hidden;
    bool merges;
    float eps;
    const char *build_options; /* never NULL */
} wa_linear_problem;

/* Switches of the same names (cl/models/linear_*.cl); 0 where a tier has no
 * use for them. */
typedef struct wa_linear_shape {
    uint32_t block_rows, block_columns, stage_dims;
    uint32_t item_rows, item_columns;                    /* local */
    uint32_t lanes, tile_rows, tile_vecs;                /* cpu */
    uint32_t stages, row_waves, column_waves, dim_waves; /* matrix */
    /* matrix, of which the last may be 0: 1: weights stay in local memory; 1:
     * hopper/linear_wgmma.cl */
    uint32_t keeps_weight, wgmma;
} wa_linear_shape;

/* Does tier matrix compute fp32 without rounding it to TF32, by numbers in two
 * parts of that type? */
static inline bool wa_linear_splits(const wa_linear_problem *problem)
{
    return problem->dtype == WINATTN_FP32 && !problem->allow_tf32;
}

/* Elements of a vector of 16 bytes. */
static inline uint32_t wa_linear_vector(const wa_linear_problem *problem)
{
    return problem->dtype == WINATTN_FP32 ? 4 : 8;
}

static inline uint64_t wa_linear_blocks(uint64_t all, uint32_t block)
{
    return all / block + (all % block != 0);
}

/* What a work-group of the tier has in local memory. */
uint64_t wa_linear_local_bytes(const wa_linear_problem *problem,
                               const wa_device *device, winattn_tier tier,
                               const wa_linear_shape *shape);

/* Shapes with wgmma: NULL, or why the problem has none ("" where nobody
 * expects one), or should have none, or not that one; what a work-group has in
 * local memory; the one with a hidden layer; and the best
 * by a model of an H200, if there is one. (linear_wgmma.c) */
const char *wa_linear_wgmma_refusal(const wa_linear_problem *problem,
                                    const wa_device *device);
const char *wa_linear_wgmma_loses(const wa_linear_problem *problem,
                                  const wa_device *device);
const char *wa_linear_check_wgmma(const wa_linear_problem *problem,
                                  const wa_device *device,
                                  const wa_linear_shape *shape);
uint64_t wa_linear_wgmma_bytes(const wa_linear_problem *problem,
                               const wa_linear_shape *shape);
wa_linear_shape wa_linear_mlp_shape(const wa_linear_problem *problem,
                                    const wa_device *device);
bool wa_linear_find_wgmma(const wa_linear_problem *problem,
                          const wa_device *device, wa_linear_shape *shape);

/* fp32 numbers of sums that a lane of a matrix unit has. */
uint32_t wa_linear_lane_sums(const wa_device *device,
                             const wa_linear_shape *shape);

/* NULL, or why the tier's kernel does not have such a shape; of tier matrix on
 * a device that has a matrix unit. */
const char *wa_linear_check_shape(const wa_linear_problem *problem,
                                  const wa_device *device, winattn_tier tier,
                                  const wa_linear_shape *shape);

/* ---- Plans ---- */

typedef struct wa_linear_kernel {
    char name[64]; /* "": there is none */
    wa_linear_shape shape;
    uint32_t work_group;
    uint32_t rows; /* of a work-group, at a time */
    /* so many work-groups do all of a call; 0: as many as it has blocks */
    uint32_t most_groups;
    uint64_t local_bytes;
    char defines[WA_DEFINES_SIZE]; /* and other build options */
} wa_linear_kernel;

/* Calls of many rows and of few may have kernels of their own. */
typedef enum wa_linear_kernel_id {
    WA_LINEAR_NORM, /* of rows, before: norm_rows */
    WA_LINEAR_MANY,
    WA_LINEAR_FEW,
    WA_LINEAR_KERNELS
} wa_linear_kernel_id;

typedef struct wa_linear_layout {
    winattn_tier tier;
    wa_linear_kernel kernel[WA_LINEAR_KERNELS];
    wa_row_plan norm; /* without the kernel */
    /* WA_LINEAR_FEW serves calls that have fewer blocks of so many rows and
     * columns, those of the model's shape; 0: none */
    uint32_t few_groups;
    uint32_t few_rows, few_columns;
    char reason[WA_REASON_SIZE];
    const char *source[WA_LINEAR_KERNELS]; /* of the shape, see describe */
    char not_taken[WA_REASON_SIZE]; /* why a measured shape is not; or "" */
    char refusals[WA_TIERS][WA_REASON_SIZE]; /* "" where not refused */
} wa_linear_layout;

/* Tries the tiers, best first; `excluded` has the reasons why some must not be
 * taken, and else "". */
winattn_status wa_linear_plan_make(const wa_linear_problem *problem,
                                   const wa_device *device,
                                   char excluded[WA_TIERS][WA_REASON_SIZE],
                                   wa_linear_layout *layout);

/* A tier's planner: NULL, or why it does not compute the problem on the
 * device. A demanded shape, unless NULL, is taken for all calls. */
typedef const char *wa_linear_planner(const wa_linear_problem *problem,
                                      const wa_device *device,
                                      const wa_linear_shape *shape,
                                      wa_linear_layout *layout);
wa_linear_planner wa_linear_plan_cpu, wa_linear_plan_local; /* linear_plan.c */
wa_linear_planner wa_linear_plan_matrix; /* linear_matrix.c */

/* The same of any tier but WINATTN_TIER_AUTO; false, with a refusal. */
bool wa_linear_plan_tier(const wa_linear_problem *problem,
                         const wa_device *device, winattn_tier tier,
                         const wa_linear_shape *shape,
                         wa_linear_layout *layout);

/* Registers of a work-item where two large work-groups are to find room. */
#define WA_LINEAR_ITEM_REGISTERS 128u

/* Where a layout's shape is from, but for rows. */
#define WA_LINEAR_BY_MODEL "from a model of the device"
#define WA_LINEAR_GIVEN "given by the caller"

/* Completes a kernel of the tier for its shape. (linear_plan.c) */
void wa_linear_write_kernel(const wa_linear_problem *problem,
                            const wa_device *device, winattn_tier tier,
                            const wa_linear_shape *shape,
                            wa_linear_kernel *kernel);
/* And of a layout the kernel of norms. */
void wa_linear_write_norm(const wa_linear_problem *problem,
                          const wa_device *device, wa_linear_layout *layout);

/* ---- Rows of the tuning table (linear_rows.c, plan/tuning_row.h) ----
 *
 *   linear-matrix NVIDIA 90 half many gelu 96 384 128:128:96:2:2:4:1:1
 *
 * Behind the device stand the type, whether calls have many rows or few, what
 * surrounds the sums but for a bias, the numbers of features, and the shape.
 */

/* The rows that the library comes with, NULL at the end. */
extern const char *const wa_linear_built_in_rows[];
extern const char *const wa_linear_wgmma_rows[];

/* "linear-matrix" */
const char *wa_linear_row_kernel(winattn_tier tier);

/* What the row for a shape of the layer's kernel has behind the device. id:
 * WA_LINEAR_MANY or _FEW */
void wa_linear_row_print(const wa_linear_problem *problem, winattn_tier tier,
                         wa_linear_kernel_id id, const wa_linear_shape *shape,
                         char *text, size_t size);

/* Its shape: numbers with colons between them. */
bool wa_linear_shape_parse(winattn_tier tier, const char *text,
                           wa_linear_shape *shape);
void wa_linear_shape_print(winattn_tier tier, const wa_linear_shape *shape,
                           char *text, size_t size);

/* The best legal shape that a row has for the kernel: false if there is none,
 * and then *shape stays. Says in the layout where it is from, and why a better
 * one is not taken. */
bool wa_linear_measured(const wa_linear_problem *problem,
                        const wa_device *device, winattn_tier tier,
                        wa_linear_kernel_id id, wa_linear_layout *layout,
                        wa_linear_shape *shape);

#endif
