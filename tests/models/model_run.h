/* SPDX-License-Identifier: Apache-2.0
 * A model and what a call of it needs: all outputs, between guards, and a
 * workspace of NaNs. Whatever fails here fails the test. */
#ifndef MODELS_MODEL_RUN_H
#define MODELS_MODEL_RUN_H

#include "tensors.h"
#include "winattn_models.h"

typedef struct model_run {
    winattn_model *model;
    winattn_model_call call;
    model_tensor pictures, logits, features, maps[WINATTN_SWIN_STAGES];
    cl_mem workspace;
} model_run;

/* Makes the model and its tensors. */
model_run run_of(const winattn_model_desc *given,
                 const winattn_swin_weights *weights,
                 storage_kind picture_kind, const double *pictures);
void run_free(model_run *r);

/* Enqueues a call, and waits for it. */
void run_enqueue(const model_run *r, cl_command_queue queue);

#endif
