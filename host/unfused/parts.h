/* SPDX-License-Identifier: Apache-2.0
 * A model's call, taken apart. */
#ifndef UNFUSED_PARTS_H
#define UNFUSED_PARTS_H

#include "winattn_models.h"

/* Prints what each part of a call takes, which is right: the mean of so many,
 * but at most of 100; or that it cannot be measured. */
void print_parts(const winattn_model *model, const winattn_model_call *call,
                 double calls);

#endif
