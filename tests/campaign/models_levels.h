/* SPDX-License-Identifier: Apache-2.0
 * Parts of the levels of winattn_models.h: what each tensor of a call must
 * have, for descriptors that a plan could be made of, and what calls have
 * beside tensors. */
#ifndef CAMPAIGN_MODELS_LEVELS_H
#define CAMPAIGN_MODELS_LEVELS_H

#include "levels.h"

typedef void slot_lister(random_state *r, const level_desc *desc,
                         const level_call *call, slot_list *slots);
slot_lister list_linear, list_attention, list_block, list_model;

typedef void call_drawer(random_state *r, const level_desc *desc,
                         level_call *call);
call_drawer draw_linear_call, draw_model_call;
void draw_small_linear_call(random_state *r, level_call *call);
void spoil_linear_call(random_state *r, level_call *call);
void spoil_model_call(random_state *r, level_call *call);

/* What is wrong with what this thread launched since standin_forget, NULL if
 * nothing: no launch at all, a buffer that ends too early or is missing,
 * vectors that are not where they are said to be, a result that lies where
 * something else is read, rows that no work-group has. is_cut: the device ran
 * out of resources. */
const char *models_launches_fault(bool is_cut);

#endif
