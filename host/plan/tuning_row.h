/* SPDX-License-Identifier: Apache-2.0
 * A row of the tuning table: for what it was measured, and the shape that was
 * best. Its text form is one line, which winattn.h explains:
 *
 *   matrix-backward NVIDIA 90 dot half bias 49 49 32 49:4:3:2:64:1:1
 *
 * "any" stands for all, as a variant for dot and cosine, as a score bias for
 * what is added to logits; "bias" is without a mask, "mask" an additive one,
 * "regions" also a grid's shift, both with or without a bias. "half" is fp16
 * and bf16, which take the same room. Rows of the sister library's kernels,
 * whose names end with a tier, have words of its own between device and shape;
 * it reads them when it makes a plan. */
#ifndef WINATTN_TUNING_ROW_H
#define WINATTN_TUNING_ROW_H

#include "plan/plan.h"
#include "plan/shapes.h"

/* The kernels that have rows. */
typedef enum wa_tuned_kernel {
    WA_LOCAL_FORWARD,
    WA_MATRIX_FORWARD,
    WA_LOCAL_BACKWARD, /* one kernel makes everything of a window */
    WA_MATRIX_BACKWARD,
    WA_TUNED_KERNELS
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

#define WA_ROW_DEVICE_SIZE 128
#define WA_ROW_TEXT_SIZE 512
#define WA_ROW_WORDS_SIZE 256
#define WA_ROW_ANY "any"

typedef struct wa_tuned_row {
    char kernel[WA_ROW_DEVICE_SIZE];
    /* Devices of a vendor, from a compute capability on (0 but for NVIDIA's);
     * or, if `device` is not "", those of that name. */
    wa_vendor vendor;
    uint32_t least_capability;
    char device[WA_ROW_DEVICE_SIZE];
    /* What is behind the device, with single spaces; the last is the shape. */
    char words[WA_ROW_WORDS_SIZE];
} wa_tuned_row;

/* ---- Words, of any library's rows ---- */

/* What a word may be. */
typedef struct wa_row_word {
    const char *const *names; /* NULL at the end */
    bool is_number;           /* or a number above 0 */
    const char *why;          /* what it is not, else */
} wa_row_word;

/* Do the words start with these? NULL, or what is wrong. The shape is behind
 * them. */
WA_SISTER const char *wa_row_check(const wa_row_word *words, size_t count,
                                   const char *text, const char **shape);

/* Are a row's first words those of `own`, or "any"? */
WA_SISTER bool wa_row_fits(const char *row, const char *own);

/* A word of numbers with colons between them: how many; 0: it is nothing such,
 * or there are more than `most`. */
WA_SISTER size_t wa_read_numbers(const char *text, size_t most,
                                 uint32_t *numbers);

/* ---- Rows ---- */

/* Reads a line of `length` characters. NULL, or why it is no row. */
const char *wa_tuned_row_parse(const char *line, size_t length,
                               wa_tuned_row *row);
void wa_tuned_row_print(const wa_tuned_row *row, char *text, size_t size);

/* Makes a row for just this device. */
wa_tuned_row wa_tuned_row_of(const char *kernel, const wa_device *device,
                             const char *words);

bool wa_tuned_row_fits(const wa_tuned_row *row, const char *kernel,
                       const wa_device *device);

/* In which order they come; 0: both say the same but for the shape. */
int wa_tuned_rows_compare(const wa_tuned_row *a, const wa_tuned_row *b);

/* ---- Of winattn's own kernels ---- */

const char *wa_tuned_kernel_name(wa_tuned_kernel kernel);

/* A word of numbers with colons between them. */
bool wa_tuned_shape_parse(wa_tuned_kernel kernel, const char *text,
                          wa_tuned_shape *shape);
void wa_tuned_shape_print(wa_tuned_kernel kernel, const wa_tuned_shape *shape,
                          char *text, size_t size);

/* The words of a row of a shape that was measured for just this problem. */
void wa_tuned_words(wa_tuned_kernel kernel, const wa_problem *problem,
                    const wa_tuned_shape *shape, char *text, size_t size);

/* Are these the words of a row that was measured for such problems? */
bool wa_tuned_words_fit(const char *words, const wa_problem *problem);

#endif
