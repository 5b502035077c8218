/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on NVIDIA's Hopper, in fp16, bf16 and TF32, for which the
 * unit cuts the lower 13 bits of fp32 off. A work-group takes one block of
 * BLOCK_ROWS x BLOCK_COLUMNS of y after the other; its producer brings rows of
 * x in panels of 128 bytes to a ring of STAGES, with each the panel of W,
 * unless that stays (KEEPS_WEIGHT). A team of consumer warpgroups, with 64
 * rows each, has a block; teams take blocks in turn, so that one's results
 * leave while another's products go on.
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
 *   NORMALISES        y = [residual +] norm(x W^T + b): blocks have whole rows
 */
#include "hopper/linear_panels.cl"
#include "hopper/linear_results.cl"

/* Stages that a block goes through. */
#define BLOCK_STAGES (ROW_PANELS + (HAS_RESIDUAL ? RESULT_PANELS : 0))
/* A consumer holds a stage and awaits the next one; and a team's first stage
 * follows the residual of the block before, which nobody may have found. */
typedef char ring_is_long_enough
    [STAGES > (HAS_RESIDUAL && TEAMS > 1 ? RESULT_PANELS : 1) ? 1 : -1];

/* ---- The producer ---- */

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
        rows.chunks = chunks_of(columns - (int)panel * STAGE_DIMS);
        await_phase(read_at(l, n), parity_of(n) ^ 1);
        fetch_panel(stage_at(l, n), &rows, BLOCK_ROWS, item);
        arrive_filled(filled_at(l, n), rows.wide);
        rows.from += STAGE_DIMS;
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
        x.chunks = w.chunks = chunks_of(ROW_SIZE - (int)panel * STAGE_DIMS);
        await_phase(read_at(l, n), parity_of(n) ^ 1);
        if (!KEEPS_WEIGHT)
            fetch_panel(stage_at(l, n) + X_PANEL_BYTES, &w, BLOCK_COLUMNS,
                        item);
        else if (is_first)
            fetch_panel(kept_panel(l, panel), &w, BLOCK_COLUMNS, item);
        fetch_panel(stage_at(l, n), &x, BLOCK_ROWS, item);
        arrive_filled(filled_at(l, n), x.wide);
        x.from += STAGE_DIMS;
        w.from += STAGE_DIMS;
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
DEFINE_HELD_PRODUCT(add_held_product, BLOCK_COLUMNS, JOIN(ADD_, BLOCK_COLUMNS),
                    "1", "0")
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

INLINE void add_or_set_held_product(float *sums, const uint *left, ulong right,
                                    int adds)
{
    __asm__ volatile(WGMMA(BLOCK_COLUMNS, "%[adds]", HELD_LEFT, "0")
                     : JOIN(ADD_, BLOCK_COLUMNS)(sums)
                     : HELD(left), [right] "l"(right), [adds] "r"(adds)
                     : "memory");
}

/* A panel of W, beside the rows of x in a stage if it does not stay. */
INLINE uint weight_at(const layer *l, uint rows, uint panel)
{
    return operand_at(
        KEEPS_WEIGHT ? kept_panel(l, panel) : rows + X_PANEL_BYTES, 16);
}

/* In TF32: the unit cuts fp32 off, so that x is rounded on a way through
 * registers, and the products are awaited for the next panel's. */
INLINE void multiply_rounded(float *sums, const layer *l, uint n, uint panel,
                             uint own, const uint count)
{
    const uint rows = stage_at(l, n), lane = (uint)get_local_id(0) % WAVE;
    const uint w = weight_at(l, rows, panel);
    uint x[STAGE_DIMS / 2]; /* four words for each product of 8 */
    await_phase(filled_at(l, n), parity_of(n));
    UNROLL_FOR (uint i = 0; i < count / 8; i++)
        LOAD_MATRICES(x + 4 * i, matrices_at(rows + own, lane, i), "");
    UNROLL_FOR (uint i = 0; i < STAGE_DIMS / 2; i++)
        x[i] = i < count / 2 ? TO_TF32(as_float(x[i])) : 0;
    __asm__ volatile("" : HOLD_64(x)); /* it is there before they start */
    show_to_products();
    start_products();
    add_or_set_held_product(sums, x, describe(w), panel > 0);
    UNROLL_FOR (uint i = 1; i < count / 8; i++)
        add_held_product(sums, x + 4 * i, describe(w + 2 * i));
    end_products();
    AWAIT_PRODUCTS(0);
    __asm__ volatile("" : HOLD_64(x));
}

/* Multiplies `count` numbers of each row of a panel, which is in stage n. own:
 * where a stage has the wave's rows */
INLINE void multiply_panel(float *sums, const layer *l, uint n, uint panel,
                           uint own, const uint count)
{
    if (DTYPE == 0) {
        multiply_rounded(sums, l, n, panel, own, count);
        return;
    }
    const uint slab = WARPGROUP_ROWS * ROW_BYTES;
    const uint rows = stage_at(l, n);
    const uint x = operand_at(rows + own / slab * slab, 16);
    const uint w = weight_at(l, rows, panel);
    await_phase(filled_at(l, n), parity_of(n));
    show_to_products();
    start_products();
    add_or_set_product(sums, describe(x), describe(w), panel > 0);
    UNROLL_FOR (uint i = 1; i < count / PRODUCT_DIMS; i++)
        add_product(sums, describe(x + 2 * i), describe(w + 2 * i));
    end_products();
}

/* Sums of a block from stage n on, all but the last of which others may fill
 * then. own: see multiply_panel; next: the next team's turn. */
INLINE void multiply_block(float *sums, const layer *l, uint n, uint own,
                           uint next, int lane)
{
    const uint whole = ROW_SIZE / STAGE_DIMS;
    NO_UNROLL_FOR (uint panel = 0; panel < whole; panel++) {
        multiply_panel(sums, l, n + panel, panel, own, STAGE_DIMS);
        AWAIT_PRODUCTS(1);
        if (panel > 0)
            leave(read_at(l, n + panel - 1), lane);
    }
    if (ROW_SIZE % STAGE_DIMS != 0)
        multiply_panel(sums, l, n + whole, whole, own, ROW_SIZE % STAGE_DIMS);
    if (TEAMS > 1)
        leave(next, lane);
    AWAIT_PRODUCTS(0);
    HOLD_SUMS(sums);
    if (ROW_SIZE % STAGE_DIMS != 0 && whole > 0)
        leave(read_at(l, n + whole - 1), lane);
}

INLINE void compute(const layer *l, uint wave, int lane)
{
    float sums[BLOCK_COLUMNS / 2];
    const uint team = wave / TEAM_WAVES, in_team = wave % TEAM_WAVES;
    const uint own = in_team * (16 * ROW_BYTES);
    const uint mine = turn_at(l, team), next = turn_at(l, (team + 1) % TEAMS);
    uint n = team * BLOCK_STAGES, turn = team == 0; /* nobody is before */
    NO_UNROLL_FOR (uint block = (uint)get_group_id(0) + team * l->groups;
                   block < l->blocks; block += TEAMS * l->groups) {
        if (TEAMS > 1)
            await_phase(mine, turn % 2);
        multiply_block(sums, l, n, own, next, lane);
        const uint last = n + ROW_PANELS - 1;
        if (HAS_RESIDUAL)
            leave(read_at(l, last), lane);
        finish_block(sums, l, block, last + HAS_RESIDUAL, in_team, own, lane);
        n += TEAMS * BLOCK_STAGES;
        turn++;
    }
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
linear_wgmma(LAYER_PARAMETERS)
{
    __local uchar memory[LAYER_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    LAYER(l, memory)
    DECLARE_REGISTERS();
    make_layer_barriers(&l, item);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        fetch(&l, item % WARPGROUP);
    } else {
        TAKE_REGISTERS();
        compute(&l, wave, (int)(item % WAVE));
    }
}
