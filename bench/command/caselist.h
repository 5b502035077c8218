/* SPDX-License-Identifier: Apache-2.0
 * The cases of a run: of the table, of the user's own, of files of these. */
#ifndef BENCH_CASELIST_H
#define BENCH_CASELIST_H

#include "kit/cases.h"

#define CASELIST_REASON_SIZE 320

typedef struct bench_case {
    char name[64];
    test_case c;                  /* whose pass is not used */
    bool names_dtype, names_tier; /* the text says which */
    bool names_pass, backward;    /* ..., and that it is the backward pass */
    bool shows_gradients;         /* backward rows also if not asked for */
    bool leaves_out_bf16;         /* unless asked for */
} bench_case;

typedef struct caselist {
    bench_case *all;
    size_t count;
    size_t own; /* how many had no name */
} caselist;

void caselist_free(caselist *list);

/* These add cases; false with a reason if one is wrong. */
/* A case_parse text; a name of NULL becomes own1, own2, ... */
bool caselist_add_text(caselist *list, const char *name, const char *text,
                       char reason[CASELIST_REASON_SIZE]);
/* A row of kit/workloads, or `all` of them. */
bool caselist_add_named(caselist *list, const char *name,
                        char reason[CASELIST_REASON_SIZE]);
/* The one or the other. */
bool caselist_add(caselist *list, const char *text,
                  char reason[CASELIST_REASON_SIZE]);
/* Each line of a file, but for empty ones and those that start with #. */
bool caselist_add_file(caselist *list, const char *path,
                       char reason[CASELIST_REASON_SIZE]);

#endif
