/* SPDX-License-Identifier: Apache-2.0
 * Follows the #include lines of cl/: OpenCL compilers find no files of a
 * library that is linked into an application. */
#include "program/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "program/sources.h"

#define NAME_SIZE 80
#define MOST_FILES 64
#define INCLUDE "#include "

typedef struct assembly {
    char unit_file[NAME_SIZE];        /* what MATRIX_UNIT includes; or "" */
    const char *included[MOST_FILES]; /* their texts */
    size_t files;
    char *text; /* NULL: only measures */
    size_t size;
} assembly;

/* The text of the file that a line includes, which starts with INCLUDE:
 * "folder/name", or the file of the matrix unit; NULL if there is none. */
static const char *included_file(const assembly *all, const char *line)
{
    char path[NAME_SIZE];
    if (sscanf(line, INCLUDE "\"%79[^\"\n]\"", path) != 1)
        return wa_source(all->unit_file);
    const char *name = strrchr(path, '/');
    return wa_source(name ? name + 1 : path);
}

/* True if it was not there yet. */
static bool note_file(assembly *all, const char *file)
{
    for (size_t i = 0; i < all->files; i++)
        if (all->included[i] == file)
            return false;
    if (all->files < MOST_FILES)
        all->included[all->files++] = file;
    return true;
}

static void add_text(assembly *all, const char *text, size_t length)
{
    if (all->text)
        memcpy(all->text + all->size, text, length);
    all->size += length;
}

/* False if it includes what is no file. */
static bool add_file(assembly *all, const char *file)
{
    if (!file)
        return false;
    if (!note_file(all, file))
        return true;
    for (const char *line = file; *line;) {
        const size_t length = strcspn(line, "\n");
        const size_t whole = length + (line[length] == '\n');
        if (strncmp(line, INCLUDE, strlen(INCLUDE)) != 0)
            add_text(all, line, whole);
        else if (!add_file(all, included_file(all, line)))
            return false;
        line += whole;
    }
    return true;
}

/* The text of the kernel's file; and of which unit it is. */
static const char *start(assembly *all, const char *kernel)
{
    static const char matrix[] = "_matrix_";
    char file[NAME_SIZE];
    const char *unit = strstr(kernel, matrix);
    size_t length = strlen(kernel);
    memset(all, 0, sizeof *all);
    if (length > NAME_SIZE / 2)
        return NULL;
    if (unit) {
        length = (size_t)(unit - kernel) + strlen(matrix) - 1;
        snprintf(all->unit_file, sizeof all->unit_file, "unit_%s.cl",
                 unit + strlen(matrix));
    }
    snprintf(file, sizeof file, "%.*s.cl", (int)length, kernel);
    return wa_source(file);
}

winattn_status wa_source_of_kernel(const char *kernel, char **text)
{
    assembly all;
    *text = NULL;
    if (!add_file(&all, start(&all, kernel)))
        return WINATTN_SUCCESS;
    char *result = malloc(all.size + 1);
    if (!result)
        return wa_fail_memory();
    const char *file = start(&all, kernel);
    all.text = result;
    (void)add_file(&all, file); /* as it did above */
    result[all.size] = 0;
    *text = result;
    return WINATTN_SUCCESS;
}
