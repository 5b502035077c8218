/* SPDX-License-Identifier: Apache-2.0
 * The switches of kernels: what the host says with -D when it builds one, and
 * nothing else (host/plan/defines.h). This list says of each what it means and
 * which values are legal:
 *
 *   X(name, least, most)
 *
 * A kernel's file that reads one REQUIREs it, so that a value that is not
 * legal, or a switch that was forgotten, is an error of the build. They are
 * arrays of negative size and not #error, since no #error comes from a list.
 * What kernels' files define before they include shared ones are their
 * features, not switches; the head of the shared file says what these mean. */
#ifndef SWITCHES_H
#define SWITCHES_H

#define SWITCHES(X)                                                           \
    /* The problem: 0 dot, S = scale Q K^T + bias + mask; 1 cosine, S = s_h   \
     * q^ k^T + bias + mask, q^ = q / |q|; 2 sliding, S = scale Q K^T over    \
     * the visible blocks */                                                  \
    X(VARIANT, 0, 2)                                                          \
    /* 0 fp32, 1 fp16, 2 bf16 (storage.cl) */                                 \
    X(DTYPE, 0, 2)                                                            \
    /* channels of a head */                                                  \
    X(HEAD_DIM, 1, 256)                                                       \
    /* queries and keys of a window; arguments where it slides */             \
    X(NQ, 1, 0x7fffffff)                                                      \
    X(NK, 1, 0x7fffffff)                                                      \
    /* 0 none, 1 in the storage type, 2 fp32 */                               \
    X(BIAS, 0, 2)                                                             \
    /* a kind of mask, see below */                                           \
    X(MASK, MASK_NONE, MASK_SHIFT)                                            \
    /* 1: in bias and mask, neighbouring keys are neighbours in memory; 0:    \
     * their strides say where they are */                                    \
    X(ADJACENT_KEYS, 0, 1)                                                    \
    /* 1: fma is an instruction of the device */                              \
    X(HAS_FMA, 0, 1)                                                          \
    /* 1: the NK tokens of a window are a box of a grid (tokens.cl), WINDOW_1 \
     * x WINDOW_2 of them along the last two axes; 2: of one that is rolled   \
     * before it is padded, where that makes a difference */                  \
    X(GRID, 0, 2)                                                             \
    X(WINDOW_1, 1, 0x7fffffff)                                                \
    X(WINDOW_2, 1, 0x7fffffff)                                                \
    /* 0: all tokens exist; those of the padding are 1 a given row, or zeros, \
     * 2 hidden */                                                            \
    X(PADDING, 0, 2)                                                          \
    /* 0: bias has an element for each query and key; else it is a table      \
     * [entries][heads], and its entry for a query and a key is               \
     * 1 table_position(query) - table_position(key) + TABLE_CENTER, from     \
     * positions in a window of that many tokens along the last two axes, and \
     * steps of entries along the first two; 2 index[query * NK + key] */     \
    X(TABLE, 0, 2)                                                            \
    X(TABLE_WINDOW_1, 1, 0x7fffffff)                                          \
    X(TABLE_WINDOW_2, 1, 0x7fffffff)                                          \
    X(TABLE_STEP_0, 0, 0x7fffffff)                                            \
    X(TABLE_STEP_1, 0, 0x7fffffff)                                            \
    X(TABLE_CENTER, 0, 0x7fffffff)                                            \
    /* query rows of a work tile at most; keys that a softmax step takes      \
     * at once: where they are not all, the softmax streams */                \
    X(BLOCK_ROWS, 1, 0x7fffffff)                                              \
    X(BLOCK_KEYS, 1, 0x7fffffff)                                              \
                                                                              \
    /* cpu/: lengths of a vector, 4, 8 or 16; query rows and key vectors of a \
     * register tile; channel vectors of a tile of the output */              \
    X(LANES, 4, 16)                                                           \
    X(TILE_ROWS, 1, 12)                                                       \
    X(TILE_VECS, 1, 8)                                                        \
    X(OUT_VECS, 1, 64)                                                        \
                                                                              \
    /* local/: work-items that share a work tile; channels, and forward       \
     * keys, that are in local memory at once; a work-item's tile of logits;  \
     * rows of its tile of the output, which is four channels wide; work-     \
     * items to a row of the softmax */                                       \
    X(TEAM, 1, 65535)                                                         \
    X(STAGE_DIMS, 1, 256)                                                     \
    X(STAGE_KEYS, 1, 65535)                                                   \
    X(SCORE_ROWS, 1, 16)                                                      \
    X(SCORE_COLS, 1, 16)                                                      \
    X(OUT_ROWS, 1, 64)                                                        \
    X(ROW_ITEMS, 1, 64)                                                       \
    /* backward: quads of keys in a work-item's tile of dK and dV; 1: q, dO,  \
     * k and v have local memory each, 0: they take turns */                  \
    X(KEY_QUADS, 1, 16)                                                       \
    X(KEEPS_TILES, 0, 1)                                                      \
    /* backward_rows_local: 1 rows' statistics, 0 dQ */                       \
    X(STATISTICS, 0, 1)                                                       \
    /* backward_keys_local: 1: the table of biases stays in local memory */   \
    X(KEEPS_TABLE, 0, 1)                                                      \
    /* of the device and its compiler: which vectors of halves come as bits,  \
     * 0 none, 1 aligned ones, 2 all others; the size of sub-groups to ask    \
     * for, 0 any; registers have a limit */                                  \
    X(HALVES_FROM_BITS, 0, 2)                                                 \
    X(SUB_GROUP, 0, 64)                                                       \
    X(LIMITS_REGISTERS, 0, 1)                                                 \
                                                                              \
    /* Gradients of keys: 1: the block holds all keys of a window, and dQ is  \
     * made here too (cpu/, local/); 1: one block of rows is all that sees    \
     * the keys (local/) */                                                   \
    X(FUSED, 0, 1)                                                            \
    X(SINGLE_Q_BLOCK, 0, 1)                                                   \
    /* where sums of dBias over windows stay: 0 in the workspace, 1 in        \
     * registers, 2 in local memory */                                        \
    X(KEEPS_DBIAS, 0, 2)                                                      \
                                                                              \
    /* forward_local: teams of a work-group */                                \
    X(TEAMS, 1, 65535)                                                        \
    /* matrix/: windows that a work-group has at once */                      \
    X(WINDOWS_PER_GROUP, 1, 32)                                               \
    /* matrix/: waves that share a window; stages of the ring of copies; keys \
     * whose scores a wave has in registers at a time; where bias and mask    \
     * wait for the next window (geometry.cl) */                              \
    X(WAVES_PER_WINDOW, 1, 32)                                                \
    X(STAGES, 1, 8)                                                           \
    X(SUBTILE_KEYS, 1, 65535)                                                 \
    X(BIAS_CACHE, 0, 3)                                                       \
    /* forward_matrix: 1: a work-group goes on with another block of rows */  \
    X(PERSISTENT_MULTI_BLOCK, 0, 1)                                           \
    /* backward_matrix: 1: positions of tokens wait in local memory */        \
    X(KEEPS_TOKENS, 0, 1)                                                     \
    /* tensors that a stage has rows of (geometry.cl) */                      \
    X(ROW_PLANES, 0, 3)                                                       \
    /* backward_keys_matrix: 1: a launch makes dV, another dK; 0: one both */ \
    X(SPLIT_DK_DV, 0, 1)                                                      \
    /* sliding gradients: 1: what leaves numbers of rows leaves tensor maps,  \
     * and kernels of hopper/ fetch rows by them (tensor_maps.cl) */          \
    X(TENSOR_MAPS, 0, 1)                                                      \
    /* unit/: 1: the instruction is computed through local memory, on any     \
     * device; NVIDIA's compute capability, times 10 */                       \
    X(COMPUTE_CAPABILITY, 0, 9999)                                            \
                                                                              \
    /* sum_table: 1: the host has listed pairs of an entry; 0: they follow    \
     * from their distance */                                                 \
    X(LISTED, 0, 1)

/* Of MASK: nothing; an array of what is added, in the storage type or in fp32;
 * region numbers of queries and keys, in arrays or as the shift of a grid
 * makes them. Apart from that of none, the numbers of kinds follow those of
 * winattn_mask, of which the array has two here. */
#define MASK_NONE 0
#define MASK_ARRAY 1
#define MASK_ARRAY_FP32 2
#define MASK_REGIONS 3
#define MASK_SHIFT 4

/* What planners and kernels ask of a kind, instead of which it is:
 *
 *   READS_ARRAY    is what is added to a query and a key in an array?
 *   READS_REGIONS  are region numbers in arrays?
 *   HAS_REGIONS    is region_value added where query and key differ in region?
 *   FOLLOWS_GRID   do regions depend on where the window lies on its grid, and
 *                  does a window without a shift boundary have only one?
 *
 * What else a kind adds follows from the numbers of query and key
 * (weights.h). */
#define MASK_READS_ARRAY(kind)                                                \
    ((kind) == MASK_ARRAY || (kind) == MASK_ARRAY_FP32)
#define MASK_READS_REGIONS(kind) ((kind) == MASK_REGIONS)
#define MASK_HAS_REGIONS(kind) ((kind) == MASK_REGIONS || (kind) == MASK_SHIFT)
#define MASK_FOLLOWS_GRID(kind) ((kind) == MASK_SHIFT)

/* Of VARIANT. */
#define DOT 0
#define COSINE 1
#define SLIDING 2

/* Of BIAS_CACHE: nowhere, since they come from global memory each time; their
 * sum in local memory, or in registers (forward only); or the bias in local
 * memory, and one region for each token, which are compared. */
#define BIAS_CACHE_NONE 0
#define BIAS_CACHE_LOCAL 1
#define BIAS_CACHE_REGISTERS 2
#define BIAS_CACHE_LOCAL_AND_REGIONS 3

/* LEAST_name and MOST_name of each. */
#define SWITCH_BOUNDS(name, least, most)                                      \
    LEAST_##name = least, MOST_##name = most,
enum switch_bounds { SWITCHES(SWITCH_BOUNDS) SWITCHES_END };

#endif
