/* SPDX-License-Identifier: Apache-2.0
 * What a Swin computes, in fp64, one formula after the other: what blocks and
 * models are compared with. */
#ifndef MODELS_REFERENCE_H
#define MODELS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

/* y[out] = W[out][in] x[in] + b, of each row; b may be NULL. */
void ref_linear(const double *x, const double *weight, const double *bias,
                size_t rows, size_t in, size_t out, double *y);
void ref_gelu(double *x, size_t count);
/* LayerNorm of each row; y may be x. */
void ref_norm(const double *x, const double *weight, const double *bias,
              size_t rows, size_t size, double eps, double *y);

/* The four neighbours of each pair of rows and columns: even row and column;
 * odd row; odd column; both. */
void ref_neighbours(const double *map, size_t batch, size_t height,
                    size_t width, size_t channels, double *rows);

/* A block's shape; see ref_block. */
typedef struct ref_shape {
    size_t batch, height, width, channels, heads, hidden;
    size_t window[2], shift[2];
    double eps;
    bool is_cosine, post_norm, rolls_first;
} ref_shape;

/* As wa_swin_block_weights names them, in fp64. */
typedef struct ref_weights {
    const double *norm1_weight, *norm1_bias, *qkv_weight, *qkv_bias;
    const double *proj_weight, *proj_bias, *norm2_weight, *norm2_bias;
    const double *fc1_weight, *fc1_bias, *fc2_weight, *fc2_bias;
    const double *table, *logit_scale;
} ref_weights;

/* Attention inside windows of tokens that each have q, k and v: qkv
 * [windows][tokens][3 C] -> o [windows][tokens][C]. bias(data, window, head,
 * query, key) is added to logits. */
typedef double ref_bias(const void *data, size_t window, size_t head,
                        size_t query, size_t key);
void ref_attention(const double *qkv, size_t windows, size_t tokens,
                   size_t channels, size_t heads, const double *logit_scale,
                   ref_bias *bias, const void *data, double *o);

/* The entry of a table [(2 h - 1) (2 w - 1)] for two tokens of a window. */
size_t ref_entry(const size_t window[2], size_t query, size_t key);

/* A whole block, as torchvision computes it: the normalised map (or with
 * post_norm the map) is padded with zeros to windows, rolled, cut, projected,
 * attended to, put together again; or as timm does, which rolls first. map is
 * changed in place. */
void ref_block(const ref_shape *shape, const ref_weights *w, double *map);

/* Its attention part alone, with both projections: x -> y. */
void ref_window_attention(const ref_shape *shape, const ref_weights *w,
                          const double *x, double *y);

#endif
