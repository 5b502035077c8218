/* SPDX-License-Identifier: Apache-2.0
 * Names of classes, one to a line. */
#ifndef SWIN_CLASS_NAMES_H
#define SWIN_CLASS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct class_names {
    unsigned char *text;
    const char **names;
    size_t count;
} class_names;

/* False: why not was said on stderr. */
bool class_names_read(const char *path, class_names *names);
void class_names_free(class_names *names);

/* Its number where it has no name. What would move a terminal's cursor is
 * shown as ?. */
void class_names_print(const class_names *names, size_t index);

#endif
