/* SPDX-License-Identifier: Apache-2.0
 * PTX of programs that were compiled before, by this process or another: files
 * of a folder, named by a hash of all that PTX depends on. They are written
 * beside their place and moved there, so that whoever finds one finds it
 * whole. */
#include "driver.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* FNV-1a of 64 bits, from a start of one's own. */
static uint64_t hash(uint64_t start, const char *text)
{
    for (; *text; text++)
        start = (start ^ (unsigned char)*text) * 0x100000001b3u;
    return (start ^ 0xff) * 0x100000001b3u; /* where one text ends */
}

/* "" switches it off. */
static const char *folder(void)
{
    const char *given = getenv("EMULATOR_CACHE_DIR");
    return given ? given : EMULATOR_CACHE;
}

static bool make_path(const char *const *parts, char *path)
{
    uint64_t name[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
    const char *where = folder();
    for (; *parts; parts++)
        for (int i = 0; i < 2; i++)
            name[i] = hash(name[i], *parts);
    const int length =
        snprintf(path, PATH_BYTES, "%s/%016llx%016llx.ptx", where,
                 (unsigned long long)name[0], (unsigned long long)name[1]);
    return *where && length > 0 && length < PATH_BYTES - 8;
}

char *cache_find(const char *const *parts)
{
    char path[PATH_BYTES];
    return make_path(parts, path) ? read_file(path) : NULL;
}

void cache_keep(const char *const *parts, const char *ptx)
{
    char path[PATH_BYTES], beside[PATH_BYTES + 8];
    if (!make_path(parts, path) ||
        (mkdir(folder(), 0777) != 0 && errno != EEXIST))
        return;
    snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    const int descriptor = mkstemp(beside);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (!file)
        return;
    const bool is_written = fputs(ptx, file) >= 0;
    if (fclose(file) != 0 || !is_written || rename(beside, path) != 0)
        unlink(beside);
}
