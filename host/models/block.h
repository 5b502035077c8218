/* SPDX-License-Identifier: Apache-2.0
 * The plan of a transformer block: block.c makes it, block_call.c calls it. */
#ifndef WINATTN_MODELS_BLOCK_H
#define WINATTN_MODELS_BLOCK_H

#include "base/os.h"
#include "models/attention.h"
#include "models/levels.h"
#include "models/model.h"
#include "models/rows.h"

struct winattn_block_plan {
    winattn_block_desc desc;
    wa_session *session;
    wa_lock *lock; /* for kernels of rows, from the first to the last launch */
    wa_attention attention;
    winattn_linear_plan *fc1, *fc2;    /* no fc1: fc2 is the whole mlp */
    char two_launches[WA_REASON_SIZE]; /* why there is; "": as expected */
    wa_row_plan norm;                  /* before or after, both of a block */
    /* Norms before layers are in qkv and fc1, which find statistics of rows;
     * or qkv takes those that an mlp in one launch hands on, but for the first
     * block's. */
    bool folds, hands_on;
    wa_row_plan statistics;
    uint64_t map_bytes;
    /* The workspace: a map; q, k and v or the mlp's hidden numbers; what the
     * attention needs. */
    uint64_t wide_at, core_at, workspace;
};

static inline bool wa_block_has_norms(const winattn_linear_plan *layer)
{
    return layer->problem.norms != 0;
}

#endif
