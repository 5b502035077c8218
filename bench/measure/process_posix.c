/* SPDX-License-Identifier: Apache-2.0
 * Calls of POSIX. */
#define _POSIX_C_SOURCE 200809L
#include "measure/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/measure.h"

void process_own_path(const char *argument_0, char *path, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length > 0)
        path[length] = 0;
    else
        snprintf(path, size, "%s", argument_0);
}

static bool append(char *command, size_t size, const char *text)
{
    const size_t used = strlen(command), more = strlen(text);
    if (used + more >= size)
        return false;
    memcpy(command + used, text, more + 1);
    return true;
}

bool process_append_word(char *command, size_t size, const char *text)
{
    bool fits = true;
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-_./=:,+";
    if (command[0])
        fits = append(command, size, " ");
    if (text[0] && text[strspn(text, plain)] == 0)
        return fits && append(command, size, text);
    fits = fits && append(command, size, "'");
    for (; *text && fits; text++) {
        const char one[2] = {*text, 0};
        fits = append(command, size, *text == '\'' ? "'\\''" : one);
    }
    return fits && append(command, size, "'");
}

bool process_first_line(const char *command, char *line, size_t size,
                        double *seconds)
{
    char rest[256];
    fflush(NULL);
    const double start = now_seconds();
    FILE *output = popen(command, "r");
    if (!output)
        return false;
    bool got;
    do
        got = fgets(line, (int)size, output) != NULL;
    while (got && line[0] == '\n');
    *seconds = now_seconds() - start;
    while (fgets(rest, sizeof rest, output))
        ;
    const int status = pclose(output);
    if (got)
        line[strcspn(line, "\n")] = 0;
    return got && status == 0;
}

void process_end_after(unsigned seconds) { alarm(seconds); }

bool process_screen_open(const char *log, process_screen *screen)
{
    screen->out = stdout;
    screen->error = stderr;
    screen->terminal = isatty(2) != 0;
    if (!log)
        return true;
    const int file = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    const int out = dup(1), error = dup(2);
    FILE *streams[] = {out < 0 ? NULL : fdopen(out, "w"),
                       error < 0 ? NULL : fdopen(error, "w")};
    fflush(NULL);
    if (file < 0 || !streams[0] || !streams[1] || dup2(file, 1) < 0 ||
        dup2(file, 2) < 0)
        return false;
    close(file);
    /* children need neither */
    fcntl(out, F_SETFD, FD_CLOEXEC);
    fcntl(error, F_SETFD, FD_CLOEXEC);
    setvbuf(streams[1], NULL, _IONBF, 0);
    screen->out = streams[0];
    screen->error = streams[1];
    return true;
}

bool process_make_folder(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");
    const int length = snprintf(path, size, "%s/winattn-bench-XXXXXX",
                                parent && parent[0] ? parent : "/tmp");
    return length > 0 && (size_t)length < size && mkdtemp(path) != NULL;
}

void process_remove_folder(const char *path)
{
    char command[1024] = "rm -rf --";
    if (process_append_word(command, sizeof command, path) &&
        system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", path);
}
