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
 * NEIGHBOURS: x is a map, of whose tokens four are a row (linear_ring.cl).
 * FINDS_STATISTICS: rows of x are normalised on the way (row_origin.cl), by
 * what work-items find of them in each stage. `bias` has pairs of s and b' in
 * fp32, and `residual`, which there is none of, the norm's weights. */
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

/* ---- Norms ---- */

/* What a work-item knows of its row: each of ROW_ITEMS has every so many-th
 * chunk, and adds up distances from the origin. */
typedef struct row_part {
    float origin, sum, square;
} row_part;

/* All work-items call it, on the first stage: each finds the origin of the row
 * that it counts, and gets those of its wave's rows. */
INLINE float find_origins(query_tile *origins, __local uint *found,
                          __local const storage_bits *stage,
                          const wave_place *at, const wave *w)
{
    const int row = (int)get_local_id(0) / ROW_ITEMS;
    const uint origin = origin_of(
        *(__local const uint4 *)(stage + swizzled_offset(row, 0, PITCH)));
    if (get_local_id(0) % ROW_ITEMS == 0)
        found[row] = origin;
    barrier(CLK_LOCAL_MEM_FENCE);
    load_origins(origins, found, at->row, w);
    return number_of((storage_bits)origin);
}

INLINE void count_stage(row_part *part, __local const storage_bits *stage,
                        uint k, uint in)
{
    const int item = (int)get_local_id(0), row = item / ROW_ITEMS;
    float x[CHUNK];
    UNROLL_FOR (int i = 0; i < ROW_CHUNKS; i += ROW_ITEMS) {
        const int chunk = i + item % ROW_ITEMS;
        const uint at = k + chunk * CHUNK;
        if (chunk >= ROW_CHUNKS || at >= in)
            continue;
        unpack_chunk(
            x,
            *(__local const uint4 *)(stage + swizzled_offset(
                                                 row, chunk * CHUNK, PITCH)));
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
                      __local const storage_bits *stage,
                      const query_tile *origins, const wave_place *at,
                      const wave *w)
{
    float parts[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    if (!SPLITS_FP32) {
        multiply_stage(sums, stage, stage + X_SIZE, origins, at, w);
        return;
    }
    clear_sums(parts);
    multiply_stage(parts, stage, stage + X_SIZE, origins, at, w);
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[r][c][i] += parts[r][c][i];
}

/* A stage of numbers k and on is multiplied, and counted. */
INLINE void take_stage(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                       __local const storage_bits *stage, const wave_place *at,
                       const query_tile *origins, row_part *part, uint k,
                       uint in, const wave *w)
{
    add_stage(sums, stage, origins, at, w);
    if (FINDS_STATISTICS)
        count_stage(part, stage, k, in);
}

/* Joins a row's parts, to its factor f and f (o - m). */
INLINE float2 join_parts(__local const float2 *parts, const linear_args *args)
{
    float2 all = parts[0];
    UNROLL_FOR (int i = 1; i < ROW_ITEMS; i++)
        all += parts[i];
    const float off = all.x / (float)args->in;
    const float square = fmax(FMA(-all.x, off, all.y), 0.0f);
    const float factor = 1.0f / sqrt(square / (float)args->in + args->eps);
    return (float2)(factor, -off * factor);
}

/* Sums of ((x - o) g) W^T become those of norm(x) W^T, with the bias. */
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

/* Chunks that a work-item holds of a stage. */
#define HELD (X_TURNS + W_TURNS + TURNS(1))

/* Numbers k and on of a stage come: of x, of W, and the norm's weights. */
INLINE void fetch_stage(__local storage_bits *to, uint4 *held, const source *x,
                        const source *w, const source *scale, uint k, uint in,
                        int item)
{
    fetch_chunks(to, held, x, BLOCK_ROWS, k, in, item);
    fetch_chunks(to + X_SIZE, held + X_TURNS, w, BLOCK_COLUMNS, k, in, item);
    if (FINDS_STATISTICS)
        fetch_chunks(to + X_SIZE + W_SIZE, held + X_TURNS + W_TURNS, scale, 1,
                     k, in, item);
}
INLINE void keep_stage(__local storage_bits *to, const uint4 *held, int item)
{
    keep_chunks(to, held, BLOCK_ROWS, item);
    keep_chunks(to + X_SIZE, held + X_TURNS, BLOCK_COLUMNS, item);
    if (FINDS_STATISTICS)
        keep_chunks(to + X_SIZE + W_SIZE, held + X_TURNS + W_TURNS, 1, item);
}

LINEAR_KERNEL(GROUP)
WAVE_ATTRIBUTE void JOIN(linear_matrix_, UNIT_NAME)(LINEAR_PARAMETERS)
{
    __local uint4 places[LINEAR_BYTES / CHUNK_BYTES]
        __attribute__((aligned(128)));
    __local storage_bits *ring = (__local storage_bits *)places;
    const int item = (int)get_local_id(0);
    const wave w = {.lane = item % WAVE};
    const uint column_blocks =
        (args.out + BLOCK_COLUMNS - 1) / (uint)BLOCK_COLUMNS;
    const uint block = (uint)get_group_id(0);
    const ulong first_row =
        args.first_row + (ulong)(block / column_blocks) * BLOCK_ROWS;
    const uint first_column = block % column_blocks * BLOCK_COLUMNS;
    const uint stages = (args.in + STAGE_DIMS - 1) / STAGE_DIMS;
    const wave_place at = place_of(item / WAVE);
    START_TENSORS
    __local float2 *row_parts = (__local float2 *)places + ROW_PARTS_AT;
    __local uint *origins_of = (__local uint *)(row_parts + GROUP);
    const linear_result result = {&args, bias,      residual,
                                  y,     row_parts, first_row};
    source from_x, from_w, from_scale;
    set_source(&from_x, x, first_row, args.rows, args.x_stride, BLOCK_ROWS,
               args.flags & LINEAR_WIDE_X);
    set_neighbours(&from_x, x, first_row, args.in);
    set_source(&from_w, weight, first_column, args.out, args.weight_stride,
               BLOCK_COLUMNS, args.flags & LINEAR_WIDE_WEIGHT);
    set_source(&from_scale, residual, 0, 1, 0, 1, args.flags & LINEAR_WIDE_X);

    float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    query_tile origins[ROW_TILES];
    row_part part = {0.0f, 0.0f, 0.0f};
    clear_sums(sums);
    /* Stages that come before the first is computed from: then one in each
     * round, into the place of the one that was read in the last. */
    NO_UNROLL_FOR (int s = -AHEAD; s < (int)stages; s++) {
        const uint next = (uint)(s + AHEAD);
        const uint k = next * STAGE_DIMS;
        __local storage_bits *to = ring + next % STAGES * STAGE_SIZE;
        uint4 held[HELD]; /* unless copies go there */
        if (s >= 0) {
            AWAIT_COPIES(AHEAD - 1);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (next < stages)
            fetch_stage(to, held, &from_x, &from_w, &from_scale, k, args.in,
                        item);
        END_COPIES();
        if (FINDS_STATISTICS && s == 0)
            part.origin = find_origins(origins, origins_of, ring, &at, &w);
        if (s >= 0)
            take_stage(sums, ring + (uint)s % STAGES * STAGE_SIZE, &at,
                       origins, &part, (uint)s * STAGE_DIMS, args.in, &w);
        if (!ASYNC_COPIES && next < stages)
            keep_stage(to, held, item);
    }
    if (FINDS_STATISTICS)
        row_parts[item] = (float2)(part.sum, part.square);
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the ring was read */
    finish_wave(sums, (__local float *)places, item / WAVE, first_row,
                first_column, &result, &w);
}
