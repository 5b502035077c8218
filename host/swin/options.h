/* SPDX-License-Identifier: Apache-2.0
 * The command line of winattn-swin. */
#ifndef SWIN_OPTIONS_H
#define SWIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "winattn_models.h"

typedef struct options {
    const char *weights; /* a file; NULL: at random */
    bool random;
    cl_ulong seed;
    const char *model;   /* NULL: what the file says */
    const char *classes; /* a file of names, or NULL */
    const char *device;  /* part of "platform / device", or NULL */
    const char *stages;  /* a folder, or NULL */
    const char *logits;  /* a file, or NULL */
    winattn_dtype dtype;
    winattn_tier tier;
    bool allow_tf32, lists, describes, bench;
    bool no_unfused; /* bench: nothing is compared with */
    bool as_stored;  /* pictures, whatever EXIF says of turning them */
    cl_uint batch;   /* 0: as the program likes */
    cl_uint top;     /* classes that are printed */
    double seconds;  /* of each measurement */
    /* Of these, what is 0 is the config's. */
    cl_uint window[WINATTN_SWIN_STAGES][2];
    cl_uint position_window[WINATTN_SWIN_STAGES][2];
    cl_uint patch, image[2];
    winattn_swin_rules rules;
    bool no_config; /* files beside the weights are not read */
    cl_uint resize[2], crop[2];
    cl_float mean[3], deviation[3];
    bool has_filter, has_mean, has_deviation;
    winattn_filter filter;
    char **pictures;
    size_t picture_count;
} options;

typedef enum options_result {
    OPTIONS_GOOD,
    OPTIONS_HELP, /* was asked for and printed */
    OPTIONS_WRONG /* was said on stderr */
} options_result;

options_result options_read(int count, char **texts, options *o);

/* Says on stderr what went wrong; false. */
bool fail(const char *format, ...) WA_PRINTF(1, 2);

extern const char *const dtype_names[4]; /* index: winattn_dtype */

#endif
