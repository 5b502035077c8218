/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on NVIDIA's Hopper, in fp16 and bf16. A work-group takes one
 * block of BLOCK_ROWS x BLOCK_COLUMNS of y after the other; its producer
 * brings rows of x in panels of 64 numbers to a ring of STAGES, with each the
 * panel of W, unless that stays (KEEPS_WEIGHT). A team of consumer warpgroups,
 * with 64 rows each, has a block; teams take blocks in turn, so that one's
 * results leave while another's products go on.
 *
 *   fetching    await read -> copy -> arrive at filled
 *   computing   await filled -> products -> arrive at read, each wave once;
 *               of the residual, panels of whose columns follow those of x:
 *               add -> results take their place -> y
 *
 * Block b has columns b % (column blocks): where weights stay, the launch is
 * a multiple of the column blocks.
 *
 * Norms beside the layer cost no launch, and no way to memory and back:
 *
 *   TAKES_STATISTICS  rows of x have a mean m and a factor f, and W has the
 *                     norm's weights in it:
 *                     norm(x) W^T + b = f (x W^T - m s) + b', with s the sums
 *                     of W's rows; `bias` has pairs of s and b' in fp32
 *   GIVES_STATISTICS  of y for the next layer: mean and squared distances from
 *                     it, of each row and block of columns
 *   NORMALISES        y = residual + norm(x W^T + b): a block has whole rows
 */
#include "hopper/linear_norms.cl"

/* ---- The producer ---- */

/* Rows that the producer's work-items have at a time, eight each. */
#define FETCHED_ROWS (WARPGROUP / 8)

/* Rows of a matrix, of which those past the last are like it. */
typedef struct panel_rows {
    __global const storage *from; /* of the panel, in row 0 */
    ulong stride;
    uint first, last;
    uint chunks; /* of 8 numbers that rows have in the panel */
    int wide;    /* rows allow copies of 16 bytes */
} panel_rows;

INLINE void fetch_panel(uint to, const panel_rows *p, const uint count,
                        uint item)
{
    const uint chunk = item % 8;
    uint row = item / 8;
    __global const storage *from = p->from + chunk * 8;
    to += row * ROW_BYTES + (chunk ^ row % 8) * 16;
    if (chunk >= p->chunks)
        return;
    if (p->wide && p->first + count - 1 <= p->last) {
        from += (p->first + row) * p->stride;
        UNROLL_FOR (uint i = 0; i < count; i += FETCHED_ROWS) {
            copy_chunk(to + i * ROW_BYTES, from);
            from += FETCHED_ROWS * p->stride;
        }
        return;
    }
    NO_UNROLL_FOR (; row < count; row += FETCHED_ROWS) {
        __global const storage *own =
            from + min(p->first + row, p->last) * p->stride;
        if (p->wide)
            copy_chunk(to, own);
        else
            fetch_elements(to, own);
        to += FETCHED_ROWS * ROW_BYTES;
    }
}

/* How many there are of `numbers` from a panel's first on. */
INLINE uint chunks_of(int numbers)
{
    return (uint)clamp(numbers, 0, PANEL_CHANNELS) / 8;
}

/* The residual of a block, from stage n on. */
INLINE void fetch_residual(const layer *l, uint block, uint n, uint item)
{
    const linear_args *args = l->args;
    const uint column = first_column_of(l, block);
    const int columns = (int)min(args->out - column, (uint)BLOCK_COLUMNS);
    panel_rows rows = {.from = l->residual + column,
                       .stride = args->residual_stride,
                       .first = first_row_of(l, block),
                       .last = (uint)args->rows - 1,
                       .wide = (args->flags & LINEAR_WIDE_OUT) != 0};
    NO_UNROLL_FOR (uint panel = 0; panel < RESULT_PANELS; panel++) {
        rows.chunks = chunks_of(columns - (int)panel * PANEL_CHANNELS);
        await_phase(read_at(l, n), parity_of(n) ^ 1);
        fetch_panel(stage_at(l, n), &rows, BLOCK_ROWS, item);
        arrive_filled(filled_at(l, n), rows.wide);
        rows.from += PANEL_CHANNELS;
        n++;
    }
}

/* x and W of a block, the work-group's first or another. */
INLINE void fetch_block(const layer *l, uint block, uint n, int is_first,
                        uint item)
{
    const linear_args *args = l->args;
    const uint both = LINEAR_WIDE_X | LINEAR_WIDE_WEIGHT;
    panel_rows x = {.from = l->x,
                    .stride = args->x_stride,
                    .first = first_row_of(l, block),
                    .last = (uint)args->rows - 1,
                    .wide = (args->flags & both) == both};
    panel_rows w = {.from = l->weight,
                    .stride = args->weight_stride,
                    .first = first_column_of(l, block),
                    .last = args->out - 1,
                    .wide = x.wide};
    NO_UNROLL_FOR (uint panel = 0; panel < ROW_PANELS; panel++) {
        x.chunks = w.chunks =
            chunks_of(ROW_SIZE - (int)panel * PANEL_CHANNELS);
        await_phase(read_at(l, n), parity_of(n) ^ 1);
        if (!KEEPS_WEIGHT)
            fetch_panel(stage_at(l, n) + X_PANEL_BYTES, &w, BLOCK_COLUMNS,
                        item);
        else if (is_first)
            fetch_panel(kept_panel(l, panel), &w, BLOCK_COLUMNS, item);
        fetch_panel(stage_at(l, n), &x, BLOCK_ROWS, item);
        arrive_filled(filled_at(l, n), x.wide);
        x.from += PANEL_CHANNELS;
        w.from += PANEL_CHANNELS;
        n++;
    }
}

INLINE void fetch(const layer *l, uint item)
{
    const uint first = (uint)get_group_id(0);
    uint n = 0;
    NO_UNROLL_FOR (uint block = first; block < l->blocks; block += l->groups) {
        fetch_block(l, block, n, block == first, item);
        if (HAS_RESIDUAL)
            fetch_residual(l, block, n + ROW_PANELS, item);
        n += BLOCK_STAGES;
    }
    await_copies();
}

/* ---- Products ---- */

DEFINE_PRODUCT(add_product, BLOCK_COLUMNS, JOIN(ADD_, BLOCK_COLUMNS), "1",
               "0, 0")
#define HOLD_SUMS(sums)                                                       \
    __asm__ volatile("" : JOIN(ADD_, BLOCK_COLUMNS)(sums) : : "memory")

/* The same, or sums = left right where it `adds` not. */
INLINE void add_or_set_product(float *sums, ulong left, ulong right, int adds)
{
    __asm__ volatile(WGMMA(BLOCK_COLUMNS, "%[adds]", "%[left]", "0, 0")
                     : JOIN(ADD_, BLOCK_COLUMNS)(sums)
                     : [left] "l"(left), [right] "l"(right), [adds] "r"(adds)
                     : "memory");
}

/* Multiplies `count` numbers of each row of a panel, which is in stage n. */
INLINE void multiply_panel(float *sums, const layer *l, uint n, uint panel,
                           uint slab, const uint count)
{
    const uint rows = stage_at(l, n);
    const uint x = operand_at(rows + slab, 16);
    const uint w = operand_at(
        KEEPS_WEIGHT ? kept_panel(l, panel) : rows + X_PANEL_BYTES, 16);
    await_phase(filled_at(l, n), parity_of(n));
    show_to_products();
    start_products();
    add_or_set_product(sums, describe(x), describe(w), panel > 0);
    UNROLL_FOR (uint i = 1; i < count / 16; i++)
        add_product(sums, describe(x + 2 * i), describe(w + 2 * i));
    end_products();
}

/* Sums of a block from stage n on, all but the last of which others may fill
 * then. slab: the warpgroup's rows in a stage; next: the next team's turn. */
INLINE void multiply_block(float *sums, const layer *l, uint n, uint slab,
                           uint next, int lane)
{
    const uint whole = ROW_SIZE / PANEL_CHANNELS;
    NO_UNROLL_FOR (uint panel = 0; panel < whole; panel++) {
        multiply_panel(sums, l, n + panel, panel, slab, PANEL_CHANNELS);
        AWAIT_PRODUCTS(1);
        if (panel > 0)
            leave(read_at(l, n + panel - 1), lane);
    }
    if (ROW_SIZE % PANEL_CHANNELS != 0)
        multiply_panel(sums, l, n + whole, whole, slab,
                       ROW_SIZE % PANEL_CHANNELS);
    if (TEAMS > 1)
        leave(next, lane);
    AWAIT_PRODUCTS(0);
    HOLD_SUMS(sums);
    if (ROW_SIZE % PANEL_CHANNELS != 0 && whole > 0)
        leave(read_at(l, n + whole - 1), lane);
}

/* ---- Results ---- */

/* A wave's 16 rows of a panel of y. */
typedef struct result_panel {
    uint row, column; /* the first */
    int columns;      /* that exist, from there on */
    uint rows;        /* address of the wave's own in local memory */
    uint lane;
} result_panel;

/* Numbers of a lane's columns of the panel, in pairs; those behind the last
 * are like it. from: of column 0 */
INLINE void load_pairs(uint *words, __global const storage *from,
                       const layer *l, const result_panel *p)
{
    __global const ushort *bits =
        (__global const ushort *)(from + p->column + 2 * (p->lane % 4));
    const int last = p->columns - 8;
    if ((l->args->flags & LINEAR_WIDE_OUT) != 0) {
        UNROLL_FOR (int i = 0; i < 8; i++)
            words[i] = *(__global const uint *)(bits + min(8 * i, last));
    } else {
        UNROLL_FOR (int i = 0; i < 8; i++)
            words[i] = bits[min(8 * i, last)] |
                       (uint)bits[min(8 * i, last) + 1] << 16;
    }
}

/* Two sums of one row become results, but for the residual. bias, weight: of
 * their columns, those of the norm if there is one; terms: s and b' of each */
INLINE float2 finish_pair(float2 x, const row_pair *rows, const int row,
                          uint bias, uint weight, float4 terms)
{
    if (TAKES_STATISTICS)
        x = FMA(x, rows->factor[row],
                FMA(rows->shift[row], terms.s02, terms.s13));
    else if (NORMALISES)
        x = FMA(FMA(x, rows->factor[row], rows->shift[row]), unpack(weight),
                unpack(bias));
    else if (HAS_BIAS)
        x += unpack(bias);
    x.x = finish_sum(x.x);
    x.y = finish_sum(x.y);
    return x;
}

/* What a lane's columns of a panel have: see finish_pair. */
typedef struct column_pairs {
    uint bias[8], weight[8];
    __global const float4 *terms;
} column_pairs;

/* Sums of columns 16 c and on of a panel become results, beside the residual
 * if there is one. is_first: the panel is a block's first */
INLINE void finish_16(const float *sums, const result_panel *p,
                      const column_pairs *columns, row_pair *rows,
                      const uint c, const int is_first)
{
    const uint at =
        swizzled_chunk(p->rows, p->lane % 16, 2 * c + p->lane / 16);
    uint words[4];
    if (HAS_RESIDUAL)
        LOAD_MATRICES(words, at, "");
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const int group = 2 * (int)c + i / 2, exists = 8 * group < p->columns;
        float2 x = {sums[2 * i], sums[2 * i + 1]};
        float4 terms = 0.0f;
        if (TAKES_STATISTICS)
            terms = columns->terms[min(4 * group, p->columns / 2 - 4)];
        x = finish_pair(x, rows, i % 2, columns->bias[group],
                        columns->weight[group], terms);
        if (HAS_RESIDUAL)
            x += unpack(words[i]);
        words[i] = PACK(x.x, x.y);
        if (GIVES_STATISTICS)
            count_pair(rows, i % 2, unpack(words[i]), exists,
                       is_first && c == 0 && i < 2);
    }
    STORE_MATRICES(words, at);
}

INLINE void store_panel(const layer *l, const result_panel *p)
{
    const uint chunk = p->lane % 8, row = p->lane / 8;
    const ulong stride = l->args->y_stride;
    const int wide = (l->args->flags & LINEAR_WIDE_OUT) != 0;
    __global storage *to =
        l->y + (p->row + row) * stride + p->column + chunk * 8;
    UNROLL_FOR (uint i = 0; i < 16; i += 4) {
        if (p->row + row + i < l->args->rows && (int)chunk * 8 < p->columns) {
            const uint4 x =
                load_chunk(swizzled_chunk(p->rows, row + i, chunk));
            if (wide)
                *(__global uint4 *)to = x;
            else
                vstore8(as_ushort8(x), 0, (__global ushort *)to);
        }
        to += 4 * stride;
    }
}

/* left: columns of the block from the panel's first on; all: of the block. */
INLINE void finish_panel(const float *sums, const layer *l,
                         const result_panel *p, row_pair *rows,
                         const uint left, const uint all)
{
    column_pairs columns;
    if (TAKES_STATISTICS)
        columns.terms =
            (__global const float4 *)l->bias + (p->column / 2 + p->lane % 4);
    else if (NORMALISES || HAS_BIAS)
        load_pairs(columns.bias, NORMALISES ? l->norm_bias : l->bias, l, p);
    if (NORMALISES)
        load_pairs(columns.weight, l->norm_weight, l, p);
    UNROLL_FOR (uint c = 0; c < 4; c++)
        if (16 * c < left)
            finish_16(sums + 8 * c, p, &columns, rows, c, left == all);
    WAVE_SYNC();
    store_panel(l, p);
}

/* Sums of a block leave, by way of its residual's stages or of its last stage
 * of x, each wave by its own rows, which nobody else reads any more. own: of
 * these the address in a stage. */
INLINE void finish_block(float *sums, const layer *l, uint block, uint n,
                         uint wave, uint own, int lane)
{
    const uint last = n + ROW_PANELS - 1;
    result_panel p = {.row = first_row_of(l, block) + wave * 16,
                      .column = first_column_of(l, block),
                      .lane = (uint)lane};
    const uint row = p.row + p.lane / 4;
    row_pair rows;
    if (TAKES_STATISTICS)
        load_statistics(&rows, l, row);
    if (NORMALISES)
        find_norms(sums, &rows, l, p.lane);
    if (HAS_RESIDUAL)
        leave(read_at(l, last), lane);
    UNROLL_FOR (uint panel = 0; panel < RESULT_PANELS; panel++) {
        const uint stage = HAS_RESIDUAL ? last + 1 + panel : last;
        p.columns = min(BLOCK_COLUMNS - (int)panel * PANEL_CHANNELS,
                        (int)(l->args->out - p.column));
        p.rows = stage_at(l, stage) + own;
        if (HAS_RESIDUAL)
            await_phase(filled_at(l, stage), parity_of(stage));
        if (p.columns > 0)
            finish_panel(sums + 32 * panel, l, &p, &rows,
                         BLOCK_COLUMNS - panel * PANEL_CHANNELS,
                         BLOCK_COLUMNS);
        WAVE_SYNC();
        if (HAS_RESIDUAL || panel == RESULT_PANELS - 1)
            leave(read_at(l, stage), lane);
        p.column += PANEL_CHANNELS;
    }
    if (GIVES_STATISTICS)
        store_statistics(&rows, l, block, row, p.lane);
}

INLINE void compute(const layer *l, uint wave, int lane)
{
    float sums[BLOCK_COLUMNS / 2];
    const uint team = wave / TEAM_WAVES, in_team = wave % TEAM_WAVES;
    const uint slab = in_team / 4 * (WARPGROUP_ROWS * ROW_BYTES);
    const uint own = turn_at(l, team), next = turn_at(l, (team + 1) % TEAMS);
    uint n = team * BLOCK_STAGES, turn = team == 0; /* nobody is before */
    NO_UNROLL_FOR (uint block = (uint)get_group_id(0) + team * l->groups;
                   block < l->blocks; block += TEAMS * l->groups) {
        if (TEAMS > 1)
            await_phase(own, turn % 2);
        multiply_block(sums, l, n, slab, next, lane);
        finish_block(sums, l, block, n, in_team, in_team * (16 * ROW_BYTES),
                     lane);
        n += TEAMS * BLOCK_STAGES;
        turn++;
    }
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
linear_wgmma(LINEAR_PARAMETERS, const linear_norm_args norm,
             __global const storage *norm_weight,
             __global const storage *norm_bias,
             __global const float2 *x_statistics,
             __global float2 *y_statistics)
{
    __local uchar memory[LAYER_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    START_TENSORS
    const uint column_blocks = (args.out - 1) / BLOCK_COLUMNS + 1;
    const layer l = {.args = &args,
                     .norm = &norm,
                     .norm_weight = norm_weight + norm.weight,
                     .norm_bias = norm_bias + norm.bias,
                     .x_statistics = x_statistics + norm.x_statistics,
                     .y_statistics = y_statistics + norm.y_statistics,
                     .x = x,
                     .weight = weight,
                     .bias = bias,
                     .residual = residual,
                     .y = y,
                     .column_blocks = column_blocks,
                     .blocks = (((uint)args.rows - 1) / BLOCK_ROWS + 1) *
                               column_blocks,
                     .groups = (uint)get_num_groups(0),
                     .memory = local_address(memory)};
    DECLARE_REGISTERS();
    if (item < 2 * STAGES + TEAMS)
        make_mbarrier(filled_at(&l, 0) + 8 * item,
                      item < STAGES ? WARPGROUP : TEAM_WAVES);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        fetch(&l, item % WARPGROUP);
    } else {
        TAKE_REGISTERS();
        compute(&l, wave, (int)(item % WAVE));
    }
}
