/* SPDX-License-Identifier: Apache-2.0
 * All kernels of this folder as one program, as they share most of what a
 * compiler reads. */
#include "plain/backward_keys_plain.cl"
#include "plain/backward_rows_plain.cl"
#include "plain/forward_plain.cl"
