/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on a matrix unit, in fp16, bf16 and, as TF32 or by numbers in
 * two parts of that type, fp32. A work-group has BLOCK_ROWS x BLOCK_COLUMNS of
 * y, of which each of ROW_WAVES x COLUMN_WAVES waves has a part, in tiles in
 * its registers. STAGE_DIMS numbers of each row of x and of W come to a stage
 * of a ring in local memory while waves compute from another (linear_ring.cl).
 *
 * Where a call has few tiles, DIM_WAVES waves share one: each multiplies some
 * of a stage's numbers, and their sums are added up in the end.
 *
 * FINDS_STATISTICS: rows of x are normalised on the way, as linear_wgmma.cl
 * explains, by what work-items find of them in each stage. No residual. */
#include "models/linear_waves.cl"

REQUIRE(FINDS_STATISTICS)

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

/* ---- Norms ---- */

/* What a work-item knows of its row: each of ROW_ITEMS has every so many-th
 * chunk. Distances from the origin, the mean of the row's first chunk, add up
 * with little loss, where means are large and where there are outliers. */
typedef struct row_part {
    float origin, sum, square;
} row_part;

INLINE void load_chunk_of(float *x, __local const storage_bits *stage, int row,
                          int chunk)
{
    unpack_chunk(
        x, *(__local const uint4 *)(stage + swizzled_offset(row, chunk * CHUNK,
                                                            PITCH)));
}

INLINE void count_stage(row_part *part, __local const storage_bits *stage,
                        uint k, uint in, int item)
{
    const int row = item / ROW_ITEMS;
    float x[CHUNK];
    if (k == 0) {
        load_chunk_of(x, stage, row, 0);
        part->origin = 0.0f;
        UNROLL_FOR (int j = 0; j < CHUNK; j++)
            part->origin += x[j] / CHUNK;
    }
    UNROLL_FOR (int i = 0; i < ROW_CHUNKS; i += ROW_ITEMS) {
        const int chunk = i + item % ROW_ITEMS;
        const uint at = k + chunk * CHUNK;
        if (chunk >= ROW_CHUNKS || at >= in)
            continue;
        load_chunk_of(x, stage, row, chunk);
        UNROLL_FOR (int j = 0; j < CHUNK; j++) {
            const float d = at + j < in ? x[j] - part->origin : 0.0f;
            part->sum += d;
            part->square = FMA(d, d, part->square);
        }
    }
}

/* sums += a stage's products, which with SPLITS_FP32 are added up first: as
 * the unit adds, it rounds to zero, which many small numbers show (Ootomo and
 * Yokota 2022, section 3). */
INLINE void add_stage(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                      __local const storage_bits *stage, const wave_place *at,
                      const wave *w)
{
    float parts[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    if (!SPLITS_FP32) {
        multiply_stage(sums, stage, stage + X_SIZE, at, w);
        return;
    }
    clear_sums(parts);
    multiply_stage(parts, stage, stage + X_SIZE, at, w);
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[r][c][i] += parts[r][c][i];
}

/* A stage of numbers k and on is multiplied, and counted. */
INLINE void take_stage(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                       __local const storage_bits *stage, const wave_place *at,
                       row_part *part, uint k, uint in, int item,
                       const wave *w)
{
    add_stage(sums, stage, at, w);
    if (FINDS_STATISTICS)
        count_stage(part, stage, k, in, item);
}

/* norm(x) of a row, whose parts are given, is x times .x and .y added. */
INLINE float2 join_parts(__local const float4 *parts, const linear_args *args)
{
    float4 all = parts[0];
    UNROLL_FOR (int i = 1; i < ROW_ITEMS; i++)
        all.yz += parts[i].yz;
    const float off = all.y / (float)args->in;
    const float square = fmax(FMA(-all.y, off, all.z), 0.0f);
    const float factor = 1.0f / sqrt(square / (float)args->in + args->eps);
    return (float2)(factor, -(all.x + off) * factor);
}

/* Sums of x W^T become those of norm(x) W^T, with the bias. */
INLINE void normalise_sums(float *x, const int count, ulong row, uint column,
                           const linear_result *to)
{
    const float2 norm = join_parts(
        to->row_parts + (row - to->first_row) * ROW_ITEMS, to->args);
    __global const float2 *terms = (__global const float2 *)to->bias + column;
    UNROLL_FOR (int i = 0; i < count; i++)
        x[i] = FMA(x[i], norm.x, FMA(norm.y, terms[i].x, terms[i].y));
}

/* ---- Results ---- */

/* Elements of the result one by one, as many of a chunk as there are. */
INLINE void finish_elements(__local const float *from, ulong row, uint column,
                            const linear_result *to)
{
    const uint count = min((uint)CHUNK, to->args->out - column);
    NO_UNROLL_FOR (uint i = 0; i < count; i++) {
        float sum = sum_at(from + i);
        if (FINDS_STATISTICS) {
            normalise_sums(&sum, 1, row, column + i, to);
            STORE(activate(sum), to->y, row * to->args->y_stride + column + i);
        } else {
            finish_element(sum, row, column + i, to);
        }
    }
}

/* A chunk of the result. */
INLINE void finish_chunk(__local const float *from, ulong row, uint column,
                         const linear_result *to)
{
    const linear_args *args = to->args;
    float x[CHUNK];
    if ((args->flags & LINEAR_WIDE_OUT) == 0 || column + CHUNK > args->out) {
        finish_elements(from, row, column, to);
        return;
    }
    UNROLL_FOR (int i = 0; i < CHUNK; i++)
        x[i] = sum_at(from + i);
    if (FINDS_STATISTICS) {
        normalise_sums(x, CHUNK, row, column, to);
    } else if (HAS_BIAS) {
        add_chunk(x, to->bias + column);
    }
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

/* A wave's sums leave, so many tiles of rows at a time. Waves that share tiles
 * share what follows. */
INLINE void finish_wave(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                        __local float *all, int number, ulong first_row,
                        uint first_column, const linear_result *to,
                        const wave *w)
{
    const wave_place at = place_of(number);
    __local float *own = all + number * OUT_FLOATS;
    __local const float *first =
        all + number % (ROW_WAVES * COLUMN_WAVES) * OUT_FLOATS;
    const int item = number / (ROW_WAVES * COLUMN_WAVES) * WAVE + w->lane;
    UNROLL_FOR (int r = 0; r < ROW_TILES; r += OUT_TILES) {
        if (r > 0)
            sync_sharing();
        UNROLL_FOR (int t = 0; t < OUT_TILES; t++)
            UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    own[(t * TILE_M + value_query(w->lane, i)) * OUT_PITCH +
                        c * TILE_N + value_key(w->lane, i)] =
                        sums[r + t][c][i];
        sync_sharing();
        NO_UNROLL_FOR (int i = item; i < OUT_TILES * TILE_M * OUT_CHUNKS;
                       i += DIM_WAVES * WAVE) {
            const ulong row = first_row + at.row + r * TILE_M + i / OUT_CHUNKS;
            const uint column =
                first_column + at.column + i % OUT_CHUNKS * CHUNK;
            if (row < to->args->rows && column < to->args->out)
                finish_chunk(first + i / OUT_CHUNKS * OUT_PITCH +
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
    __local float4 *row_parts = (__local float4 *)places + ROW_PARTS_AT;
    const linear_result result = {&args, bias,      residual,
                                  y,     row_parts, first_row};
    source from_x, from_w;
    set_source(&from_x, x, first_row, args.rows, args.x_stride, BLOCK_ROWS,
               args.flags & LINEAR_WIDE_X);
    set_source(&from_w, weight, first_column, args.out, args.weight_stride,
               BLOCK_COLUMNS, args.flags & LINEAR_WIDE_WEIGHT);

    float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    row_part part = {0.0f, 0.0f, 0.0f};
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
        if (s >= 0)
            take_stage(sums, ring + (uint)s % STAGES * STAGE_SIZE, &at, &part,
                       (uint)s * STAGE_DIMS, args.in, item, w);
        if (!ASYNC_COPIES && next < stages) {
            keep_chunks(to, held_x, BLOCK_ROWS, item);
            keep_chunks(to + X_SIZE, held_w, BLOCK_COLUMNS, item);
        }
    }
    if (FINDS_STATISTICS)
        row_parts[item] = (float4)(part.origin, part.sum, part.square, 0.0f);
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the ring was read */
    finish_wave(sums, (__local float *)places, item / WAVE, first_row,
                first_column, &result, w);
}
