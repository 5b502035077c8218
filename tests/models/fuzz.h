/* SPDX-License-Identifier: Apache-2.0
 * Files of others, at random: a driver has what libFuzzer calls, and first
 * inputs. mutate.c goes on from these where there is no libFuzzer. */
#ifndef MODELS_FUZZ_H
#define MODELS_FUZZ_H

#include "campaign/libfuzzer.h"
#include "files.h"

/* Right ones, and small; how many, at most `most`. */
size_t first_inputs(file_bytes *inputs, size_t most);

#endif
