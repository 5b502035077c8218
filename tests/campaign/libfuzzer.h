/* SPDX-License-Identifier: Apache-2.0
 * What the drivers for libFuzzer share. A driver ends the program where
 * something is wrong, and libFuzzer then keeps the input in a file:
 *
 *   fuzz_NAME FILE                runs that input again
 *   fuzz_NAME FOLDER -runs=1000   goes on from the inputs in a folder
 *   make_seeds FOLDER             makes first inputs, in FOLDER/NAME */
#ifndef CAMPAIGN_LIBFUZZER_H
#define CAMPAIGN_LIBFUZZER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The stand-in remembers what it has read of sources in between. */
#define FORGET_RUNS 64

#define EXPECT(holds, detail)                                                 \
    do {                                                                      \
        if (!(holds)) {                                                       \
            fprintf(stderr, "FINDING %s:%d: %s: %s\n", __FILE__, __LINE__,    \
                    #holds, detail);                                          \
            abort();                                                          \
        }                                                                     \
    } while (0)

#endif
