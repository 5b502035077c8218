/* SPDX-License-Identifier: Apache-2.0
 * Calls of POSIX, which Windows has under names of its own. */
#define _POSIX_C_SOURCE 200809L
#include "measure/screen.h"

#ifdef _WIN32
#include <io.h>
#define dup _dup
#define dup2 _dup2
#define fdopen _fdopen
#define fileno _fileno
#define isatty _isatty
#else
#include <unistd.h>
#endif

bool screen_open(const char *log, bench_screen *screen)
{
    screen->out = stdout;
    screen->error = stderr;
    screen->terminal = isatty(2) != 0;
    if (!log)
        return true;
    /* stays open, as the streams of all others lead there */
    FILE *file = fopen(log, "w");
    const int out = dup(1), error = dup(2);
    FILE *streams[] = {out < 0 ? NULL : fdopen(out, "w"),
                       error < 0 ? NULL : fdopen(error, "w")};
    fflush(NULL);
    if (!file || !streams[0] || !streams[1] || dup2(fileno(file), 1) < 0 ||
        dup2(fileno(file), 2) < 0)
        return false;
    setvbuf(streams[1], NULL, _IONBF, 0);
    screen->out = streams[0];
    screen->error = streams[1];
    return true;
}

size_t screen_count_lines(const char *path)
{
    size_t lines = 0;
    fflush(NULL);
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}
