/* SPDX-License-Identifier: Apache-2.0
 * Every way to be wrong, with its status and a reason that names the culprit.
 */
#include "problem_rows.h"

#define ARGUMENT WINATTN_INVALID_ARGUMENT
#define LAYOUT WINATTN_INVALID_LAYOUT
#define UNSUPPORTED WINATTN_UNSUPPORTED_PROBLEM

#define REFUSED(what, status, culprit, ...)                                   \
    {                                                                         \
        what, status, culprit, { __VA_ARGS__ }                                \
    }
#define WINDOW(axis_0, axis_1)                                                \
    FIELD(table.axes, 2), FIELD(table.window[0], axis_0),                     \
        FIELD(table.window[1], axis_1)
#define LARGE ((cl_ulong)1 << 62)

const refused_row refused_rows[] = {
    /* ---- Sizes ---- */
    REFUSED(OF_DOT, ARGUMENT, "heads", FIELD(heads, 0)),
    REFUSED(OF_DOT, ARGUMENT, "queries", FIELD(queries, 0)),
    REFUSED(OF_DOT, ARGUMENT, "keys", FIELD(keys, 0)),
    REFUSED(OF_DOT, ARGUMENT, "head_dim", FIELD(head_dim, 0)),
    REFUSED(OF_DOT, UNSUPPORTED, "head_dim", FIELD(head_dim, 257)),
    REFUSED(OF_DOT, UNSUPPORTED, "heads", FIELD(heads, 65537)),
    REFUSED(OF_DOT, UNSUPPORTED, "queries", FIELD(queries, 0x80000000u)),
    REFUSED(OF_DOT, ARGUMENT, "windows", FIELD(windows, UINT64_MAX)),
    /* fits 63 bits as a count, but not as elements */
    REFUSED(OF_DOT, ARGUMENT, "2^63", FIELD(windows, (cl_ulong)1 << 52)),
    REFUSED(OF_DOT, ARGUMENT, "kv_heads", FIELD(kv_heads, 3)),
    REFUSED(OF_DOT, ARGUMENT, "kv_heads", FIELD(kv_heads, 8)),
    REFUSED(OF_DOT, ARGUMENT, "variant", FIELD(variant, 3)),
    REFUSED(OF_DOT, ARGUMENT, "dtype", FIELD(dtype, -1)),
    REFUSED(OF_DOT, ARGUMENT, "tier", FIELD(tier, 9)),
    REFUSED(OF_DOT, ARGUMENT, "bias", FIELD(bias, 3)),
    REFUSED(OF_DOT, ARGUMENT, "mask", FIELD(mask, MOST_MASK)),
    REFUSED(OF_DOT, ARGUMENT, "bias_dtype", FIELD(bias_dtype, 2)),
    REFUSED(OF_DOT, ARGUMENT, "mask_dtype", FIELD(mask_dtype, 2)),
    REFUSED(OF_DOT, ARGUMENT, "scale", FIELD(scale, NAN_BITS)),
    REFUSED(OF_DOT, ARGUMENT, "scale", FIELD(scale, INFINITE_BITS)),
    REFUSED(OF_DOT, ARGUMENT, "allow_tf32", FIELD(allow_tf32, 1),
            FIELD(dtype, WINATTN_FP16)),

    /* ---- Masks ---- */
    REFUSED(OF_DOT, ARGUMENT, "mask_windows", FIELD(mask_windows, 2)),
    REFUSED(OF_DOT, ARGUMENT, "mask_windows",
            FIELD(mask, WINATTN_MASK_ADDITIVE)),
    REFUSED(OF_DOT, ARGUMENT, "region_value", FIELD(has_region_value, 1)),
    REFUSED(OF_DOT, ARGUMENT, "region_value",
            FIELD(mask, WINATTN_MASK_REGIONS), FIELD(mask_windows, 4),
            FIELD(has_region_value, 1), FIELD(region_value, NAN_BITS)),
    REFUSED(OF_SLIDING, UNSUPPORTED, "bias", FIELD(bias, WINATTN_BIAS_FULL)),
    REFUSED(OF_SLIDING, UNSUPPORTED, "mask",
            FIELD(mask, WINATTN_MASK_ADDITIVE), FIELD(mask_windows, 1)),

    /* ---- What slides ---- */
    REFUSED(OF_SLIDING, ARGUMENT, "block", FIELD(block, 0)),
    REFUSED(OF_SLIDING, UNSUPPORTED, "query_offset",
            FIELD(query_offset, 0x7fffffff)),
    REFUSED(OF_SLIDING, UNSUPPORTED, "sink", FIELD(sink, 0x80000000u)),
    REFUSED(OF_SLIDING, ARGUMENT, "sink", FIELD(window_blocks, 2),
            FIELD(sink, 17), FIELD(sink_in_window, 1)),
    REFUSED(OF_DOT, ARGUMENT, "block", FIELD(block, 16)),
    REFUSED(OF_DOT, ARGUMENT, "sink", FIELD(sink, 16)),
    REFUSED(OF_DOT, ARGUMENT, "query_offset", FIELD(query_offset, 1)),
    REFUSED(OF_COSINE, ARGUMENT, "block", FIELD(block, 16)),
    REFUSED(OF_COSINE, ARGUMENT, "sink", FIELD(sink, 16)),
    REFUSED(OF_COSINE, ARGUMENT, "query_offset", FIELD(query_offset, 1)),

    /* ---- Strides ---- */
    /* a row one element too short for its channels */
    REFUSED(OF_DOT, LAYOUT, "q", STRIDES(q, 49 * 4 * 32, 49 * 32, 31, 1)),
    /* heads reach into each other */
    REFUSED(OF_DOT, LAYOUT, "q", STRIDES(q, 49 * 4 * 32, 49 * 32 - 1, 32, 1)),
    /* equal strides */
    REFUSED(OF_DOT, LAYOUT, "q", STRIDES(q, 49 * 4 * 32, 49 * 32, 32, 32)),
    REFUSED(OF_DOT, LAYOUT, "o", STRIDES(o, 0, 49 * 32, 32, 1)),
    REFUSED(OF_DOT, LAYOUT, "o", STRIDES(o, 4 * 49 * 32, 49 * 32, 32, 0)),
    REFUSED(OF_DOT, LAYOUT, "lse has no axis column",
            STRIDES(lse, 196, 49, 1, 1)),
    REFUSED(OF_DOT, LAYOUT, "v", STRIDES(v, LARGE, 49 * 32, 32, 1)),
    REFUSED(OF_DOT, LAYOUT, "2^32",
            STRIDES(v, (cl_ulong)1 << 45, 49 * 32, (cl_ulong)1 << 33, 1)),
    REFUSED(OF_DOT, LAYOUT, "bias has no axis window",
            FIELD(bias, WINATTN_BIAS_FULL),
            STRIDES(bias_strides, 1, 0, 49, 1)),
    REFUSED(OF_DOT, UNSUPPORTED, "bias", FIELD(bias, WINATTN_BIAS_FULL),
            STRIDES(bias_strides, 0, 0, (cl_ulong)1 << 31, 1)),
    REFUSED(OF_DOT, LAYOUT, "mask has no axis head",
            FIELD(mask, WINATTN_MASK_ADDITIVE), FIELD(mask_windows, 3),
            STRIDES(mask_strides, 49, 1, 0, 1)),
    REFUSED(OF_DOT, LAYOUT, "q has no axis axis[1]", FIELD(q.axis[1], 1)),

    /* ---- Grids ---- */
    REFUSED(OF_MAP, ARGUMENT, "grid.axes", FIELD(grid.axes, 4)),
    REFUSED(OF_MAP, ARGUMENT, "axis 1", FIELD(grid.axes, 1)),
    REFUSED(OF_MAP, ARGUMENT, "grid.size[2]", FIELD(grid.axes, 3)),
    REFUSED(OF_MAP, ARGUMENT, "axis 2", FIELD(grid.size[2], 1)),
    REFUSED(OF_MAP, ARGUMENT, "axis 2", FIELD(grid.window[2], 1)),
    REFUSED(OF_MAP, ARGUMENT, "axis 2", FIELD(grid.shift[2], 1)),
    REFUSED(OF_MAP, ARGUMENT, "axis 2", FIELD(grid.periodic[2], 1)),
    REFUSED(OF_MAP, ARGUMENT, "grid.size[0]", FIELD(grid.size[0], 0)),
    REFUSED(OF_MAP, UNSUPPORTED, "grid.size[1]",
            FIELD(grid.size[1], 0x80000000u)),
    /* padded it is above the limit */
    REFUSED(OF_MAP, UNSUPPORTED, "grid.size[0]",
            FIELD(grid.size[0], 0x7fffffff)),
    REFUSED(OF_MAP, ARGUMENT, "grid.window[1]", FIELD(grid.window[1], 0)),
    REFUSED(OF_MAP, ARGUMENT, "grid.shift[0]", FIELD(grid.shift[0], 7)),
    REFUSED(OF_MAP, UNSUPPORTED, "grid.size[0]", FIELD(grid.periodic[0], 1)),
    REFUSED(OF_MAP, ARGUMENT, "grid.padding", FIELD(grid.padding, 2)),
    REFUSED(OF_MAP, UNSUPPORTED, "grid.batch",
            FIELD(grid.batch, (cl_ulong)1 << 32)),
    REFUSED(OF_MAP, ARGUMENT, "grid_options is 0x4", FIELD(grid_options, 4)),
    REFUSED(OF_MAP, ARGUMENT, "windows is 41", FIELD(windows, 41)),
    REFUSED(OF_MAP, ARGUMENT, "queries is 49", FIELD(queries, 49)),
    REFUSED(OF_MAP, ARGUMENT, "keys is 49", FIELD(keys, 49)),
    REFUSED(OF_MAP, ARGUMENT, "mask_windows", FIELD(mask_windows, 2)),
    REFUSED(OF_MAP, ARGUMENT, "region_value", FIELD(has_region_value, 1)),
    REFUSED(OF_MAP, ARGUMENT, "mask_windows", FIELD(mask_windows, 2),
            FIELD(mask, WINATTN_MASK_SHIFT)),
    REFUSED(OF_MAP, ARGUMENT, "region_value", FIELD(mask, WINATTN_MASK_SHIFT),
            FIELD(has_region_value, 1), FIELD(region_value, NAN_BITS)),
    REFUSED(OF_MAP, UNSUPPORTED, "2^31 windows", FIELD(grid.size[0], 1 << 16),
            FIELD(grid.size[1], 1 << 16), FIELD(grid.window[0], 1),
            FIELD(grid.window[1], 1), FIELD(grid.shift[0], 0),
            FIELD(grid.shift[1], 0)),
    REFUSED(OF_MAP, UNSUPPORTED, "2^31 tokens", FIELD(grid.size[0], 1 << 16),
            FIELD(grid.size[1], 1 << 16), FIELD(grid.window[0], 1 << 16),
            FIELD(grid.window[1], 1 << 16)),
    REFUSED(OF_MAP, UNSUPPORTED, "grid", FIELD(variant, WINATTN_SLIDING),
            FIELD(block, 7)),
    REFUSED(OF_DOT, ARGUMENT, "grid.axes", FIELD(grid.batch, 1)),
    REFUSED(OF_DOT, ARGUMENT, "grid.axes", FIELD(grid.padding, 1)),
    REFUSED(OF_DOT, ARGUMENT, "grid_options is set", FIELD(grid_options, 1)),
    REFUSED(OF_DOT, ARGUMENT, "needs a grid", FIELD(mask, WINATTN_MASK_SHIFT)),

    /* ---- Strides of maps ---- */
    REFUSED(OF_MAP, LAYOUT, "q lies on a grid",
            MAP_STRIDES(q, 26 * 30 * 384, 30 * 384, 384), FIELD(q.row, 1)),
    REFUSED(OF_MAP, LAYOUT, "q has no axis axis[2]",
            MAP_STRIDES(q, 26 * 30 * 384, 30 * 384, 384), FIELD(q.axis[2], 1)),
    /* lines reach into each other */
    REFUSED(OF_MAP, LAYOUT, "q", MAP_STRIDES(q, 26 * 30 * 384, 29 * 384, 384)),
    REFUSED(OF_MAP, LAYOUT, "axis[0] of q",
            MAP_STRIDES(q, (cl_ulong)1 << 40, (cl_ulong)1 << 33, 384)),
    /* the last token's first channel is within 2^32, its last is not */
    REFUSED(OF_MAP, UNSUPPORTED, "a grid of q spans",
            MAP_STRIDES(q, (cl_ulong)1 << 40, 171798246, 384)),
    REFUSED(OF_MAP, LAYOUT, "axis axis[1]", MAP_STRIDES(o, 99840, 3840, 0)),
    REFUSED(OF_MAP, LAYOUT, "lse has no axis column", FIELD(lse.column, 1)),
    /* masks have windows, not axes */
    REFUSED(OF_MAP, LAYOUT, "mask has no axis axis[0]",
            FIELD(mask, WINATTN_MASK_ADDITIVE), FIELD(mask_windows, 20),
            FIELD(mask_strides.axis[0], 1)),
    REFUSED(OF_MAP, LAYOUT, "pad_k has no axis window",
            FIELD(pad_k.window, 1)),
    REFUSED(OF_MAP, LAYOUT, "pad_k has no axis row", FIELD(pad_k.row, 1)),
    REFUSED(OF_MAP, LAYOUT, "pad_k has no axis axis[0]",
            FIELD(pad_k.axis[0], 1)),
    /* heads fall onto each other */
    REFUSED(OF_MAP, LAYOUT, "d_pad_v is an output",
            FIELD(passes, WINATTN_PASS_BACKWARD), FIELD(d_pad_v.column, 1)),

    /* ---- Tables ---- */
    REFUSED(OF_TABLE, ARGUMENT, "table.window[1], 5", WINDOW(8, 5)),
    REFUSED(OF_TABLE, ARGUMENT, "table.window[1]", WINDOW(8, 0)),
    REFUSED(OF_TABLE, ARGUMENT, "table.axes is 1", FIELD(table.axes, 1),
            FIELD(table.window[0], 8)),
    REFUSED(OF_TABLE, ARGUMENT, "table.window[1] is 7", FIELD(table.axes, 1),
            FIELD(table.window[0], 8), FIELD(table.window[1], 7)),
    REFUSED(OF_TABLE, ARGUMENT, "table.axes is 4", FIELD(table.axes, 4)),
    REFUSED(OF_TABLE, UNSUPPORTED, "2^31 entries", WINDOW(1 << 16, 1 << 16)),
    REFUSED(OF_COSINE, ARGUMENT, "table.axes",
            FIELD(bias, WINATTN_BIAS_TABLE)),
    REFUSED(OF_COSINE, ARGUMENT, "table.sliced",
            FIELD(bias, WINATTN_BIAS_TABLE), WINDOW(7, 8)),
    REFUSED(OF_COSINE, ARGUMENT, "fewer than", FIELD(bias, WINATTN_BIAS_TABLE),
            WINDOW(7, 6), FIELD(table.sliced, 1)),
    REFUSED(OF_COSINE, UNSUPPORTED, "queries x keys",
            FIELD(bias, WINATTN_BIAS_TABLE), WINDOW(7, 6),
            FIELD(table.sliced, 1), FIELD(queries, 1 << 16),
            FIELD(keys, 1 << 16)),
    REFUSED(OF_TABLE, LAYOUT, "bias has no axis column",
            STRIDES(bias_strides, 0, 143, 1, 1)),
    REFUSED(OF_TABLE, UNSUPPORTED, "bias",
            STRIDES(bias_strides, 0, 143, 1 << 25, 0)),
    REFUSED(OF_TABLE, LAYOUT, "bias has no axis axis[0]",
            STRIDES(bias_strides, 0, 143, 1, 0),
            FIELD(bias_strides.axis[0], 1)),
    REFUSED(OF_DOT, ARGUMENT, "table", FIELD(table.sliced, 1)),
    REFUSED(OF_DOT, ARGUMENT, "table", FIELD(table.entries, 4)),
    REFUSED(OF_SLIDING, UNSUPPORTED, "bias", FIELD(bias, WINATTN_BIAS_TABLE)),
};
const size_t refused_count = sizeof refused_rows / sizeof *refused_rows;
