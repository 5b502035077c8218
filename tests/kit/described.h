/* SPDX-License-Identifier: Apache-2.0
 * Descriptors that are right until a test spoils a field, and what reading
 * them says. */
#ifndef KIT_DESCRIBED_H
#define KIT_DESCRIBED_H

#include "asserts.h"
#include "problem/problem.h"

/* 6 windows of 49 queries and keys. */
winattn_desc valid(winattn_variant variant);
/* 4 x 5 windows of 7 x 6 tokens, padded and shifted. */
winattn_desc on_grid(void);

void assert_read(const winattn_desc *d);
/* The reason must contain `culprit`. */
void assert_refused(const winattn_desc *d, winattn_status wanted,
                    const char *culprit);

/* A change of one field, of 4 or 8 bytes and no floating-point number, for
 * which a descriptor is refused. */
typedef struct refused_field {
    size_t at, size;
    cl_ulong value;
    winattn_status status;
    const char *culprit;
} refused_field;
#define FIELD(field, value)                                                   \
    offsetof(winattn_desc, field), sizeof((winattn_desc *)0)->field,          \
        (cl_ulong)(value)

/* Each change alone. */
void assert_fields_refused(const winattn_desc *right,
                           const refused_field *rows, size_t count);
#define ASSERT_FIELDS_REFUSED(right, rows)                                    \
    assert_fields_refused((right), (rows), sizeof(rows) / sizeof *(rows))

void assert_triple(const uint32_t got[3], uint32_t a, uint32_t b, uint32_t c);
/* window: a grid's batch, where there is one. */
void assert_strides(const wa_tensor *t, uint64_t window, uint64_t axis_0,
                    uint64_t axis_1, uint64_t row, uint64_t head,
                    uint64_t column);

#endif
