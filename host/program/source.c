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
    wa_source_finder *find;
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
    return all->find(name ? name + 1 : path);
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

/* The name of the kernel's file; and of which unit it is. "": too long. */
static void start(assembly *all, const char *kernel, char file[NAME_SIZE])
{
    static const char matrix[] = "_matrix_";
    const char *unit = strstr(kernel, matrix);
    size_t length = strlen(kernel);
    memset(all, 0, sizeof *all);
    all->find = wa_source;
    file[0] = 0;
    if (length > NAME_SIZE / 2)
        return;
    if (unit) {
        length = (size_t)(unit - kernel) + strlen(matrix) - 1;
        snprintf(all->unit_file, sizeof all->unit_file, "unit_%s.cl",
                 unit + strlen(matrix));
    }
    snprintf(file, NAME_SIZE, "%.*s.cl", (int)length, kernel);
}

/* Measures, then writes what the assembly finds under that name. */
static winattn_status assemble(const assembly *begun, const char *file,
                               char **text)
{
    assembly all = *begun;
    *text = NULL;
    if (!add_file(&all, all.find(file)))
        return WINATTN_SUCCESS;
    char *result = malloc(all.size + 1);
    WA_TRY_MEMORY(result);
    all = *begun;
    all.text = result;
    (void)add_file(&all, all.find(file)); /* as it did above */
    result[all.size] = 0;
    *text = result;
    return WINATTN_SUCCESS;
}

winattn_status wa_source_of_kernel(const char *kernel, char **text)
{
    assembly all;
    char file[NAME_SIZE];
    start(&all, kernel, file);
    return assemble(&all, file, text);
}

winattn_status wa_source_of_file(wa_source_finder *find, const char *file,
                                 char **text)
{
    const assembly all = {.find = find};
    return assemble(&all, file, text);
}
