/* SPDX-License-Identifier: Apache-2.0
 * Descriptors drawn at random: what models have, then spoilt in a few fields.
 */
#ifndef CAMPAIGN_DESCRIPTORS_H
#define CAMPAIGN_DESCRIPTORS_H

#include "kit/cases.h"
#include "meaning.h"

/* True in so many of 100 cases. */
bool chance(random_state *r, int percent);
/* One of the whole numbers that follow. */
#define ONE_OF(r, ...)                                                        \
    one_of(r, (const cl_ulong[]){__VA_ARGS__},                                \
           sizeof((const cl_ulong[]){__VA_ARGS__}) / sizeof(cl_ulong))
cl_ulong one_of(random_state *r, const cl_ulong *list, size_t count);
cl_uint below(random_state *r, cl_uint count); /* 0 to count - 1 */
/* A number that programs get wrong: a power of two, its neighbours, ... */
cl_ulong special_number(random_state *r);

typedef struct made_desc {
    winattn_desc desc;
    cl_int *index;       /* what desc.table.index points to; own */
    char *build_options; /* the same of desc.build_options */
    bool is_spoilt;      /* it may be wrong */
} made_desc;

made_desc desc_make(random_state *r);
void desc_free(made_desc *made);

/* The fields that are not 0, in one line. */
void desc_print(const winattn_desc *desc, char *text, size_t size);

#endif
