/* SPDX-License-Identifier: Apache-2.0
 * A folder for the files of tests. */
#define _POSIX_C_SOURCE 200809L
#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[4096];

bool scratch_make(void)
{
    if (!getcwd(scratch, sizeof scratch - 32))
        return false;
    strcat(scratch, "/cache_XXXXXX");
    return mkdtemp(scratch) != NULL;
}

void scratch_remove(void) { remove_all(scratch); }

const char *folder_named(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void remove_all(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *item;
    while (folder && (item = readdir(folder)) != NULL) {
        char below[4600];
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, item->d_name);
        remove_all(below);
    }
    if (folder)
        closedir(folder);
    remove(path);
}
