/* SPDX-License-Identifier: Apache-2.0
 * Descriptors that are right until some fields change, as rows of tables. */
#ifndef UNIT_PROBLEM_ROWS_H
#define UNIT_PROBLEM_ROWS_H

#include "kit/asserts.h"
#include "problem/problem.h"

/* 6 windows of 49 queries and keys, and 4 heads of 32 channels; or these on a
 * map of 26 x 30 tokens: 4 x 5 windows of 7 x 6, padded and shifted by 3 x 2;
 * or, for gradients, with a table, whose bias is fp32. */
typedef enum described {
    OF_DOT,
    OF_COSINE,
    OF_SLIDING,
    OF_MAP,
    OF_TABLE
} described;
winattn_desc describe(described what);

/* A field and its value; of a float its bits. */
typedef struct field_value {
    const char *name; /* NULL: none */
    size_t at, size;
    uint64_t value;
} field_value;
#define VALUE_OF(type, field, value)                                          \
    {                                                                         \
#field, offsetof(type, field), sizeof(((type *)0)->field),            \
            (uint64_t)(value)                                                 \
    }
/* A field of what is described, or of the problem that is read. */
#define FIELD(field, value) VALUE_OF(winattn_desc, field, value)
#define IS(field, value) VALUE_OF(wa_problem, field, value)
#define NAN_BITS 0x7fc00000
#define INFINITE_BITS 0x7f800000

#define STRIDES(tensor, of_window, of_head, of_row, of_column)                \
    FIELD(tensor.window, of_window), FIELD(tensor.head, of_head),             \
        FIELD(tensor.row, of_row), FIELD(tensor.column, of_column)
#define MAP_STRIDES(tensor, of_batch, of_axis_0, of_axis_1)                   \
    FIELD(tensor.window, of_batch), FIELD(tensor.axis[0], of_axis_0),         \
        FIELD(tensor.axis[1], of_axis_1), FIELD(tensor.head, 32),             \
        FIELD(tensor.column, 1)

/* Sets fields up to the first without a name. */
void set_fields(winattn_desc *d, const field_value *fields, size_t count);

/* Is refused with the status, and a reason that contains `culprit`. */
typedef struct refused_row {
    described what;
    winattn_status status;
    const char *culprit;
    field_value fields[8];
} refused_row;
extern const refused_row refused_rows[];
extern const size_t refused_count;

/* Is read, as this. */
typedef struct read_row {
    described what;
    field_value fields[10], is[32];
} read_row;
extern const read_row read_rows[];
extern const size_t read_count;

#endif
