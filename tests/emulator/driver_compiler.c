/* SPDX-License-Identifier: Apache-2.0
 * OpenCL C to PTX, by a script that runs in a folder of its own. */
#define _GNU_SOURCE /* environ */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_version.h"

#define PATH_BYTES 4096
#define MOST_ARGUMENTS 256
#define FIRST_OPTION 5

typedef struct work {
    char folder[PATH_BYTES - 32];
    char source[PATH_BYTES], result[PATH_BYTES], log[PATH_BYTES];
} work;

/* ---- Files ---- */

static bool make_work(work *made)
{
    const char *where = getenv("TMPDIR");
    const int length =
        snprintf(made->folder, sizeof made->folder, "%s/hopper-XXXXXX",
                 where && *where ? where : "/tmp");
    if (length < 0 || (size_t)length >= sizeof made->folder ||
        !mkdtemp(made->folder))
        return false;
    snprintf(made->source, PATH_BYTES, "%s/program.cl", made->folder);
    snprintf(made->result, PATH_BYTES, "%s/program.ptx", made->folder);
    snprintf(made->log, PATH_BYTES, "%s/log", made->folder);
    return true;
}

/* With what the script leaves where it fails. */
static void remove_work(const work *gone)
{
    static const char *const names[] = {"program.cl", "program.ptx",
                                        "program.ptx.ll", "program.ptx.sized",
                                        "log"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", gone->folder, names[i]);
        unlink(path);
    }
    rmdir(gone->folder);
}

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return false;
    const bool is_written = fputs(text, file) >= 0;
    return fclose(file) == 0 && is_written;
}

char *read_file(const char *path)
{
    size_t size = 0, room = 1 << 16;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = malloc(room);
    while (text) {
        size += fread(text + size, 1, room - 1 - size, file);
        if (size < room - 1)
            break;
        char *longer = realloc(text, room *= 2);
        if (!longer)
            free(text);
        text = longer;
    }
    fclose(file);
    if (text)
        text[size] = 0;
    return text;
}

/* ---- Script ---- */

/* Its exit status, or -1; what it says goes to a file. */
static int run_script(char *const arguments[], const char *log)
{
    posix_spawn_file_actions_t actions;
    pid_t id;
    int status = 0;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    int error = posix_spawn_file_actions_addopen(
        &actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO,
                                                 STDERR_FILENO);
    if (error == 0)
        error = posix_spawn(&id, EMULATOR_COMPILER, &actions, NULL, arguments,
                            environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        return -1;
    while (waitpid(id, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *versions; /* NULL: it is not there */

/* It says what it lacks. */
static void look_for_compiler(void)
{
    static char script[] = EMULATOR_COMPILER, way[] = "--versions";
    char *const arguments[] = {script, way, NULL};
    work where;
    if (!make_work(&where))
        return;
    const int status = run_script(arguments, where.log);
    char *said = read_file(where.log);
    remove_work(&where);
    if (status == 0) {
        versions = said;
        return;
    }
    fprintf(stderr, "no emulated GPUs, as there is no:\n%s", said ? said : "");
    free(said);
}

bool compiler_is_there(void)
{
    pthread_once(&once, look_for_compiler);
    return versions != NULL;
}

/* By the script. */
static char *compile_now(cl_device_id device, const char *source,
                         const char *options, char **log)
{
    static char script[] = EMULATOR_COMPILER, way[] = "--for-rewriting",
                target[] = "sm_90", includes[] = "-include";
    work where;
    char prelude[PATH_BYTES];
    char *rest = NULL, *ptx = NULL;
    *log = NULL;
    char *words = malloc(strlen(device->options) + strlen(options) + 2);
    if (!words || !make_work(&where)) {
        free(words);
        return NULL;
    }
    sprintf(words, "%s %s", device->options, options);
    char *arguments[MOST_ARGUMENTS + 1] = {script, way, target, where.source,
                                           where.result};
    size_t count = FIRST_OPTION;
    if (device->prelude) {
        snprintf(prelude, sizeof prelude, "%s/%s", EMULATOR_PRELUDE,
                 device->prelude);
        arguments[count++] = includes;
        arguments[count++] = prelude;
    }
    for (char *word = strtok_r(words, " \t\n", &rest);
         word && count < MOST_ARGUMENTS; word = strtok_r(NULL, " \t\n", &rest))
        arguments[count++] = word;
    if (write_file(where.source, source) &&
        run_script(arguments, where.log) == 0)
        ptx = read_file(where.result);
    *log = read_file(where.log);
    remove_work(&where);
    free(words);
    return ptx;
}

char *compile(cl_device_id device, const char *source, const char *options,
              char **log)
{
    const char *const parts[] = {COMPILER_VERSION,
                                 versions,
                                 device->options,
                                 device->prelude ? device->prelude : "",
                                 options,
                                 source,
                                 NULL};
    *log = NULL;
    char *ptx = cache_find(parts);
    if (ptx)
        return ptx;
    ptx = compile_now(device, source, options, log);
    if (ptx && *log && !**log) /* what it says, it says each time */
        cache_keep(parts, ptx);
    return ptx;
}
