/* SPDX-License-Identifier: Apache-2.0
 * Calls of Windows. */
#include "measure/process.h"

#include <ctype.h>
#include <fcntl.h>
#include <io.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <windows.h>

#include "measure/measure.h"

void process_own_path(const char *argument_0, char *path, size_t size)
{
    const DWORD length = GetModuleFileNameA(NULL, path, (DWORD)size);
    if (length == 0 || length >= size)
        snprintf(path, size, "%s", argument_0);
}

/* ---- Commands ---- */

static bool append(char *command, size_t size, char letter, size_t times)
{
    const size_t used = strlen(command);
    if (used + times >= size)
        return false;
    memset(command + used, letter, times);
    command[used + times] = 0;
    return true;
}

/* Between quotation marks, where backslashes mean something only in front of
 * such a mark: so programs take their arguments apart. */
bool process_append_word(char *command, size_t size, const char *text)
{
    const bool quoted = !text[0] || strpbrk(text, " \t\n\"") != NULL;
    bool fits = !command[0] || append(command, size, ' ', 1);
    fits = fits && append(command, size, '"', quoted);
    for (const char *at = text; fits; at++) {
        const size_t slashes = strspn(at, "\\");
        at += slashes;
        const bool in_front = *at == '"' || (!*at && quoted);
        fits = append(command, size, '\\', in_front ? 2 * slashes : slashes) &&
               append(command, size, '\\', *at == '"');
        if (!*at)
            break;
        fits = fits && append(command, size, *at, 1);
    }
    return fits && append(command, size, '"', quoted);
}

/* Copies a word of a command, and goes on to the next. Values of variables
 * are names of files, which have no quotation marks. */
static const char *read_word(const char *command, char *word, size_t size)
{
    bool quoted = false;
    size_t used = 0;
    for (; *command && (quoted || *command != ' '); command++) {
        if (*command == '"')
            quoted = !quoted;
        else if (used + 1 < size)
            word[used++] = *command;
    }
    word[used] = 0;
    return command + strspn(command, " ");
}

#define MOST_VARIABLES 16
typedef struct variables {
    size_t count;
    struct {
        char name[64];
        char *before; /* NULL: none */
    } all[MOST_VARIABLES];
} variables;

/* Sets those in `env NAME=VALUE ... program ...`; what follows them. A child
 * has its parent's. */
static const char *set_variables(const char *command, variables *set)
{
    set->count = 0;
    if (strncmp(command, "env ", 4) != 0)
        return command;
    command += 4;
    while (set->count < MOST_VARIABLES) {
        char word[1024];
        const char *next = read_word(command, word, sizeof word);
        size_t length = 0;
        while (isalnum((unsigned char)word[length]) || word[length] == '_')
            length++;
        if (word[length] != '=' || length >= sizeof set->all[0].name)
            break;
        word[length] = 0;
        const size_t i = set->count++;
        memcpy(set->all[i].name, word, length + 1);
        const DWORD size = GetEnvironmentVariableA(word, NULL, 0);
        set->all[i].before = size ? malloc(size) : NULL;
        if (set->all[i].before)
            GetEnvironmentVariableA(word, set->all[i].before, size);
        SetEnvironmentVariableA(word, word + length + 1);
        command = next;
    }
    return command;
}

static void reset_variables(variables *set)
{
    for (size_t i = 0; i < set->count; i++) {
        SetEnvironmentVariableA(set->all[i].name, set->all[i].before);
        free(set->all[i].before);
    }
}

static bool cut_end(char *command, const char *end)
{
    const size_t all = strlen(command), last = strlen(end);
    if (all < last || strcmp(command + all - last, end) != 0)
        return false;
    command[all - last] = 0;
    return true;
}

/* The process, or NULL; what it prints goes into the pipe. */
static HANDLE start(const char *command, HANDLE into)
{
    variables set;
    STARTUPINFOA how = {.cb = sizeof how, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION started;
    char *line = malloc(strlen(command) + 1);
    if (!line)
        return NULL;
    strcpy(line, set_variables(command, &set));
    how.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    how.hStdOutput = into;
    how.hStdError = (HANDLE)_get_osfhandle(2);
    if (cut_end(line, " 2>&1"))
        how.hStdError = into;
    else if (cut_end(line, " 2>/dev/null"))
        how.hStdError = NULL;
    const bool runs = CreateProcessA(NULL, line, NULL, NULL, TRUE, 0, NULL,
                                     NULL, &how, &started);
    reset_variables(&set);
    free(line);
    if (!runs)
        return NULL;
    CloseHandle(started.hThread);
    return started.hProcess;
}

static void keep_from_children(HANDLE handle)
{
    SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0);
}

bool process_first_line(const char *command, char *line, size_t size,
                        double *seconds)
{
    SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited,
                                     .bInheritHandle = TRUE};
    HANDLE from, into;
    char rest[256];
    fflush(NULL);
    const double begin = now_seconds();
    if (!CreatePipe(&from, &into, &inherited, 0))
        return false;
    keep_from_children(from);
    const HANDLE child = start(command, into);
    CloseHandle(into);
    FILE *output =
        _fdopen(_open_osfhandle((intptr_t)from, _O_RDONLY | _O_TEXT), "r");
    bool got = false;
    while (child && output && !got && fgets(line, (int)size, output))
        got = line[0] != '\n';
    *seconds = now_seconds() - begin;
    while (output && fgets(rest, sizeof rest, output))
        ;
    if (output)
        fclose(output);
    if (!child)
        return false;
    DWORD code = 1;
    WaitForSingleObject(child, INFINITE);
    GetExitCodeProcess(child, &code);
    CloseHandle(child);
    if (got)
        line[strcspn(line, "\n")] = 0;
    return got && code == 0;
}

static DWORD WINAPI end_later(void *seconds)
{
    Sleep((DWORD)(uintptr_t)seconds * 1000);
    TerminateProcess(GetCurrentProcess(), 1);
    return 0;
}

void process_end_after(unsigned seconds)
{
    const unsigned most = 1000000; /* in milliseconds a DWORD */
    const uintptr_t least = seconds < most ? seconds : most;
    const HANDLE thread =
        CreateThread(NULL, 0, end_later, (void *)least, 0, NULL);
    if (thread)
        CloseHandle(thread);
}

/* ---- Terminal and folders ---- */

bool process_screen_open(const char *log, process_screen *screen)
{
    screen->out = stdout;
    screen->error = stderr;
    screen->terminal = _isatty(2) != 0;
    if (!log)
        return true;
    const int file = _open(log, _O_WRONLY | _O_CREAT | _O_TRUNC | _O_APPEND,
                           _S_IREAD | _S_IWRITE);
    const int out = _dup(1), error = _dup(2);
    FILE *streams[] = {out < 0 ? NULL : _fdopen(out, "w"),
                       error < 0 ? NULL : _fdopen(error, "w")};
    fflush(NULL);
    if (file < 0 || !streams[0] || !streams[1] || _dup2(file, 1) < 0 ||
        _dup2(file, 2) < 0)
        return false;
    _close(file);
    keep_from_children((HANDLE)_get_osfhandle(out));
    keep_from_children((HANDLE)_get_osfhandle(error));
    setvbuf(streams[1], NULL, _IONBF, 0);
    screen->out = streams[0];
    screen->error = streams[1];
    return true;
}

bool process_make_folder(char *path, size_t size)
{
    char parent[MAX_PATH + 1];
    if (!GetTempPathA(sizeof parent, parent))
        return false;
    for (int i = 0; i < 100; i++) {
        const int length =
            snprintf(path, size, "%swinattn-bench-%lu-%d", parent,
                     (unsigned long)GetCurrentProcessId(), i);
        if (length < 0 || (size_t)length >= size)
            return false;
        if (CreateDirectoryA(path, NULL))
            return true;
        if (GetLastError() != ERROR_ALREADY_EXISTS)
            return false;
    }
    return false;
}

void process_remove_folder(const char *path)
{
    char command[1024];
    snprintf(command, sizeof command, "rmdir /s /q \"%s\"", path);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", path);
}
