/* SPDX-License-Identifier: Apache-2.0
 * Splits a file of safetensors as transformers does. */
#ifndef MODELS_SHARDS_H
#define MODELS_SHARDS_H

#include "models/safetensors.h"

/* Writes model-00001-of-0000N.safetensors and so on, with an n-th of the
 * file's tensors each, and model.safetensors.index.json. false: something
 * cannot be written. */
bool write_shards(const wa_safetensors *file, const char *folder,
                  unsigned shards);

#endif
