/* SPDX-License-Identifier: Apache-2.0
 * What the tests of the cache share: files, processes, plans that are run. */
#define _POSIX_C_SOURCE 200809L
#include "cache.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#ifdef _WIN32
#include <process.h>
#else
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "kit/fixture.h"
#include "program/program_set.h"

const char *own_path;

uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

void use_folder(const char *name, char folder[4200])
{
    snprintf(folder, 4200, "%s", folder_named(name));
    winattn_set_cache_dir(folder);
}

int for_files(const char *folder, void (*visit)(const char *path, void *data),
              void *data)
{
    DIR *open_folder = opendir(folder);
    const struct dirent *item;
    int count = 0;
    while (open_folder && (item = readdir(open_folder)) != NULL) {
        char path[4600];
        if (!strstr(item->d_name, ".winattn"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        if (visit)
            visit(path, data);
        count++;
    }
    if (open_folder)
        closedir(open_folder);
    return count;
}

#ifdef _WIN32
pid_t start_child(const char *mode, const char *folder)
{
    const intptr_t child =
        _spawnl(_P_NOWAIT, own_path, own_path, mode, folder, (char *)NULL);
    assert_true(child != -1);
    return child;
}

void assert_child_succeeds(pid_t child)
{
    int status = -1;
    assert_true(_cwait(&status, child, 0) == child);
    assert_int_equal(status, 0);
}
#else
pid_t start_child(const char *mode, const char *folder)
{
    const pid_t child = fork();
    if (child == 0) {
        execl(own_path, own_path, mode, folder, (char *)NULL);
        _exit(99);
    }
    assert_true(child > 0);
    return child;
}

void assert_child_succeeds(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
#endif

void describe_origin(const winattn_plan *plan, char origin[40])
{
    char text[4096];
    assert_int_equal(winattn_plan_describe(plan, sizeof text, text, NULL),
                     WINATTN_SUCCESS);
    const char *line = strstr(text, "\nprogram: ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "\nprogram: %39[^\n]", origin), 1);
}

void run_here(const char *text, outcome *result)
{
    const unsigned before = wa_programs_built();
    memset(result, 0, sizeof *result);
    fixture f = set_up(text);
    result->built = wa_programs_built() - before;
    assert_string_equal(winattn_last_reason(), "");
    describe_origin(f.plan, result->origin);
    enqueue_forward(&f, f.plan);
    assert_correct(&f);
    const int o = f.data->tensor[T_O].buffer;
    const size_t size = f.data->buffer[o].size;
    assert_true(size <= sizeof result->o);
    assert_int_equal(clEnqueueReadBuffer(device.queue, f.buffers.mem[o],
                                         CL_TRUE, 0, size, result->o, 0, NULL,
                                         NULL),
                     CL_SUCCESS);
    tear_down(&f);
}

const char *other_case(void)
{
    return keeps_barriers()
               ? "tier=local windows=2 heads=1 queries=10 dim=8 bias=same"
               : "tier=cpu windows=2 heads=1 queries=10 dim=8 bias=same";
}

bool gives_binaries(void)
{
    static int known = -1;
    outcome first;
    if (known < 0) {
        char folder[4200];
        use_folder("tried", folder);
        run_here(CPU_CASE, &first);
        known = for_files(folder, NULL, NULL) > 0;
        if (!known)
            printf("the driver gives no binaries\n");
    }
    return known;
}
