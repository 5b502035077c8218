/* SPDX-License-Identifier: Apache-2.0
 * From a file of safetensors to a Swin's weights. */
#ifndef WINATTN_SWIN_FILE_H
#define WINATTN_SWIN_FILE_H

#include "models/swin_names.h"
#include "models/swin_weights.h"

/* A file whose names are known. */
typedef struct wa_swin_file {
    const wa_safetensors *tensors;
    const wa_swin_names *names;
    wa_swin_prefix prefix;
} wa_swin_file;

/* What the file says of the model's shape; the rest is 0. What is wrong shows
 * when the weights are loaded. */
void wa_swin_infer(const wa_swin_file *file, wa_swin_config *config);

/* The tensor of a block, or NULL. */
const wa_file_tensor *wa_swin_find(const wa_swin_file *file, uint32_t stage,
                                   uint32_t block, wa_swin_part part,
                                   const char *suffix);

/* Has any block biases of q, k and v? */
bool wa_swin_has_qkv_bias(const wa_swin_file *file,
                          const wa_swin_config *config);

/* Entries of the table of a stage's first block; 0: it has none. */
uint64_t wa_swin_table_entries(const wa_swin_file *file, uint32_t stage);

/* Loads all tensors; file has what the config needs, and nothing else. */
winattn_status wa_swin_load(const wa_swin_file *file,
                            const wa_swin_config *config,
                            wa_swin_weights **weights);

/* The same as winattn_swin_weights_open, of a file that is in memory. */
winattn_status wa_swin_weights_read(const unsigned char *bytes, size_t size,
                                    const winattn_swin_config *config,
                                    wa_swin_weights **weights);

/* Biases of all relative positions in windows of a stage, into its table:
 * 16 sigmoid(second relu(first (y, x) + bias)) of log-spaced coordinates (Liu
 * et al. 2022, sections 3.2 and 3.3). first: [units, 2]; second: [heads,
 * units]. */
void wa_position_table(const wa_swin_config *config, uint32_t stage,
                       uint64_t units, const float *first, const float *bias,
                       const float *second, float *table);

/* What a table takes, in products, and the most that all tables of a file may
 * take: more than four times what the largest Swin V2 that has a name needs,
 * and about a second. */
#define WA_POSITION_STEPS_MOST ((uint64_t)1 << 32)
uint64_t wa_position_steps(const wa_swin_config *config, uint32_t stage,
                           uint64_t units);

/* A coordinate in windows of `window` tokens as the position MLP sees it,
 * measured in those of `position_window`. */
double wa_log_coordinate(int difference, uint32_t position_window);

#endif
