/* SPDX-License-Identifier: Apache-2.0
 * The same model without fused kernels, beside the one that is measured. */
#ifndef SWIN_COMPARE_H
#define SWIN_COMPARE_H

#include "swin/runner.h"
#include "unfused/unfused.h"

typedef struct comparison {
    runner *r;
    unfused *model; /* NULL: there is none */
    char note[256]; /* why there is none */
} comparison;

/* For the runner's model. One that cannot be is no failure: then `note` says
 * why, and the device lacks memory, say. */
void comparison_open(runner *r, const winattn_swin_weights *weights,
                     comparison *c);
void comparison_close(comparison *c);

/* Enqueues a call; `data` is a comparison. False: it failed, which was said.
 */
bool comparison_call(void *data);

/* Computes the logits of the runner's pictures by both. *difference: of what
 * is unfused, in the 2-norm, relative to the other. False: a call failed, or
 * they are not the same within what the type allows, which was said. */
bool comparison_check(comparison *c, bool allows_tf32, double *difference);

#endif
