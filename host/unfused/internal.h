/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share. */
#ifndef UNFUSED_INTERNAL_H
#define UNFUSED_INTERNAL_H

#include "launch/arguments.h"
#include "models/model.h"
#include "unfused/unfused.h"
#include "unfused/unfused_args.h"

typedef enum unfused_kernel {
    UNFUSED_MOVE,
    UNFUSED_MOVE_ELEMENTS,
    UNFUSED_GELU,
    UNFUSED_ADD,
    UNFUSED_MEAN,
    UNFUSED_NORMALISE,
    UNFUSED_TERMS,
    UNFUSED_SOFTMAX,
    UNFUSED_SCORES,
    UNFUSED_VALUES,
    UNFUSED_KERNELS
} unfused_kernel;

/* What is in memory between the steps. */
typedef enum unfused_buffer {
    UNFUSED_EVEN, /* maps of stages 0 and 2 */
    UNFUSED_ODD,
    UNFUSED_NARROW,  /* tokens with their channels */
    UNFUSED_WINDOWS, /* the same, in windows */
    UNFUSED_LARGE,   /* q, k and v; the mlp's hidden numbers; neighbours */
    UNFUSED_LOGITS,  /* S */
    UNFUSED_BUFFERS
} unfused_buffer;

typedef struct unfused_stage {
    uint32_t size[2], window[2], windows[2]; /* of one map */
    uint32_t shift[2]; /* of blocks 1, 3, ...; 0, 0: none is shifted */
    uint32_t channels, heads, hidden, depth;
    uint32_t tokens;      /* of a window */
    uint32_t all_tokens;  /* of all maps */
    uint32_t all_windows; /* of all maps */
    wa_row_plan norm;
    winattn_linear_plan *qkv, *proj, *fc1, *fc2;
    /* fp32, of all blocks: [depth][heads][tokens][tokens] and [depth][heads];
     * of a map's windows [windows][tokens][tokens], or NULL */
    cl_mem bias, factors, mask;
} unfused_stage;

struct unfused {
    const winattn_model *model;
    wa_model_weights weights;  /* the model's have norms in layers */
    const char *build_options; /* while it is made; never NULL then */
    bool on_cpu;
    uint32_t lanes; /* on_cpu: elements of a vector */
    uint32_t element_size;
    cl_kernel kernels[UNFUSED_KERNELS];
    cl_mem buffers[UNFUSED_BUFFERS];
    unfused_stage stages[WA_SWIN_STAGES];
    wa_row_plan last_norm;
    uint64_t bytes;
};

/* A new buffer, NULL: of no content. Counts its bytes. */
winattn_status unfused_new_buffer(unfused *u, uint64_t bytes,
                                  const void *content, cl_mem *made);

/* Biases, factors and masks of a stage. */
winattn_status unfused_make_tables(unfused *u,
                                   const winattn_swin_weights *weights,
                                   uint32_t number);

#endif
