/* SPDX-License-Identifier: Apache-2.0
 * The data of a case: seeded values in double precision, exactly as the
 * storage type holds them, and their images in memory with guard bands and
 * poison around every element. */
#ifndef KIT_DATA_H
#define KIT_DATA_H

#include "cases.h"
#include "grid.h"
#include "oracle.h"
#include "storage.h"
#include "tensor_id.h"

typedef struct tensor_data {
    int used;
    int is_output;
    int on_grid; /* a window is a whole grid, a row one of its tokens */
    storage_kind kind;
    size_t extent[4]; /* window, head, row, column; 1 where there is no axis */
    size_t stride[4]; /* elements; 0: broadcast; of a row not on a grid */
    size_t axis_extent[WINATTN_AXES]; /* of rows on a grid */
    size_t axis_stride[WINATTN_AXES];
    size_t offset; /* bytes into its buffer */
    int buffer;    /* index */
    double *value; /* [product of extents]; of an output, what is added to,
                      NULL if it is overwritten */
} tensor_data;

typedef struct buffer_image {
    size_t size;
    unsigned char *bytes;
} buffer_image;

typedef struct case_buffers {
    test_case c;
    tensor_data tensor[TENSORS];
    int buffers;
    buffer_image buffer[TENSORS];
    grid_map map;  /* with a grid */
    cl_int *entry; /* [queries][keys]: of the table */
} case_buffers;

/* NULL: out of memory. */
case_buffers *data_make(const test_case *c);
void data_free(case_buffers *d);
/* Writes the values to the images again, once a test has changed some. */
void data_write(case_buffers *d);

/* case_desc with the strides of the layout. */
winattn_desc data_desc(const case_buffers *d);

/* How many values a tensor has, and where that of an element is among them. */
size_t data_count(const tensor_data *t);
size_t data_index(const tensor_data *t, size_t window, size_t head, size_t row,
                  size_t column);

/* Byte offset of an element of a tensor in its buffer. */
size_t data_at(const tensor_data *t, size_t window, size_t head, size_t row,
               size_t column);

/* Byte offset of the value that has this index. */
size_t data_place_of(const tensor_data *t, size_t index);

/* Where row `row` of window `window` is found in a tensor: itself, but for
 * tokens on a grid their number on it, and their grid. False: a token of the
 * padding. */
bool data_find(const case_buffers *d, tensor_id id, size_t *window,
               size_t *row);
/* Rows of a window, or of the whole tensor if it has no tokens. */
size_t data_rows(const case_buffers *d, tensor_id id);

/* The oracle's problem of one window-head. */
typedef struct data_view {
    oracle_problem problem;
    unsigned char *regions[2];
    double *own[5]; /* q, k, v, bias, mask, where they are put together */
    float logit_scale;
} data_view;
void data_view_open(const case_buffers *d, size_t window, size_t head,
                    data_view *view);
void data_view_close(data_view *view);

/* Value of an input, or of an output before the call (0 if overwritten). */
double data_value(const tensor_data *t, size_t window, size_t head, size_t row,
                  size_t column);

/* What the oracle says of one window-head; arrays as in oracle_forward. */
void data_oracle(const case_buffers *d, size_t window, size_t head, double *o,
                 double *o_size, double *lse, double *lse_size,
                 double *largest_logit);
/* o and lse of the whole case, in the order of tensor_data.value, as a forward
 * pass leaves them; lse may be NULL. False: out of memory. */
bool data_forward(const case_buffers *d, double *o, double *lse);

#endif
