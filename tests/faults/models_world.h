/* SPDX-License-Identifier: Apache-2.0
 * Steps that call the library of models in a world. What they make is kept
 * beside the world, and is given back by models_end. */
#ifndef FAULTS_MODELS_WORLD_H
#define FAULTS_MODELS_WORLD_H

#include "winattn_models.h"
#include "world.h"

/* Files that are opened: one of Swin V2 that does not say its windows, with a
 * config.json beside it that does, in a folder of their own, and the same in
 * shards. False, after it
 * said why, if they cannot be made. */
bool models_set_folder(const char *folder);

/* Can the library read files of weights? */
bool models_read_files(void);

step create_linear, linear_workspace, describe_linear, enqueue_linear;
step create_attention, attention_workspace, describe_attention,
    enqueue_attention;
step create_block, block_workspace, describe_block, enqueue_block;
step find_config, open_weights, open_weights_beside, open_weights_shards,
    draw_weights, weights_config, describe_weights, fit_picture;
step create_model, model_workspace, map_shape, describe_model, enqueue_model;

void models_end(void);

#endif
