/* SPDX-License-Identifier: Apache-2.0
 * What test_faults.c lets fail, and where: each program that is made of it has
 * its own subjects and scenarios. */
#ifndef FAULTS_SUBJECTS_H
#define FAULTS_SUBJECTS_H

#include "world.h"

#define MOST_PREPARED 8

/* A function under test, and what goes before it. */
typedef struct subject {
    const char *name;
    step *prepare[MOST_PREPARED]; /* up to a NULL */
    step *call;
    size_t levels; /* it is one of each of them, from the first on */
} subject;

extern const subject subjects[];
extern const size_t subject_count;
extern const scenario scenarios[];
extern const size_t scenario_count;

/* Prepares all that the blob of a scenario is to have. */
extern const subject subject_of_blob;

/* Is there something to call in the scenario? */
bool subject_applies(const scenario *is, const subject *of);

/* Can nothing in it do without an allocation or a call? */
bool subject_needs_all(const world *w, const subject *of);

/* Before the first world: makes files in the folder, which is there. */
void subjects_begin(const char *folder);
/* Before a world is closed: gives back what is not in it. */
void subjects_end(world *w);

#endif
