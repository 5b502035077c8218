/* SPDX-License-Identifier: Apache-2.0
 * Whole Swins in fp64, of weights as the model's type rounds them. */
#ifndef MODELS_REFERENCE_MODEL_H
#define MODELS_REFERENCE_MODEL_H

#include "models/swin_weights.h"
#include "reference.h"
#include "tensors.h"

/* A map of the reference: [batch, height, width, channels]. */
typedef struct ref_map {
    size_t batch, height, width, channels;
    double *value;
} ref_map;

/* Numbers of weights as the kind has them, to be freed. */
double *ref_rounded(storage_kind kind, const float *values, size_t count);
void ref_free(double **values, size_t count);

/* Normalised pictures of bytes [batch][height][width][channels] -> the first
 * map. */
ref_map ref_embed(const winattn_swin_weights *w, const winattn_model_desc *d,
                  const winattn_model_call *call, storage_kind kind,
                  const double *pictures);
/* A block of a stage, in place. */
void ref_stage_block(const wa_swin_config *config, uint32_t stage,
                     const wa_swin_block_weights *w, bool shifted,
                     storage_kind kind, ref_map *map);
/* The map becomes that of the next stage. */
void ref_merge(const winattn_swin_weights *w, uint32_t stage,
               storage_kind kind, ref_map *map);
/* The mean of the normalised tokens; the map is normalised. */
void ref_pool(const winattn_swin_weights *w, storage_kind kind,
              const ref_map *map, double *features);

#endif
