/* SPDX-License-Identifier: Apache-2.0
 * All outputs of a case at once, whole tensors in double precision: what a
 * device wrote, and what the oracle says; for tests that compare them with
 * what others computed. */
#ifndef KIT_OUTPUTS_H
#define KIT_OUTPUTS_H

#include "run.h"

/* In the order of tensor_data.value; NULL where the case has no such
 * output. */
typedef struct case_outputs {
    double *value[TENSORS];
} case_outputs;

/* Zeros. */
case_outputs outputs_make(const case_buffers *d);
void outputs_free(case_outputs *out);

/* Reads them from the device's buffers; false: they could not be read. */
bool outputs_read(cl_command_queue queue, const case_buffers *d,
                  const device_buffers *b, case_outputs *out);

/* What the oracle says, before it is added to what outputs hold. */
typedef struct case_truth {
    case_outputs value;
    /* Sums of gradients over absolute values, against which errors are
     * measured. */
    case_outputs size;
    double *largest; /* logit, of each window-head */
    bool *spoilt;    /* window-heads whose gradients have a NaN */
} case_truth;
case_truth truth_of(const case_buffers *d);
void truth_free(case_truth *truth);

#endif
