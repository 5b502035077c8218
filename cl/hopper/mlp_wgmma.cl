/* SPDX-License-Identifier: Apache-2.0
 * The MLP of a block in one launch on NVIDIA's Hopper, in fp16 and bf16, of
 * rows so short that a warpgroup's registers have their results:
 *
 *   y = x + GELU(norm(x) V^T + b) W^T + c    FINDS_STATISTICS
 *   y = x + norm(GELU(x V^T + b) W^T + c)    NORMALISES
 *
 * Hidden numbers go by 64s: a stage of weights has V's rows of these, and W's
 * columns. A ring has some stages, or all, and then weights stay. A warpgroup
 * has 64 rows of x in local memory, and of 64 hidden numbers after the other
 * sums in registers, which become the left operand of products with W. Two or
 * three warpgroups have blocks of rows beside each other, so that one's GELU
 * is beside the others' products. Results leave by the way that x came, which
 * is their residual.
 *
 *   fetching    await read -> copy -> arrive at filled, of x and of weights
 *   computing   await x -> statistics of rows
 *               for each stage of weights: await -> products -> GELU ->
 *               products -> arrive at read
 *               results -> y -> x was read
 *
 * Norms are as in linear_wgmma.cl: before the layer, V has the norm's weights
 * in it, and hidden_bias pairs of fp32. GIVES_STATISTICS: of each row of y
 * mean and squared distances from it, for the next block. */
#include "hopper/linear_panels.cl"
#include "hopper/linear_results.cl"

REQUIRE(FINDS_STATISTICS)

#define HIDDEN_PANELS (HIDDEN / PANEL_CHANNELS)
/* Chunks of a row of x that a lane has beside the others of a quad. */
#define LANE_CHUNKS CEIL_DIV(ROW_SIZE / 8, 4)

typedef char results_leave_as_x_came
    [BLOCK_COLUMNS == ROW_SIZE && BLOCK_ROWS == WARPGROUP_ROWS ? 1 : -1];

/* The hidden layer. */
typedef struct hidden_layer {
    __global const storage *weight, *bias;
    ulong weight_stride;
} hidden_layer;

/* ---- Local memory: stages of weights, stages of x ---- */

/* V's panels of 64 rows; and behind them W's of BLOCK_COLUMNS. Stage m,
 * counted from the work-group's first block on, or, where all stay, within a
 * block. */
INLINE uint weights_at(const layer *l, uint m)
{
    return l->memory + m % STAGES * WEIGHT_STAGE_BYTES;
}
#define V_PANEL_BYTES (PANEL_CHANNELS * ROW_BYTES)
#define W_PANEL_AT (ROW_PANELS * V_PANEL_BYTES)
INLINE uint weights_filled_at(const layer *l, uint m)
{
    return turn_at(l, TEAMS) + m % STAGES * 8;
}
INLINE uint weights_read_at(const layer *l, uint m)
{
    return weights_filled_at(l, m) + STAGES * 8;
}
INLINE uint weights_parity(uint m) { return m / STAGES % 2; }
/* The first stage of the next round of blocks. */
INLINE uint next_round(uint m) { return KEEPS_WEIGHT ? 0 : m + HIDDEN_PANELS; }

/* ---- The producer ---- */

/* Stage m of weights, for hidden numbers of a panel. */
INLINE void fetch_weights(const layer *l, const hidden_layer *hidden, uint m,
                          uint panel, uint item)
{
    const int wide = (l->args->flags & LINEAR_WIDE_WEIGHT) != 0;
    panel_rows v = {.from = hidden->weight,
                    .stride = hidden->weight_stride,
                    .first = panel * PANEL_CHANNELS,
                    .last = HIDDEN - 1,
                    .wide = wide};
    const panel_rows w = {.from = l->weight + panel * PANEL_CHANNELS,
                          .stride = l->args->weight_stride,
                          .last = BLOCK_COLUMNS - 1,
                          .chunks = PANEL_CHANNELS / 8,
                          .wide = wide};
    await_phase(weights_read_at(l, m), weights_parity(m) ^ 1);
    NO_UNROLL_FOR (uint i = 0; i < ROW_PANELS; i++) {
        v.chunks = chunks_of(ROW_SIZE - (int)i * PANEL_CHANNELS);
        fetch_panel(weights_at(l, m) + i * V_PANEL_BYTES, &v, PANEL_CHANNELS,
                    item);
        v.from += PANEL_CHANNELS;
    }
    fetch_panel(weights_at(l, m) + W_PANEL_AT, &w, BLOCK_COLUMNS, item);
    arrive_filled(weights_filled_at(l, m), wide);
}

/* x of the teams' blocks, the first of which is `block`, from stage n on. */
INLINE void fetch_rows(const layer *l, uint block, uint n, uint item)
{
    panel_rows x = {.stride = l->args->x_stride,
                    .last = (uint)l->args->rows - 1,
                    .wide = (l->args->flags & LINEAR_WIDE_X) != 0};
    NO_UNROLL_FOR (uint i = 0; i < ROW_STAGES && block < l->blocks; i++) {
        const uint panel = i % ROW_PANELS;
        x.first = first_row_of(l, block);
        x.from = l->x + panel * PANEL_CHANNELS;
        x.chunks = chunks_of(ROW_SIZE - (int)panel * PANEL_CHANNELS);
        await_phase(read_at(l, n + i), parity_of(n) ^ 1);
        fetch_panel(stage_at(l, n + i), &x, BLOCK_ROWS, item);
        arrive_filled(filled_at(l, n + i), x.wide);
        if (panel == ROW_PANELS - 1)
            block += l->groups;
    }
}

/* Stages of weights that are free come before a round's x, whose are not. */
INLINE void fetch(const layer *l, const hidden_layer *hidden, uint item)
{
    const uint first = (uint)get_group_id(0);
    uint n = 0, m = 0;
    NO_UNROLL_FOR (uint block = first; block < l->blocks;
                   block += TEAMS * l->groups) {
        const uint before = KEEPS_WEIGHT || n == 0 ? 0 : STAGES;
        NO_UNROLL_FOR (uint panel = 0; panel < HIDDEN_PANELS; panel++) {
            if (panel == before)
                fetch_rows(l, block, n, item);
            if (!KEEPS_WEIGHT || n == 0)
                fetch_weights(l, hidden, m + panel, panel, item);
        }
        n += ROW_STAGES;
        m = next_round(m);
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
#define HOLD_HIDDEN(sums) __asm__ volatile("" : ADD_64(sums) : : "memory")
#define HOLD_WORDS(words) __asm__ volatile("" : HOLD_64(words) : : "memory")
#define HOLD_RESULTS(sums)                                                    \
    __asm__ volatile("" : JOIN(ADD_, BLOCK_COLUMNS)(sums) : : "memory")

/* Sums of 64 hidden numbers, of which stage m has the weights. */
INLINE void multiply_rows(float *sums, const layer *l, uint n, uint m)
{
    UNROLL_FOR (uint i = 0; i < ROW_SIZE / 16; i++) {
        const uint x = operand_at(stage_at(l, n + i / 4), 16) + 2 * (i % 4);
        const uint v =
            operand_at(weights_at(l, m) + i / 4 * V_PANEL_BYTES, 16) +
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

/* What a warpgroup's products are of. */
typedef struct block_stages {
    const layer *l;
    const hidden_layer *hidden;
    uint n, m; /* the first stages of x and of weights */
    uint lane;
} block_stages;

/* Begins the sums of a panel of hidden numbers. */
INLINE void begin_hidden(float *between, const block_stages *b, uint panel)
{
    const uint m = b->m + panel;
    await_phase(weights_filled_at(b->l, m), weights_parity(m));
    show_to_products();
    start_products();
    multiply_rows(between, b->l, b->n, m);
    end_products();
}

/* Begins to add a panel of hidden numbers to the results. */
INLINE void begin_results(float *sums, const uint *words,
                          const block_stages *b, uint panel)
{
    const uint w = operand_at(weights_at(b->l, b->m + panel) + W_PANEL_AT, 16);
    UNROLL_FOR (uint i = 0; i < 4; i++)
        add_results(sums, words + 4 * i, describe(w + 2 * i));
    end_products();
}

INLINE void leave_weights(const block_stages *b, uint panel)
{
    if (!KEEPS_WEIGHT)
        leave(weights_read_at(b->l, b->m + panel), (int)b->lane);
}

/* GELU of the next panel is beside products with this one. */
INLINE void multiply_block(float *sums, const block_stages *b, uint own)
{
    float between[32];
    uint words[16], next[16];
    row_pair rows;
    const layer *l = b->l;
    UNROLL_FOR (uint panel = 0; panel < ROW_PANELS; panel++)
        await_phase(filled_at(l, b->n + panel), parity_of(b->n));
    if (FINDS_STATISTICS)
        find_row_norms(&rows, l, b->n, own, b->lane);
    UNROLL_FOR (uint i = 0; i < BLOCK_COLUMNS / 2; i++)
        sums[i] = 0.0f;
    begin_hidden(between, b, 0);
    AWAIT_PRODUCTS(0);
    HOLD_HIDDEN(between);
    activate_hidden(words, between, &rows, l, b->hidden, 0, b->lane);
    NO_UNROLL_FOR (uint panel = 0; panel + 1 < HIDDEN_PANELS; panel++) {
        HOLD_WORDS(words);
        HOLD_RESULTS(sums);
        begin_hidden(between, b, panel + 1);
        begin_results(sums, words, b, panel);
        AWAIT_PRODUCTS(1);
        HOLD_HIDDEN(between);
        activate_hidden(next, between, &rows, l, b->hidden, panel + 1,
                        b->lane);
        HOLD_HIDDEN(between);
        AWAIT_PRODUCTS(0);
        HOLD_RESULTS(sums);
        HOLD_WORDS(words);
        leave_weights(b, panel);
        UNROLL_FOR (uint i = 0; i < 16; i++)
            words[i] = next[i];
    }
    start_products();
    begin_results(sums, words, b, HIDDEN_PANELS - 1);
    AWAIT_PRODUCTS(0);
    HOLD_RESULTS(sums);
    leave_weights(b, HIDDEN_PANELS - 1);
}

/* A team without a block lets weights pass. */
INLINE void pass_weights(const layer *l, uint m, int lane)
{
    NO_UNROLL_FOR (uint panel = 0; panel < HIDDEN_PANELS; panel++) {
        await_phase(weights_filled_at(l, m + panel),
                    weights_parity(m + panel));
        leave(weights_read_at(l, m + panel), lane);
    }
}

INLINE void compute(const layer *l, const hidden_layer *hidden, uint wave,
                    int lane)
{
    float sums[BLOCK_COLUMNS / 2];
    const uint team = wave / TEAM_WAVES, in_team = wave % TEAM_WAVES;
    const uint own = in_team * (16 * ROW_BYTES);
    uint n = team * ROW_PANELS, m = 0;
    NO_UNROLL_FOR (uint first = (uint)get_group_id(0); first < l->blocks;
                   first += TEAMS * l->groups) {
        const uint block = first + team * l->groups;
        if (block < l->blocks) {
            const block_stages b = {l, hidden, n, m, (uint)lane};
            multiply_block(sums, &b, own);
            finish_block(sums, l, block, n, in_team, own, lane);
        } else if (!KEEPS_WEIGHT) {
            pass_weights(l, m, lane);
        }
        n += ROW_STAGES;
        m = next_round(m);
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
    if (item < 2 * STAGES)
        make_mbarrier(weights_filled_at(&l, 0) + 8 * item,
                      item < STAGES ? WARPGROUP : COMPUTING_WAVES);
    make_layer_barriers(&l, item);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        fetch(&l, &hidden, item % WARPGROUP);
    } else {
        TAKE_REGISTERS();
        compute(&l, &hidden, wave, (int)(item % WAVE));
    }
}
