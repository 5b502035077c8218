/* SPDX-License-Identifier: Apache-2.0
 * The groups of test_cache, a file each, and what they share: files of the
 * cache, processes, plans that are run. */
#ifndef DEVICE_CACHE_H
#define DEVICE_CACHE_H

#include <sys/types.h>

#include "kit/runner.h"
#include "kit/scratch.h"

extern const test_group cache_bytes, cache_folder, cache_plans, cache_blobs;

uint32_t random_below(uint64_t *state, uint32_t limit);

/* ---- Files ---- */

/* The cache's folder from now on, of that name in the scratch folder. */
void use_folder(const char *name, char folder[4200]);

/* Calls for each of the cache's files in the folder; returns how many there
 * are. */
int for_files(const char *folder, void (*visit)(const char *path, void *data),
              void *data);

/* Writes and reads one key, again and again: what is read is always whole.
 * Several threads and processes do so at once. NULL if it was. */
void *hammer(void *unused);

/* ---- Processes ---- */

extern const char *own_path; /* of this program */

/* Runs this program again, as `mode` in the folder: "hammer", or "plan". */
pid_t start_child(const char *mode, const char *folder);
void assert_child_succeeds(pid_t child);

/* ---- Plans ---- */

/* What a run of a plan gave. */
typedef struct outcome {
    unsigned built;        /* programs, from source */
    char origin[40];       /* as the plan describes it */
    unsigned char o[8192]; /* the buffer that holds the result */
} outcome;

#define CPU_CASE "tier=cpu windows=2 heads=1 queries=10 dim=8"
/* Of another program: one of tier local, where the device does not break it.
 */
const char *other_case(void);

void describe_origin(const winattn_plan *plan, char origin[40]);

/* Creates a plan on the device under test, runs it, and checks the result. */
void run_here(const char *text, outcome *result);

/* Some drivers give no binaries; then all is built from source, and there is
 * nothing more to test. */
bool gives_binaries(void);

#endif
