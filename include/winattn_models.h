/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * winattn_models: what stands around windowed attention in a model.
 *
 * A second library beside winattn, in the same style: fill in a descriptor,
 * create a plan for one context and device, ask for the bytes of workspace,
 * enqueue the plan as often as wanted with buffers of the caller's. Each level
 * can be used alone:
 *
 *     linear layer      y = residual + act(norm(x) W^T + b)
 *     window attention  linear layers around the attention of windows
 *     block             of a transformer, on a feature map
 *     model             Swin and Swin V2, from pictures to classes
 *
 * What winattn.h says holds here too: of statuses, winattn_last_reason and
 * winattn_last_build_log, which serve both libraries; of threads and events,
 * with what winattn_plan_destroy says of NVIDIA's driver; of the structs that
 * start with struct_size; of buffers and who owns them.
 * The library works with the winattn of the same version only, and says so
 * where it meets another. */
#ifndef WINATTN_MODELS_H
#define WINATTN_MODELS_H

#include "winattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What stands before each function, as WINATTN_API in winattn.h. */
#if defined(WINATTN_STATIC)
#define WINATTN_MODELS_API
#elif defined(_WIN32) && defined(WINATTN_MODELS_BUILDING)
#define WINATTN_MODELS_API __declspec(dllexport)
#elif defined(_WIN32)
#define WINATTN_MODELS_API __declspec(dllimport)
#elif defined(__GNUC__)
#define WINATTN_MODELS_API __attribute__((visibility("default")))
#else
#define WINATTN_MODELS_API
#endif

/** WINATTN_VERSION of the library of models that runs. */
WINATTN_MODELS_API int winattn_models_version(void);

/* ---- Linear layer ------------------------------------------------------- */

/** @defgroup winattn_linear_layer Linear layer
 * y = residual + act(norm(x) W^T + b).
 * @{ */

/** What follows the sum. */
typedef enum winattn_activation {
    WINATTN_ACTIVATION_NONE = 0, /**< nothing */
    /** x / 2 (1 + erf(x / sqrt 2)), not its approximation by tanh (Hendrycks
     * and Gimpel 2016, section 2). */
    WINATTN_ACTIVATION_GELU = 1
} winattn_activation;

/** A linear layer. Set struct_size, zero the rest, then fill in: zero is the
 * default of every field that does not say otherwise. With one row x of
 * in_features numbers,
 *
 *     norm(x) = (x - mean) / sqrt(variance + eps) * norm_weight + norm_bias
 *     y = residual + act(sum_i norm(x)_i weight[o, i] + bias[o])
 *
 * where mean and variance (that of the whole population) are the row's (Ba et
 * al. 2016, section 3.1), and each part that the descriptor does not name is
 * left out. All of it is fp32 but for norm(x), which is rounded to the storage
 * type before it is multiplied.
 *
 * Accuracy, against fp64 on the same inputs: the error of a row of y is at
 * most 5e-6 in fp32, 5e-4 in fp16 and 4e-3 in bf16, with TF32 allowed 2e-3, in
 * the 2-norm, relative to the row or to a tenth of its terms' absolute values
 * summed (of residual, bias and products of norm(x)), whichever is more. Where
 * norm(x) is asked for, what cancels in it counts as a term too: in fp32 2^-22
 * of |mean| / sqrt(variance + eps) of the row. Matrix units multiply fp32
 * without allow_tf32 as sums of two TF32 numbers (Ootomo and Yokota 2022,
 * section 2), with errors no larger than those of fp32 products; but where x
 * or weight has an infinity, y may be NaN in its place. */
typedef struct winattn_linear_desc {
    size_t struct_size; /**< sizeof(winattn_linear_desc) */

    winattn_dtype dtype; /**< of every tensor of a call */
    /** Which kernels; 0: the best there are. WINATTN_TIER_CPU has vectors of
     * outputs, WINATTN_TIER_LOCAL tiles in local memory and registers. Both
     * compute everything; WINATTN_TIER_MATRIX fp16 and bf16, and on NVIDIA's
     * devices fp32. */
    winattn_tier tier;
    /** With fp32: matrix units may multiply TF32 numbers, as
     * winattn_desc.allow_tf32 says; but on Hopper weight may be cut off to 10
     * bits of fraction, not rounded: products become smaller, by 2^-10 at most
     * and 0.00035 on average. Models round their weights before. */
    cl_bool allow_tf32;

    cl_uint in_features;  /**< numbers of a row of x; 1 to 65536, required */
    cl_uint out_features; /**< numbers of a row of y; 1 to 2^20, required */
    cl_bool layer_norm;   /**< norm(x) is taken, not x */
    cl_float eps;         /**< of layer_norm; 0: 1e-5 */
    cl_bool has_bias;     /**< there is a bias */
    winattn_activation activation; /**< what follows the sum */
    cl_bool has_residual;          /**< a residual is added last */

    /** As winattn_desc.build_options. */
    const char *build_options;
} winattn_linear_desc;

/** A plan: any number of calls, with any number of rows. */
typedef struct winattn_linear_plan winattn_linear_plan;

/** As winattn_plan_create, with a linear layer's descriptor. Another number of
 * rows, other strides or offsets compile nothing. */
WINATTN_MODELS_API winattn_status winattn_linear_plan_create(
    cl_context context, cl_device_id device, const winattn_linear_desc *desc,
    winattn_linear_plan **plan);

/** Destroys a plan; calls that were enqueued complete all the same. NULL is
 * fine. */
WINATTN_MODELS_API void winattn_linear_plan_destroy(winattn_linear_plan *plan);

/** Bytes of workspace that a call with so many rows needs: 0 without
 * layer_norm; with it as many as x without gaps has. It never shrinks as rows
 * grow. */
WINATTN_MODELS_API winattn_status winattn_linear_plan_workspace_size(
    const winattn_linear_plan *plan, cl_ulong rows, size_t *size);

/** As winattn_plan_describe: lines "name: value" that say which kernel the
 * plan took and why; "shape" and "few rows shape" whether its numbers are from
 * a model of the device or were measured: by a row that was loaded
 * (winattn_load_tuning or the environment's WINATTN_TUNING) or on devices of
 * the kind. */
WINATTN_MODELS_API winattn_status winattn_linear_plan_describe(
    const winattn_linear_plan *plan, size_t size, char *text, size_t *needed);

/** Tensors of a call, all in the descriptor's dtype. A stride counts elements
 * from row to row; 0 means rows that follow each other, with in_features or
 * out_features elements. Larger strides leave what lies between the rows
 * alone, so that x, residual and y may be some columns of larger matrices.
 * Numbers of a row follow each other. A tensor that the descriptor does not
 * name must have buffer NULL.
 *
 * y may lie exactly where residual does, with the same stride; it must not
 * share an element with anything else that the call reads, which is not
 * detected. */
typedef struct winattn_linear {
    size_t struct_size; /**< sizeof(winattn_linear) */

    cl_ulong rows; /**< below 2^32; 0 is legal: nothing is computed */
    /** From row to row, in elements, at least in_features, or out_features of
     * residual and y; 0: that. Below 2^32. */
    cl_ulong x_stride, weight_stride, residual_stride, y_stride;

    winattn_tensor x;           /**< [rows, in_features]; required */
    winattn_tensor weight;      /**< [out_features, in_features]; required */
    winattn_tensor bias;        /**< [out_features]; with has_bias */
    winattn_tensor norm_weight; /**< [in_features]; with layer_norm */
    winattn_tensor norm_bias;   /**< [in_features]; with layer_norm */
    winattn_tensor residual;    /**< [rows, out_features]; with has_residual */
    winattn_tensor y;           /**< output [rows, out_features]; required */

    /** winattn_linear_plan_workspace_size bytes, from an offset that is a
     * multiple of 16 on; NULL where that is 0. */
    winattn_tensor workspace;
} winattn_linear;

/** Enqueues a linear layer, as winattn_enqueue_forward enqueues attention. */
WINATTN_MODELS_API winattn_status
winattn_enqueue_linear(const winattn_linear_plan *plan, cl_command_queue queue,
                       const winattn_linear *linear, cl_uint wait_count,
                       const cl_event *wait_list, cl_event *event);

/** @} */

/* ---- Window attention --------------------------------------------------- */

/** @defgroup winattn_window_attentions Window attention
 * The module that models call WindowAttention: two linear layers around the
 * attention of winattn.h, on windows that the caller has cut.
 * @{ */

/** What a plan of window attention computes, of x [windows, tokens, channels]:
 *
 *     q, k, v = x qkv_weight^T + qkv_bias, of heads of channels / heads
 *     o = softmax(S) v,   S as variant says, with the bias of the table
 *     y = o proj_weight^T + proj_bias
 *
 * Set struct_size, zero the rest, then fill in. */
typedef struct winattn_window_attention_desc {
    size_t struct_size; /**< sizeof(winattn_window_attention_desc) */

    winattn_dtype dtype; /**< of all tensors that do not say otherwise */
    winattn_tier tier;   /**< of all kernels; 0: the best, each by itself */
    cl_bool allow_tf32;  /**< as winattn_linear_desc.allow_tf32 */
    /** WINATTN_DOT: scale is 1 / sqrt(head dim) (Swin); WINATTN_COSINE: with
     * logit_scale (Swin V2). */
    winattn_variant variant;
    cl_ulong windows;  /**< of all images; required */
    cl_uint window[2]; /**< tokens down and across; required */
    cl_uint channels;  /**< a multiple of heads; required */
    cl_uint heads;     /**< channels / heads is at most 256; required */
    /** Window w takes mask w mod mask_windows; 0: there is no mask. */
    cl_ulong mask_windows;
    winattn_term_dtype mask_dtype;  /**< of the mask */
    winattn_term_dtype table_dtype; /**< of the table */
    /** As winattn_desc.build_options. */
    const char *build_options;
} winattn_window_attention_desc;

/** A plan: any number of calls, from any threads. */
typedef struct winattn_window_attention_plan winattn_window_attention_plan;

/** As winattn_plan_create. */
WINATTN_MODELS_API winattn_status
winattn_window_attention_plan_create(cl_context context, cl_device_id device,
                                     const winattn_window_attention_desc *desc,
                                     winattn_window_attention_plan **plan);

/** Destroys a plan; calls that were enqueued complete all the same. NULL is
 * fine. */
WINATTN_MODELS_API void
winattn_window_attention_plan_destroy(winattn_window_attention_plan *plan);

/** Bytes of workspace that a call needs: about four times those of x. */
WINATTN_MODELS_API winattn_status winattn_window_attention_plan_workspace_size(
    const winattn_window_attention_plan *plan, size_t *size);

/** As winattn_plan_describe: what the plans within say, each line behind the
 * name of its part. "bytes" are those that a call moves from and to memory if
 * each launch reads and writes its tensors once, and "qkv bytes" a part's. */
WINATTN_MODELS_API winattn_status winattn_window_attention_plan_describe(
    const winattn_window_attention_plan *plan, size_t size, char *text,
    size_t *needed);

/** Tensors of a call, without gaps. */
typedef struct winattn_window_attention {
    size_t struct_size; /**< sizeof(winattn_window_attention) */

    winattn_tensor x;           /**< [windows, tokens, channels]; required */
    winattn_tensor qkv_weight;  /**< [3 channels, channels]; required */
    winattn_tensor qkv_bias;    /**< [3 channels]; required */
    winattn_tensor proj_weight; /**< [channels, channels]; required */
    winattn_tensor proj_bias;   /**< [channels]; required */
    /** [(2 window[0] - 1) (2 window[1] - 1), heads], as winattn_table orders
     * it; required. Swin V2's: 16 sigmoid of what its MLP makes of positions.
     */
    winattn_tensor table;
    /** fp32 [heads], before exp and its limit; with WINATTN_COSINE */
    winattn_tensor logit_scale;
    /** [mask_windows, tokens, tokens], added to logits; with mask_windows */
    winattn_tensor mask;

    winattn_tensor y; /**< output [windows, tokens, channels]; may be x */
    /** ..._plan_workspace_size bytes, from a multiple of 16 on */
    winattn_tensor workspace;
} winattn_window_attention;

/** Enqueues window attention, as winattn_enqueue_forward enqueues attention.
 */
WINATTN_MODELS_API winattn_status winattn_enqueue_window_attention(
    const winattn_window_attention_plan *plan, cl_command_queue queue,
    const winattn_window_attention *call, cl_uint wait_count,
    const cl_event *wait_list, cl_event *event);

/** @} */

/* ---- Block -------------------------------------------------------------- */

/** @defgroup winattn_blocks Block
 * A transformer block on a feature map: window attention and a multilayer
 * perceptron, each with a norm and a residual.
 * @{ */

/** Where a block's norms are. */
typedef enum winattn_norm_order {
    /** x += attention(norm1(x)), x += mlp(norm2(x)) (Liu et al. 2021, section
     * 3.2). */
    WINATTN_PRE_NORM = 0,
    /** x += norm1(attention(x)), x += norm2(mlp(x)) (Liu et al. 2022, section
     * 3.2). */
    WINATTN_POST_NORM = 1
} winattn_norm_order;

/** What a block computes, of a map [batch, height, width, channels].
 * attention() is as in winattn_window_attention_desc, in windows of the map
 * that are shifted, padded and masked as winattn_grid says; what pads the map
 * has the bias of the projection as its keys and values, as in torchvision.
 * mlp(x) = GELU(x fc1_weight^T + fc1_bias) fc2_weight^T + fc2_bias. Maps are
 * read and written in place: nothing is rolled, padded or cut in memory.
 *
 * Set struct_size, zero the rest, then fill in. */
typedef struct winattn_block_desc {
    size_t struct_size; /**< sizeof(winattn_block_desc) */

    winattn_dtype dtype; /**< of all tensors that do not say otherwise */
    winattn_tier tier;   /**< of all kernels; 0: the best, each by itself */
    cl_bool allow_tf32;  /**< as winattn_linear_desc.allow_tf32 */
    winattn_variant variant;  /**< WINATTN_DOT or WINATTN_COSINE */
    winattn_norm_order order; /**< where norms are */
    cl_uint batch;            /**< maps; required */
    cl_uint height;           /**< tokens down; required */
    cl_uint width;            /**< tokens across; required */
    cl_uint window[2];        /**< tokens down and across; required */
    cl_uint shift[2];         /**< less than window; 0: not shifted */
    cl_uint channels;         /**< a multiple of heads; required */
    cl_uint heads;            /**< channels / heads at most 256; required */
    cl_uint hidden;           /**< numbers within the mlp; required */
    cl_float eps;             /**< of norms; 0: 1e-5 */
    winattn_term_dtype table_dtype; /**< of the table */
    /** As winattn_desc.build_options. */
    const char *build_options;
    /** As winattn_desc.grid_options: which is first, roll or padding, and
     * whether axes that one window covers are shifted. */
    cl_bitfield grid_options;
} winattn_block_desc;

/** A plan: any number of calls, from any threads. */
typedef struct winattn_block_plan winattn_block_plan;

/** As winattn_plan_create. Another batch, map or shift compiles nothing. */
WINATTN_MODELS_API winattn_status winattn_block_plan_create(
    cl_context context, cl_device_id device, const winattn_block_desc *desc,
    winattn_block_plan **plan);

/** Destroys a plan; calls that were enqueued complete all the same. NULL is
 * fine. */
WINATTN_MODELS_API void winattn_block_plan_destroy(winattn_block_plan *plan);

/** Bytes of workspace that a call needs: those of the map, times 1 and the
 * larger of 3 and hidden / channels, and a little. */
WINATTN_MODELS_API winattn_status winattn_block_plan_workspace_size(
    const winattn_block_plan *plan, size_t *size);

/** As winattn_window_attention_plan_describe. */
WINATTN_MODELS_API winattn_status winattn_block_plan_describe(
    const winattn_block_plan *plan, size_t size, char *text, size_t *needed);

/** A block's weights, each without gaps; all required but logit_scale. */
typedef struct winattn_block_weights {
    winattn_tensor norm1_weight; /**< [channels] */
    winattn_tensor norm1_bias;   /**< [channels] */
    winattn_tensor qkv_weight;   /**< [3 channels, channels]: q, k, v */
    /** [3 channels]; Swin V2 has none for keys: zeros there. */
    winattn_tensor qkv_bias;
    winattn_tensor proj_weight;  /**< [channels, channels] */
    winattn_tensor proj_bias;    /**< [channels] */
    winattn_tensor norm2_weight; /**< [channels] */
    winattn_tensor norm2_bias;   /**< [channels] */
    winattn_tensor fc1_weight;   /**< [hidden, channels] */
    winattn_tensor fc1_bias;     /**< [hidden] */
    winattn_tensor fc2_weight;   /**< [channels, hidden] */
    winattn_tensor fc2_bias;     /**< [channels] */
    winattn_tensor table;        /**< as winattn_window_attention.table */
    winattn_tensor logit_scale;  /**< as winattn_window_attention's */
} winattn_block_weights;

/** Tensors of a call. */
typedef struct winattn_block {
    size_t struct_size; /**< sizeof(winattn_block) */

    winattn_tensor x; /**< [batch, height, width, channels]; required */
    winattn_tensor y; /**< output of that shape; exactly x, or apart from it */
    winattn_block_weights weights; /**< required */
    /** winattn_block_plan_workspace_size bytes, from a multiple of 16 on */
    winattn_tensor workspace;
} winattn_block;

/** Enqueues a block, as winattn_enqueue_forward enqueues attention. */
WINATTN_MODELS_API winattn_status
winattn_enqueue_block(const winattn_block_plan *plan, cl_command_queue queue,
                      const winattn_block *block, cl_uint wait_count,
                      const cl_event *wait_list, cl_event *event);

/* ---- Weights ------------------------------------------------------------ */

/** @defgroup winattn_weights Weights
 * Shapes of Swin models, and their weights, from files or at random.
 * @{ */

#define WINATTN_SWIN_STAGES 4 /**< of a model, at most */

/** How a picture is resized; see winattn_fit_picture. */
typedef enum winattn_filter {
    WINATTN_FILTER_BICUBIC = 0, /**< Keys 1981, with a = -1/2 */
    WINATTN_FILTER_BILINEAR = 1 /**< a triangle */
} winattn_filter;

/** Libraries compute the same Swin in their own ways where a map is no larger
 * than a window, is no multiple of it, or is not of the size that the model
 * was made for. */
typedef enum winattn_swin_rules {
    /** Of a file: those of the library that gives its tensors such names, or
     * wrote config.json; else torchvision's. */
    WINATTN_SWIN_RULES_AUTO = 0,
    /** Windows are as they are. Every second block is shifted along each axis
     * of the map that is longer than the window. Maps are padded to whole
     * windows, then rolled. */
    WINATTN_SWIN_RULES_TORCHVISION = 1,
    /** Windows are at most as high and wide as their stage's map in pictures
     * of `image`, and axes of that map that are longer are shifted, also in
     * pictures of other sizes. Maps are rolled, then padded. */
    WINATTN_SWIN_RULES_TIMM = 2,
    /** Microsoft's repository: as torchvision's, but windows are at most as
     * long as the shorter side of the map, and a map whose shorter side is no
     * longer than the window is not shifted at all. It takes pictures of
     * `image` only, whose maps windows and mergers divide; others are computed
     * as torchvision does. */
    WINATTN_SWIN_RULES_MICROSOFT = 3,
    /** Generation 1 shifts as Microsoft's, whatever `image` is, and fails
     * where a map is smaller than a window; that is computed as torchvision
     * does. Generation 2 has windows that are at most as high as the map in
     * pictures of `image`, and shifts both axes where that map is higher.
     * Pictures are padded to whole patches, by zeros behind mean and
     * deviation. */
    WINATTN_SWIN_RULES_TRANSFORMERS = 4
} winattn_swin_rules;

/** The shape of a Swin Transformer (Liu et al. 2021) or Swin Transformer V2
 * (Liu et al. 2022) and what it expects of pictures. Of arrays of stages the
 * first `stages` elements count, the others must be 0. */
typedef struct winattn_swin_config {
    size_t struct_size; /**< sizeof(winattn_swin_config) */

    cl_uint generation;  /**< 1: Swin; 2: Swin V2 */
    cl_uint in_channels; /**< of a picture */
    cl_uint patch[2];    /**< height and width of a patch, which is a token */
    cl_uint channels;    /**< of the first stage; each later one has twice */
    cl_uint stages;      /**< 1 to WINATTN_SWIN_STAGES */
    cl_uint depths[WINATTN_SWIN_STAGES]; /**< blocks of a stage */
    cl_uint heads[WINATTN_SWIN_STAGES];  /**< divide its channels */
    /** Height and width of its windows, 1 to 64. Every second block is shifted
     * by half of them, as `rules` say. */
    cl_uint window[WINATTN_SWIN_STAGES][2];
    /** Generation 2: the windows of the pretraining, in which positions are
     * measured before they go into the position MLP; 0: `window`. */
    cl_uint position_window[WINATTN_SWIN_STAGES][2];
    cl_uint hidden[WINATTN_SWIN_STAGES]; /**< channels between its MLP's two
                                            layers */
    cl_uint classes;                     /**< 0: there is no head */
    cl_float norm_eps;                   /**< of LayerNorms */

    /** Pictures are resized so that they have this height and width, or, where
     * the width is 0, so that their shorter side has this height. */
    cl_uint resize[2];
    cl_uint crop[2];       /**< height and width of what is then cut out */
    winattn_filter filter; /**< of the resizing */
    /** Of red, green and blue, where the numbers of a picture are between 0
     * and 1: what is subtracted, and what is then divided by. */
    cl_float mean[3], deviation[3];

    /** Ignored; older programs' structs end here, with undefined bytes. */
    cl_uint unused;
    winattn_swin_rules rules; /**< what libraries do in different ways */
    /** Height and width of the pictures that the model was made for, which
     * some rules ask for; 0: those of the call. */
    cl_uint image[2];
    /** Of the norms of patches and of mergers, where it is not norm_eps; 0:
     * norm_eps, or 1e-5 by transformers' rules. */
    cl_float outer_norm_eps;
    /** There is no norm behind the last stage, and so no features and no
     * logits (timm's features_only). Of a file: as the file has it. */
    cl_bool no_norm;
    /** winattn_swin_weights_open reads no file but the weights'. */
    cl_bool no_config_file;
} winattn_swin_config;

/** The shape of a model by its name, with 1000 classes:
 *
 *     swin_t, swin_s, swin_b, swin_l        windows of 7, pictures of 224
 *     swin_b_384, swin_l_384                windows of 12
 *     swin_v2_t, swin_v2_s, swin_v2_b       windows of 8, pictures of 256
 *     swin_v2_t_w16, ..._s_w16, ..._b_w16   windows of 16
 *     swin_v2_b_w12, swin_v2_l_w12          windows of 12, pictures of 192
 *     swin_v2_b_w12to16, ..._l_w12to16      the same, trained on with 16
 *     swin_v2_b_w12to24, ..._l_w12to24      and 24; pictures of 384
 *     swin_v2_l                             is swin_v2_l_w12to16
 *
 * Pictures are prepared as torchvision does it for its weights, or where it
 * has none, timm. On success *config is the shape; its struct_size must be set
 * before the call. */
WINATTN_MODELS_API winattn_status
winattn_swin_config_find(const char *name, winattn_swin_config *config);

/** The names that winattn_swin_config_find knows: the index-th, or NULL. */
WINATTN_MODELS_API const char *winattn_swin_config_name(cl_uint index);

/** Weights of a model, in fp32, in the memory of the host. Threads may share
 * them. */
typedef struct winattn_swin_weights winattn_swin_weights;

/** Reads a file of safetensors with tensors in fp32, fp16 or bf16 under the
 * names that torchvision, timm, Microsoft's repository or Hugging Face's
 * transformers give them. On success *weights is new, and the file may go,
 * else NULL.
 *
 * path: of the file; or, where transformers has split it, of the index of its
 * shards, model.safetensors.index.json, which names files of its own folder;
 * or of a folder that has model.safetensors or that index.
 *
 * Names may stand behind what a wrapper puts there ("module.", "backbone.");
 * tensors that do not are left out, as of another part.
 *
 * The file says what shape the model has, all but: its windows, if it is of
 * generation 2 and keeps no buffers (timm, transformers), and those of the
 * pretraining; norm_eps; and what it expects of pictures. Where
 * config.json stands beside the file, as transformers and timm write it, it
 * says the rest, transformers' preprocessor_config.json what pictures are
 * like; a key that asks for what is not computed, or contradicts the shapes of
 * the tensors, is an error that names it; windows that tables show count.
 * `config`, if not NULL, says what the model shall be: what is not 0 in it is
 * taken instead (classes 0: as the file has it; stages 0: the same, and more
 * may be said of), and whatever does not fit then is an error. Windows that
 * nothing says are an error too. Without another word norm_eps is 1e-5, rules
 * are those of the library that the names are from, and pictures are prepared
 * as it does, for the first model of winattn_swin_config_find that has this
 * shape, or for swin_t.
 *
 * Fails with WINATTN_INVALID_FILE where the file is no such file, or where a
 * tensor is missing, misshaped, of another type, or one that the model does
 * not have, or where an index and its shards disagree; the reason names it. So
 * does a file that asks for more than models have, such as tables of positions
 * for hundreds of blocks of large windows. A file that is cut while it is read
 * ends the program, as the operating system wants it. */
WINATTN_MODELS_API winattn_status
winattn_swin_weights_open(const char *path, const winattn_swin_config *config,
                          winattn_swin_weights **weights);

/** Draws weights, the same for the same seed and config on every machine: for
 * tests and measurements, as they know nothing. Of the config, norm_eps and
 * what is said of pictures may be 0, as above. */
WINATTN_MODELS_API winattn_status
winattn_swin_weights_random(const winattn_swin_config *config, cl_ulong seed,
                            winattn_swin_weights **weights);

/** The shape of the model that they are of. struct_size must be set. */
WINATTN_MODELS_API winattn_status winattn_swin_weights_config(
    const winattn_swin_weights *weights, winattn_swin_config *config);

/** One line: whose names the file has, behind what, and in which types, and
 * what the model's rules mean for its windows; or the seed. As
 * winattn_plan_describe. */
WINATTN_MODELS_API winattn_status
winattn_swin_weights_describe(const winattn_swin_weights *weights, size_t size,
                              char *text, size_t *needed);

/** NULL is fine. */
WINATTN_MODELS_API void
winattn_swin_weights_destroy(winattn_swin_weights *weights);

/** @} */

/* ---- Pictures ----------------------------------------------------------- */

/** @defgroup winattn_pictures Pictures
 * What is done to a picture before a model sees it.
 * @{ */

/** Resizes a picture and cuts out its middle, as config.resize, config.crop
 * and config.filter say, on the host. When it becomes smaller, the filter
 * grows with the step between its pixels, so that nothing is skipped
 * (antialiasing). The result is what torchvision's Resize and CenterCrop make
 * of an 8-bit picture of Pillow's, bit by bit.
 *
 * pixels: red, green and blue of height x width pixels, 8 bits each, line by
 * line, each `row_bytes` after the one before (0: 3 * width). fitted: room for
 * 3 * crop[0] * crop[1] bytes. Height and width are 1 to 65535. The picture is
 * refused where what was resized is smaller than what is to be cut out. */
WINATTN_MODELS_API winattn_status winattn_fit_picture(
    const winattn_swin_config *config, cl_uint height, cl_uint width,
    size_t row_bytes, const unsigned char *pixels, unsigned char *fitted);

/** @} */

/* ---- Model -------------------------------------------------------------- */

/** @defgroup winattn_models_whole Model
 * Swin and Swin V2, from pictures to classes and maps.
 * @{ */

/** How pictures are stored. Their channels are those of the weights' config,
 * at most 4. */
typedef enum winattn_pictures {
    /** Bytes [batch, height, width, channels]; 255 is 1. */
    WINATTN_PICTURES_BYTES = 0,
    WINATTN_PICTURES_FLOATS = 1, /**< fp32 [batch, height, width, channels] */
    WINATTN_PICTURES_PLANES = 2  /**< fp32 [batch, channels, height, width] */
} winattn_pictures;

/** What a model is made for. Set struct_size, zero the rest, then fill in. */
typedef struct winattn_model_desc {
    size_t struct_size; /**< sizeof(winattn_model_desc) */

    winattn_dtype dtype; /**< of weights on the device, maps and logits */
    winattn_tier tier;   /**< of all kernels; 0: the best, each by itself */
    cl_bool allow_tf32;  /**< as winattn_linear_desc.allow_tf32 */
    cl_uint batch;       /**< pictures of a call; required */
    /** Of a picture, at least a patch; required, and free: maps that windows
     * or mergers of neighbours do not divide are padded. Pixels right of the
     * last whole patch, or below it, are not read, as by a convolution, or by
     * transformers' rules padded to a patch. */
    cl_uint height, width;
    winattn_pictures pictures; /**< how they are stored */
    /** As winattn_desc.build_options. */
    const char *build_options;
} winattn_model_desc;

/** A model: its kernels, and its weights in buffers of its own. Any number of
 * calls, from any threads. */
typedef struct winattn_model winattn_model;

/** Makes a model: rounds the weights to dtype, uploads them, which waits for
 * the device, and builds kernels. Norms, biases and Swin's tables have dtype
 * too; Swin V2's tables, which are as large as 16, and scales of logits stay
 * fp32. `weights` may go. Context and device are retained. On failure *model
 * is NULL.
 *
 * Fails as winattn_plan_create does. */
WINATTN_MODELS_API winattn_status winattn_model_create(
    cl_context context, cl_device_id device, const winattn_model_desc *desc,
    const winattn_swin_weights *weights, winattn_model **model);

/** Destroys a model; calls that were enqueued complete all the same. NULL is
 * fine. */
WINATTN_MODELS_API void winattn_model_destroy(winattn_model *model);

/** Bytes of workspace that a call needs. */
WINATTN_MODELS_API winattn_status
winattn_model_workspace_size(const winattn_model *model, size_t *size);

/** Batch, height, width and channels of a stage's map. */
WINATTN_MODELS_API winattn_status winattn_model_map_shape(
    const winattn_model *model, cl_uint stage, cl_uint shape[4]);

/** As winattn_plan_describe: bytes of weights and workspace, maps, and what
 * the plans within say, each line behind the names of stage and part. */
WINATTN_MODELS_API winattn_status winattn_model_describe(
    const winattn_model *model, size_t size, char *text, size_t *needed);

/** Tensors of a call, without gaps. Of the outputs at least one is wanted;
 * what none needs is not computed. */
typedef struct winattn_model_call {
    size_t struct_size; /**< sizeof(winattn_model_call) */

    winattn_tensor pictures; /**< as the descriptor says; required */
    /** Of each channel, where the numbers of a picture are between 0 and 1:
     * what is subtracted, and what is then divided by. deviation[0] = 0:
     * neither; the model sees the numbers as they are. */
    cl_float mean[4], deviation[4];

    /** Output [batch, classes]; NULL if not wanted, or without a head. */
    winattn_tensor logits;
    /** Output [batch, channels]: the mean over the tokens of the last map,
     * each normalised, which is what the head reads; NULL if not wanted. */
    winattn_tensor features;
    /** Outputs [batch, height, width, channels]: the map after the blocks of
     * each stage; NULL where not wanted. The model also reads them: buffers of
     * kernels that read and write. */
    winattn_tensor maps[WINATTN_SWIN_STAGES];

    /** winattn_model_workspace_size bytes, from a multiple of 16 on; from one
     * of 256 on, parts of it start on lines of memory, which may be faster */
    winattn_tensor workspace;
} winattn_model_call;

/** Enqueues a model, as winattn_enqueue_forward enqueues attention. Allocates
 * nothing on the device. */
WINATTN_MODELS_API winattn_status
winattn_enqueue_model(const winattn_model *model, cl_command_queue queue,
                      const winattn_model_call *call, cl_uint wait_count,
                      const cl_event *wait_list, cl_event *event);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
