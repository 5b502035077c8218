/* SPDX-License-Identifier: Apache-2.0
 * The cases of a run: of the table, of the user's own, of CSV files. */
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
/* Lines of cells between commas, "quoted" if they hold one. A line that starts
 * with the cell `name` names the columns of those that follow: name, scores
 * (dot, cosine, slide), windows or (without a grid) batch, heads, kv_heads, nq
 * or queries, nk or keys, head_dim, mask_windows, q_offset, notes, and any
 * field of case_parse. dot and cosine have a bias, and where mask_windows is
 * above 1 a mask of regions (an additive one if the notes say "random masks"),
 * unless columns bias and mask say otherwise. Empty lines and # lines are
 * skipped. */
bool caselist_add_file(caselist *list, const char *path,
                       char reason[CASELIST_REASON_SIZE]);

#endif
