/* SPDX-License-Identifier: Apache-2.0
 * The argument blocks of unfused.cl, shared by host and device. Every kernel
 * takes one of them first, and then its buffers. */
#ifndef UNFUSED_ARGS_H
#define UNFUSED_ARGS_H

/* move: of maps whose tokens have `units` chunks, or elements. Of two numbers
 * the first is down, the second across. */
typedef struct move_args {
    arg_u32 count; /* units of all windows */
    arg_u32 units;
    arg_u32 reverses; /* not 0: from windows to maps */
    arg_u32 size[2], window[2], windows[2], shift[2];
} move_args;

/* gelu, add: of so many elements. mean: of `tokens` rows each. normalise: of
 * rows of so many elements, the first 2 `heads` of every 3. */
typedef struct flat_args {
    arg_u32 count; /* work-items that have something to do */
    arg_u32 elements, tokens;
    arg_u32 heads;
} flat_args;

/* add_terms, softmax: S [window][head][tokens][tokens] */
typedef struct score_args {
    arg_u64 bias;  /* where the block's starts */
    arg_u32 count; /* window-heads, or rows of all of them */
    arg_u32 tokens, heads;
    arg_u32 mask_windows; /* 0: there is no mask */
} score_args;

/* scores, values: C = factor A B^T, or A B, for each window and head; where a
 * matrix starts, and from row to row, in elements. */
typedef struct product_args {
    arg_u64 a_window, b_window, c_window;
    arg_u32 a, b, factor;
    arg_u32 a_head, b_head, c_head;
    arg_u32 a_row, b_row, c_row;
    arg_u32 rows, columns, dims;
    arg_u32 count, heads; /* window-heads */
} product_args;

#endif
