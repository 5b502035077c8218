/* SPDX-License-Identifier: Apache-2.0
 * What stands beside a file of weights. */
#ifndef WINATTN_SWIN_BESIDE_H
#define WINATTN_SWIN_BESIDE_H

#include "models/swin_weights.h"

/* Windows that the config does not have yet, by the file config.json in the
 * folder of the weights, as transformers and timm write it. A file that is not
 * there, or says nothing that is understood, changes nothing. Fails only where
 * there is no memory to read it. */
winattn_status wa_swin_beside(const char *path, wa_swin_config *config);

/* The same of a text. */
void wa_swin_beside_read(const char *text, size_t size,
                         wa_swin_config *config);

#endif
