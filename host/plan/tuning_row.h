/* SPDX-License-Identifier: Apache-2.0
 * A row of the tuning table: for what it was measured, and the shape that was
 * best. Its text form is one line, which winattn.h explains:
 *
 *   matrix-backward NVIDIA 90 dot half bias 49 49 32 49:4:3:2:64:1:1
 *
 * Rows of the sister library's kernels, whose names end with a tier, have
 * words of its own between device and shape; it reads them when it makes a
 * plan. */
#ifndef WINATTN_TUNING_ROW_H
#define WINATTN_TUNING_ROW_H

#include "plan/plan.h"

/* The kernels that have rows. */
typedef enum wa_tuned_kernel {
    WA_LOCAL_FORWARD,
    WA_MATRIX_FORWARD,
    WA_LOCAL_BACKWARD, /* one kernel makes everything of a window */
    WA_MATRIX_BACKWARD,
    WA_TUNED_KERNELS /* and one of the sister's */
} wa_tuned_kernel;

/* A backward pass of tier local, and how many of its work-groups a compute
 * unit was seen to hold; 0: as many as the planner expects. */
typedef struct wa_tuned_gradient_shape {
    wa_gradient_shape fused;
    uint32_t resident;
} wa_tuned_gradient_shape;

/* Of two kernels, which no row has. */
typedef struct wa_gradient_pair {
    wa_gradient_shape rows, keys;
} wa_gradient_pair;

/* In a row's text the numbers stand in the order of the struct's members,
 * with colons between them, but rows.block_keys behind keeps_dbias; `resident`
 * may be missing, and what is only of two kernels. */
typedef union wa_tuned_shape {
    wa_local_shape local_forward;
    wa_matrix_shape matrix_forward;
    wa_tuned_gradient_shape local_backward;
    wa_gradient_pair local_pair;
    wa_cpu_shape cpu; /* of which there are no rows */
    wa_matrix_gradient_shape matrix_backward;
} wa_tuned_shape;

/* Each starts with "any". */
typedef enum wa_row_variant {
    WA_ROW_WINDOWS, /* "any": dot and cosine */
    WA_ROW_DOT,
    WA_ROW_COSINE,
    WA_ROW_SLIDING,
    WA_ROW_VARIANTS
} wa_row_variant;

typedef enum wa_row_type {
    WA_ROW_ALL_TYPES,
    WA_ROW_FP32,
    WA_ROW_HALF, /* fp16 and bf16, which take the same room */
    WA_ROW_TYPES
} wa_row_type;

/* What is added to the logits. */
typedef enum wa_row_score_bias {
    WA_ROW_ANY_SCORE_BIAS,
    WA_ROW_NO_SCORE_BIAS,
    WA_ROW_BIAS,    /* and no mask */
    WA_ROW_MASK,    /* additive, with or without a bias */
    WA_ROW_REGIONS, /* or a grid's shift, with or without a bias */
    WA_ROW_SCORE_BIASES
} wa_row_score_bias;

#define WA_ROW_DEVICE_SIZE 128
#define WA_ROW_TEXT_SIZE 512
#define WA_ROW_SISTER_SIZE 256

typedef struct wa_tuned_row {
    wa_tuned_kernel kernel;
    /* Devices of a vendor, from a compute capability on (0 but for NVIDIA's);
     * or, if `device` is not "", those of that name. */
    wa_vendor vendor;
    uint32_t least_capability;
    char device[WA_ROW_DEVICE_SIZE];
    wa_row_variant variant;
    wa_row_type type;
    wa_row_score_bias score_bias;
    uint32_t queries, keys; /* 0: any, as in the sliding variant */
    uint32_t head_dim;
    wa_tuned_shape shape;
    /* Of WA_TUNED_KERNELS, which has none of what starts with the variant: the
     * kernel's name, and what is behind the device, with single spaces. */
    char sister[WA_ROW_SISTER_SIZE];
} wa_tuned_row;

/* Reads a line of `length` characters. NULL, or why it is no row. */
const char *wa_tuned_row_parse(const char *line, size_t length,
                               wa_tuned_row *row);
void wa_tuned_row_print(const wa_tuned_row *row, char *text, size_t size);

/* Numbers with colons between them, to the end of the text. */
bool wa_tuned_shape_parse(wa_tuned_kernel kernel, const char *text,
                          wa_tuned_shape *shape);
void wa_tuned_shape_print(wa_tuned_kernel kernel, const wa_tuned_shape *shape,
                          char *text, size_t size);

/* The row of a shape that was measured for just this. */
wa_tuned_row wa_tuned_row_of(wa_tuned_kernel kernel, const wa_problem *problem,
                             const wa_device *device,
                             const wa_tuned_shape *shape);

/* Was it measured for such problems and devices? */
bool wa_tuned_row_fits(const wa_tuned_row *row, wa_tuned_kernel kernel,
                       const wa_problem *problem, const wa_device *device);

/* Is it a row of the sister's kernel for the device? Then what is behind the
 * kernel's name, else NULL. */
const char *wa_tuned_row_of_sister(const wa_tuned_row *row, const char *kernel,
                                   const wa_device *device);

/* A number without sign, behind which the text moves; false if there is none,
 * or a larger one. */
WA_SISTER bool wa_read_number(const char **text, uint32_t most,
                              uint32_t *number);

/* What a row for just this device has in front of its other words. */
void wa_tuned_device_print(const wa_device *device, char *text, size_t size);

/* Do both say the same but for the shape? */
bool wa_tuned_rows_meet(const wa_tuned_row *a, const wa_tuned_row *b);
/* The same for rows that do. */
uint64_t wa_tuned_row_hash(const wa_tuned_row *row);

#endif
