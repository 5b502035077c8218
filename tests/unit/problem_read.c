/* SPDX-License-Identifier: Apache-2.0
 * What descriptors are read as: defaults, and what follows from grids. */
#include "problem_rows.h"

#define ARE(fields, a, b, c)                                                  \
    IS(fields[0], a), IS(fields[1], b), IS(fields[2], c)
/* The window of a grid is its batch. */
#define STRIDES_ARE(id, window, axis_1, row, head, column)                    \
    IS(tensor[id].stride[WA_WINDOW], window),                                 \
        IS(tensor[id].stride[WA_AXIS_0], 0),                                  \
        IS(tensor[id].stride[WA_AXIS_1], axis_1),                             \
        IS(tensor[id].stride[WA_ROW], row),                                   \
        IS(tensor[id].stride[WA_HEAD], head),                                 \
        IS(tensor[id].stride[WA_COLUMN], column)
#define SHIFTED FIELD(mask, WINATTN_MASK_SHIFT)
#define MINUS_100 0xc2c80000

const read_row read_rows[] = {
    /* ---- Windows ---- */
    {OF_DOT,
     {FIELD(dtype, WINATTN_FP16), FIELD(bias, WINATTN_BIAS_FULL),
      FIELD(bias_dtype, WINATTN_TERM_FP32), FIELD(mask, WINATTN_MASK_REGIONS),
      FIELD(mask_windows, 5)},
     {IS(kv_heads, 4), IS(region_value, MINUS_100),
      IS(scale, 0x3e3504f3), /* 1 / sqrt(32) */
      STRIDES_ARE(WA_Q, 4 * 49 * 32, 0, 32, 49 * 32, 1),
      IS(tensor[WA_Q].element_size, 2), IS(tensor[WA_Q].span, 6 * 4 * 49 * 32),
      IS(tensor[WA_BIAS].element_size, 4),
      IS(tensor[WA_BIAS].stride[WA_HEAD], 49 * 49),
      IS(tensor[WA_BIAS].span, 4 * 49 * 49),
      IS(tensor[WA_KEY_REGIONS].span, 5 * 49),
      IS(tensor[WA_KEY_REGIONS].element_size, 1),
      IS(tensor[WA_LSE].span, 6 * 4 * 49), IS(tensor[WA_MASK].used, false),
      IS(tensor[WA_LOGIT_SCALE].used, false)}},
    /* a real value */
    {OF_DOT,
     {FIELD(mask, WINATTN_MASK_REGIONS), FIELD(mask_windows, 4),
      FIELD(has_region_value, 1), FIELD(scale, 0xc0000000)},
     {IS(region_value, 0), IS(scale, 0xc0000000)}},
    /* 6 windows need not be a multiple */
    {OF_DOT,
     {FIELD(mask, WINATTN_MASK_REGIONS), FIELD(mask_windows, 4),
      FIELD(has_region_value, 1), FIELD(region_value, 0xff800000)},
     {IS(region_value, 0xff800000)}},
    {OF_DOT, {FIELD(allow_tf32, 1)}, {IS(allows_tf32, true)}},
    {OF_DOT, {FIELD(windows, 0)}, {IS(windows, 0)}},
    {OF_DOT, {FIELD(kv_heads, 2)}, {IS(kv_heads, 2)}},

    /* ---- What slides ---- */
    {OF_SLIDING,
     {FIELD(sink, 17)},
     {IS(first_block, 16), IS(window_blocks, 0)}},
    /* a sink of 20 tokens touches blocks 0 (10 tokens) and 1 */
    {OF_SLIDING,
     {FIELD(first_block, 10), FIELD(window_blocks, 5), FIELD(sink, 20),
      FIELD(sink_in_window, 1)},
     {IS(first_block, 10), IS(window_blocks, 3)}},
    {OF_SLIDING,
     {FIELD(first_block, 10), FIELD(window_blocks, 5), FIELD(sink, 10),
      FIELD(sink_in_window, 1)},
     {IS(window_blocks, 4)}},
    {OF_SLIDING,
     {FIELD(first_block, 10), FIELD(window_blocks, 5), FIELD(sink, 10)},
     {IS(window_blocks, 5)}},

    /* ---- Strides ---- */
    /* packed [windows, tokens, 3, heads, dim] */
    {OF_DOT,
     {STRIDES(q, 49 * 3 * 4 * 32, 32, 3 * 4 * 32, 1)},
     {STRIDES_ARE(WA_Q, 49 * 3 * 4 * 32, 0, 3 * 4 * 32, 32, 1)}},
    /* one k for all windows */
    {OF_DOT,
     {STRIDES(k, 0, 49 * 32, 32, 1)},
     {STRIDES_ARE(WA_K, 0, 0, 32, 49 * 32, 1)}},
    {OF_DOT,
     {STRIDES(lse, 196, 49, 1, 0)},
     {STRIDES_ARE(WA_LSE, 196, 0, 1, 49, 0)}},
    /* those of axes of extent 1 do not matter */
    {OF_DOT,
     {FIELD(windows, 1), FIELD(heads, 1), STRIDES(q, 7, 5, 32, 1)},
     {IS(tensor[WA_Q].span, 49 * 32)}},
    /* one bias for all heads; a mask that hides keys, not pairs */
    {OF_DOT,
     {FIELD(bias, WINATTN_BIAS_FULL), STRIDES(bias_strides, 0, 0, 49, 1)},
     {IS(tensor[WA_BIAS].span, 49 * 49)}},
    {OF_DOT,
     {FIELD(mask, WINATTN_MASK_ADDITIVE), FIELD(mask_windows, 3),
      STRIDES(mask_strides, 49, 0, 0, 1)},
     {IS(tensor[WA_MASK].span, 3 * 49)}},

    /* ---- Grids ---- */
    {OF_MAP,
     {SHIFTED, FIELD(kv_heads, 2), FIELD(passes, 3)},
     {IS(windows, 2 * 4 * 5), IS(queries, 42), IS(keys, 42),
      IS(grid.used, true), IS(grid.is_padded, true), IS(grid.axes, 2),
      IS(grid.batch, 2), ARE(grid.size, 1, 26, 30), ARE(grid.window, 1, 7, 6),
      ARE(grid.windows, 1, 4, 5), ARE(grid.shift, 0, 3, 2),
      IS(grid.shift_boundaries, 6), IS(region_value, MINUS_100)}},
    /* [batch, axes, heads, channels] */
    {OF_MAP,
     {SHIFTED, FIELD(kv_heads, 2), FIELD(passes, 3)},
     {STRIDES_ARE(WA_Q, 26 * 30 * 128, 30 * 128, 128, 32, 1),
      STRIDES_ARE(WA_DK, 26 * 30 * 64, 30 * 64, 64, 32, 1),
      STRIDES_ARE(WA_D_LSE, 26 * 30 * 4, 30 * 4, 4, 1, 0),
      IS(tensor[WA_O].span, 2 * 26 * 30 * 128)}},
    /* [kv_heads, channels] */
    {OF_MAP,
     {FIELD(kv_heads, 2), FIELD(passes, 3)},
     {STRIDES_ARE(WA_PAD_K, 0, 0, 0, 32, 1), IS(tensor[WA_PAD_V].span, 64),
      IS(tensor[WA_D_PAD_K].element_size, 4),
      IS(tensor[WA_D_PAD_V].extent[WA_HEAD], 2)}},
    /* what follows may be given; hidden padding has no values */
    {OF_MAP,
     {FIELD(windows, 40), FIELD(queries, 42), FIELD(keys, 42),
      FIELD(passes, 3), FIELD(grid.padding, WINATTN_PADDING_HIDDEN)},
     {IS(tensor[WA_PAD_K].used, false), IS(tensor[WA_D_PAD_V].used, false)}},
    /* nothing to pad, but an image of another size may need it: the tensors
     * are known all the same */
    {OF_MAP,
     {FIELD(grid.size[0], 28)},
     {IS(grid.is_padded, false), IS(tensor[WA_PAD_K].used, true),
      IS(tensor[WA_D_PAD_K].used, false)}},
    {OF_MAP, {FIELD(grid.batch, 0)}, {IS(windows, 0)}},
    {OF_MAP,
     {FIELD(mask, WINATTN_MASK_REGIONS), FIELD(mask_windows, 2)},
     {IS(mask_windows, 2)}},
    {OF_MAP,
     {SHIFTED, FIELD(has_region_value, 1), FIELD(region_value, 0xff800000)},
     {IS(region_value, 0xff800000)}},

    /* ---- Shifts ---- */
    /* none where the window covers the padded axis, no shift boundary where
     * the axis is a circle */
    {OF_MAP,
     {SHIFTED, FIELD(grid.size[0], 5), FIELD(grid.size[1], 6)},
     {ARE(grid.shift, 0, 0, 0), ARE(grid.windows, 1, 1, 1),
      IS(grid.shift_boundaries, 0)}},
    {OF_MAP,
     {SHIFTED, FIELD(grid.size[0], 8), FIELD(grid.size[1], 6)},
     {ARE(grid.shift, 0, 3, 0), IS(grid.shift_boundaries, 2)}},
    {OF_MAP,
     {SHIFTED, FIELD(grid.size[0], 8), FIELD(grid.size[1], 12),
      FIELD(grid.periodic[1], 1)},
     {ARE(grid.shift, 0, 3, 2), IS(grid.shift_boundaries, 2)}},
    {OF_MAP,
     {SHIFTED, FIELD(grid.axes, 3), FIELD(grid.size[0], 8),
      FIELD(grid.size[1], 12), FIELD(grid.periodic[1], 1),
      FIELD(grid.size[2], 9), FIELD(grid.window[2], 4),
      FIELD(grid.shift[2], 1)},
     {ARE(grid.size, 8, 12, 9), ARE(grid.shift, 3, 2, 1),
      IS(grid.shift_boundaries, 5), IS(queries, 7 * 6 * 4),
      IS(windows, 2 * 2 * 2 * 3)}},
#define ROLLED(size_0, size_1, shift_0, shift_1, how)                         \
    {                                                                         \
        SHIFTED, FIELD(grid.size[0], size_0), FIELD(grid.size[1], size_1),    \
            FIELD(grid.shift[0], shift_0), FIELD(grid.shift[1], shift_1),     \
            FIELD(grid_options, how)                                          \
    }
    /* axis 0 is padded and shifted: it matters what comes first */
    {OF_MAP,
     ROLLED(26, 30, 3, 2, WINATTN_GRID_ROLL_FIRST),
     {IS(grid.rolls_first, true), IS(grid.shift_boundaries, 6)}},
    {OF_MAP, ROLLED(26, 30, 3, 2, 0), {IS(grid.rolls_first, false)}},
    /* padded, shifted, not the same */
    {OF_MAP,
     ROLLED(26, 30, 0, 2, WINATTN_GRID_ROLL_FIRST),
     {IS(grid.rolls_first, false), IS(grid.shift_boundaries, 4)}},
    /* nothing is padded */
    {OF_MAP,
     ROLLED(28, 30, 3, 2, WINATTN_GRID_ROLL_FIRST),
     {IS(grid.rolls_first, false), IS(grid.shift_boundaries, 6)}},
    /* one whole window, shifted */
    {OF_MAP,
     ROLLED(7, 30, 3, 0, WINATTN_GRID_ROLL_FIRST),
     {IS(grid.rolls_first, false), IS(grid.shift_boundaries, 2),
      ARE(grid.shift, 0, 3, 0)}},
    {OF_MAP,
     ROLLED(7, 30, 3, 0, WINATTN_GRID_SHIFT_ALL),
     {IS(grid.rolls_first, false), ARE(grid.shift, 0, 3, 0)}},
    /* by more than there is of the map */
    {OF_MAP,
     ROLLED(28, 4, 0, 5, WINATTN_GRID_ROLL_FIRST),
     {IS(grid.rolls_first, true), IS(grid.shift_boundaries, 4),
      ARE(grid.shift, 0, 0, 5)}},
    {OF_MAP,
     ROLLED(28, 4, 0, 5, WINATTN_GRID_SHIFT_ALL),
     {IS(grid.rolls_first, false), ARE(grid.shift, 0, 0, 5)}},

    /* ---- Strides of maps ---- */
    /* packed [batch, y, x, 3, heads, dim] */
    {OF_MAP,
     {MAP_STRIDES(q, 26 * 30 * 384, 30 * 384, 384)},
     {STRIDES_ARE(WA_Q, 26 * 30 * 384, 30 * 384, 384, 32, 1),
      IS(tensor[WA_Q].span, 2 * 26 * 30 * 384 - 256)}},
    /* each line the same */
    {OF_MAP,
     {MAP_STRIDES(q, 26 * 30 * 384, 0, 384)},
     {STRIDES_ARE(WA_Q, 26 * 30 * 384, 0, 384, 32, 1)}},
    {OF_MAP,
     {MAP_STRIDES(q, (cl_ulong)1 << 40, 171798244, 384)},
     {IS(tensor[WA_Q].stride[WA_AXIS_1], 171798244)}},
    /* whether k has the same is for calls to check */
    {OF_MAP,
     {FIELD(pad_k.head, 1), FIELD(pad_k.column, 4)},
     {STRIDES_ARE(WA_PAD_K, 0, 0, 0, 1, 4)}},

    /* ---- Tables ---- */
    /* [entries, heads] */
    {OF_TABLE,
     {FIELD(passes, WINATTN_PASS_BACKWARD)},
     {IS(table.entries, 13 * 11), ARE(table.window, 1, 7, 6),
      ARE(table.step, 13 * 11, 11, 1), IS(table.center, 6 * 11 + 5),
      IS(table.has_index, false), STRIDES_ARE(WA_BIAS, 0, 0, 4, 1, 0),
      IS(tensor[WA_BIAS].span, 13 * 11 * 4),
      IS(tensor[WA_BIAS].element_size, 4),
      STRIDES_ARE(WA_DBIAS, 0, 0, 4, 1, 0)}},
    {OF_TABLE,
     {STRIDES(bias_strides, 0, 143, 1, 0)},
     {STRIDES_ARE(WA_BIAS, 0, 0, 1, 143, 0)}},
    /* of a larger window, whose positions a slice keeps */
    {OF_TABLE,
     {FIELD(table.axes, 2), FIELD(table.window[0], 8),
      FIELD(table.window[1], 7)},
     {IS(table.entries, 15 * 13), ARE(table.window, 1, 7, 6),
      IS(table.center, 7 * 13 + 6)}},
    {OF_TABLE,
     {FIELD(table.axes, 2), FIELD(table.window[0], 8),
      FIELD(table.window[1], 7), FIELD(table.sliced, 1)},
     {ARE(table.window, 1, 8, 7)}},
    {OF_COSINE,
     {FIELD(bias, WINATTN_BIAS_TABLE), FIELD(table.axes, 2),
      FIELD(table.window[0], 7), FIELD(table.window[1], 7)},
     {ARE(table.window, 1, 7, 7)}},
    {OF_COSINE,
     {FIELD(bias, WINATTN_BIAS_TABLE), FIELD(table.axes, 2),
      FIELD(table.window[0], 7), FIELD(table.window[1], 8),
      FIELD(table.sliced, 1)},
     {ARE(table.window, 1, 7, 8)}},
};
const size_t read_count = sizeof read_rows / sizeof *read_rows;
