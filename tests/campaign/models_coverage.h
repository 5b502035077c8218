/* SPDX-License-Identifier: Apache-2.0
 * What the launches of linear layers and of kernels of rows read and write. */
#ifndef CAMPAIGN_MODELS_COVERAGE_H
#define CAMPAIGN_MODELS_COVERAGE_H

#include <stdbool.h>

/* What is wrong with what this thread launched since standin_forget, NULL if
 * nothing: a buffer that ends too early or is missing, vectors that are not
 * where they are said to be, a result that lies where something else is read,
 * rows that no work-group has. is_cut: the device ran out of resources. */
const char *models_coverage_fault(bool is_cut);

#endif
