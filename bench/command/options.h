/* SPDX-License-Identifier: Apache-2.0
 * The command line of winattn-bench. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "kit/cases.h"
#include "measure/workload.h"

/* ---- Cases of a run: of the table, of the user's own (caselist.c) ---- */

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

#define MOST_TEXTS 64
/* How long a run may take: more than a day is nobody's wish. */
#define LEAST_SECONDS 0.1
#define MOST_SECONDS 86400.0

typedef struct options {
    /* parts of "platform / device"; none: all */
    const char *device[MOST_TEXTS];
    size_t device_count;
    caselist cases;
    bool names_cases;         /* else they are those of a default run */
    bool dtype[3], any_dtype; /* winattn_dtype; any: the user chose */
    bool pass[BENCH_PASSES], any_pass;
    int tier;       /* winattn_tier */
    bool tf32;      /* is allowed in rows of fp32 */
    double seconds; /* of the whole run */
    bool shrinks;
    bool unfused; /* the comparison */
    bench_regime regime;
    bool replay; /* print each row's command */
    const char *json;
    const char *log; /* where drivers may print; NULL: as they like */
    bool lists;      /* only show what there is */
} options;

extern const char *const option_dtypes[3]; /* index: winattn_dtype */
extern const char *const option_tiers[4];  /* index: winattn_tier */
extern const char *const option_passes[BENCH_PASSES];

typedef enum options_result {
    OPTIONS_GOOD,
    OPTIONS_HELP, /* was asked for and printed */
    OPTIONS_WRONG /* was said on stderr */
} options_result;

options_result options_read(int count, char **texts, options *o);
void options_free(options *o);

/* Reads the decimal number that option `name` has; false if it is none or out
 * of range, which is then said on stderr. */
bool options_number(const char *name, const char *value, double least,
                    double most, double *number);

/* The index of a name; false if there is none such, which is said on stderr.
 */
bool options_choose(const char *const *names, size_t count, const char *name,
                    int *index);

/* Is "platform / device" one of those chosen? */
bool options_take_device(const options *o, const char *name);
/* Is a case to be measured in this pass and type? Unless told otherwise,
 * gradients are measured of some cases, in fp32 and fp16. */
bool options_take_row(const options *o, const bench_case *b, bench_pass pass,
                      int dtype);
int options_tier(const options *o, const bench_case *b);
/* Is TF32 allowed, by the options or by the case? */
bool options_tf32(const options *o, const bench_case *b, int dtype);

#endif
