/* SPDX-License-Identifier: Apache-2.0
 * Runs a case on a device and compares the result with the oracle. */
#ifndef KIT_RUN_H
#define KIT_RUN_H

#include "data.h"
#include "test_device.h"

typedef struct case_result {
    /* Largest error as a fraction of what is allowed; above 1 fails. */
    double o_error, lse_error;
    /* The same as a fraction of the tensor's norm, whatever is allowed. */
    double o_relative;
    /* Of each output: the largest error as a fraction of what is allowed; and
     * of what were allowed if only the result's own norm counted, not what its
     * sums cancel. */
    double error[TENSORS], plain_error[TENSORS];
    char failure[512]; /* "" if the case passed */
    /* The case failed because the device has no kernel of the demanded tier
     * for it. */
    bool refused;
} case_result;

/* The buffers of a case on a device. */
typedef struct device_buffers {
    cl_mem mem[TENSORS];
} device_buffers;

/* Creates the plan, runs it once and checks o, lse, guard bands, gaps and
 * inputs. True if it passed. */
bool case_run(const test_device *device, const test_case *c,
              case_result *result);

/* The same, so many times in a row: the bits must be those of the first time.
 */
bool case_repeats(const test_device *device, const test_case *c, int times,
                  case_result *result);

/* What the plan of a case says of itself; false, with "", if there is none. */
bool case_describe(const test_device *device, const test_case *c,
                   char text[4096]);

/* Data and buffers of a case, which a call fills and which then are checked;
 * how: what the call takes besides. */
typedef bool case_call(const test_device *device, const case_buffers *d,
                       const device_buffers *b, const void *how,
                       case_result *result);
bool case_run_by(const test_device *device, const test_case *c,
                 case_call *call, const void *how, case_result *result);

/* Parts of case_run, for tests that need the buffers themselves. */
bool buffers_create(const test_device *device, const case_buffers *d,
                    device_buffers *b);
void buffers_release(device_buffers *b);
winattn_tensor buffers_tensor(const case_buffers *d, const device_buffers *b,
                              tensor_id id);
winattn_forward buffers_forward(const case_buffers *d,
                                const device_buffers *b);
winattn_backward buffers_backward(const case_buffers *d,
                                  const device_buffers *b);
/* Makes the plan and calls it so many times, each time until it is done; the
 * bits must be those of the first time. False, with result->failure, if that
 * does not work out. */
bool buffers_run(const test_device *device, const case_buffers *d,
                 const device_buffers *b, int times, case_result *result);
/* Reads every buffer back and checks everything. */
bool buffers_check(cl_command_queue queue, const case_buffers *d,
                   const device_buffers *b, case_result *result);

/* The promise of host/README.md, by winattn_dtype. */
double promised_error(int dtype);
#define PROMISED_TF32 2e-3 /* where it is allowed */

#endif
