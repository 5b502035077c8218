/* SPDX-License-Identifier: Apache-2.0
 * What the planners of both passes know of kernels for a matrix unit. */
#ifndef WINATTN_MATRIX_TILING_H
#define WINATTN_MATRIX_TILING_H

#include "device/matrix_unit.h"
#include "plan/family.h"

/* Alignment between local arrays that only kernels of gradients have. */
#define WA_MATRIX_SLACK 256u
/* Bytes that are copied at once; tiles of channels that leave together. */
#define WA_MATRIX_CHUNK_BYTES 16u
#define WA_MATRIX_OUT_TILES 4u
/* Stages of a ring, of gradients', and waves of a work-group, at most; more of
 * these than are planned leave a wave few registers, and were seen to pay
 * where measured. */
#define WA_MATRIX_MOST_STAGES 3u
#define WA_MATRIX_GRADIENT_STAGES 2u
#define WA_MATRIX_MOST_WAVES 24u
#define WA_MATRIX_PLANNED_WAVES 16u

/* What a shape follows to; the names are the kernels', in
 * cl/matrix/matrix_extents.h. */
typedef struct wa_matrix_tiling {
    uint32_t row_tiles, wave_turns, key_tiles, dim_tiles, key_blocks;
    uint32_t element_bytes, dims, row_bytes, key_rows, acc_per_lane;
    uint64_t row_plane_bytes[WA_PASSES], key_plane_bytes, out_bytes;
    uint64_t bias_cache_size; /* in elements */
    bool streaming;
} wa_matrix_tiling;
wa_matrix_tiling wa_matrix_tiling_of(const wa_problem *problem,
                                     const wa_matrix_unit *unit,
                                     const wa_matrix_shape *shape);

/* As kernels of keys see them: problem and shape are the other way round. */
wa_problem wa_matrix_transpose(const wa_problem *problem);
wa_matrix_shape wa_matrix_transpose_shape(const wa_matrix_shape *shape);

/* Elements that are copied at once. */
uint32_t wa_matrix_chunk(const wa_problem *problem);

/* Where bias and mask come from, as a plan says. */
const char *wa_matrix_bias_place(const wa_problem *problem,
                                 uint32_t bias_cache);

/* Bytes of a stage of the ring, which holds `row_planes` tensors of rows (q;
 * or q and dO) and two of keys; and of all local arrays of kernels of a pass
 * but, of gradients, what one of them has for itself. */
uint64_t wa_matrix_stage_bytes(const wa_matrix_tiling *tiling, wa_pass pass,
                               uint32_t row_planes);
uint64_t wa_matrix_local_bytes(const wa_problem *problem,
                               const wa_device *device,
                               const wa_matrix_shape *shape,
                               const wa_matrix_tiling *tiling, wa_pass pass,
                               uint32_t row_planes);

/* NULL if there is such a kernel of the pass at all, else why not. */
const char *wa_matrix_impossible(const wa_problem *problem,
                                 const wa_device *device, wa_pass pass);

/* What families of the same pass share: wa_family says what for. */
const char *wa_matrix_unwanted(const wa_problem *problem,
                               const wa_device *device, wa_pass pass);
void wa_matrix_say_none(const wa_device *device, bool fits, char *why);
void wa_explain_matrix_forward(const wa_problem *problem,
                               const wa_device *device,
                               const wa_tuned_shape *shape, char *reason);
void wa_explain_matrix_backward(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *shape, char *reason);
/* The step of a kernel that takes so many bytes of local memory. */
void wa_take_matrix_forward(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *shape, const char *kernel,
                            uint64_t bytes, wa_plan *plan);

/* NULL if kernels of both passes and the device allow the shape, local memory
 * apart; else why not. */
const char *wa_matrix_refusal(const wa_problem *problem,
                              const wa_device *device,
                              const wa_matrix_shape *shape);

/* Sets vector accesses of the plan. */
void wa_set_matrix_access(const wa_problem *problem, wa_plan *plan);

/* Work-groups that a compute unit holds at once. */
uint32_t wa_matrix_resident(const wa_device *device, uint32_t local_bytes);

/* Sums that a lane can have at a time in a work-group of so many waves. */
uint32_t wa_matrix_most_sums(const wa_problem *problem,
                             const wa_device *device, uint32_t waves);

/* Tiles of keys of a subtile, where registers hold `most`: all subtiles alike
 * if that costs less than half of them. */
uint32_t wa_matrix_tiles_per_subtile(uint32_t key_tiles, uint32_t most);

/* Tries all shapes of a kernel for windows, of the problem as it sees it:
 * blocks of rows that up to `most_splits` waves each may share; or, with
 * has_windows, just whole windows. */
typedef void wa_shape_trier(wa_search *find, const wa_problem *problem,
                            wa_matrix_shape shape);
void wa_visit_matrix_shapes(wa_search *find, const wa_problem *problem,
                            wa_pass pass, uint32_t most_splits,
                            bool has_windows, wa_shape_trier *try);

#endif
