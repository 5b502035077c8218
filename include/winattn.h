/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * winattn: windowed attention on every OpenCL device.
 *
 * The library computes softmax(logits) V inside windows, with the attention
 * matrix of a window kept on the chip:
 *
 *     dot      S = scale Q K^T + bias + mask          Swin Transformer, Liu et
 *                                                     al. 2021, section 3.2
 *     cosine   S = s Q^ K^T + bias + mask, with rows  Swin Transformer V2, Liu
 *              Q^, K^ of length 1 and s learned       et al. 2022, section 3.2
 *              per head
 *     sliding  S = scale Q K^T over the blocks that   block-causal attention
 *              a query's block may see                with a window of blocks
 *
 * forward, and the gradients of all of it.
 *
 * Use: fill a winattn_desc, create a plan for one context and device, then
 * enqueue the plan as often as wanted with buffers of the caller's.
 *
 *     winattn_desc desc = {0};
 *     desc.struct_size = sizeof desc;
 *     desc.windows = 64;      // 8 x 8 windows of one 56 x 56 map
 *     desc.heads = 3;
 *     desc.queries = desc.keys = 49;
 *     desc.head_dim = 32;
 *     winattn_plan *plan;
 *     if (winattn_plan_create(context, device, &desc, &plan) != 0)
 *         puts(winattn_last_reason());
 *
 * The caller owns context, queues, buffers and workspace. The library never
 * prints, aborts or exits. Memory objects are cl_mem buffers; images, shared
 * virtual memory and unified shared memory are not supported. A device needs
 * OpenCL 1.2 and 64-bit integers.
 *
 * Accuracy, against fp64 on the same inputs: the error of a result is at most
 * 5e-6 in fp32, 5e-4 in fp16 and 4e-3 in bf16, that of a gradient 1e-5, 1e-3
 * and 6e-3, in the 2-norm, relative to the result or to a tenth of its terms'
 * absolute values summed, whichever is more: what cancels is not as exact as
 * what it is made of. That holds for what one window and head have of o, dq,
 * dk and dv, or of dq and dk of the cosine variant one row, and for what one
 * head has of gradients that windows share. lse has the error of fp32,
 * relative to that sum. Where the ulp of the largest logit is coarser, that
 * counts: 2^-23 of it, for gradients 2^-21. WINATTN_TIER_MATRIX and allow_tf32
 * say what is different there.
 *
 * Threads: every function may be called from any thread at any time, with one
 * exception: winattn_plan_destroy must not run beside another call on that
 * plan. One workspace serves one call in flight.
 *
 * Processes: OpenCL does not survive fork. Where a plan or a winattn_programs
 * was made before, every call of a child that needs OpenCL fails with
 * WINATTN_INVALID_PROCESS, and destroying what it has of its parent does
 * nothing.
 *
 * Structs that start with struct_size, its sizeof in the program, grow at
 * their end from version to version; those within them never do. A program
 * that was compiled with an older header may pass its shorter ones: what they
 * lack is 0. Of a newer program's longer ones the library accepts what it
 * knows, if the rest is 0. More than 4096 bytes no version will have; such a
 * struct_size is refused, as one that was never set. */
#ifndef WINATTN_H
#define WINATTN_H

#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup winattn_versions Version
 * @{ */

#define WINATTN_VERSION_MAJOR 0 /**< of this header */
#define WINATTN_VERSION_MINOR 2 /**< of this header */
#define WINATTN_VERSION_PATCH 0 /**< of this header */
/** This header's version as one number: 203 is 0.2.3, 10000 is 1.0.0. */
#define WINATTN_VERSION                                                       \
    (WINATTN_VERSION_MAJOR * 10000 + WINATTN_VERSION_MINOR * 100 +            \
     WINATTN_VERSION_PATCH)

/* What stands before each function. WINATTN_STATIC is defined by the CMake
 * target of the static library. */
#if defined(WINATTN_STATIC)
#define WINATTN_API
#elif defined(_WIN32) && defined(WINATTN_BUILDING)
#define WINATTN_API __declspec(dllexport)
#elif defined(_WIN32)
#define WINATTN_API __declspec(dllimport)
#elif defined(__GNUC__)
#define WINATTN_API __attribute__((visibility("default")))
#else
#define WINATTN_API
#endif

/** WINATTN_VERSION of the library that runs. It may be newer than the
 * header. */
WINATTN_API int winattn_version(void);

/** @} */

/* ---- Status ------------------------------------------------------------ */

/** @defgroup winattn_statuses Status
 * What a call returns, and why it failed.
 * @{ */

/** 0 is success. OpenCL's own error codes pass through; winattn's own codes
 * start at -3000 and never change their number. A call that fails leaves the
 * library as it was: made again once the cause is gone, it gives what it would
 * have given. Where memory of the host is short, a call fails with
 * CL_OUT_OF_HOST_MEMORY. */
typedef cl_int winattn_status;

/** winattn's own codes, as X(name, number, cause). */
#define WINATTN_STATUS_LIST(X)                                                \
    X(WINATTN_INVALID_ARGUMENT, -3000,                                        \
      "an argument is NULL, out of range or contradicts another")             \
    X(WINATTN_INVALID_LAYOUT, -3001,                                          \
      "strides overlap or overflow, or an offset splits an element")          \
    X(WINATTN_INVALID_BUFFER, -3002,                                          \
      "a memory object is no buffer, of another context, or not accessible")  \
    X(WINATTN_BUFFER_TOO_SMALL, -3003, "a tensor runs past its buffer")       \
    X(WINATTN_INVALID_QUEUE, -3004,                                           \
      "a queue belongs to another context or device than the plan")           \
    X(WINATTN_INVALID_PROCESS, -3005,                                         \
      "OpenCL was used before this process was forked")                       \
    X(WINATTN_UNSUPPORTED_PROBLEM, -3010,                                     \
      "the library does not compute this combination")                        \
    X(WINATTN_UNSUPPORTED_DEVICE, -3020,                                      \
      "the device lacks what every kernel needs")                             \
    X(WINATTN_WORKSPACE_TOO_SMALL, -3030,                                     \
      "the workspace is smaller than winattn_plan_workspace_size says")       \
    X(WINATTN_INVALID_BLOB, -3040,                                            \
      "compiled kernels are damaged, or of another version or device")        \
    X(WINATTN_INVALID_FILE, -3050,                                            \
      "a file cannot be read, is damaged, or does not hold what it should")   \
    X(WINATTN_DRIVER_FAILED, -3060, "a driver other than OpenCL's failed")

/** The codes of WINATTN_STATUS_LIST, and success. */
enum {
    WINATTN_SUCCESS = 0, /**< the call did what it should */
#define WINATTN_STATUS_ENTRY_(name, number, cause) name = number,
    WINATTN_STATUS_LIST(WINATTN_STATUS_ENTRY_)
#undef WINATTN_STATUS_ENTRY_
};

/** The name of a status, such as "WINATTN_INVALID_LAYOUT" or
 * "CL_OUT_OF_RESOURCES". Never NULL, also for a number that is no status. */
WINATTN_API const char *winattn_status_name(winattn_status status);

/** The cause of a status in one line. Never NULL, also for a number that is no
 * status. */
WINATTN_API const char *winattn_status_message(winattn_status status);

/** Why the calling thread's last failed call failed: the first reason found,
 * with names and numbers, in one line. Never NULL; "" before any failure.
 * Valid until the thread's next call of this library. */
WINATTN_API const char *winattn_last_reason(void);

/** The compiler's output when the calling thread's last failed call failed
 * because a kernel did not build, else "". At most the first 16 KiB. Valid
 * until the thread's next call of this library. */
WINATTN_API const char *winattn_last_build_log(void);

/** @} */

/* ---- Problem ----------------------------------------------------------- */

/** @defgroup winattn_problem Problem
 * What a plan is made for: winattn_desc and what stands in it.
 * @{ */

/** Which logits S are computed; see the start of winattn.h. */
typedef enum winattn_variant {
    /** S = scale Q K^T + bias + mask (Vaswani et al. 2017, section 3.2.1; with
     * the bias Liu et al. 2021, section 3.2). */
    WINATTN_DOT = 0,
    /** S = s Q^ K^T + bias + mask, where Q^ = q / max(|q|, 1e-12) for each
     * row, K^ likewise, and s = exp(min(logit_scale, ln 100)) (Liu et al.
     * 2022, section 3.2). */
    WINATTN_COSINE = 1,
    /** S = scale Q K^T over the blocks that a query's block may see, without
     * bias and mask; winattn_desc.block says which. */
    WINATTN_SLIDING = 2
} winattn_variant;

/** How q, k, v and o are stored. Sums, softmax and logarithms are fp32. */
typedef enum winattn_dtype {
    WINATTN_FP32 = 0, /**< 4 bytes, IEEE 754 binary32 */
    WINATTN_FP16 = 1, /**< 2 bytes, IEEE 754 binary16 */
    WINATTN_BF16 = 2  /**< 2 bytes, the upper half of an fp32 number */
} winattn_dtype;

/** How bias or mask are stored. */
typedef enum winattn_term_dtype {
    WINATTN_TERM_SAME = 0, /**< like q, k, v and o */
    WINATTN_TERM_FP32 = 1  /**< fp32, whatever q, k, v and o are */
} winattn_term_dtype;

/** What is added to the logits of all windows. */
typedef enum winattn_bias {
    WINATTN_BIAS_NONE = 0, /**< nothing */
    WINATTN_BIAS_FULL = 1, /**< [heads, queries, keys] */
    /** [entries, heads]: a table of biases that the relative position of query
     * and key, or an index of the caller's, chooses from; see
     * winattn_table. */
    WINATTN_BIAS_TABLE = 2
} winattn_bias;

/** What hides keys from queries, window by window. */
typedef enum winattn_mask {
    WINATTN_MASK_NONE = 0, /**< nothing */
    /** [mask_windows, queries, keys], added to the logits. Any number is
     * legal, -INFINITY too: a query that sees no key gives o = 0 and
     * lse = -INFINITY. Keys and values that a mask hides are computed with all
     * the same, with weights of 0: an infinity or NaN in them makes o NaN. */
    WINATTN_MASK_ADDITIVE = 1,
    /** Region numbers, cl_uchar [mask_windows, queries] and [mask_windows,
     * keys]; region_value is added where they differ. */
    WINATTN_MASK_REGIONS = 2,
    /** With a grid: the regions that its shift makes of the windows at its far
     * edges, computed, so that no tensor is needed; see winattn_grid. */
    WINATTN_MASK_SHIFT = 3
} winattn_mask;

/** The kinds of kernels. AUTO takes the best that the device builds, for each
 * pass; the others demand one for all passes and fail where it is not
 * possible. The best is MATRIX, else LOCAL, else CPU on a GPU, and CPU first
 * on a CPU. */
typedef enum winattn_tier {
    WINATTN_TIER_AUTO = 0,  /**< the best of the others, for each pass */
    WINATTN_TIER_CPU = 1,   /**< work-items with vectors */
    WINATTN_TIER_LOCAL = 2, /**< attention matrix in local memory, fp32 FMA */
    /** The device's matrix unit: both passes of the dot and cosine variants in
     * fp16 and bf16, and the forward pass in fp32 with
     * winattn_desc.allow_tf32; of the backward pass not where a window is so
     * large that its sums find no room. Whoever demands it for what it does
     * not compute is refused, and makes another plan for that. Products are
     * summed in fp32; weights, and the gradients of logits, are rounded to the
     * storage type, or to TF32, before they are multiplied. Results are as
     * accurate as those of other tiers are promised to be (in fp16 but for a
     * key all of whose weights are below 2^-28 of the window's largest: its
     * gradients may be 0), and the same call gives the same bits, but not
     * those of another tier; the last bits of a window may depend on which
     * windows the call has beside it. A unit that fails its self-test is not
     * used, and one that nobody has run on silicon yet must be demanded:
     * NVIDIA's, of compute capability 8.0 and later, is known to compute;
     * AMD's WMMA (gfx11, gfx12) and MFMA (gfx90a, gfx94x) and Intel's DPAS are
     * not. */
    WINATTN_TIER_MATRIX = 3
} winattn_tier;

#define WINATTN_PASS_FORWARD 1u  /**< winattn_desc.passes: forward */
#define WINATTN_PASS_BACKWARD 2u /**< winattn_desc.passes: backward */

#define WINATTN_AXES 3 /**< of a grid or a table, at most */

/** Where the elements of a tensor lie. Element [window, head, row, column] is
 * at window * strides.window + head * strides.head + ..., in elements. With a
 * grid, the tensors of tokens (q, k, v, o, lse and their gradients) have
 * instead the element [batch, position on the grid, head, column] at batch *
 * strides.window + position[0] * strides.axis[0] + ... + head * strides.head +
 * column * strides.column.
 *
 * All strides 0 means contiguous, in the order of the tensor's axes. On a grid
 * the heads of a token thus stand together:
 *
 *                    q, o, d_o, dq                 lse, d_lse
 *     windows        [windows, heads, queries, D]  [windows, heads, queries]
 *     grid of H x W  [batch, H, W, heads, D]       [batch, H, W, heads]
 *
 * Else a stride of 0 broadcasts an input along that axis: q.window = 0 is the
 * same queries for all windows. One that was only forgotten means that, too,
 * without a word: q.axis[1] = 0 is the same query for all tokens of a row. An
 * output must not be broadcast, which is refused.
 *
 * Strides of axes that a tensor lacks must be 0. The stride of an axis of
 * extent 1 does not matter, except that one other than 0 tells a broadcast
 * along the other axes from a contiguous tensor. Sorted by size, each stride
 * must exceed what the smaller ones span, or the tensor overlaps within itself
 * and is refused. row and column must be below 2^32, and a plane [queries,
 * keys] of bias or mask must span less than 2^31 elements.
 *
 * Strides belong to the descriptor and count elements; where a tensor starts,
 * each call says, in bytes (winattn_tensor). Packed qkv [batch, H, W, 3,
 * heads, D] and its gradient are six tensors with the same strides:
 *
 *     winattn_strides s = {0};
 *     s.column = 1;
 *     s.head = D;
 *     s.axis[1] = 3 * heads * D;   // from token to token
 *     s.axis[0] = W * s.axis[1];   // from row to row
 *     s.window = H * s.axis[0];    // from image to image
 *     desc.q = desc.k = desc.v = desc.dq = desc.dk = desc.dv = s;
 *
 *     cl_ulong part = heads * D * 2;   // bytes; 4 with fp32
 *     q = {qkv, 0},   k = {qkv, part},   v = {qkv, 2 * part}
 *     dq = {dqkv, 0}, dk = {dqkv, part}, dv = {dqkv, 2 * part}
 *
 * Of [windows, tokens, 3, heads, D], without a grid, s.row is from token to
 * token, and s.window = tokens * s.row. */
typedef struct winattn_strides {
    cl_ulong window; /**< from window to window; with a grid, image to image */
    cl_ulong head;   /**< from head to head */
    cl_ulong row;    /**< token, query; must be 0 with a grid */
    cl_ulong column; /**< channel, key */
    cl_ulong axis[WINATTN_AXES]; /**< of the grid; below 2^32 */
} winattn_strides;

/** What the tokens are that pad a grid to a multiple of its windows. */
typedef enum winattn_padding {
    /** Tokens of the padding take part as keys and values, with the channels
     * that winattn_forward.pad_k and pad_v give, or zeros. That is what models
     * do that pad before the projection to q, k and v: pad_k and pad_v are its
     * bias. (What a query of the padding would be does not matter, since
     * nothing of its result is kept; its gradient is 0.) */
    WINATTN_PADDING_VALUES = 0,
    WINATTN_PADDING_HIDDEN = 1 /**< no query sees a token of the padding */
} winattn_padding;

/** Tokens on a grid, such as the feature map of an image. q, k and v are read
 * in place and o is written in place, so that no roll, no padding and no
 * partition into windows goes before the attention, and none of their inverses
 * comes after it. The same holds for all gradients.
 *
 *     size = {5, 7}, window = {3, 4}, shift = {1, 2}
 *
 *       0 1 2 3 4 5 6             2 3 4 5   6   0 1
 *     0 a a a a a a a .         1 b b b b | b . b b
 *     1 b b b b b b b .         2 c c c c | c . c c
 *     2 c c c c c c c .         3 d d d d | d . d d
 *     3 d d d d d d d .           --------+--------
 *     4 e e e e e e e .         4 e e e e | e . e e
 *       . . . . . . . .           . . . . | . . . .
 *                               0 a a a a | a . a a
 *     padded                    rolled, and cut into four windows
 *
 * in this order (as in torchvision's shifted_window_attention, transformers,
 * and Swin and Video Swin where they pad; Liu et al. 2021, section 3.2):
 *   1. each axis is padded at its far end to a multiple of the window,
 *   2. rolled: token x of the padded axis goes to x - shift, cyclically,
 *   3. and cut into windows; windows and the tokens of one are numbered with
 *      the last axis running fastest, all windows of one grid before those of
 *      the next.
 *
 * An axis whose window covers its padded size is not shifted, unless
 * WINATTN_GRID_SHIFT_ALL in winattn_desc.grid_options says that shift counts
 * there, too (as models of transformers with Swinv2 do it for pictures that
 * are smaller than those they were made for).
 *
 * timm rolls first and pads what it rolled (WINATTN_GRID_ROLL_FIRST in
 * winattn_desc.grid_options), so that 1 and 2 change places: token x goes to
 * x - shift on the axis as it is, and padding comes behind all tokens:
 *
 *       2 3 4 5   6 0 1           windows at the far edges hold other tokens,
 *     1 b b b b | b b b .         but have their shift boundaries (below) at
 *     2 c c c c | c c c .         the same places: tokens from opposite ends
 *     3 d d d d | d d d .         may be of one region, and neighbours of two
 *       --------+--------
 *     4 e e e e | e e e .
 *     0 a a a a | a a a .
 *       . . . . | . . . .
 *
 * Then each axis is shifted as shift says, also where one window covers it, as
 * timm does with always_partition, and where a map is smaller than what the
 * model was made for; where timm does not, shift must be 0. But for that both
 * orders are the same where no axis is both padded and shifted.
 *
 * WINATTN_MASK_SHIFT adds region_value (-100, as Swin, Video Swin and timm do,
 * or what is given, -INFINITY too) between tokens that the shift brought
 * together from opposite ends of an axis. In rolled coordinates, along each
 * axis that is shifted and not periodic, the last window has a shift boundary,
 * `shift` tokens before its end:
 *
 *      first windows | last window          query and key on different sides
 *     ...............|.........:.....       of a shift boundary of their
 *                               shift       window are of different regions
 */
typedef struct winattn_grid {
    /** 1 to WINATTN_AXES; 0: no grid. The first `axes` elements of each array
     * below count, the others must be 0. */
    cl_uint axes;
    cl_uint size[WINATTN_AXES];   /**< tokens along the axis, not padded */
    cl_uint window[WINATTN_AXES]; /**< tokens of a window along the axis */
    cl_uint shift[WINATTN_AXES];  /**< less than window */
    /** The axis is a circle: tokens that the shift brings together belong
     * together, and WINATTN_MASK_SHIFT hides nothing. Its size must be a
     * multiple of the window. */
    cl_bool periodic[WINATTN_AXES];
    winattn_padding padding; /**< where windows do not divide the grid */
    /** Grids, such as the images of a batch; less than 2^32. The default is
     * not 1: 0 is legal, and then there is no window, so that a plan is made
     * and calls succeed, but nothing is computed and o is not written.
     * winattn_plan_describe says so. */
    cl_ulong batch;
} winattn_grid;

/** winattn_desc.grid_options: tokens are rolled before they are padded. */
#define WINATTN_GRID_ROLL_FIRST 1u
/** Also an axis that one window covers is shifted. */
#define WINATTN_GRID_SHIFT_ALL 2u

/** How a table's entries are chosen. A table has an entry for each difference
 * of positions in a window,
 *
 *     (2 window[0] - 1) (2 window[1] - 1) (2 window[2] - 1) entries,
 *
 * the last axis running fastest, and entry 0 for the most negative difference
 * query - key along all axes (relative_position_index of Swin, Video Swin,
 * timm, torchvision; Liu et al. 2021, section 3.2). */
typedef struct winattn_table {
    /** Axes of the window that the table was made for; 0, and zeros in window:
     * the grid's. Required without a grid. */
    cl_uint axes;
    /** That window; it may be larger than the grid's, never smaller. */
    cl_uint window[WINATTN_AXES];
    /** Token n has the position that it would have in the table's own window,
     * even where the grid's is smaller: what models compute that slice the
     * index of the full window, index[:N, :N] (Video Swin, MONAI,
     * torchvision's swin3d). Unset: its position in the grid's window. */
    cl_bool sliced;
    /** Not NULL: entry index[query * keys + key] is taken, 0 to entries - 1,
     * whatever the positions; copied when the plan is created. Then axes,
     * window and sliced must be 0. */
    const cl_int *index;
    /** Of the table, with an index: below 2^31, with a backward pass at most
     * 2^24; else 0. */
    cl_uint entries;
} winattn_table;

/** What a plan computes. Set struct_size, zero the rest, then fill in: zero is
 * the default of every field that does not say otherwise. */
typedef struct winattn_desc {
    size_t struct_size; /**< sizeof(winattn_desc) */

    winattn_variant variant; /**< which logits */
    winattn_dtype dtype;     /**< of q, k, v, o and the gradients of them */
    winattn_tier tier;       /**< which kernels; 0: the best there are */

    /** With fp32: matrix units may multiply TF32 numbers, which have the
     * exponents of fp32 and the 10 bits of fraction of fp16: q, k, v and the
     * softmax's weights are rounded to them just before they are multiplied.
     * All else stays fp32. Results are then as accurate as 2e-3, gradients as
     * 6e-3, instead of 5e-6 and 1e-5, where logits are of ordinary size: a
     * logit's error is about 2^-11 of what q k^T sums in absolute values.
     * Numbers above 3.4011e38 may become infinite.
     *
     * It is a permission, not a demand: NVIDIA's units (compute capability
     * 8.0 and later) have TF32, for what WINATTN_TIER_MATRIX computes; else,
     * and in the backward pass, fp32 is multiplied as before.
     * winattn_plan_describe says what a plan does. */
    cl_bool allow_tf32;

    /** Windows of all images of the batch; for the sliding variant the batch.
     * 0 is legal, but means none, as grid.batch = 0 does. With a grid 0, or
     * what follows from it. */
    cl_ulong windows;
    cl_uint heads; /**< of queries, 1 to 65536; required */
    /** Heads of keys and values. 0: like heads; else a divisor of heads, and
     * query head h reads key head h / (heads / kv_heads) (Ainslie et al. 2023,
     * section 2.2). */
    cl_uint kv_heads;
    /** Nq, queries of a window; required, but with a grid 0 or what follows
     * from it; below 2^31. Kernels are compiled for the numbers of queries and
     * keys, but not for those of the sliding variant: there a cache of keys
     * may grow from plan to plan, and nothing compiles. Elsewhere each number
     * of keys compiles anew, unless it is the cache's capacity and a mask
     * hides the rest, in which keys and values must be finite: zeros, for
     * instance, not what memory happened to hold. */
    cl_uint queries;
    cl_uint keys;     /**< Nk, keys of a window; as queries */
    cl_uint head_dim; /**< D, 1 to 256, required */

    /** Factor of Q K^T; may be negative. 0 means 1 / sqrt(head_dim). The
     * cosine variant uses it where no logit_scale is given. */
    cl_float scale;

    winattn_strides q;   /**< [windows, heads, queries, head_dim] */
    winattn_strides k;   /**< [windows, kv_heads, keys, head_dim] */
    winattn_strides v;   /**< [windows, kv_heads, keys, head_dim] */
    winattn_strides o;   /**< [windows, heads, queries, head_dim] */
    winattn_strides lse; /**< [windows, heads, queries], fp32, no column */

    winattn_grid grid; /**< where tokens lie; not for the sliding variant */

    winattn_bias bias;             /**< not for the sliding variant */
    winattn_term_dtype bias_dtype; /**< of the bias, or of its table */
    /** head, row = query, column = key; of a table: row = entry, head */
    winattn_strides bias_strides;
    winattn_table table; /**< with WINATTN_BIAS_TABLE */

    winattn_mask mask;             /**< not for the sliding variant */
    winattn_term_dtype mask_dtype; /**< with WINATTN_MASK_ADDITIVE */
    /** nW; window w takes mask w mod nW, and windows need not be a multiple
     * of it. Required with a mask that is a tensor. */
    cl_ulong mask_windows;
    winattn_strides mask_strides; /**< window = mask number, row, column */
    winattn_strides query_region_strides; /**< window = mask number, row */
    winattn_strides key_region_strides;   /**< window = mask number, row */
    /** region_value is taken; unset: -100, as the Swin models do. */
    cl_bool has_region_value;
    cl_float region_value; /**< added between different regions */

    /** Tokens of a block, of the sliding variant, which requires it: 1 to
     * 2^31 - 1, which first_block, window_blocks and sink do not exceed
     * either; the others leave this field and the next five 0. Keys and
     * queries lie on one line of tokens, query i at token i + query_offset.
     * Tokens 0 .. first_block - 1 are block 0, each later block has `block`
     * tokens, the last may be shorter. With b(x) the block of token x, query i
     * sees key j if
     *
     *     b(j) <= b(i + query_offset)  and
     *     (b(j) > b(i + query_offset) - window_blocks  or  j < sink)
     *
     * (the sink: Xiao et al. 2024, section 3.2). */
    cl_uint block;
    cl_uint first_block;   /**< tokens of block 0; 0: like block */
    cl_uint window_blocks; /**< blocks that a query sees; 0: all earlier */
    cl_uint sink;          /**< tokens that stay visible, 0: none */
    /** The blocks that the sink touches count among window_blocks, so that a
     * query never sees more than window_blocks blocks. Unset, the sink comes
     * on top of the window. */
    cl_bool sink_in_window;
    /** Tokens before the first query, as in a cache of keys; queries +
     * query_offset below 2^31. */
    cl_uint query_offset;

    /** What the plan can enqueue: WINATTN_PASS_..., or-ed. 0: the forward pass
     * only. */
    cl_bitfield passes;

    winattn_strides d_o;   /**< like o; this and what follows: backward pass */
    winattn_strides d_lse; /**< like lse */
    winattn_strides dq;    /**< like q */
    winattn_strides dk;    /**< like k */
    winattn_strides dv;    /**< like v */
    /** [heads, queries, keys] in fp32: head, row = query, column = key; or
     * like the table: row = entry, head. */
    winattn_strides dbias_strides;

    /** With WINATTN_PADDING_VALUES: [kv_heads, head_dim], stored like k. Only
     * head and column; where pad_k is given to a call, its channels must be as
     * far apart as those of k, which is checked then. */
    winattn_strides pad_k;
    winattn_strides pad_v;   /**< the same for v */
    winattn_strides d_pad_k; /**< [kv_heads, head_dim] in fp32 */
    winattn_strides d_pad_v; /**< [kv_heads, head_dim] in fp32 */

    /** Appended to the options of every kernel build, NULL for none. For
     * diagnosis (-cl-nv-verbose, for instance). */
    const char *build_options;

    /** With a grid: WINATTN_GRID_..., or-ed. 0: the order that winattn_grid
     * says. */
    cl_bitfield grid_options;
} winattn_desc;

/** @} */

/* ---- Plan -------------------------------------------------------------- */

/** @defgroup winattn_plans Plan
 * Kernels that were chosen and built for a problem on a device.
 * @{ */

/** A plan: any number of calls, from any threads, each with buffers of its
 * own. */
typedef struct winattn_plan winattn_plan;

/** Checks the problem, chooses kernels for the device and builds them, which
 * can take seconds the first time; see "Compiled kernels" below. The first
 * plan for a matrix unit also launches a short test of it, on a queue of the
 * library's own. Plans of one context and device share their kernels. On
 * success *plan is the new plan, else NULL. The plan retains context and
 * device; desc and what it points to may go.
 *
 * Fails with WINATTN_INVALID_ARGUMENT or WINATTN_INVALID_LAYOUT where the
 * descriptor is wrong, WINATTN_UNSUPPORTED_PROBLEM where nothing computes it,
 * WINATTN_UNSUPPORTED_DEVICE, or a code of OpenCL's.
 *
 * Only what lasts makes AUTO pass over a tier: a kernel that does not build,
 * or that the device cannot run. Where memory is short or a query fails, the
 * call fails. CL_OUT_OF_RESOURCES of a build may be either, so it is tried
 * again, and believed the second time.
 *
 * Another batch, map or shift compiles nothing new; other numbers of queries
 * or keys do, but not with the sliding variant, so that a cache may grow. */
WINATTN_API winattn_status winattn_plan_create(cl_context context,
                                               cl_device_id device,
                                               const winattn_desc *desc,
                                               winattn_plan **plan);

/** Destroys a plan; calls that were enqueued complete all the same. NULL is
 * fine. One defect of NVIDIA's driver (580.159): where a call waits for a user
 * event, it reads kernels, buffers and events of that call once more when the
 * event is set, also if they were released meanwhile, as OpenCL allows. There
 * keep plans and buffers until such a call is done, and ask for no event of
 * it. */
WINATTN_API void winattn_plan_destroy(winattn_plan *plan);

/** Bytes of workspace that any one call of this plan needs: a device buffer of
 * the caller's, of any content, written by the call. The forward kernels of
 * this version need none, so *size is 0 and forward.workspace may be NULL,
 * but for tier cpu with a table, which needs heads * queries * keys fp32
 * numbers; code that asks stays right with later kernels. A backward call
 * needs, in fp32,
 *
 *     slots * heads * (queries * keys with a bias + 1, or on the tier `matrix`
 *     1 for each block of rows, with the cosine variant)
 *     + launched * heads * queries * 4 where rows and keys of a window have
 *       kernels of their own
 *     + heads * queries * keys with a table
 *     + 2 * slots * kv_heads * head_dim * (parts of a window's keys) where
 *       padding takes part
 *
 * numbers, rounded up to 16 bytes each: `slots` partial sums, so many that the
 * device is busy, but at most 16 MiB of them, on the tier `matrix` 64 MiB (or
 * one); `launched` windows of one launch, at most as many bytes (or one
 * window). It does not grow with windows beyond that. A call that needs a
 * workspace and has none, or one that is too small, fails and names the bytes
 * in winattn_last_reason. */
WINATTN_API winattn_status
winattn_plan_workspace_size(const winattn_plan *plan, size_t *size);

/** Lines "name: value" that say which kernel the plan took and why: tier,
 * kernel, tile, work-group size, local bytes, workspace, the reason of the
 * choice, for each better tier, and for wgmma where the device has it, why it
 * was not taken, and where the program came from. Of a plan that has no
 * windows, "computes: nothing" comes first. Writes at most `size` bytes with
 * the final 0 to `text`, which may be NULL if size is 0; *needed, unless NULL,
 * becomes the size that holds all. */
WINATTN_API winattn_status winattn_plan_describe(const winattn_plan *plan,
                                                 size_t size, char *text,
                                                 size_t *needed);

/** @} */

/* ---- Measured shapes ---------------------------------------------------- */

/** @defgroup winattn_shapes Measured shapes
 * What a plan takes of the kernels' shapes (tiles, teams, stages) follows from
 * a model of the device, but where a better one was measured. winattn-tune
 * finds such shapes on the device at hand and writes them as rows, one to a
 * line:
 *
 *     kernel DEVICE variant type terms queries keys head_dim shape
 *     matrix-backward NVIDIA 90 dot half bias 49 49 32 49:4:3:2:64:1:1
 *     local-forward "Some GPU" sliding fp32 none any any 64 64:128:128:1:...
 *
 *     kernel   local-forward, matrix-forward, local-backward, matrix-backward
 *     DEVICE   NVIDIA and the least compute capability (90 is 9.0); or the
 *              device's name in quotes; or the vendor and 0
 *     variant  dot, cosine, sliding; any: dot and cosine
 *     type     fp32; half: fp16 and bf16; any
 *     terms    none; bias: without mask; mask: additive, with or without bias;
 *              regions: or the shift of a grid, with or without bias; any
 *     queries, keys, head_dim: numbers, the first two may be any
 *     shape    numbers with colons, as many as the kernel's shape has; of
 *              matrix-backward 7, or 15 for two kernels, of rows and of keys
 *
 * Rows of linear layers (winattn_models.h) stand among them:
 *
 *     kernel DEVICE type calls terms in out shape
 *     linear-matrix NVIDIA 90 half many gelu 96 384 64:192:96:2:2:4:1:1
 *
 *     kernel   linear-cpu, linear-local, linear-matrix
 *     calls    many or few: which of a plan's two kernels, that for calls of
 *              many rows or of few
 *     terms    plain; or which of norm, gelu and residual there are, joined
 *              in that order by a plus sign, with or without a bias; any
 *     in, out  features: numbers, or any
 *     shape    6 numbers of linear-cpu, 5 of linear-local, 7 of linear-matrix,
 *              or 8, the last of them 1, where weights stay in local memory
 *
 * Each library takes the rows of its own kernels and passes over the other's.
 * Empty lines and those that start with # are passed over. A row counts where
 * all of it fits the problem and the device; of several the last is taken. A
 * shape that the kernel does not allow, or that does not build, is passed over
 * too, and winattn_plan_describe says so. A text has at most 1 MiB (2^20
 * bytes); of those of winattn_load_tuning, and of the environment's, at most
 * 4096 rows are kept.
 * @{ */

/** Adds rows, for plans that are created from now on, by all threads; they
 * come before the library's own. Each replaces an earlier row for the same.
 * NULL forgets what was added. A wrong line fails with
 * WINATTN_INVALID_ARGUMENT and its number in the reason, and so does too much
 * of it; then nothing is added.
 *
 * The environment variable WINATTN_TUNING may name a file of such rows, which
 * is read once, when rows are first needed, and comes before rows of this
 * call. If something is wrong with it, none of it counts, and
 * winattn_plan_describe says why. */
WINATTN_API winattn_status winattn_load_tuning(const char *text);

/** @} */

/* ---- Compiled kernels --------------------------------------------------- */

/** @defgroup winattn_kernels Compiled kernels
 * Compiled kernels are kept in three places, so that they need not be compiled
 * again. None of them can make a plan fail, unless memory is short: what is
 * damaged, of another version, device or driver, or refused by the driver is
 * compiled anew.
 *
 *     memory     as long as a plan or a winattn_programs of the same context
 *                and device lives
 *     the cache  files in a folder of the user's, at most 256 MiB together;
 *                two processes may use it at once
 *     blobs      bytes that an application stores or ships itself
 *
 * The cache and an existing winattn_programs make a new kernel run once, on
 * zeros of its own, in winattn_plan_create: some runtimes finish compiling
 * only then. It is little work, and left out where windows are so large that
 * it could not be.
 *
 * A compiled kernel is machine code. Checksums find accidents, not intent:
 * import only what you would also load as a library.
 * @{ */

/** Where the cache is, for plans that are created from now on, by all threads.
 * NULL, as at the start: where the environment variable WINATTN_CACHE_DIR
 * says, else a folder winattn in $XDG_CACHE_HOME or ~/.cache; on Windows in
 * %LOCALAPPDATA%, on macOS in ~/Library/Caches. "": no cache. Else a folder in
 * UTF-8, which is made if it is missing; one that is not the user's own or
 * that a group or everybody can write to is not used, and no file in it that
 * is so. WINATTN_CACHE=0 in the environment means no cache, whatever was set
 * here. So does a path of 2048 bytes or more in the environment; given here it
 * is refused. winattn_plan_describe tells why a folder is not used. */
WINATTN_API winattn_status winattn_set_cache_dir(const char *folder);

/** The kernels of one context and device. */
typedef struct winattn_programs winattn_programs;

/** Keeps the kernels that are there and come to be, until it is destroyed;
 * make it before the plans. Retains context and device. On failure *programs
 * is NULL. */
WINATTN_API winattn_status winattn_programs_create(
    cl_context context, cl_device_id device, winattn_programs **programs);

/** Plans live on. NULL is fine. */
WINATTN_API void winattn_programs_destroy(winattn_programs *programs);

/** Takes the kernels of a blob, which later plans then need not compile. The
 * bytes are copied. All or nothing: WINATTN_INVALID_BLOB, with the reason, if
 * the blob is damaged, or if it was made by another version of the library or
 * for another device, driver or platform version; plans can be created all the
 * same, and a new blob exported. */
WINATTN_API winattn_status winattn_programs_import(winattn_programs *programs,
                                                   size_t size,
                                                   const void *blob);

/** Writes all kernels that plans use or used, and those that were imported, to
 * `blob`, and their size to *needed, unless NULL. `blob` may be NULL if `size`
 * is 0; then only *needed is written. Fails with WINATTN_INVALID_ARGUMENT if
 * `size` is too small; *needed is right even then. A plan that another thread
 * creates between two calls makes the blob larger. Kernels whose driver gives
 * no binary are left out, but none because of a failure: then the call
 * fails. */
WINATTN_API winattn_status winattn_programs_export(
    const winattn_programs *programs, size_t size, void *blob, size_t *needed);

/** @} */

/* ---- Forward ----------------------------------------------------------- */

/** @defgroup winattn_forward_pass Forward
 * O = softmax(S) V.
 * @{ */

/** A tensor's place. */
typedef struct winattn_tensor {
    cl_mem buffer; /**< NULL: no tensor */
    /** In bytes, of element [0, 0, 0, 0]; a multiple of the element size. So
     * is where the memory of the buffer starts, if it is the program's
     * (CL_MEM_USE_HOST_PTR); from a multiple of 16 on kernels access it
     * faster. */
    cl_ulong offset;
} winattn_tensor;

/** Tensors of a forward call. They may lie interleaved in one buffer. An
 * output that shares an element with an input or another output is not
 * supported and not detected. A tensor that the plan's descriptor does not
 * name must have buffer NULL. Kernels must be allowed to read the buffers of
 * inputs and to write those of outputs. Shapes are those of winattn_desc. */
typedef struct winattn_forward {
    size_t struct_size; /**< sizeof(winattn_forward) */

    winattn_tensor q;    /**< queries; required */
    winattn_tensor k;    /**< keys; required */
    winattn_tensor v;    /**< values; required */
    winattn_tensor bias; /**< required with a bias: it, or its table */
    winattn_tensor mask; /**< required with WINATTN_MASK_ADDITIVE */
    winattn_tensor query_regions; /**< required with WINATTN_MASK_REGIONS */
    winattn_tensor key_regions;   /**< required with WINATTN_MASK_REGIONS */
    /** Cosine variant, fp32 [heads]: s = exp(min(logit_scale, ln 100)). NULL:
     * s is the descriptor's scale. */
    winattn_tensor logit_scale;
    winattn_tensor pad_k; /**< of WINATTN_PADDING_VALUES; NULL: zeros */
    winattn_tensor pad_v; /**< of WINATTN_PADDING_VALUES; NULL: zeros */

    winattn_tensor o; /**< output; required */
    /** Output: natural logarithm of the softmax's denominator,
     * log(sum over keys of exp(S)); NULL if not wanted. */
    winattn_tensor lse;

    /** winattn_plan_workspace_size bytes, from a multiple of 16 on; NULL where
     * that is 0. */
    winattn_tensor workspace;
} winattn_forward;

/** Enqueues O = softmax(S) V. Returns at once and allocates no device memory.
 * Everything is checked first: on winattn's own error codes nothing was
 * enqueued and nothing will be written; on OpenCL's some kernels may have
 * been. The kernels wait for the wait_count events of wait_list, and *event,
 * unless event is NULL, completes after all of them. Queues may be in-order or
 * out-of-order. wait_list is NULL where wait_count is 0, and only there.
 *
 * Fails with WINATTN_INVALID_ARGUMENT, WINATTN_INVALID_LAYOUT,
 * WINATTN_INVALID_BUFFER, WINATTN_BUFFER_TOO_SMALL, WINATTN_INVALID_QUEUE or
 * WINATTN_WORKSPACE_TOO_SMALL where the call is wrong, else with a code of
 * OpenCL's. */
WINATTN_API winattn_status
winattn_enqueue_forward(const winattn_plan *plan, cl_command_queue queue,
                        const winattn_forward *forward, cl_uint wait_count,
                        const cl_event *wait_list, cl_event *event);

/** @} */

/* ---- Backward ---------------------------------------------------------- */

/** @defgroup winattn_backward_pass Backward
 * The gradients of the forward pass.
 * @{ */

#define WINATTN_DQ 1u    /**< winattn_backward.accumulate: dq */
#define WINATTN_DK 2u    /**< winattn_backward.accumulate: dk */
#define WINATTN_DV 4u    /**< winattn_backward.accumulate: dv */
#define WINATTN_DBIAS 8u /**< winattn_backward.accumulate: dbias */
#define WINATTN_D_LOGIT_SCALE                                                 \
    16u                     /**< winattn_backward.accumulate: d_logit_scale */
#define WINATTN_D_PAD_K 32u /**< winattn_backward.accumulate: d_pad_k */
#define WINATTN_D_PAD_V 64u /**< winattn_backward.accumulate: d_pad_v */

/** Tensors of a backward call. It makes the gradients of a loss: given its
 * derivatives with respect to o (and lse), those with respect to q, k, v, bias
 * and logit_scale. With P = softmax(S), dP = dO V^T, delta_i = sum_j P_ij
 * dP_ij and dS = P (dP - delta + dLSE) (Dao et al. 2022, appendix B.2):
 *
 *     dV = P^T dO, dQ = scale dS K, dK = scale dS^T Q, dBias = sum dS
 *
 * summed over the query heads that share a key head, and for dBias over
 * windows. The cosine variant differentiates its normalisation too; its
 * d_logit_scale is 0 from ln 100 as fp32 has it (4.60517025) on, where a
 * parameter lies that was clamped. A query that sees nothing has zero
 * gradients. The bits of all results are the same in every run.
 *
 * Buffers are as in winattn_forward. Outputs are NULL where not wanted, which
 * saves their work. */
typedef struct winattn_backward {
    size_t struct_size; /**< sizeof(winattn_backward) */

    winattn_tensor q;             /**< as in winattn_forward */
    winattn_tensor k;             /**< as in winattn_forward */
    winattn_tensor v;             /**< as in winattn_forward */
    winattn_tensor bias;          /**< as in winattn_forward */
    winattn_tensor mask;          /**< as in winattn_forward */
    winattn_tensor query_regions; /**< as in winattn_forward */
    winattn_tensor key_regions;   /**< as in winattn_forward */
    winattn_tensor logit_scale;   /**< as in winattn_forward */
    winattn_tensor pad_k;         /**< as in winattn_forward */
    winattn_tensor pad_v;         /**< as in winattn_forward */
    /** What a forward pass returned for the same inputs; NULL: computed again.
     * Give o and lse if they were kept: on GPUs they save work where a window
     * does not fit a work-group, or its logits not the registers of a matrix
     * unit's waves, and on matrix units lse does in any window. Other kernels
     * do not read them. Leave them NULL if the forward pass was not kept, as
     * in training that recomputes activations. Gradients are as accurate as
     * promised either way, and with them at most twice as far off as without:
     * delta_i = dO_i . O_i of a stored o is off by its rounding, which the sum
     * of a row's dS over its keys tells; it should be dLSE_i. */
    winattn_tensor o;
    winattn_tensor lse;   /**< like o, of the same forward pass */
    winattn_tensor d_o;   /**< derivatives of the loss by o; required */
    winattn_tensor d_lse; /**< derivatives of the loss by lse; NULL: 0 */

    winattn_tensor dq;    /**< output, in the dtype of q, k and v */
    winattn_tensor dk;    /**< output, in the dtype of q, k and v */
    winattn_tensor dv;    /**< output, in the dtype of q, k and v */
    winattn_tensor dbias; /**< output, fp32; needs a bias */
    /** Output, fp32 [heads]; needs logit_scale. */
    winattn_tensor d_logit_scale;
    /** Output, fp32; a plan with WINATTN_PADDING_VALUES; the sum of what flows
     * into the padding's keys. */
    winattn_tensor d_pad_k;
    winattn_tensor d_pad_v; /**< the same of the padding's values */

    /** WINATTN_DQ and so on, or-ed: these outputs are added to what their
     * buffers hold, the others overwritten. With windows = 0, dbias and
     * d_logit_scale that are overwritten become 0. */
    cl_bitfield accumulate;

    /** winattn_plan_workspace_size bytes, from a multiple of 16 on; NULL where
     * that is 0. */
    winattn_tensor workspace;
} winattn_backward;

/** Enqueues the backward pass. Needs a plan with WINATTN_PASS_BACKWARD. Else
 * like winattn_enqueue_forward. */
WINATTN_API winattn_status
winattn_enqueue_backward(const winattn_plan *plan, cl_command_queue queue,
                         const winattn_backward *backward, cl_uint wait_count,
                         const cl_event *wait_list, cl_event *event);

/** @} */

/* ---- Launch lists ------------------------------------------------------- */

/** @defgroup winattn_launch_lists Launch lists
 * What a call would enqueue, as data, for a runtime other than OpenCL that
 * runs the same programs on the same device: CUDA's driver launches the PTX
 * that NVIDIA's OpenCL compiles to, on its own streams and memory.
 *
 *     winattn_memory memory[WINATTN_TENSORS] = {{0}};
 *     memory[WINATTN_TENSOR_Q].address = ...;  // on the device
 *     memory[WINATTN_TENSOR_Q].bytes = ...;    // and so on
 *     winattn_launch_list *list;
 *     winattn_launch_list_create(plan, WINATTN_PASS_FORWARD, memory, 0,
 * &list);
 *
 * Programs 0, 1, ... of the list are loaded once, and its tables copied to the
 * device once. A call is launches 0, 1, ..., each behind the one before: what
 * one writes, the next may read. Later calls may pass other addresses
 * (winattn_launch_list_check). A list owns all that it points to. It needs
 * neither its plan nor OpenCL any more, and several threads may read it at
 * once.
 * @{ */

/** The tensors of winattn_forward and winattn_backward, by their names. */
typedef enum winattn_tensor_name {
    WINATTN_TENSOR_Q,
    WINATTN_TENSOR_K,
    WINATTN_TENSOR_V,
    WINATTN_TENSOR_BIAS,
    WINATTN_TENSOR_MASK,
    WINATTN_TENSOR_QUERY_REGIONS,
    WINATTN_TENSOR_KEY_REGIONS,
    WINATTN_TENSOR_LOGIT_SCALE,
    WINATTN_TENSOR_PAD_K,
    WINATTN_TENSOR_PAD_V,
    WINATTN_TENSOR_O,
    WINATTN_TENSOR_LSE,
    WINATTN_TENSOR_D_O,
    WINATTN_TENSOR_D_LSE,
    WINATTN_TENSOR_DQ,
    WINATTN_TENSOR_DK,
    WINATTN_TENSOR_DV,
    WINATTN_TENSOR_DBIAS,
    WINATTN_TENSOR_D_LOGIT_SCALE,
    WINATTN_TENSOR_D_PAD_K,
    WINATTN_TENSOR_D_PAD_V,
    WINATTN_TENSOR_WORKSPACE,
    WINATTN_TENSORS /**< how many there are */
} winattn_tensor_name;

/** Where a tensor is on the device. */
typedef struct winattn_memory {
    cl_ulong address; /**< of element [0, 0, 0, 0]; 0: no tensor */
    cl_ulong bytes;   /**< that may be accessed from there on */
} winattn_memory;

/** What an argument of a kernel is. */
typedef enum winattn_argument_kind {
    WINATTN_ARGUMENT_BYTES = 0,  /**< as they are */
    WINATTN_ARGUMENT_TENSOR = 1, /**< the address of a tensor */
    WINATTN_ARGUMENT_TABLE = 2   /**< the address of a table of the list */
} winattn_argument_kind;

/** An argument of a kernel. */
typedef struct winattn_argument {
    winattn_argument_kind kind; /**< what it is */
    cl_uint index;     /**< winattn_tensor_name, or the number of the table */
    size_t size;       /**< bytes of the argument; of an address 8 */
    const void *bytes; /**< those; NULL for an address */
} winattn_argument;

/** One launch of a kernel, in one dimension. */
typedef struct winattn_launch {
    size_t struct_size;                /**< what the library knows of it */
    const char *kernel;                /**< name of the function */
    cl_uint program;                   /**< number of its program */
    cl_uint work_group;                /**< work-items of a work-group */
    cl_ulong groups;                   /**< work-groups */
    cl_uint argument_count;            /**< of `arguments` */
    const winattn_argument *arguments; /**< in the kernel's order */
} winattn_launch;

/** A program that was built. */
typedef struct winattn_launch_program {
    size_t struct_size;  /**< what the library knows of it */
    size_t size;         /**< bytes of `binary` */
    const void *binary;  /**< CL_PROGRAM_BINARIES; of NVIDIA's driver PTX */
    const char *options; /**< those of clBuildProgram */
} winattn_launch_program;

/** Bytes that belong to the plan and that kernels read, such as the index of a
 * table of biases. Copied to an address that is a multiple of 16. */
typedef struct winattn_launch_table {
    size_t struct_size; /**< what the library knows of it */
    size_t size;        /**< bytes */
    const void *bytes;  /**< content */
} winattn_launch_table;

/** What a call would enqueue. */
typedef struct winattn_launch_list winattn_launch_list;

/** Makes the list of a pass (WINATTN_PASS_FORWARD or WINATTN_PASS_BACKWARD)
 * with these tensors, WINATTN_TENSORS of them. What a call must be given, what
 * it may be given, and sizes and alignments are checked as
 * winattn_enqueue_forward and winattn_enqueue_backward do; `accumulate` is
 * winattn_backward's, 0 for the forward pass. A plan without windows gives a
 * list that may have no launches.
 *
 * Fails as those do, and with WINATTN_UNSUPPORTED_DEVICE where the driver
 * gives no binaries. On failure *list is NULL. */
WINATTN_API winattn_status winattn_launch_list_create(
    const winattn_plan *plan, cl_bitfield pass, const winattn_memory *memory,
    cl_bitfield accumulate, winattn_launch_list **list);

/** Frees the list and all that it points to. NULL is fine. */
WINATTN_API void winattn_launch_list_destroy(winattn_launch_list *list);

/** May the list's launches take these addresses? It must be the same tensors,
 * each as large as it has to be, at a multiple of the largest power of 2, up
 * to 16, that divided its address when the list was made. Fails with
 * WINATTN_INVALID_ARGUMENT, WINATTN_BUFFER_TOO_SMALL or
 * WINATTN_INVALID_LAYOUT. */
WINATTN_API winattn_status winattn_launch_list_check(
    const winattn_launch_list *list, const winattn_memory *memory);

/** Launch number `i`; NULL: there are no more. The list owns it. */
WINATTN_API const winattn_launch *
winattn_launch_list_launch(const winattn_launch_list *list, size_t i);

/** Program number `i`; NULL: there are no more. The list owns it. */
WINATTN_API const winattn_launch_program *
winattn_launch_list_program(const winattn_launch_list *list, size_t i);

/** Table number `i`; NULL: there are no more. The list owns it. */
WINATTN_API const winattn_launch_table *
winattn_launch_list_table(const winattn_launch_list *list, size_t i);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
