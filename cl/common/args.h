/* SPDX-License-Identifier: Apache-2.0
 * The argument block of every kernel, shared by host and device: all numbers
 * that may change from call to call without a rebuild. */
#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
typedef ulong arg_u64;
typedef uint arg_u32;
typedef float arg_f32;
#else
typedef cl_ulong arg_u64;
typedef cl_uint arg_u32;
typedef cl_float arg_f32;
#endif

/* Where element [window, head, row, column] of a tensor lies, in elements:
 * offset + window * strides.window + ... A stride of 0 broadcasts. Tokens on a
 * grid: `window` is from grid to grid, axis and row are along its axes. */
typedef struct tensor_layout {
    arg_u64 offset;
    arg_u64 window;
    arg_u64 head;
    arg_u32 row;
    arg_u32 column;
    arg_u32 axis[2]; /* before the last, which is row */
} tensor_layout;

/* The grid that tokens lie on; three axes, of which the first may be 1 long.
 * How long a window is along each the kernels know as WINDOW_0 .. 2. */
typedef struct grid_layout {
    arg_u32 size[3];    /* tokens, without padding */
    arg_u32 windows[3]; /* along each axis */
    arg_u32 shift[3];
    arg_u32 shift_boundaries; /* bit a: the last windows of axis a have two
                                 regions */
} grid_layout;

/* Set in forward_args.flags. */
#define ARG_WIDE_ACCESS 1u    /* q, k, v, o allow aligned vector access */
#define ARG_LSE 2u            /* the buffer lse is given */
#define ARG_LOGIT_SCALE 4u    /* the buffer logit_scale is given */
#define ARG_WINDOW_BOUNDED 8u /* sliding: blocks further back are hidden */
/* backward: these buffers are given */
#define ARG_D_LSE 16u
#define ARG_DQ 32u
#define ARG_DK 64u
#define ARG_DV 128u
#define ARG_DBIAS 256u
#define ARG_D_LOGIT_SCALE 512u
/* backward: add to what the buffers hold */
#define ARG_ADD_DQ 1024u
#define ARG_ADD_DK 2048u
#define ARG_ADD_DV 4096u
#define ARG_ADD_SUMS 8192u      /* of sum_partials, sum_table */
#define ARG_FIRST_LAUNCH 16384u /* partial sums start at 0 */
#define ARG_O 32768u            /* backward: the buffer o is given */
#define ARG_PAD_K 65536u        /* the buffers pad_k and pad_v are given */
#define ARG_PAD_V 131072u
#define ARG_D_PAD_K 262144u
#define ARG_D_PAD_V 524288u

/* A work tile is one block of query rows of one head of one window; work tiles
 * are numbered with the row block running fastest, then the head. A launch
 * computes work tiles [first_work_tile, first_work_tile + work_tiles) counted
 * from first_window, so that a long call can be cut into several launches.
 *
 * Where work-groups keep something from window to window, the windows of a
 * launch are distributed instead, in the backward pass to `splits`: split s
 * computes windows s, s + splits, ..., or on tier matrix the rounds that
 * start_split of tile_scheduler.cl gives it. */
typedef struct forward_args {
    tensor_layout q, k, v, o;
    tensor_layout bias;                       /* row = query, column = key */
    tensor_layout mask;                       /* window = mask number */
    tensor_layout query_regions, key_regions; /* row = token */
    tensor_layout lse;
    tensor_layout pad_k, pad_v; /* head, column */
    grid_layout grid;
    arg_u64 logit_scale_offset;
    arg_u64 first_window;
    arg_u64 mask_windows;
    arg_u64 windows; /* of the launch, where they are distributed */
    arg_u32 splits;
    arg_u32 first_work_tile;
    arg_u32 work_tiles;
    arg_u32 row_blocks; /* per window-head */
    arg_u32 block_rows; /* query rows of a work tile, at most BLOCK_ROWS */
    arg_u32 heads;
    arg_u32 heads_per_kv_head;
    arg_u32 queries;
    arg_u32 keys;
    arg_u32 flags;
    arg_f32 scale;
    arg_f32 region_value; /* added between tokens of different regions */
    /* Sliding variant: token 0..first_block-1 is block 0, every later block
     * has `block` tokens; a query sees `window` blocks and the sink. */
    arg_u32 block;
    arg_u32 first_block;
    arg_u32 window;
    arg_u32 sink;
    arg_u32 query_offset;
    /* and of the row blocks those at the beginning, which see less than all of
     * the blocks that a row may see (tier matrix) */
    arg_u32 short_row_blocks;
    /* teams of a work-group that have no window (tile_scheduler.cl) */
    arg_u32 idle_teams;
    arg_u32 padding;
} forward_args;

/* Backward pass. A split keeps one partial sum of what is summed over windows.
 * The workspace holds, as fp32: what is known of the rows of a launch's
 * windows, [window - first_window][head][query][ROW_NUMBERS]; from
 * bias_partials on [split][head][query][key]; from scale_partials on
 * [split][head]; from pad_k_partials and pad_v_partials on [split][key block]
 * [key head][channel]. What is there for each query and key of a table of
 * biases comes last: a kernel that does not read the table finds its biases
 * there, and later, where partials are many, their sums are there. */
/* Of a row, on tiers cpu and local: P = exp(S - max) * factor, and delta =
 * sum P dP - d_lse; cosine: q^ . dq^. An lse, which stands for both of the
 * first on tier matrix, would be rounded: where logits are large, that P would
 * not sum to 1. On tier matrix: lse, +infinity for a row that sees nothing;
 * delta; a bound of |dS| in its tile, as it goes to dK, negative where an lse
 * of the tile is large; and (cosine) what q k^ is multiplied by; of windows
 * with wgmma what window_rows_wgmma.cl says. */
#define ROW_NUMBERS 4
#define ROW_MAX 0
#define ROW_DELTA 1
#define ROW_FACTOR 2
#define ROW_ALONG 3
/* Of tensor_maps.cl, in bytes of the workspace, where they are aligned. */
#define TENSOR_MAP_BYTES 128
#define SLIDING_MAPS 4
#define SLIDING_MAP_ROOM 640 /* for them, and for one more to align them */
typedef struct backward_args {
    forward_args forward;
    tensor_layout d_o, d_lse, dq, dk, dv;
    arg_u64 workspace; /* all of them in elements of the buffer */
    arg_u64 bias_partials;
    arg_u64 scale_partials;
    arg_u64 pad_k_partials, pad_v_partials;
    arg_u64 bounds;     /* sliding_numbers.cl (tier matrix) */
    arg_u64 maps;       /* tensor_maps.cl (Hopper) */
    arg_u32 key_blocks; /* of a window */
    /* and of the key blocks those at the end, which fewer rows see */
    arg_u32 short_key_blocks;
    arg_u32 bound_blocks; /* of rows of a window-head, which have bounds */
    arg_u32 unused;
} backward_args;

/* One sum over windows: the partials [splits][heads][rows][columns] go to
 * `to`, fp32. */
typedef struct sum_args {
    tensor_layout to;
    arg_u64 partials; /* in elements of the workspace */
    arg_u32 splits, heads, rows, columns;
    arg_u32 flags;
    arg_u32 first_group; /* of the launch, that adds up this one */
} sum_args;
/* All that a launch makes, in the order of their work-groups. */
#define SUMS 4
typedef struct all_sum_args {
    sum_args sum[SUMS];
} all_sum_args;
/* A work-group of sum_partials: neighbouring elements, and the work-items that
 * share the splits of each. */
#define SUM_ELEMENTS 16
#define SUM_PARTS 8

/* Sums over windows for each query and key, fp32 partials [splits][heads]
 * [queries * keys], added up by the entry of a table that each belongs to. */
typedef struct table_args {
    tensor_layout to; /* row = entry */
    arg_u64 from;     /* in elements of the workspace */
    arg_u64 pairs;    /* queries * keys */
    arg_u64 first;    /* of the launch's entries, those of head after head */
    arg_u32 heads, entries;
    arg_u32 flags;
    arg_u32 splits; /* 1: sum_partials has added them up */
    /* By position, as wa_table has it: the window's last two axes, what a
     * position along an axis counts, and positions by which no distance is 0.
     */
    arg_u32 queries, keys;
    arg_u32 window[2], step[2], center[3];
    arg_u32 padding;
} table_args;
/* A work-group of sum_table, which makes one entry of a head. */
#define TABLE_ITEMS 128
/* More partials than this sum_partials adds up first, since it reads what lies
 * together. */
#define TABLE_PARTIALS (1u << 19)
