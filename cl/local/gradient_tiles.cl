/* SPDX-License-Identifier: Apache-2.0
 * Tiles of gradients in registers: what a work-item sums of the products of P
 * and dS with staged matrices, and how that is stored. */
#include "local/gradient_scores.cl"

/* Rows of a product with transposed weights without a jump in between. */
#define UNROLLED_ROWS SCORE_ROWS

/* sums[i] += rows out_row + OUT_TILES * i of weights times a staged matrix,
 * one quad of channels. */
INLINE void add_product(float4 *sums, const gradient_memory *memory,
                        __local const float4 *matrix, int out_row, int quad,
                        int key_count)
{
    __local const float4 *line = memory->weights + out_row * WEIGHT_PITCH;
    NO_UNROLL_FOR (int c = 0; c < CEIL_DIV(key_count, 4); c++) {
        float4 y[4];
        UNROLL_FOR (int j = 0; j < 4; j++)
            y[j] = matrix[(c * 4 + j) * DIM_PITCH + quad];
        UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
            const float4 w = line[OUT_TILES * i * WEIGHT_PITCH + c];
            sums[i] = FMA((float4)(w.x), y[0], sums[i]);
            sums[i] = FMA((float4)(w.y), y[1], sums[i]);
            sums[i] = FMA((float4)(w.z), y[2], sums[i]);
            sums[i] = FMA((float4)(w.w), y[3], sums[i]);
        }
    }
}

/* sums[j] += column 4 * key_quad + j of weights times a staged matrix, one
 * quad of channels. Rows past the last are zeros, in both. */
INLINE void add_transposed(float4 *sums, const gradient_memory *memory,
                           __local const float4 *matrix, int key_quad,
                           int quad, int row_count)
{
    __local const float4 *line = memory->weights + key_quad;
    NO_UNROLL_FOR (int first = 0; first < row_count; first += UNROLLED_ROWS)
        UNROLL_FOR (int r = first; r < first + UNROLLED_ROWS; r++) {
            const float4 y = matrix[r * DIM_PITCH + quad];
            UNROLL_FOR (int j = 0; j < KEY_QUADS; j++) {
                const float4 w = line[r * WEIGHT_PITCH + j];
                sums[4 * j] = FMA((float4)(w.x), y, sums[4 * j]);
                sums[4 * j + 1] = FMA((float4)(w.y), y, sums[4 * j + 1]);
                sums[4 * j + 2] = FMA((float4)(w.z), y, sums[4 * j + 2]);
                sums[4 * j + 3] = FMA((float4)(w.w), y, sums[4 * j + 3]);
            }
        }
}

/* Rows first + step * i of a block: those of a work-item's tile of their
 * gradient, one quad of channels wide. */
typedef struct gradient_tile {
    int owns; /* does it have one? */
    int first, step;
    int quad; /* of a stage's channels */
    int row_count;
    uint first_row; /* of the block */
} gradient_tile;

/* A work-item's tile of dQ. */
INLINE gradient_tile find_row_tile(const gradient_block *block, int lane)
{
    const gradient_tile tile = {.owns = lane / STAGE_QUADS < OUT_TILES,
                                .first = lane / STAGE_QUADS,
                                .step = OUT_TILES,
                                .quad = lane % STAGE_QUADS,
                                .row_count = block->row_count,
                                .first_row = block->of.row};
    return tile;
}

/* The same tile, of which Intel's compiler has prepared nothing. */
INLINE gradient_tile hide_tile(const gradient_tile *tile)
{
    gradient_tile own = *tile;
#if SUB_GROUP
    HIDE_FROM_OPTIMIZER(own.first);
    HIDE_FROM_OPTIMIZER(own.quad);
#endif
    return own;
}

/* For the rows of a work-item's tile that are there and none of the padding,
 * sums[stage][row] += what `there` has of them (adds) or goes there. */
INLINE void move_gradient(float4 *sums, const int tile_rows,
                          const gradient_tile *tile, __global storage *to,
                          const token_rows *there, const int adds,
                          const int wide)
{
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = tile->first + tile->step * i;
        if (!tile->owns || r >= tile->row_count)
            continue;
        const token t = token_of(&there->tokens, tile->first_row + r);
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
            const int channel = s * STAGE_DIMS + tile->quad * 4;
            if (channel >= HEAD_DIM || !EXISTS(t))
                continue;
            if (adds)
                sums[s * tile_rows + i] += load_quad(there, &t, channel, wide);
            else
                store_quad(sums[s * tile_rows + i], to, there->layout, &t,
                           channel, wide);
        }
    }
}

/* Stores sums[stage][row of the tile] where the token is none of the padding,
 * or adds them to what is there; then sums are what is stored. */
INLINE void store_gradient(float4 *sums, const int tile_rows,
                           const gradient_tile *tile, __global storage *to,
                           const tensor_layout *layout, token_list tokens,
                           int adds, int wide)
{
    const token_rows there = {to, layout, tokens, 0};
    const gradient_tile own = hide_tile(tile);
    /* asked once, not for each row */
    if (adds)
        move_gradient(sums, tile_rows, &own, to, &there, 1, wide);
    if (WIDE && wide)
        move_gradient(sums, tile_rows, &own, to, &there, 0, 1);
    else
        move_gradient(sums, tile_rows, &own, to, &there, 0, 0);
}

/* pad_sums[stage] += sums[stage][row of the tile] of the padding's tokens. */
INLINE void add_padding(float4 *pad_sums, const float4 *sums,
                        const int tile_rows, const gradient_tile *tile,
                        const token_list *tokens)
{
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = tile->first + tile->step * i;
        if (r >= tile->row_count)
            continue;
        const token t = token_of(tokens, tile->first_row + r);
        if (!EXISTS(t))
            UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
                pad_sums[s] += sums[s * tile_rows + i];
    }
}

/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|. Below the smallest norm x^ is just a
 * multiple of x. Leaves x^ . d in along[row], where given. `scratch` has room
 * for a float of each row and quad; it is free after the caller's next
 * barrier. */
INLINE void l2norm_backward(float4 *sums, const int tile_rows,
                            const gradient_tile *tile, const token_rows *x,
                            __local const float *inverses,
                            __local float *scratch, __local float *along,
                            int wide)
{
    const gradient_tile own = hide_tile(tile);
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = own.first + own.step * i;
        if (!own.owns || r >= own.row_count)
            continue;
        const token t = token_of(&x->tokens, own.first_row + r);
        float4 sum = (float4)(0.0f);
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
            const int channel = s * STAGE_DIMS + own.quad * 4;
            if (channel < HEAD_DIM)
                sum = FMA(load_quad(x, &t, channel, wide),
                          sums[s * tile_rows + i], sum);
        }
        scratch[r * STAGE_QUADS + own.quad] =
            (sum.x + sum.y) + (sum.z + sum.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = own.first + own.step * i;
        if (!own.owns || r >= own.row_count)
            continue;
        const token t = token_of(&x->tokens, own.first_row + r);
        const float inverse = inverses[r];
        float dot = 0.0f;
        for (int c = 0; c < STAGE_QUADS; c++)
            dot += scratch[r * STAGE_QUADS + c];
        dot *= inverse;
        const float part =
            inverse < 1.0f / NORM_EPSILON ? dot * inverse : 0.0f;
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
            const int channel = s * STAGE_DIMS + own.quad * 4;
            if (channel >= HEAD_DIM)
                continue;
            const float4 row = load_quad(x, &t, channel, wide);
            sums[s * tile_rows + i] =
                (sums[s * tile_rows + i] - row * part) * inverse;
        }
        if (along && own.quad == 0)
            along[r] = dot;
    }
}
