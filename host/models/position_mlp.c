/* SPDX-License-Identifier: Apache-2.0
 * The position MLP of Swin V2, in fp64, once for all. */
#include <math.h>
#include <string.h>

#include "models/swin_file.h"

/* Entries of a table that are computed together, and units: what is between
 * the layers then stays in the cache, and sums in registers. */
#define GROUP 8
#define UNITS 128

#define SIDE_MOST (2 * WA_SWIN_WINDOW_MOST - 1)

/* Entries of a stage's table. */
static uint32_t entries_of(const wa_swin_config *config, uint32_t stage)
{
    const cl_uint *window = config->window[stage];
    return (2 * window[0] - 1) * (2 * window[1] - 1);
}

double wa_log_coordinate(int difference, uint32_t position_window)
{
    const double reach = position_window > 1 ? position_window - 1.0 : 1.0;
    const double scaled = 8 * difference / reach;
    const double size = log2(fabs(scaled) + 1) / 3; /* log2(8) */
    return scaled < 0 ? -size : size;
}

/* A product and its sum is a step; exp at the end takes as long as 64. */
uint64_t wa_position_steps(const wa_swin_config *config, uint32_t stage,
                           uint64_t units)
{
    const uint64_t heads = config->heads[stage];
    return entries_of(config, stage) * (units * (heads + 4) + 64 * heads);
}

/* All coordinates of an axis, from the least on; how many. */
static uint32_t list_coordinates(const wa_swin_config *config, uint32_t stage,
                                 int axis, double *coordinates)
{
    const uint32_t window = config->window[stage][axis];
    const uint32_t said = config->position_window[stage][axis];
    const uint32_t own = said ? said : window;
    for (uint32_t i = 0; i < 2 * window - 1; i++)
        coordinates[i] = wa_log_coordinate((int)i + 1 - (int)window, own);
    return 2 * window - 1;
}

/* The first layer, of `count` units. A NaN stays one. */
static void add_first(uint64_t count, const float *first, const float *bias,
                      const double y[GROUP], const double x[GROUP],
                      double inner[UNITS][GROUP])
{
    for (uint64_t unit = 0; unit < count; unit++)
        for (int i = 0; i < GROUP; i++) {
            const double value = first[2 * unit] * y[i] +
                                 first[2 * unit + 1] * x[i] + bias[unit];
            inner[unit][i] = value <= 0 ? 0 : value;
        }
}

/* One head's part of the second. */
static void add_second(uint64_t count, const float *second,
                       double inner[UNITS][GROUP], double sum[GROUP])
{
    double own[GROUP];
    for (int i = 0; i < GROUP; i++)
        own[i] = sum[i];
    for (uint64_t unit = 0; unit < count; unit++)
        for (int i = 0; i < GROUP; i++)
            own[i] += inner[unit][i] * second[unit];
    for (int i = 0; i < GROUP; i++)
        sum[i] = own[i];
}

void wa_position_table(const wa_swin_config *config, uint32_t stage,
                       uint64_t units, const float *first, const float *bias,
                       const float *second, float *table)
{
    const uint32_t heads = config->heads[stage];
    const uint32_t entries = entries_of(config, stage);
    double all_y[SIDE_MOST], all_x[SIDE_MOST];
    double inner[UNITS][GROUP], sums[WA_SWIN_HEADS_MOST][GROUP];
    list_coordinates(config, stage, 0, all_y);
    const uint32_t width = list_coordinates(config, stage, 1, all_x);
    for (uint32_t at = 0; at < entries; at += GROUP) {
        const uint32_t some = entries - at < GROUP ? entries - at : GROUP;
        double y[GROUP] = {0}, x[GROUP] = {0};
        memset(sums, 0, heads * sizeof *sums);
        for (uint32_t i = 0; i < some; i++) {
            y[i] = all_y[(at + i) / width];
            x[i] = all_x[(at + i) % width];
        }
        for (uint64_t unit = 0; unit < units; unit += UNITS) {
            const uint64_t count = units - unit < UNITS ? units - unit : UNITS;
            add_first(count, first + 2 * unit, bias + unit, y, x, inner);
            for (uint32_t h = 0; h < heads; h++)
                add_second(count, second + h * units + unit, inner, sums[h]);
        }
        for (uint32_t i = 0; i < some; i++)
            for (uint32_t h = 0; h < heads; h++)
                *table++ = (float)(16 / (1 + exp(-sums[h][i])));
    }
}
