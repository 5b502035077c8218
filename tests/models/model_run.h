/* SPDX-License-Identifier: Apache-2.0
 * A model and what a call of it needs: all outputs, between guards, and a
 * workspace of NaNs; but for the model they are there until tensors_free.
 * Whatever fails here fails the test. */
#ifndef MODELS_MODEL_RUN_H
#define MODELS_MODEL_RUN_H

#include "tensors.h"
#include "winattn_models.h"

typedef struct model_run {
    winattn_model *model;
    winattn_model_call call;
    model_tensor logits, features, maps[WINATTN_SWIN_STAGES];
} model_run;

/* Makes the model and its tensors. */
model_run run_of(const winattn_model_desc *given,
                 const winattn_swin_weights *weights,
                 storage_kind picture_kind, const double *pictures);

/* Enqueues a call, and waits for it. */
void run_enqueue(const model_run *r, cl_command_queue queue);

#endif
