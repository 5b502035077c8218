/* SPDX-License-Identifier: Apache-2.0
 * Where a program prints, apart from what drivers print. */
#ifndef BENCH_SCREEN_H
#define BENCH_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct bench_screen {
    FILE *out, *error;
    bool terminal; /* is `error` one? */
} bench_screen;

/* stdout and stderr, which from then on lead to `log` (NULL: stay what they
 * are) for all others: drivers and compilers print warnings as they like, and
 * would do so between the lines of a table. False, with stderr as it was, if
 * the file cannot be written. */
bool screen_open(const char *log, bench_screen *screen);

/* How many lines a file has, after all streams were flushed; 0 if there is
 * none. */
size_t screen_count_lines(const char *path);

/* The code that a program ends with that is done with `out`: `code`, but no
 * success where something of what it printed is lost, which `error` says. */
static inline int output_end(FILE *out, FILE *error, int code)
{
    const int lost = ferror(out);
    if (fflush(out) == 0 && !lost)
        return code;
    fputs("the output cannot be written\n", error);
    return code ? code : 1;
}

#endif
