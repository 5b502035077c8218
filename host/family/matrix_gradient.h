/* SPDX-License-Identifier: Apache-2.0
 * What kernels of windows' gradients on matrix units share. */
#ifndef WINATTN_MATRIX_GRADIENT_H
#define WINATTN_MATRIX_GRADIENT_H

#include "family/matrix_tiling.h"

/* A shape, and what it follows to, as a kernel sees it that owns rows. To one
 * that owns keys problem and shape are the other way round. */
typedef struct wa_matrix_side {
    const wa_problem *problem;
    const wa_device *device;
    wa_matrix_shape shape;
    wa_matrix_tiling tiling;
    uint32_t keeps_dbias;
} wa_matrix_side;

/* NULL, or why such kernels or the device do not allow the shape, local memory
 * and registers apart. */
const char *wa_matrix_begin_side(const wa_problem *problem,
                                 const wa_device *device,
                                 const wa_matrix_shape *shape,
                                 uint32_t keeps_dbias, wa_matrix_side *side);
/* Refuses a place for sums of dBias in a kernel that owns rows of it, or NULL;
 * bytes of these sums, of a block of rows. */
const char *wa_matrix_dbias_refusal(const wa_matrix_side *side,
                                    uint32_t row_planes);
uint64_t wa_matrix_dbias_bytes(const wa_matrix_side *side);
const char *wa_matrix_too_large(const wa_matrix_side *side, uint64_t bytes);

uint32_t wa_matrix_waves(const wa_matrix_side *side);

/* Sets the keys of a pass, of which each of `splits` waves has a share: as
 * many tiles, up to `most`, as registers hold beside so many sums. Returns
 * what spills cost: they are dear, and only for those who demand the tier. 0:
 * they do not. */
double wa_matrix_set_pass(const wa_search *find, uint64_t sums,
                          uint32_t splits, uint32_t most,
                          wa_matrix_side *side);

/* How many times as long kernels take because waves wait for each other, for
 * bias and mask, and for sums of dBias; relative. */
double wa_matrix_waits(const wa_matrix_side *side);

#endif
