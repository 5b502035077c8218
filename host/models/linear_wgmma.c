/* SPDX-License-Identifier: Apache-2.0
 * When linear layers are computed by cl/hopper/linear_wgmma.cl, and in which
 * shape. */
#include "models/linear_plan.h"

#include "../cl/hopper/warpgroup_extents.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#define HOPPER 90u
#define WAVES_OF_GROUP 4u
/* A lane's sums, as registers of two and of three consumer warpgroups allow.
 */
#define MOST_SUMS_OF_TWO 128u
#define MOST_SUMS_OF_THREE 96u
/* Products wait for copies if there are fewer. */
#define LEAST_STAGES 3u
#define MOST_STAGES 8u
/* Beside results three warpgroups have registers for 64 hidden numbers. */
#define MOST_OUT_OF_THREE 128u
/* A Swin has few rows so wide. */
#define LEAST_WIDE 768u

/* Numbers of 128 bytes. */
static uint32_t line_of(const wa_linear_problem *problem)
{
    return problem->dtype == WINATTN_FP32 ? 32 : 64;
}

const char *wa_linear_wgmma_refusal(const wa_linear_problem *problem,
                                    const wa_device *device)
{
#ifdef WINATTN_HOPPER
    const bool has_kernels = true;
#else
    const bool has_kernels = false;
#endif
    if (!has_kernels || device->vendor != WA_VENDOR_NVIDIA ||
        device->compute_capability != HOPPER || device->ignores_special ||
        wa_linear_splits(problem))
        return "";
    if (problem->dtype == WINATTN_FP32 && (problem->norms || problem->hidden))
        return "norms and a hidden layer by wgmma are for fp16 and bf16";
    /* products are of 8 or 16 numbers, copies of 4 or 8 */
    return problem->in % 16 == 0 && problem->out % 8 == 0
               ? NULL
               : "wgmma is for rows of 16s of numbers, and results of 8s";
}

const char *wa_linear_wgmma_loses(const wa_linear_problem *problem,
                                  const wa_device *device)
{
    const char *why = wa_linear_wgmma_refusal(problem, device);
    if (why || problem->dtype == WINATTN_FP32 || problem->in < LEAST_WIDE ||
        problem->out < LEAST_WIDE)
        return why;
    return "wgmma was measured slower with 768 features and more on both "
           "sides";
}

/* The names are those of cl/hopper/warpgroup_extents.h. */
uint64_t wa_linear_wgmma_bytes(const wa_linear_problem *problem,
                               const wa_linear_shape *s)
{
    const uint64_t ROW_SIZE = problem->in;
    const uint64_t BLOCK_ROWS = s->block_rows;
    const uint64_t BLOCK_COLUMNS = s->block_columns;
    const uint64_t STAGE_DIMS = s->stage_dims;
    const bool KEEPS_WEIGHT = s->keeps_weight;
    const uint64_t HIDDEN = problem->hidden;
    const uint64_t STAGES = s->stages, ROW_WAVES = s->row_waves;
    return LAYER_BYTES;
}

/* Three warpgroups, or else two, each with a block of rows; as many stages of
 * weights as there is room for. */
wa_linear_shape wa_linear_mlp_shape(const wa_linear_problem *problem,
                                    const wa_device *device)
{
    const uint32_t panels = problem->hidden / PANEL_CHANNELS;
    wa_linear_shape s = {.block_rows = WARPGROUP_ROWS,
                         .block_columns = problem->out,
                         .stage_dims = PANEL_CHANNELS,
                         .column_waves = 1,
                         .dim_waves = 1,
                         .wgmma = 1};
    for (uint32_t groups = problem->out > MOST_OUT_OF_THREE ? 2 : 3;
         groups >= 2; groups--)
        for (s.stages = MIN(panels, MOST_STAGES); s.stages >= 1; s.stages--) {
            s.row_waves = groups * WAVES_OF_GROUP;
            s.keeps_weight = s.stages == panels;
            if (wa_linear_wgmma_bytes(problem, &s) <= device->local_bytes)
                return s;
        }
    return s;
}

/* NULL, or why there is no hidden layer in such a launch. */
static const char *refuse_hidden(const wa_linear_problem *problem,
                                 const wa_linear_shape *s)
{
    if (problem->hidden == 0)
        return NULL;
    if (problem->in != problem->out || !problem->has_residual ||
        problem->activation || problem->hidden % PANEL_CHANNELS != 0)
        return "a hidden layer is of 64s of numbers, results are added to x";
    return s->block_rows != WARPGROUP_ROWS ||
                   s->block_columns != problem->out ||
                   s->keeps_weight !=
                       (s->stages == problem->hidden / PANEL_CHANNELS)
               ? "a hidden layer has another shape"
               : NULL;
}

/* How many teams of warpgroups take blocks in turn. */
static uint32_t teams_of(const wa_linear_shape *s)
{
    return s->row_waves / WAVES_OF_GROUP * WARPGROUP_ROWS / s->block_rows;
}

const char *wa_linear_check_wgmma(const wa_linear_problem *problem,
                                  const wa_device *device,
                                  const wa_linear_shape *s)
{
    const uint32_t groups = s->row_waves / WAVES_OF_GROUP;
    const uint32_t most =
        2 * (groups == 2 ? MOST_SUMS_OF_TWO : MOST_SUMS_OF_THREE);
    const char *why = wa_linear_wgmma_refusal(problem, device);
    if (why)
        return why[0] ? why : "wgmma is Hopper's, for fp16, bf16 and TF32";
    if (s->row_waves % WAVES_OF_GROUP != 0 || groups < 2 || groups > 3 ||
        s->column_waves != 1 || s->dim_waves != 1 ||
        s->stage_dims != line_of(problem))
        return "wgmma is for two or three warpgroups and stages of 128 bytes";
    if (s->block_rows == 0 || s->block_rows % WARPGROUP_ROWS != 0 ||
        groups % (s->block_rows / WARPGROUP_ROWS) != 0 ||
        s->block_columns < 16 || s->block_columns % 16 != 0)
        return "warpgroups do not divide the block";
    if (s->block_columns > most)
        return "work-items have too few registers";
    WA_REFUSE(refuse_hidden(problem, s));
    if ((problem->norms & WA_NORMALISES) && s->block_columns != problem->out)
        return "a block has no whole rows, which a norm needs";
    if (s->stages < (problem->hidden ? 1 : 2) || s->stages > MOST_STAGES ||
        s->keeps_weight > 1 || s->wgmma > 1)
        return "a number is out of its bounds";
    if (problem->has_residual && !problem->hidden && teams_of(s) > 1 &&
        s->stages <= CEIL_DIV(s->block_columns, s->stage_dims))
        return "residuals would come too early";
    return wa_linear_wgmma_bytes(problem, s) > device->local_bytes
               ? "local memory is too small"
               : NULL;
}

/* ---- Shapes ---- */

/* Plans know no rows. A Swin that reads 64 pictures of 224 x 224 has as many
 * for one channel, and with twice the channels a quarter. */
#define ROWS_OF_CHANNEL 1.85e9

/* A model of an H200, in cycles of a compute unit: products in a cycle, bytes
 * from memory and from the second level of cache, which units share; of an
 * element of y its way out, and GELU; and of a work-group its start. That is
 * for 16 bits: TF32 takes twice as long for all of it. */
#define PRODUCTS 1600.0
#define BYTES_MOVED 17.0
#define BYTES_FETCHED 24.0
#define MOST_BYTES_FETCHED 50.0
#define CYCLES_OF_RESULT 0.03
#define CYCLES_OF_GELU 0.11
#define CYCLES_OF_START 1500.0
/* Beside what takes longest all else takes this part of its time. */
#define BESIDE 0.2

static uint64_t rounds_of(const wa_linear_shape *s, uint64_t units,
                          uint64_t lines, uint64_t columns)
{
    const uint64_t beside = columns < units ? units / columns : 1;
    return s->keeps_weight ? (lines + beside - 1) / beside
                           : (lines * columns + units - 1) / units;
}

/* Cycles until the results of a block have left, by one team. */
static double leave_alone(const wa_linear_problem *problem,
                          const wa_linear_shape *s)
{
    return (double)s->block_rows * s->block_columns *
           (problem->activation ? 0.18 : 0.1);
}

/* They leave by way of a stage, behind which the other teams' copies get as
 * far as there are stages: of TF32, too, as if these had 64 numbers, with
 * which its layers were measured. */
static double cycles_blocked(const wa_linear_problem *problem,
                             const wa_linear_shape *s)
{
    const double leave = leave_alone(problem, s);
    const double copied = (double)s->block_rows * s->block_columns *
                          PANEL_CHANNELS * (s->stages - 1) / PRODUCTS;
    return !problem->has_residual && leave > copied ? leave - copied : 0;
}

/* Cycles of a block, where a part of the units has one. */
static double cycles_of_block(const wa_linear_problem *problem,
                              const wa_linear_shape *s, double part)
{
    const uint64_t columns = wa_linear_blocks(problem->out, s->block_columns);
    const uint32_t teams = teams_of(s);
    const double results = (double)s->block_rows * s->block_columns;
    const double x = 2.0 * s->block_rows * problem->in;
    const double w =
        s->keeps_weight ? 0 : 2.0 * s->block_columns * problem->in;
    const double residual = problem->has_residual ? 2 * results : 0;
    const double fetched = x + w + residual;
    const double alone = leave_alone(problem, s) / teams;
    double leave = results * (CYCLES_OF_RESULT +
                              (problem->activation ? CYCLES_OF_GELU : 0));
    leave = leave > alone ? leave : alone;
    const double times[] = {
        results * problem->in / PRODUCTS,
        fetched * (part > 0.5 ? part / BYTES_FETCHED : 1 / MOST_BYTES_FETCHED),
        (x / (double)columns + residual + 2 * results) * part / BYTES_MOVED,
        teams > 1 ? leave : 0};
    double most = 0, sum = 0;
    for (int i = 0; i < 4; i++) {
        most = times[i] > most ? times[i] : most;
        sum += times[i];
    }
    return most + BESIDE * (sum - most) +
           (teams > 1 ? cycles_blocked(problem, s) : leave);
}

static double cycles_of(const wa_linear_problem *problem,
                        const wa_device *device, const wa_linear_shape *s,
                        uint64_t rows)
{
    const uint64_t columns = wa_linear_blocks(problem->out, s->block_columns);
    const uint64_t lines = wa_linear_blocks(rows, s->block_rows);
    const uint64_t units = device->compute_units;
    const double rounds = (double)rounds_of(s, units, lines, columns);
    const double part = (double)(lines * columns) / ((double)units * rounds);
    const double kept =
        s->keeps_weight ? 2.0 * s->block_columns * problem->in : 0;
    return CYCLES_OF_START + kept / BYTES_FETCHED +
           rounds * cycles_of_block(problem, s, part);
}

/* Finds as many stages as local memory has room for. */
static bool find_stages(const wa_linear_problem *problem,
                        const wa_device *device, wa_linear_shape *s)
{
    for (s->stages = MOST_STAGES; s->stages >= LEAST_STAGES; s->stages--)
        if (!wa_linear_check_wgmma(problem, device, s))
            return true;
    return false;
}

bool wa_linear_find_wgmma(const wa_linear_problem *problem,
                          const wa_device *device, wa_linear_shape *best)
{
    const double channels =
        problem->in < problem->out ? problem->in : problem->out;
    const uint64_t rows =
        1 + (uint64_t)(ROWS_OF_CHANNEL / (channels * channels));
    double least = 0.0;
    wa_linear_shape s = {.stage_dims = line_of(problem),
                         .column_waves = 1,
                         .dim_waves = 1,
                         .wgmma = 1};
    for (uint32_t groups = 2; groups <= 3; groups++)
        for (uint32_t team = 1; team <= groups; team += groups - 1)
            for (s.keeps_weight = 0; s.keeps_weight <= 1; s.keeps_weight++)
                for (s.block_columns = 32; s.block_columns <= 256;
                     s.block_columns += 16) {
                    s.row_waves = groups * WAVES_OF_GROUP;
                    s.block_rows = team * WARPGROUP_ROWS;
                    if (!find_stages(problem, device, &s))
                        continue;
                    const double cycles = cycles_of(problem, device, &s, rows);
                    if (least == 0.0 || cycles <= least) {
                        least = cycles;
                        *best = s;
                    }
                }
    return least > 0.0;
}
