/* SPDX-License-Identifier: Apache-2.0
 * The small problem on which kernels are compared (family_check.h), its
 * numbers, and how far apart two results may be. No OpenCL calls. */
#ifndef WINATTN_CHECK_NUMBERS_H
#define WINATTN_CHECK_NUMBERS_H

#include "problem/problem.h"

/* A few windows of two heads, of as many tokens as the problem's, contiguous
 * or on one shifted grid; in the sliding variant one, of more tokens than a
 * work tile has, with blocks and a sink such that tiles are seen entirely,
 * partly and not at all. */
winattn_status wa_make_check_problem(const wa_problem *problem, wa_pass pass,
                                     wa_problem *small);

/* Fills in an input, the same whenever it is asked for. */
void wa_make_check_numbers(const wa_problem *small, wa_tensor_id id,
                           void *bytes);

/* Fails with WINATTN_UNSUPPORTED_DEVICE and the first number of an output that
 * is not what another family computed; both are promised to be about right. */
winattn_status wa_compare_check_numbers(const wa_problem *small,
                                        wa_tensor_id id, const void *is,
                                        const void *right);

#endif
