/* SPDX-License-Identifier: Apache-2.0
 * Launch lists on a device of CUDA's, and their trial. */
#ifndef WINATTN_CALLS_H
#define WINATTN_CALLS_H

#include "cuda/cuda.h"
#include "session/family_check.h"

/* Takes the list over, also where it fails. */
winattn_status wa_cuda_call_of_list(int ordinal, winattn_launch_list *list,
                                    winattn_cuda_call **call);

/* Where a trial runs. The device's context must be current. */
typedef struct wa_cuda_place {
    const winattn_plan *plan; /* of whose programs lists are */
    int ordinal;
    void *stream;
} wa_cuda_place;

/* A wa_runner; data: a wa_cuda_place. */
wa_runner wa_cuda_try;

#endif
