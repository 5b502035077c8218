/* SPDX-License-Identifier: Apache-2.0
 * What stands beside a file of weights. */
#ifndef WINATTN_SWIN_BESIDE_H
#define WINATTN_SWIN_BESIDE_H

#include "models/swin_file.h"

/* What such files say; zeros: nothing. Windows are those that the model was
 * asked for, which its maps may bound. */
typedef struct wa_swin_beside {
    winattn_swin_rules rules; /* of the library that wrote config.json */
    cl_uint image[2];
    cl_uint window[WA_SWIN_STAGES][2], position_window[WA_SWIN_STAGES][2];
    cl_float norm_eps;
    cl_uint resize[2], crop[2];
    bool has_filter, has_colours;
    winattn_filter filter;
    cl_float mean[3], deviation[3];
} wa_swin_beside;

/* Reads config.json in the folder of the weights, as transformers and timm
 * write it, and transformers' preprocessor_config.json; *beside is zeros where
 * there is none, or it is nothing of theirs. config: what the tensors and the
 * caller say of the model. Each key is followed, or says nothing of what is
 * computed, or is refused, with its name. */
winattn_status wa_swin_beside_read(const char *path, const wa_swin_file *file,
                                   const wa_swin_config *config,
                                   wa_swin_beside *beside);

/* The same of texts; NULL: there is no such file. */
winattn_status wa_swin_beside_parse(const char *config_text,
                                    const char *pictures_text,
                                    const wa_swin_file *file,
                                    const wa_swin_config *config,
                                    wa_swin_beside *beside);

#endif
