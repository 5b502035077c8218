/* SPDX-License-Identifier: Apache-2.0
 * Steps that call the library of models in a world. What they make is kept
 * beside the world, and is given back by models_end. */
#ifndef FAULTS_MODELS_WORLD_H
#define FAULTS_MODELS_WORLD_H

#include "world.h"

/* Files that are opened: one of Swin V2 that does not say its windows, with a
 * config.json beside it that does, in a folder of their own, and the same in
 * shards. */
void models_set_folder(const char *folder);

/* Can the library read files of weights? */
bool models_read_files(void);

/* Plan or model of the world's level; create_objects: of each. */
step create_object, create_objects, object_workspace, describe_object,
    enqueue_object, create_model, map_shape;
step find_config, open_weights, open_weights_beside, open_weights_shards,
    draw_weights, weights_config, describe_weights, fit_picture;

void models_end(void);

#endif
