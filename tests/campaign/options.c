/* SPDX-License-Identifier: Apache-2.0
 * Options of a campaign. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_read(campaign_options *options, int count, char **arguments)
{
    options->start = time(NULL);
    for (int i = 1; i < count; i += 2) {
        const char *name = arguments[i];
        const char *value = i + 1 < count ? arguments[i + 1] : "0";
        if (strcmp(name, "--seed") == 0) {
            options->seed = strtoul(value, NULL, 10);
        } else if (strcmp(name, options->count_option) == 0) {
            options->count = strtoul(value, NULL, 10);
        } else if (strcmp(name, "--seconds") == 0) {
            options->seconds = strtod(value, NULL);
        } else if (options->folder && strcmp(name, "--folder") == 0) {
            options->folder = value;
        } else {
            fprintf(stderr, "unknown option %s\n", name);
            exit(2);
        }
    }
}

bool options_allow(const campaign_options *options, unsigned long done)
{
    return done < options->count &&
           !(options->seconds > 0 &&
             difftime(time(NULL), options->start) >= options->seconds);
}
