/* SPDX-License-Identifier: Apache-2.0
 * What levels share: sizes, checks, texts. */
#ifndef WINATTN_LEVELS_H
#define WINATTN_LEVELS_H

#include "session/session.h"

#include "winattn_models.h"

/* Every public call that can fail starts with this: it forgets the thread's
 * last failure, and fails where winattn's inner functions, which have no
 * stable interface, are of another version. */
winattn_status wa_models_begin(void);

uint32_t wa_element_size(winattn_dtype dtype);
uint32_t wa_term_size(winattn_dtype dtype, winattn_term_dtype term);

/* Stores fp32 numbers as `dtype`: the nearest, ties to even; a NaN stays one.
 * (half.c) */
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
/* What winattn_..._describe does with its whole text. */
winattn_status wa_give_text(const char *all, size_t size, char *text,
                            size_t *needed);

#endif
