/* SPDX-License-Identifier: Apache-2.0
 * What the bench needs of the operating system: other processes, folders, the
 * terminal. process.c is the only file that calls it. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* Path of the running program. */
void process_own_path(const char *argument_0, char *path, size_t size);

/* Appends text to a command so that the shell takes it as one word. False if
 * it does not fit. */
bool process_append_word(char *command, size_t size, const char *text);

/* Runs a command until it ends, and keeps its first line that is not
 * empty. *seconds: from its
 * start until that line arrived. False if there was none. */
bool process_first_line(const char *command, char *line, size_t size,
                        double *seconds);

/* Ends this process after so many seconds, wherever it hangs. */
void process_end_after(unsigned seconds);

bool process_on_terminal(void); /* is stderr one? */

/* An empty folder of its own; false: there is none. */
bool process_make_folder(char *path, size_t size);
void process_remove_folder(const char *path);

#endif
