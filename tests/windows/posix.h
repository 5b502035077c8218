/* SPDX-License-Identifier: Apache-2.0
 * What test programs call of POSIX and MinGW lacks; each of their files
 * includes it first when they are compiled for Windows. */
#ifndef WINDOWS_POSIX_H
#define WINDOWS_POSIX_H

/* C11's formats, not those of Windows */
#define __USE_MINGW_ANSI_STDIO 1
#include <direct.h>
#include <errno.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utime.h>
#include <time.h>

/* Access control lists take the place of modes. */
#define mkdir(path, mode) _mkdir(path)

__declspec(dllimport) int __stdcall SetEnvironmentVariableA(const char *name,
                                                            const char *value);

static inline int setenv(const char *name, const char *value, int replace)
{
    if (!replace && getenv(name))
        return 0;
    /* the C library has no empty values, Windows has */
    return _putenv_s(name, value) != 0 ||
                   (!value[0] && !SetEnvironmentVariableA(name, value))
               ? -1
               : 0;
}

static inline int unsetenv(const char *name) { return _putenv_s(name, ""); }

static inline char *mkdtemp(char *pattern)
{
    return _mktemp(pattern) && _mkdir(pattern) == 0 ? pattern : NULL;
}

/* of paths from the current folder alone */
#define AT_FDCWD (-100)
static inline int utimensat(int folder, const char *path,
                            const struct timespec times[2], int flags)
{
    struct __utimbuf64 seconds = {times[0].tv_sec, times[1].tv_sec};
    if (folder != AT_FDCWD || flags != 0) {
        errno = EINVAL;
        return -1;
    }
    return _utime64(path, &seconds);
}

#endif
