/* SPDX-License-Identifier: Apache-2.0
 * How long a campaign of random cases runs, as its command line says. */
#ifndef CAMPAIGN_OPTIONS_H
#define CAMPAIGN_OPTIONS_H

#include <stdbool.h>
#include <time.h>

/* What the program sets are its defaults. */
typedef struct campaign_options {
    const char *count_option; /* that says how many: --cases, say */
    unsigned long seed;       /* --seed: of the first */
    unsigned long count;
    double seconds;     /* --seconds: at most; 0: as long as it takes */
    const char *folder; /* --folder; NULL: there is no such option */
    time_t start;       /* when they were read */
} campaign_options;

/* Ends the program with status 2 at an option that is none. */
void options_read(campaign_options *options, int count, char **arguments);

/* Is there another one to run, after so many? */
bool options_allow(const campaign_options *options, unsigned long done);

#endif
