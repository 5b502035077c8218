/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on a matrix unit, in fp16, bf16 and, where the caller allows
 * TF32, fp32. A work-group has BLOCK_ROWS x BLOCK_COLUMNS of y, of which each
 * of ROW_WAVES x COLUMN_WAVES waves has a part, in tiles in its registers.
 * STAGE_DIMS numbers of each row of x and of W come to a stage of a ring in
 * local memory while waves compute from another (linear_ring.cl).
 *
 *
 * Where a call has few tiles, DIM_WAVES waves share one: each multiplies some
 * of a stage's numbers, and their sums are added up in the end. */
#include "models/linear_waves.cl"

/* A sum that left, of all waves that share it. */
INLINE float sum_at(__local const float *from)
{
    float sum = from[0];
    UNROLL_FOR (int part = 1; part < DIM_WAVES; part++)
        sum += from[part * ROW_WAVES * COLUMN_WAVES * OUT_FLOATS];
    return sum;
}

/* x += a chunk of a tensor. */
INLINE void add_chunk(float *x, __global const storage *from)
{
    float more[CHUNK];
    unpack_chunk(more, *(__global const uint4 *)from);
    UNROLL_FOR (int i = 0; i < CHUNK; i++)
        x[i] += more[i];
}

/* A chunk of the result. */
INLINE void finish_chunk(__local const float *from, ulong row, uint column,
                         const linear_result *to)
{
    const linear_args *args = to->args;
    float x[CHUNK];
    if ((args->flags & LINEAR_WIDE_OUT) == 0 || column + CHUNK > args->out) {
        NO_UNROLL_FOR (uint i = 0; i < CHUNK && column + i < args->out; i++)
            finish_element(sum_at(from + i), row, column + i, to);
        return;
    }
    UNROLL_FOR (int i = 0; i < CHUNK; i++)
        x[i] = sum_at(from + i);
    if (HAS_BIAS)
        add_chunk(x, to->bias + column);
    UNROLL_FOR (int i = 0; i < CHUNK; i++)
        x[i] = finish_sum(x[i]);
    if (HAS_RESIDUAL)
        add_chunk(x, residual_at(to, row, column));
    *(__global uint4 *)result_at(to, row, column) = pack_chunk(x);
}

/* Waves that share a tile wait for each other. */
INLINE void sync_sharing(void)
{
#if DIM_WAVES > 1
    barrier(CLK_LOCAL_MEM_FENCE);
#else
    WAVE_SYNC();
#endif
}

/* A wave's sums leave, a tile of rows at a time. */
INLINE void finish_wave(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                        __local float *all, int number, ulong first_row,
                        uint first_column, const linear_result *to,
                        const wave *w)
{
    const wave_place at = place_of(number);
    __local float *own = all + number * OUT_FLOATS;
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++) {
        sync_sharing();
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                own[value_query(w->lane, i) * OUT_PITCH + c * TILE_N +
                    value_key(w->lane, i)] = sums[r][c][i];
        sync_sharing();
        /* of waves that share a tile the first stores it */
        NO_UNROLL_FOR (int i = w->lane; i < TILE_M * OUT_CHUNKS; i += WAVE) {
            const ulong row = first_row + at.row + r * TILE_M + i / OUT_CHUNKS;
            const uint column =
                first_column + at.column + i % OUT_CHUNKS * CHUNK;
            if ((DIM_WAVES == 1 || at.step == 0) && row < to->args->rows &&
                column < to->args->out)
                finish_chunk(own + i / OUT_CHUNKS * OUT_PITCH +
                                 i % OUT_CHUNKS * CHUNK,
                             row, column, to);
        }
    }
}

LINEAR_KERNEL(GROUP)
WAVE_ATTRIBUTE void JOIN(linear_matrix_, UNIT_NAME)(LINEAR_PARAMETERS)
{
    __local uint4 places[LINEAR_BYTES / CHUNK_BYTES]
        __attribute__((aligned(128)));
    __local storage_bits *ring = (__local storage_bits *)places;
    const int item = (int)get_local_id(0);
    wave own_wave = {.lane = item % WAVE};
    const wave *w = &own_wave;
    const uint column_blocks =
        (args.out + BLOCK_COLUMNS - 1) / (uint)BLOCK_COLUMNS;
    const uint block = (uint)get_group_id(0);
    const ulong first_row =
        args.first_row + (ulong)(block / column_blocks) * BLOCK_ROWS;
    const uint first_column = block % column_blocks * BLOCK_COLUMNS;
    const uint stages = (args.in + STAGE_DIMS - 1) / STAGE_DIMS;
    const wave_place at = place_of(item / WAVE);
    START_TENSORS
    const linear_result result = {&args, bias, residual, y};
    const source from_x = {
        .rows = x + first_row * args.x_stride,
        .stride = args.x_stride,
        .count = (int)min(args.rows - first_row, (ulong)BLOCK_ROWS),
        .wide = (args.flags & LINEAR_WIDE_X) != 0};
    const source from_w = {
        .rows = weight + (ulong)first_column * args.weight_stride,
        .stride = args.weight_stride,
        .count = (int)min(args.out - first_column, (uint)BLOCK_COLUMNS),
        .wide = (args.flags & LINEAR_WIDE_WEIGHT) != 0};

    float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    clear_sums(sums);
    /* Stages that come before the first is computed from: then one in each
     * round, into the place of the one that was read in the last. */
    NO_UNROLL_FOR (int s = -AHEAD; s < (int)stages; s++) {
        const uint next = (uint)(s + AHEAD);
        const uint k = next * STAGE_DIMS;
        __local storage_bits *to = ring + next % STAGES * STAGE_SIZE;
        uint4 held_x[X_TURNS], held_w[W_TURNS]; /* unless copies go there */
        if (s >= 0) {
            AWAIT_COPIES(AHEAD - 1);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (next < stages) {
            fetch_chunks(to, held_x, &from_x, BLOCK_ROWS, k, args.in, item);
            fetch_chunks(to + X_SIZE, held_w, &from_w, BLOCK_COLUMNS, k,
                         args.in, item);
        }
        END_COPIES();
        if (s >= 0) {
            __local const storage_bits *own =
                ring + (uint)s % STAGES * STAGE_SIZE;
            multiply_stage(sums, own, own + X_SIZE, &at, w);
        }
        if (!ASYNC_COPIES && next < stages) {
            keep_chunks(to, held_x, BLOCK_ROWS, item);
            keep_chunks(to + X_SIZE, held_w, BLOCK_COLUMNS, item);
        }
    }
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the ring was read */
    finish_wave(sums, (__local float *)places, item / WAVE, first_row,
                first_column, &result, w);
}
