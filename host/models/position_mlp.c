/* SPDX-License-Identifier: Apache-2.0
 * The position MLP of Swin V2, in fp64, once for all. */
#include <math.h>

#include "models/swin_file.h"

double wa_log_coordinate(int difference, uint32_t position_window)
{
    const double reach = position_window > 1 ? position_window - 1.0 : 1.0;
    const double scaled = 8 * difference / reach;
    const double size = log2(fabs(scaled) + 1) / 3; /* log2(8) */
    return scaled < 0 ? -size : size;
}

void wa_position_table(const wa_swin_config *config, uint32_t stage,
                       uint64_t units, const float *first, const float *bias,
                       const float *second, float *table)
{
    const uint32_t heads = config->heads[stage];
    const int reach_y = (int)config->window[stage][0] - 1;
    const int reach_x = (int)config->window[stage][1] - 1;
    for (int y = -reach_y; y <= reach_y; y++)
        for (int x = -reach_x; x <= reach_x; x++, table += heads) {
            double sum[WA_SWIN_HEADS_MOST] = {0};
            const double at_y =
                wa_log_coordinate(y, wa_position_window(config, stage, 0));
            const double at_x =
                wa_log_coordinate(x, wa_position_window(config, stage, 1));
            for (uint64_t unit = 0; unit < units; unit++) {
                const double value = first[2 * unit] * at_y +
                                     first[2 * unit + 1] * at_x + bias[unit];
                if (value <= 0)
                    continue;
                for (uint32_t h = 0; h < heads; h++)
                    sum[h] += value * second[h * units + unit];
            }
            for (uint32_t h = 0; h < heads; h++)
                table[h] = (float)(16 / (1 + exp(-sum[h])));
        }
}
