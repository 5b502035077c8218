/* SPDX-License-Identifier: Apache-2.0
 * The main of test programs: what the command line chooses, the device under
 * test, groups of tests. Includes cmocka.
 *
 * A program says which words its command line has, and in which order; words
 * that are left out at its end have a default. Of its groups those run that
 * the word for the part names. */
#ifndef KIT_RUNNER_H
#define KIT_RUNNER_H

#include "asserts.h"
#include "device/matrix_unit.h"
#include "group.h"
#include "run.h"

/* What a word of the command line is. */
typedef enum run_word {
    WORD_END,
    WORD_PART,   /* of the tests; default: the program's */
    WORD_PASS,   /* forward (the default) or backward */
    WORD_TIER,   /* default: auto */
    WORD_TARGET, /* a matrix unit, of tier matrix, or a tier, and the unit is
                    the device's own */
    WORD_EXTENT, /* how much of a table: quick, ci or all */
    WORD_FIRST,  /* seed of random cases, else row of a table */
    WORD_COUNT   /* of these */
} run_word;

typedef struct test_program {
    run_word words[8];
    const char *part;
    const test_group *groups;
    size_t group_count;
} test_program;
#define TEST_GROUPS(groups)                                                   \
    .groups = (groups), .group_count = sizeof(groups) / sizeof *(groups)

/* What the command line chose; a program may set other defaults before it is
 * read. */
typedef struct run_choice {
    const char *part;
    int pass; /* case_pass */
    int tier; /* winattn_tier */
    const wa_matrix_unit *matrix_unit;
    bool has_own_unit;  /* the device's, where it has one */
    const char *extent; /* default: all */
    int first, count;   /* default: 50 from 1 on */
    bool has_first;     /* it is not the default */
} run_choice;
extern run_choice chosen;

/* False, and printed why, if a word is none of its kind; words end with
 * WORD_END. */
bool runner_read(const run_word *words, int count, char **arguments);

bool part_is(const char *part);
/* Is the row among those that were chosen? All are where none is named. */
bool row_is_chosen(size_t row);

/* The device under test, from runner_open to runner_close. Tests that need no
 * device do not open it. */
extern test_device device;

/* Status with which main ends of a test that is skipped, to ctest. */
#define TEST_SKIPPED 77

/* False, and printed why, if there is none. */
bool runner_open(void);
void runner_close(void);
/* The matrix unit that it takes; NULL: it has none that is known. */
const wa_matrix_unit *device_unit(void);
/* PoCL below 5 runs every tier; other devices may refuse one. */
bool device_is_pocl(void);
/* Kernels with barriers in loops are those of tiers local and matrix.
 * False, and printed, of a device that breaks them. */
bool keeps_barriers(void);
/* False of a device that ends loops early. */
bool has_backward(void);
/* Two parts of it, to be released. False: it has none. */
bool make_parts(cl_device_id parts[2]);

/* Prints what is about to run, where WINATTN_TEST_VERBOSE is set. */
void announce(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Did the case fail only because the device lacks what a demanded shape takes?
 * Then that is printed. PoCL has all of it. */
bool is_excused(const case_result *result);

/* Runs the groups of the chosen part; returns how many tests failed. */
int runner_run(const test_group *groups, size_t count);

/* All of it: the status with which main ends. */
int runner_main(const test_program *program, int count, char **arguments);

#endif
