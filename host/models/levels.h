/* SPDX-License-Identifier: Apache-2.0
 * What levels share: sizes, checks, texts. */
#ifndef WINATTN_LEVELS_H
#define WINATTN_LEVELS_H

#include "launch/chain.h"
#include "models/linear.h"
#include "session/session.h"
#include <stdbool.h>
#include <stdint.h>

#include "winattn_models.h"

/* Every public call that can fail starts with this: it forgets the thread's
 * last failure, and fails where winattn's inner functions, which have no
 * stable interface, are of another version. */
winattn_status wa_models_begin(void);

uint32_t wa_element_size(winattn_dtype dtype);
uint32_t wa_term_size(winattn_dtype dtype, winattn_term_dtype term);

/* Stores fp32 numbers as `dtype`: the nearest, ties to even; a NaN stays one.
 */
void wa_store_numbers(winattn_dtype dtype, const float *from, size_t count,
                      void *to);

/* Are dtype and tier some that there are? */
winattn_status wa_check_types(winattn_dtype dtype, winattn_tier tier);

/* The product, or UINT64_MAX if it is not less than that. */
uint64_t wa_product(uint64_t a, uint64_t b);

/* Bytes rounded up to where the next part of a workspace starts. */
uint64_t wa_part_bytes(uint64_t bytes);

/* A tensor that a call reads; one that is not wanted must not be given. start:
 * as wa_check_memory has it, here and below. */
typedef struct wa_wanted_tensor {
    const char *name;
    const winattn_tensor *at;
    uint32_t element_size;
    uint64_t count;
    bool is_wanted;
} wa_wanted_tensor;
winattn_status wa_check_inputs(const wa_wanted_tensor *wanted, size_t count,
                               cl_context context, uint64_t *start);

/* Checks the workspace of a call: it is read and written. */
winattn_status wa_check_workspace(const winattn_tensor *workspace,
                                  cl_context context, uint64_t bytes,
                                  uint64_t *start);

/* Checks queue and wait list of a call. */
winattn_status wa_check_order(const wa_session *session,
                              cl_command_queue queue, cl_uint wait_count,
                              const cl_event *wait_list);

/* Appends what a plan within says of itself, each line behind "name ". */
typedef winattn_status wa_describer(const void *plan, size_t size, char *text,
                                    size_t *needed);
winattn_status wa_describe_part(const char *name, wa_describer *describe,
                                const void *plan, char *text, size_t size);
/* ---- Chains of what models are made of (launch/chain.h) ---- */

/* As wa_chain_begin and wa_chain_end, but that a queue in order needs one
 * event only, that of a marker, as tens of launches are in between. */
winattn_status wa_models_chain_begin(wa_kernel_chain *chain,
                                     cl_command_queue queue,
                                     cl_uint wait_count,
                                     const cl_event *wait_list,
                                     const cl_event *event);
winattn_status wa_models_chain_end(wa_kernel_chain *chain,
                                   winattn_status status, cl_event *event);

/* Lets the binaries of a plan's new programs be kept, after a call on `bytes`
 * of zeros: some runtimes finish compiling only then. out: twice as many
 * bytes. A call that fails for a cause that may pass leaves them to the next
 * plan, and is no failure. */
typedef winattn_status wa_first_call(const void *plan, cl_mem zeros,
                                     cl_mem out, wa_kernel_chain *chain);
winattn_status wa_keep_kernels(const wa_session *session,
                               const cl_kernel *kernels, size_t count,
                               size_t bytes, wa_first_call *call,
                               const void *plan);

/* What the linear layers of a plan have in common. */
typedef struct wa_layer_maker {
    const wa_session *session;
    winattn_dtype dtype;
    winattn_tier tier;
    cl_bool allow_tf32;
    const char *build_options;
    uint64_t rows; /* of each call, where layers may have norms */
} wa_layer_maker;
typedef struct wa_layer {
    uint32_t in, out;
    /* adds a residual; where it is to normalise its sums first, and cannot,
     * that is left to what does */
    bool has_bias, adds;
    winattn_activation activation;
    /* what it is to do about norms, if it can (linear_plan.h): the plan's
     * problem says what it does */
    unsigned norms;
    /* numbers of a hidden layer in the same launch, or 0: then there is no
     * plan where there is no such kernel */
    uint32_t hidden;
    /* is to have four neighbours of a map for a row, if it can, as norms */
    bool merges;
} wa_layer;
/* Is there such a kernel, and is it for calls of so many rows, or is a launch
 * less worth more? */
bool wa_layer_may_be(const wa_layer_maker *maker, const wa_layer *layer);
winattn_status wa_make_layer(const wa_layer_maker *maker,
                             const wa_layer *layer,
                             winattn_linear_plan **plan);

/* Appends a linear layer of rows without gaps, whose tensors are known to be
 * right; those that it lacks have buffer NULL. */
typedef struct wa_layer_call {
    uint64_t rows; /* below 2^32 */
    winattn_tensor x, weight, bias, residual, y;
    uint64_t line; /* elements of one of x, where that is a map; else 0 */
    winattn_tensor norm_weight, norm_bias; /* where it normalises sums */
    wa_linear_norms norms;
} wa_layer_call;
winattn_status wa_chain_append_linear(wa_kernel_chain *chain,
                                      const winattn_linear_plan *plan,
                                      const wa_layer_call *call);

/* Appends what a linear layer says of itself, and "NAME bytes: ", which a call
 * of so many rows moves. */
winattn_status wa_describe_layer(const char *name,
                                 const winattn_linear_plan *plan,
                                 uint64_t rows, char *text, size_t size);

/* Appends the launches of the core's forward pass. */
winattn_status wa_chain_append_attention(wa_kernel_chain *chain,
                                         const winattn_plan *plan,
                                         const winattn_forward *forward);

/* ---- Tensors of a block, whoever has them ---- */

typedef enum wa_block_tensor {
    WA_BLOCK_NORM1_WEIGHT,
    WA_BLOCK_NORM1_BIAS,
    WA_BLOCK_QKV_WEIGHT,
    WA_BLOCK_QKV_BIAS,
    WA_BLOCK_PROJ_WEIGHT,
    WA_BLOCK_PROJ_BIAS,
    WA_BLOCK_NORM2_WEIGHT,
    WA_BLOCK_NORM2_BIAS,
    WA_BLOCK_FC1_WEIGHT,
    WA_BLOCK_FC1_BIAS,
    WA_BLOCK_FC2_WEIGHT,
    WA_BLOCK_FC2_BIAS,
    WA_BLOCK_TABLE,
    WA_BLOCK_LOGIT_SCALE,
    WA_BLOCK_TENSORS
} wa_block_tensor;

extern const char *const wa_block_tensor_names[WA_BLOCK_TENSORS];

_Static_assert(sizeof(winattn_block_weights) ==
                   WA_BLOCK_TENSORS * sizeof(winattn_tensor),
               "tensors of a block and nothing else");

typedef struct wa_block_shape {
    uint64_t channels, hidden, heads;
    cl_uint window[2];
    bool is_cosine;
} wa_block_shape;

/* Outputs and inputs of matrices, else elements and 1, as files have them; 0:
 * the block has no such tensor. */
void wa_block_extents(const wa_block_shape *shape,
                      uint64_t extent[WA_BLOCK_TENSORS][4]);

#endif
