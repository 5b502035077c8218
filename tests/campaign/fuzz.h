/* SPDX-License-Identifier: Apache-2.0
 * Inputs of others, at random: a driver says what it starts from and what it
 * does with one; mutate.c, which has the program's main, changes them. A
 * driver ends the program where something is wrong. */
#ifndef CAMPAIGN_FUZZ_H
#define CAMPAIGN_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Adds a first input, which is right and small. */
void add_input(const void *bytes, size_t size);
void add_text(const char *text);

void add_first_inputs(void);
void fuzz_one(const uint8_t *data, size_t size);

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
