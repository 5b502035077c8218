/* SPDX-License-Identifier: Apache-2.0
 * Options of kernels of models: switches of all kernels, and their own. */
#ifndef WINATTN_MODELS_OPTIONS_H
#define WINATTN_MODELS_OPTIONS_H

#include "plan/switches.h"

#include "../cl/models/model_switches.h"

/* The name of a switch that there is, for wa_append_option. */
#define WA_OPTION(name) (LEAST_##name <= MOST_##name ? #name : "")

#endif
