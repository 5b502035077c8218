/* SPDX-License-Identifier: Apache-2.0
 * How programs end: what they printed must have arrived. */
#ifndef BENCH_OUTPUT_H
#define BENCH_OUTPUT_H

#include <stdio.h>

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
