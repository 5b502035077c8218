/* SPDX-License-Identifier: Apache-2.0
 * Kept programs: the bytes, the folder, and plans that come from them. What is
 * damaged or foreign must be noticed, and must never do harm. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "cache.h"

/* What start_child starts; 0 if all went well. */
static int be_child(const char *mode, const char *folder)
{
    winattn_set_cache_dir(folder);
    if (strcmp(mode, "hammer") == 0)
        return hammer(NULL) != NULL;
    outcome result;
    char reason[256];
    if (!device_open(&device, reason))
        return 2;
    winattn_set_cache_dir(folder);
    run_here(CPU_CASE, &result);
    run_here(other_case(), &result);
    run_here(CPU_CASE, &result);
    device_close(&device);
    return result.built != 0;
}

int main(int count, char **texts)
{
    const test_group groups[] = {cache_bytes, cache_folder, cache_plans,
                                 cache_blobs};
    unsetenv("WINATTN_CACHE");
    unsetenv("WINATTN_CACHE_DIR");
    own_path = texts[0];
    if (count == 3)
        return be_child(texts[1], texts[2]);
    chosen.part = "cache";
    if (!runner_open() || !scratch_make())
        return 1;
    const int failures = runner_run(groups, sizeof groups / sizeof *groups);
    scratch_remove();
    runner_close();
    return failures;
}
