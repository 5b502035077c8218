/* SPDX-License-Identifier: Apache-2.0
 * A validated problem: what the caller's descriptor means, with every default
 * filled in and every size checked. No OpenCL calls. */
#ifndef WINATTN_PROBLEM_H
#define WINATTN_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "../cl/common/switches.h"
#include "winattn.h"

typedef enum wa_tensor_id {
    WA_Q,
    WA_K,
    WA_V,
    WA_BIAS,
    WA_MASK,
    WA_QUERY_REGIONS,
    WA_KEY_REGIONS,
    WA_LOGIT_SCALE,
    WA_PAD_K,
    WA_PAD_V,
    WA_O,
    WA_LSE,
    WA_D_O, /* from here on of the backward pass alone */
    WA_D_LSE,
    WA_DQ,
    WA_DK,
    WA_DV,
    WA_DBIAS,
    WA_D_LOGIT_SCALE,
    WA_D_PAD_K,
    WA_D_PAD_V,
    WA_TENSORS
} wa_tensor_id;

typedef enum wa_pass { WA_FORWARD, WA_BACKWARD, WA_PASSES } wa_pass;

/* What a pass does with a tensor. */
typedef enum wa_role {
    WA_ABSENT,
    WA_INPUT,
    WA_OPTIONAL_INPUT,
    WA_OUTPUT,
    WA_OPTIONAL_OUTPUT
} wa_role;

/* Axes, in the order of contiguous memory; tokens on a grid lie in front of
 * the heads. Without a grid WA_AXIS_0 and WA_AXIS_1 have extent 1; with one,
 * WA_ROW is its last axis and WA_WINDOW the batch. */
enum { WA_WINDOW, WA_HEAD, WA_AXIS_0, WA_AXIS_1, WA_ROW, WA_COLUMN, WA_AXES };

typedef struct wa_tensor {
    bool used;
    uint32_t element_size; /* bytes */
    uint64_t extent[WA_AXES];
    uint64_t stride[WA_AXES]; /* elements; 0 on axes of extent 1 */
    uint64_t span; /* elements from the first to the last, both counted */
} wa_tensor;

/* Three axes, of which the first ones may be 1 long. */
typedef struct wa_grid {
    bool used;
    uint32_t axes; /* as the caller counts them */
    uint64_t batch;
    uint32_t size[WINATTN_AXES], window[WINATTN_AXES], shift[WINATTN_AXES];
    uint32_t windows[WINATTN_AXES]; /* along each axis */
    uint32_t shift_boundaries; /* bit a: axis a is shifted and not periodic */
    bool is_padded;            /* some axis is no multiple of its window */
    bool rolls_first;          /* and is shifted before it is padded */
    winattn_padding padding;
} wa_grid;

/* Of a table with an index whose gradient is wanted. */
#define WA_MOST_SUMMED_ENTRIES (1u << 24)

/* The bias of query and key is the entry place(query) - place(key) + center of
 * the table, place(n) being the sum over axes of step times n's position in a
 * window of this size; or the caller's index says which. */
typedef struct wa_table {
    bool used;
    uint32_t entries;
    uint32_t window[WINATTN_AXES], step[WINATTN_AXES], center;
    const int32_t *index; /* the caller's, not copied; NULL: none */
    bool has_index;
    /* For gradients the host lists the pairs of each entry (bias_table.h);
     * else they are found by position. */
    bool is_listed;
} wa_table;

typedef struct wa_problem {
    winattn_variant variant;
    winattn_dtype dtype;
    winattn_tier tier;
    bool allows_tf32; /* fp32 may be multiplied as TF32 */
    uint64_t windows;
    uint32_t heads, kv_heads, queries, keys, head_dim;
    wa_grid grid;
    wa_table table;
    float scale;
    winattn_bias bias;
    winattn_term_dtype bias_dtype;
    /* MASK_NONE and so on. All that reads a problem asks for what it must know
     * of the kind, as kernels do (switches.h). */
    uint32_t mask;
    uint64_t mask_windows; /* 1 without arrays of a mask */
    float region_value;
    /* Sliding; window_blocks 0 means all. A sink inside the window has been
     * turned into a shorter window. */
    uint32_t block, first_block, window_blocks, sink, query_offset;
    wa_tensor tensor[WA_TENSORS];
    bool passes[WA_PASSES];
    const char *build_options; /* the caller's string, "" for none */
} wa_problem;

/* "q", "query_regions" and so on. */
const char *wa_tensor_name(wa_tensor_id id);
wa_role wa_tensor_role(wa_tensor_id id, wa_pass pass);

/* Are neighbours on the last axis neighbours in memory? True for a tensor that
 * is not used. */
bool wa_tensor_is_adjacent(const wa_tensor *tensor);

/* Fills *problem or says why not. build_options is not copied. */
winattn_status wa_problem_read(const winattn_desc *desc, wa_problem *problem);

/* The PADDING of cl/common/tokens.cl. */
uint32_t wa_problem_padding(const wa_problem *problem);
/* Is anything added to scores? */
bool wa_problem_has_score_bias(const wa_problem *problem);

/* The same problem with a contiguous fp32 bias [heads, queries, keys] instead
 * of the table, and its gradient likewise; how many bytes each is. */
wa_problem wa_problem_without_table(const wa_problem *problem);
uint64_t wa_problem_dense_bias_bytes(const wa_problem *problem);

/* Keys that one query row sees at most. */
uint32_t wa_problem_seen_keys(const wa_problem *problem);

/* Multiply-adds times two of Q K^T and P V, for one query row of one head at
 * most. */
double wa_problem_row_operations(const wa_problem *problem);

#endif
