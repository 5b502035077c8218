/* SPDX-License-Identifier: Apache-2.0
 * The tuning table: shapes that were measured to be better than what a model
 * of the device chooses. */
#ifndef WINATTN_TUNING_H
#define WINATTN_TUNING_H

#include "plan/tuning_row.h"

/* A shape as the problem can have it, and what the plan says of it. It may
 * still not fit the device. */
typedef struct wa_tuned {
    wa_tuned_shape shape;
    const char *reason;
} wa_tuned;

/* Of the rows for the kernel, the problem and the device the best after
 * `passed_over` better ones; false: no more. Rows of the user's environment
 * are better than those that the program loaded, these better than built-in
 * ones; and of each the last. */
bool wa_find_tuned(wa_tuned_kernel kernel, const wa_problem *problem,
                   const wa_device *device, size_t passed_over,
                   wa_tuned *found);

/* Offers the rows of a kernel for the device, in that order, until one is
 * taken: their words, and what a plan says of such a row. built_in: NULL at
 * the end. False: none was taken. */
typedef bool wa_row_taker(void *data, const char *words, const char *reason);
WA_SISTER bool wa_offer_rows(const char *kernel, const wa_device *device,
                             const char *const *built_in, wa_row_taker *take,
                             void *data);

/* See winattn_load_tuning. Rows: those of a source that stay in place of
 * others for the same; text: at once, in bytes. */
#define WA_MOST_ROWS 4096u
#define WA_MOST_TUNING_TEXT 1048576u /* a MiB */
winattn_status wa_load_tuning(const char *text);

/* Reads the file of the user's environment, if it was not read yet. Fails only
 * where memory is short, and then it is read the next time. */
WA_SISTER winattn_status wa_read_tuning(void);

/* Appends why rows of the user's environment are not used, if that is so. */
WA_SISTER void wa_describe_tuning(char *text, size_t size);

/* The rows that the library comes with, as text, NULL at the end. */
#define WA_BUILT_IN_ROWS 20
extern const char *const wa_built_in_rows[WA_BUILT_IN_ROWS + 1];

#endif
