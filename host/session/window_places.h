/* SPDX-License-Identifier: Apache-2.0
 * Where the self-test of windows with wgmma has its tokens and biases: what
 * the kernels find by themselves, found once more and otherwise. No OpenCL
 * calls. */
#ifndef WINATTN_WINDOW_PLACES_H
#define WINATTN_WINDOW_PLACES_H

#include "problem/problem.h"

/* Lays the test's windows side by side on one grid, shifted by half of a
 * window along each axis that has room. Nothing if the problem's tokens lie on
 * none.
 */
void wa_place_windows(wa_problem *test);

/* Rows of a head before the first of its next head: those of all windows on a
 * grid, else of one. */
uint64_t wa_window_plane_rows(const wa_problem *test, uint64_t rows);

/* The number of a row in a tensor of so many heads and rows of a window. */
size_t wa_window_row(const wa_problem *test, size_t window, uint32_t head,
                     uint32_t heads, uint32_t rows, uint32_t row);

/* Does a shift boundary that masks part two tokens of a window? */
bool wa_window_is_parted(const wa_problem *test, size_t window, uint32_t row,
                         uint32_t key);

/* Biases of a head: one of each pair, or those of a table; and which of them a
 * pair has. */
size_t wa_window_biases(const wa_problem *test);
size_t wa_window_bias(const wa_problem *test, uint32_t row, uint32_t key);

#endif
