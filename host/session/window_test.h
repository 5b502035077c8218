/* SPDX-License-Identifier: Apache-2.0
 * The self-test of windows with wgmma, as wgmma_test.h says it of sliding
 * attention. */
#ifndef WINATTN_WINDOW_TEST_H
#define WINATTN_WINDOW_TEST_H

#include "launch/launch.h"

/* Computes some windows of two heads with the kernels of the plan's pass, and
 * compares with numbers of the host: one head's logits are small, the other's
 * so large that weights need other bases. Once more with tensors that are not
 * aligned, which are read and written in another way: the bits must be the
 * same. `table`: of the problem's. Fails with WINATTN_UNSUPPORTED_DEVICE, and
 * the first number that is wrong as the reason; with another status if the
 * test could not be made. */
winattn_status wa_check_window_wgmma(cl_context context, cl_device_id device,
                                     const wa_problem *problem,
                                     const wa_plan *plan,
                                     const wa_kernels *kernels,
                                     const wa_table_buffers *table);

#endif
