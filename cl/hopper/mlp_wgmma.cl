/* SPDX-License-Identifier: Apache-2.0
 * The MLP of a block in one launch on NVIDIA's Hopper, in fp16 and bf16, of
 * rows so short that a compute unit has room for both layers' weights:
 *
 *   y = x + GELU(norm(x) V^T + b) W^T + c    FINDS_STATISTICS
 *   y = x + norm(GELU(x V^T + b) W^T + c)    NORMALISES
 *
 * Weights stay in local memory. A warpgroup has 64 rows of x there, and of 64
 * hidden numbers after the other sums in registers, which become the left
 * operand of products with W. Three warpgroups take blocks of rows in turn, so
 * that one's GELU is beside the others' products. Results leave by the way
 * that x came, which is their residual.
 *
 *   fetching    await read -> copy -> arrive at filled
 *   computing   await filled -> statistics of rows -> products -> y
 *               -> arrive at read
 *
 * Norms are as in linear_wgmma.cl: before the layer, V has the norm's weights
 * in it, and hidden_bias pairs of fp32. */
#include "hopper/linear_panels.cl"
#include "hopper/linear_results.cl"

REQUIRE(FINDS_STATISTICS)

#define HIDDEN_PANELS (HIDDEN / PANEL_CHANNELS)
/* Chunks of a row of x that a lane has beside the others of a quad. */
#define LANE_CHUNKS CEIL_DIV(ROW_SIZE / 8, 4)

typedef char results_leave_as_x_came
    [BLOCK_COLUMNS == ROW_SIZE && STAGES == TEAMS * ROW_PANELS ? 1 : -1];

/* The hidden layer. */
typedef struct hidden_layer {
    __global const storage *weight, *bias;
    ulong weight_stride;
} hidden_layer;

/* ---- Local memory: V's panels, W's, stages of x ---- */

INLINE uint result_weights_at(const layer *l, uint panel)
{
    return kept_panel(l, ROW_PANELS) + panel * (BLOCK_COLUMNS * ROW_BYTES);
}

/* ---- The producer ---- */

INLINE void fetch_weights(const layer *l, const hidden_layer *hidden,
                          uint item)
{
    const linear_args *args = l->args;
    panel_rows v = {.from = hidden->weight,
                    .stride = hidden->weight_stride,
                    .last = HIDDEN - 1,
                    .wide = (args->flags & LINEAR_WIDE_WEIGHT) != 0};
    panel_rows w = {.from = l->weight,
                    .stride = args->weight_stride,
                    .last = BLOCK_COLUMNS - 1,
                    .chunks = PANEL_CHANNELS / 8,
                    .wide = v.wide};
    NO_UNROLL_FOR (uint panel = 0; panel < ROW_PANELS; panel++) {
        v.chunks = chunks_of(ROW_SIZE - (int)panel * PANEL_CHANNELS);
        fetch_panel(kept_panel(l, panel), &v, HIDDEN, item);
        v.from += PANEL_CHANNELS;
    }
    NO_UNROLL_FOR (uint panel = 0; panel < HIDDEN_PANELS; panel++) {
        fetch_panel(result_weights_at(l, panel), &w, BLOCK_COLUMNS, item);
        w.from += PANEL_CHANNELS;
    }
}

INLINE void fetch(const layer *l, const hidden_layer *hidden, uint item)
{
    uint n = 0;
    const uint both = LINEAR_WIDE_X | LINEAR_WIDE_WEIGHT;
    panel_rows x = {.stride = l->args->x_stride,
                    .last = (uint)l->args->rows - 1,
                    .wide = (l->args->flags & both) == both};
    fetch_weights(l, hidden, item);
    NO_UNROLL_FOR (uint block = (uint)get_group_id(0); block < l->blocks;
                   block += l->groups) {
        x.first = first_row_of(l, block);
        NO_UNROLL_FOR (uint panel = 0; panel < ROW_PANELS; panel++) {
            x.from = l->x + panel * PANEL_CHANNELS;
            x.chunks = chunks_of(ROW_SIZE - (int)panel * PANEL_CHANNELS);
            await_phase(read_at(l, n), parity_of(n) ^ 1);
            fetch_panel(stage_at(l, n), &x, BLOCK_ROWS, item);
            arrive_filled(filled_at(l, n), x.wide);
            n++;
        }
    }
    await_copies();
}

/* ---- The hidden layer ---- */

/* Norms of a lane's rows, which are in stage n and those behind. own: as
 * finish_block has it. */
INLINE void find_row_norms(row_pair *rows, const layer *l, uint n, uint own,
                           uint lane)
{
    UNROLL_FOR (uint row = 0; row < 2; row++) {
        float x[8 * LANE_CHUNKS], total = 0.0f, square = 0.0f;
        UNROLL_FOR (uint i = 0; i < LANE_CHUNKS; i++) {
            const uint chunk = min(lane % 4 + 4 * i, ROW_SIZE / 8u - 1);
            const uint4 words =
                load_chunk(swizzled_chunk(stage_at(l, n + chunk / 8) + own,
                                          lane / 4 + 8 * row, chunk % 8));
            const uint pairs[4] = {words.x, words.y, words.z, words.w};
            unpack_pairs(x + 8 * i, pairs);
        }
        UNROLL_FOR (uint i = 0; i < 8 * LANE_CHUNKS; i++)
            total += lane % 4 + i / 8 * 4 < ROW_SIZE / 8u ? x[i] : 0.0f;
        REDUCE(total, ADD_PAIR);
        const float mean = total * (1.0f / ROW_SIZE);
        UNROLL_FOR (uint i = 0; i < 8 * LANE_CHUNKS; i++) {
            const float d = x[i] - mean;
            square += lane % 4 + i / 8 * 4 < ROW_SIZE / 8u ? d * d : 0.0f;
        }
        REDUCE(square, ADD_PAIR);
        set_norm(rows, (int)row, l, mean, square);
    }
}

DEFINE_PRODUCT(set_hidden, 64, SET_64, "0", "0, 0")
DEFINE_PRODUCT(add_hidden, 64, ADD_64, "1", "0, 0")
DEFINE_HELD_PRODUCT(add_results, BLOCK_COLUMNS, JOIN(ADD_, BLOCK_COLUMNS), "1",
                    "0")
#define HOLD_HIDDEN(sums, words)                                              \
    __asm__ volatile("" : ADD_64(sums), HOLD_64(words) : : "memory")
#define HOLD_RESULTS(sums)                                                    \
    __asm__ volatile("" : JOIN(ADD_, BLOCK_COLUMNS)(sums) : : "memory")

/* Sums of 64 hidden numbers, panel's of them. */
INLINE void multiply_rows(float *sums, const layer *l, uint n, uint panel)
{
    UNROLL_FOR (uint i = 0; i < ROW_SIZE / 16; i++) {
        const uint x = operand_at(stage_at(l, n + i / 4), 16) + 2 * (i % 4);
        const uint v = operand_at(kept_panel(l, i / 4) +
                                      panel * (PANEL_CHANNELS * ROW_BYTES),
                                  16) +
                       2 * (i % 4);
        if (i == 0)
            set_hidden(sums, describe(x), describe(v));
        else
            add_hidden(sums, describe(x), describe(v));
    }
}

/* Hidden numbers of their sums, as a left operand. */
INLINE void activate_hidden(uint *words, const float *sums,
                            const row_pair *rows, const layer *l,
                            const hidden_layer *hidden, uint panel, uint lane)
{
    const result_panel p = {.column = panel * PANEL_CHANNELS,
                            .columns = PANEL_CHANNELS,
                            .lane = lane};
    __global const float4 *terms =
        (__global const float4 *)hidden->bias + (p.column / 2 + lane % 4);
    uint bias[8];
    if (!FINDS_STATISTICS && HAS_BIAS)
        load_pairs(bias, hidden->bias, l, &p);
    UNROLL_FOR (uint group = 0; group < 8; group++) {
        float4 term = 0.0f;
        if (FINDS_STATISTICS)
            term = terms[4 * group];
        UNROLL_FOR (int row = 0; row < 2; row++) {
            const uint at = 2 * group + (uint)row;
            float2 x = {sums[2 * at], sums[2 * at + 1]};
            if (FINDS_STATISTICS)
                x = FMA(x, rows->factor[row],
                        FMA(rows->shift[row], term.s02, term.s13));
            else if (HAS_BIAS)
                x += unpack(bias[group]);
            words[at] = PACK(gelu_half(x.x), gelu_half(x.y));
        }
    }
}

/* ---- Work-groups ---- */

INLINE void multiply_block(float *sums, const layer *l,
                           const hidden_layer *hidden, uint n, uint own,
                           uint lane)
{
    float between[32];
    uint words[16];
    row_pair rows;
    UNROLL_FOR (uint panel = 0; panel < ROW_PANELS; panel++)
        await_phase(filled_at(l, n + panel), parity_of(n + panel));
    if (FINDS_STATISTICS)
        find_row_norms(&rows, l, n, own, lane);
    UNROLL_FOR (uint i = 0; i < BLOCK_COLUMNS / 2; i++)
        sums[i] = 0.0f;
    UNROLL_FOR (uint i = 0; i < 16; i++)
        words[i] = 0;
    show_to_products();
    NO_UNROLL_FOR (uint panel = 0; panel < HIDDEN_PANELS; panel++) {
        start_products();
        multiply_rows(between, l, n, panel);
        end_products();
        AWAIT_PRODUCTS(0);
        HOLD_RESULTS(sums);
        HOLD_HIDDEN(between, words);
        activate_hidden(words, between, &rows, l, hidden, panel, lane);
        const uint w = operand_at(result_weights_at(l, panel), 16);
        start_products();
        UNROLL_FOR (uint i = 0; i < 4; i++)
            add_results(sums, words + 4 * i, describe(w + 2 * i));
        end_products();
    }
    AWAIT_PRODUCTS(0);
    HOLD_RESULTS(sums);
}

INLINE void compute(const layer *l, const hidden_layer *hidden, uint wave,
                    int lane)
{
    float sums[BLOCK_COLUMNS / 2];
    const uint team = wave / TEAM_WAVES, in_team = wave % TEAM_WAVES;
    const uint own = in_team * (16 * ROW_BYTES);
    uint n = team * ROW_PANELS;
    NO_UNROLL_FOR (uint block = (uint)get_group_id(0) + team * l->groups;
                   block < l->blocks; block += TEAMS * l->groups) {
        multiply_block(sums, l, hidden, n, own, (uint)lane);
        finish_block(sums, l, block, n, in_team, own, lane);
        n += TEAMS * ROW_PANELS;
    }
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
mlp_wgmma(LAYER_PARAMETERS, const mlp_args mlp,
          __global const storage *hidden_weight,
          __global const storage *hidden_bias)
{
    __local uchar memory[LAYER_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    const hidden_layer hidden = {hidden_weight + mlp.weight,
                                 hidden_bias + mlp.bias, mlp.weight_stride};
    LAYER(l, memory)
    DECLARE_REGISTERS();
    make_layer_barriers(&l, item);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        fetch(&l, &hidden, item % WARPGROUP);
    } else {
        TAKE_REGISTERS();
        compute(&l, &hidden, wave, (int)(item % WAVE));
    }
}
