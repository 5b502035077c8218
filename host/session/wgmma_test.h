/* SPDX-License-Identifier: Apache-2.0
 * The self-test of kernels with wgmma: descriptors of operands, swizzles and
 * barriers come from documents, the program by way of a driver's PTX. */
#ifndef WINATTN_WGMMA_TEST_H
#define WINATTN_WGMMA_TEST_H

#include "launch/launch.h"

/* Computes a small problem of two heads with the kernels of the plan's pass,
 * and compares with numbers of the host: one whose logits are small, and one
 * whose logits are so large that weights need other bases; where some fetch by
 * tensor maps, those that copy in their place too. Fails with
 * WINATTN_UNSUPPORTED_DEVICE, and the first number that is wrong as the
 * reason; with another status if the test could not be made. */
winattn_status wa_check_wgmma(cl_context context, cl_device_id device,
                              const wa_problem *problem, const wa_plan *plan,
                              const wa_kernels *kernels);

#endif
