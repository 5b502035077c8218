/* SPDX-License-Identifier: Apache-2.0
 * Does the interpreter know every word of these programs?
 *
 *   ptx_words FILE...    prints what it does not know, of each */
#include <stdio.h>
#include <stdlib.h>

#include "ptx.h"

enum { MOST_BYTES = 1 << 26 };

/* To be freed; NULL: it cannot be read. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc(MOST_BYTES + 1);
    if (file && text) {
        const size_t size = fread(text, 1, MOST_BYTES, file);
        text[size] = 0;
    }
    if (!file) {
        free(text);
        return NULL;
    }
    fclose(file);
    return text;
}

static int knows(const char *path)
{
    char reason[512];
    char *text = read_text(path);
    if (!text) {
        fprintf(stderr, "%s cannot be read\n", path);
        return 0;
    }
    ptx_module *module = ptx_read(text, reason, sizeof reason);
    free(text);
    if (!module)
        fprintf(stderr, "the emulator: %s\n", reason);
    ptx_free(module);
    return module != NULL;
}

int main(int count, char **paths)
{
    int unknown = 0;
    for (int i = 1; i < count; i++)
        unknown += !knows(paths[i]);
    return unknown != 0;
}
