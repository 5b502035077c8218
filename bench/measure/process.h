/* SPDX-License-Identifier: Apache-2.0
 * What the bench needs of the operating system: other processes, folders, the
 * terminal. process_posix.c and process_windows.c are the only files that call
 * it. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Path of the running program. */
void process_own_path(const char *argument_0, char *path, size_t size);

/* Appends text to a command so that the shell takes it as one word. False if
 * it does not fit. */
bool process_append_word(char *command, size_t size, const char *text);

/* Runs a command until it ends, and keeps its first line that is not empty.
 * *seconds: from its start until that line arrived. False if there was none,
 * or the command failed. Of what a shell understands it may have `env
 * NAME=VALUE ...` in front, and `2>&1` or `2>/dev/null` at its end. */
bool process_first_line(const char *command, char *line, size_t size,
                        double *seconds);

/* Ends this process after so many seconds, wherever it hangs. */
void process_end_after(unsigned seconds);

/* Where this program prints. */
typedef struct process_screen {
    FILE *out, *error;
    bool terminal; /* is `error` one? */
} process_screen;

/* stdout and stderr, which from then on lead to `log` (NULL: stay what they
 * are) for all others: drivers and compilers print warnings as they like, and
 * would do so between the lines of a table. False, with stderr as it was, if
 * the file cannot be written. */
bool process_screen_open(const char *log, process_screen *screen);

/* Of a file, after all streams were flushed; 0 if there is none. */
size_t process_count_lines(const char *path);

/* An empty folder of its own; false: there is none. */
bool process_make_folder(char *path, size_t size);
void process_remove_folder(const char *path);

#endif
