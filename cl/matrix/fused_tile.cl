/* SPDX-License-Identifier: Apache-2.0
 * P and dS of a window in local memory, where backward_matrix.cl exchanges
 * them between waves that have rows and waves that have keys: the layout of a
 * team's local memory, and how tiles come there and back.
 *
 *   KEEPS_DBIAS  0 or 1 (grad_sums.cl) */
#include "matrix/grad_softmax.cl"

REQUIRE(KEEPS_DBIAS)

/* A tile's dP, unless it is kept, is computed while dS of the one before is:
 * that pays in fp16, but where the cosine variant takes the registers
 * (bench/decisions/small-windows-have-one-gradient-kernel.md). */
#define PIPELINE_DP                                                           \
    (DTYPE == 1 && VARIANT != COSINE && UNROLL_SUBTILES && KEPT_DP_TILES == 0)
/* P and dS in local memory. */
#define WEIGHT_ROWS (CEIL_DIV(ROW_TILES * TILE_M, TILE_N) * TILE_N)
#define WEIGHT_KEYS (KEY_TILES * TILE_N)
/* Addresses cost less with a pad, but there is no room for it. */
#define WEIGHT_PITCH (LATE_KEYS ? ROW_PITCH(WEIGHT_KEYS) : WEIGHT_KEYS + CHUNK)
#define WEIGHT_SIZE (WEIGHT_ROWS * WEIGHT_PITCH)
/* Tables of where tokens are: of the window that is copied, of this one, and
 * of the last, whose rows other waves may still store. */
#define TOKEN_TABLES (KEEPS_TOKENS ? STAGES + 1 : 0)
/* A team's local memory, in bytes: the ring, each wave's output staging, P
 * and dS, tables of tokens, and of rows lse and powers of two. Together, for
 * one address that stays in a register: NVIDIA's compiler makes that of each
 * array anew, which takes long. */
#define OUT_OFFSET (RING_SIZE * 2)
#define WEIGHT_OFFSET (OUT_OFFSET + WAVES_PER_WINDOW * OUT_SIZE * 2)
#define TOKEN_OFFSET (WEIGHT_OFFSET + 2 * WEIGHT_PARTS * WEIGHT_SIZE * 2)
#define LSE_OFFSET (TOKEN_OFFSET + TOKEN_TABLES * NQ * 16)
#define DS_SCALE_OFFSET (LSE_OFFSET + KEY_STAGES * BLOCK_ROWS * 4)
#define TEAM_ALIGNMENT (SWIZZLES_ROWS ? LINE * 2 : CHUNK * 2)
#define TEAM_BYTES                                                            \
    (CEIL_DIV(DS_SCALE_OFFSET + (RESCALES ? WAVES_PER_WINDOW * 4 : 0),        \
              TEAM_ALIGNMENT) *                                               \
     TEAM_ALIGNMENT)
/* Tiles of keys that waves take in turn. */
#define KEY_STRIPES CEIL_DIV(NK, TILE_M)
#define KEY_TURNS CEIL_DIV(KEY_STRIPES, WAVES_PER_WINDOW)
/* Where it can, a wave makes one gradient of two of them and not both of one:
 * what it reads of dO or of q then serves twice. Not in the cosine variant,
 * where dK takes much longer. */
#define ONE_GRADIENT                                                          \
    (VARIANT != COSINE && SPARES_GRADIENTS && KEY_STRIPES % 2 == 0 &&         \
     WAVES_PER_WINDOW % 2 == 0)
#define STRIPES_AT_ONCE (ONE_GRADIENT ? 2 : 1)
/* Tiles of channels that are summed at a time; the cosine variant needs all of
 * a row's before one can leave. */
#define ROW_SUM_TILES                                                         \
    (SUBTILES > 1 || VARIANT == COSINE ? DIM_TILES : OUT_TILES)
#define KEY_SUM_TILES (VARIANT == COSINE ? DIM_TILES : OUT_TILES)
/* Many channels: the code for a part of them serves for all, so that a
 * window's fits the instruction cache. Sums of all must have constant indices.
 */
#if DIM_TILES % OUT_TILES == 0 && ROW_SUM_TILES == OUT_TILES &&               \
    KEY_SUM_TILES == OUT_TILES && !PADDING
#define CHANNEL_FOR NO_UNROLL_FOR
#else
#define CHANNEL_FOR UNROLL_FOR
#endif

/* P and dS of a tile of rows, on their way to waves that have keys. */
typedef struct row_weights {
    __local ushort *p, *ds;
} row_weights;

/* A tile of P or dS goes to local memory. */
INLINE void share_weights(const float *tile, __local ushort *weights,
                          int query, int key, const wave *w)
{
    float rest[ACC_PER_LANE];
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        rest[i] = tile[i];
    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
        store_tile(rest, weights + part * WEIGHT_SIZE, WEIGHT_PITCH, query,
                   key, WEIGHT_PITCH, w);
        if (part + 1 < WEIGHT_PARTS)
            subtract_rounded(rest);
    }
}
