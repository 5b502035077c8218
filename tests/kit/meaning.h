/* SPDX-License-Identifier: Apache-2.0
 * What a descriptor means for each tensor, worked out from winattn.h and not
 * by the library's code: extents, strides, where the last element is. */
#ifndef KIT_MEANING_H
#define KIT_MEANING_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor_id.h"
#include "winattn.h"

/* Products of two 64-bit numbers, so that nothing here overflows. */
__extension__ typedef unsigned __int128 wide;

/* In a call of a pass. */
typedef enum tensor_role {
    ROLE_NONE,
    ROLE_INPUT,
    ROLE_INPUT_OR_NULL,
    ROLE_OUTPUT,
    ROLE_OUTPUT_OR_NULL
} tensor_role;

/* For which descriptors there is a tensor; of gradients, with a backward pass.
 */
typedef enum tensor_use {
    ALWAYS,
    WITH_BIAS,
    WITH_MASK,
    WITH_REGIONS,
    WITH_COSINE,
    WITH_PADS
} tensor_use;

typedef enum tensor_type {
    LIKE_Q,
    LIKE_BIAS,
    LIKE_MASK,
    BYTES,
    FLOATS
} tensor_type;

#define NOWHERE ((size_t)-1)
typedef struct tensor_trait {
    size_t strides;      /* in winattn_desc; NOWHERE: always contiguous */
    tensor_role role[2]; /* forward, backward */
    /* What there are along the window's, head's, row's and column's axis:
     * windows, heads, groups of heads, queries, keys, dims, masks. Those with
     * windows are tokens, which may lie on a grid. */
    char axes[5];
    tensor_use use;
    tensor_type type;
} tensor_trait;
extern const tensor_trait tensor_traits[TENSORS];

/* The axes of every tensor; a row is along the last axis of a grid. */
enum { AXIS_WINDOW, AXIS_HEAD, AXIS_0, AXIS_1, AXIS_ROW, AXIS_COLUMN, AXES };

typedef struct tensor_meaning {
    bool is_used;
    bool is_empty; /* it has no elements */
    bool on_grid;
    unsigned element_bytes;
    wide extent[AXES], stride[AXES];
    wide last; /* the element that is furthest from the first */
} tensor_meaning;

/* The descriptor must be one that the library took, or one that nobody has
 * spoilt yet. */
tensor_meaning meaning_of(const winattn_desc *desc, tensor_id id);

/* Windows of all images, queries and keys of one. */
typedef struct problem_size {
    wide windows;
    cl_ulong queries, keys;
} problem_size;
problem_size size_of(const winattn_desc *desc);

/* Do two elements meet, along axes that are not broadcast? False too where
 * there are too many to look. */
bool meaning_overlaps(const tensor_meaning *tensor);

#endif
