/* SPDX-License-Identifier: Apache-2.0
 * Files of names. */
#include "swin/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "swin/read_file.h"

#define FILE_MOST ((size_t)8 << 20)

/* Lines become texts of their own; of the last one, an end of line is not
 * needed. */
static size_t split(unsigned char *text, size_t size, const char **names)
{
    size_t count = 0;
    unsigned char *at = text, *end = text + size;
    while (at < end) {
        unsigned char *line = at;
        while (at < end && *at != '\n')
            at++;
        unsigned char *last = at > line && at[-1] == '\r' ? at - 1 : at;
        *last = 0;
        at++;
        if (names) {
            wa_make_plain((char *)line, "");
            names[count] = (const char *)line;
        }
        count++;
    }
    return count;
}

bool class_names_read(const char *path, class_names *names)
{
    char reason[200] = "";
    size_t size = 0;
    *names = (class_names){0};
    names->text =
        read_file(path, FILE_MOST, NULL, &size, reason, sizeof reason);
    if (names->text) {
        size_t lines = 1;
        for (size_t i = 0; i < size; i++)
            lines += names->text[i] == '\n';
        names->names = calloc(lines, sizeof *names->names);
        if (!names->names)
            snprintf(reason, sizeof reason, "there is no memory for it");
    }
    if (names->names) {
        names->count = split(names->text, size, names->names);
        return true;
    }
    fprintf(stderr, "winattn-swin: %s: %s\n", path, reason);
    class_names_free(names);
    return false;
}

void class_names_free(class_names *names)
{
    free(names->names);
    free(names->text);
    *names = (class_names){0};
}

void class_names_print(const class_names *names, size_t index)
{
    if (index >= names->count) {
        printf("class %zu", index);
        return;
    }
    fputs(names->names[index], stdout);
}
