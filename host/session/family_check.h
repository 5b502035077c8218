/* SPDX-License-Identifier: Apache-2.0
 * Compares kernels of a family that is not trusted unseen with plain ones: its
 * descriptors, swizzles and barriers come from documents, and its programs
 * through a driver that may not follow them. */
#ifndef WINATTN_FAMILY_CHECK_H
#define WINATTN_FAMILY_CHECK_H

#include "session/session.h"

/* Another runtime that launches the kernels: computes the pass. bytes: of the
 * tensors, NULL where there is none; of outputs they become what was computed.
 * is_aligned: those of 16 bits start where any access may, else one element
 * behind. */
typedef winattn_status wa_runner(void *data, const wa_problem *problem,
                                 const wa_plan *plan,
                                 const wa_kernels *kernels,
                                 const wa_table_buffers *table,
                                 bool is_aligned, char *bytes[WA_TENSORS]);

/* Computes the pass of a small problem with the plan's kernels and with those
 * of cl/plain/: with tensors that are aligned, from which gradients are given
 * o and lse, and with others that are not, and are read and written in another
 * way. Fails with WINATTN_UNSUPPORTED_DEVICE, and the first number that is
 * wrong as the reason; with another status if the comparison could not be
 * made. table: of the problem's. runner: what launches the plan's kernels;
 * NULL: OpenCL. */
winattn_status wa_check_family(wa_session *session, const wa_problem *problem,
                               const wa_plan *plan, const wa_kernels *kernels,
                               const wa_table_buffers *table,
                               wa_runner *runner, void *data);

/* ---- Numbers of any comparison ---- */

/* The next n, |n| <= 8, which all types hold exactly. */
WA_SISTER int wa_pick_check_number(uint32_t *random);

/* Fails with WINATTN_UNSUPPORTED_DEVICE and the first number of an output of
 * at most two heads that is not what another kernel computed; both are
 * promised to be about right, as exact as `like`. */
WA_SISTER winattn_status wa_compare_check_numbers(
    const wa_tensor *tensor, winattn_dtype dtype, wa_tensor_id like,
    const char *name, const void *is, const void *right);

#endif
