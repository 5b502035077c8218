/* SPDX-License-Identifier: Apache-2.0
 * The rows of a tensor in global memory, those of a window's tokens and one
 * head: where they are, and accesses to one, four or eight channels of them.
 */
#include "local/team.cl"

#include "common/aligned.cl"

/* Elements of an aligned access of at most 16 bytes; 0: no such access. */
#if DTYPE != 0 && HEAD_DIM % 8 == 0 && STAGE_DIMS % 8 == 0
#define WIDE 8
#elif HEAD_DIM % 4 == 0
#define WIDE 4
#else
#define WIDE 0
#endif

/* The tokens of a window. */
typedef struct token_list {
    const grid_layout *grid;
    const window_coord *coord;
    __local const kept_token *kept; /* LISTS_TOKENS: from `first` on */
    uint first;
} token_list;

/* And a tensor's channels of them, of one head. */
typedef struct token_rows {
    __global const storage *plane;
    const tensor_layout *layout;
    token_list tokens;
    __global const storage *pad; /* those of the padding; 0: zeros */
} token_rows;

/* int, so that compilers see how far rows are apart */
INLINE kept_token kept_of(const token_list *tokens, uint row)
{
    return tokens->kept[(int)row - (int)tokens->first];
}

/* Of a row that the list holds. */
INLINE token token_of(const token_list *tokens, uint row)
{
    return LISTS_TOKENS ? recall_token(kept_of(tokens, row))
                        : find_token(tokens->grid, tokens->coord, row);
}

/* Where the channels of a token are, from `channel` on; 0 if they are zeros.
 * `column`: their distance. */
INLINE __global const storage *
channels_of(const token_rows *rows, const token *t, uint channel, uint column)
{
    const plane_offset c = (plane_offset)channel * column;
    if (EXISTS(*t))
        return rows->plane + (token_offset(rows->layout, t) + c);
    return rows->pad ? rows->pad + c : 0;
}
#if PADDING
#define ARE_ZEROS(channels) ((channels) == 0)
#else
#define ARE_ZEROS(channels) 0
#endif

/* Four channels of a token in global memory; channel < HEAD_DIM. */
INLINE float4 load_quad(const token_rows *rows, const token *t, int channel,
                        int wide)
{
    __global const storage *from =
        channels_of(rows, t, channel, rows->layout->column);
    if (ARE_ZEROS(from))
        return (float4)(0.0f);
    if (WIDE && wide)
        return load4_aligned(from);
    float x[4];
    UNROLL_FOR (int i = 0; i < 4; i++)
        x[i] = channel + i < HEAD_DIM
                   ? LOAD(from, (ulong)i * rows->layout->column)
                   : 0.0f;
    return (float4)(x[0], x[1], x[2], x[3]);
}

/* Stores four channels of a token that exists; channel < HEAD_DIM. */
INLINE void store_quad(float4 x, __global storage *plane,
                       const tensor_layout *layout, const token *t,
                       int channel, int wide)
{
    const uint column = WIDE && wide ? 1 : layout->column;
    __global storage *to = plane + (token_offset(layout, t) +
                                    (plane_offset)(uint)channel * column);
    if (WIDE && wide) {
        store4_aligned(x, to);
        return;
    }
    const float parts[4] = {x.x, x.y, x.z, x.w};
    UNROLL_FOR (int i = 0; i < 4; i++)
        if (channel + i < HEAD_DIM)
            STORE(parts[i], to, (ulong)i * column);
}
