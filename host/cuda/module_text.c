/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/module_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

#define MOST_ARRAYS 64
#define ALL_LOCAL "winattn_local_memory"
#define LEAST_ALIGNMENT 16u
/* Registers of OpenCL's driver: the sixth has the number of work-groups, and
 * others have offsets and numbers of what is not there. */
#define REGISTER "%envreg"
#define REGISTER_OF_GROUPS 6

typedef struct array {
    const char *name;
    size_t length; /* of the name */
    uint32_t start;
} array;

typedef struct arrays {
    array all[MOST_ARRAYS];
    size_t count;
    uint32_t bytes, alignment;
} arrays;

static bool is_of_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

static size_t line_length(const char *text)
{
    const char *end = strchr(text, '\n');
    return end ? (size_t)(end - text) + 1 : strlen(text);
}

/* ---- Arrays ---- */

/* ".shared .align 16 .b8 name[1024];" */
static bool read_array(const char *line, size_t length, uint32_t *align,
                       array *found, uint32_t *bytes)
{
    char name[256], text[512];
    int at = 0;
    if (length >= sizeof text)
        return false;
    memcpy(text, line, length);
    text[length] = 0;
    if (sscanf(text, " .shared .align %u .b8 %n%255[^[][%u];", align, &at,
               name, bytes) != 3)
        return false;
    found->name = line + at;
    found->length = strlen(name);
    return *align != 0 && (*align & (*align - 1)) == 0;
}

static winattn_status find_arrays(const char *ptx, arrays *found)
{
    uint32_t align, bytes;
    memset(found, 0, sizeof *found);
    found->alignment = LEAST_ALIGNMENT;
    for (; *ptx; ptx += line_length(ptx)) {
        array *next = &found->all[found->count];
        if (found->count == MOST_ARRAYS)
            return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                           "the program has too many arrays in local memory");
        if (!read_array(ptx, line_length(ptx), &align, next, &bytes))
            continue;
        next->start = (found->bytes + align - 1) & ~(align - 1);
        if (bytes > UINT32_MAX / 2 - next->start)
            return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                           "the program has too much local memory");
        found->bytes = next->start + bytes;
        found->alignment = align > found->alignment ? align : found->alignment;
        found->count++;
    }
    return WINATTN_SUCCESS;
}

static const array *find_array(const arrays *found, const char *name,
                               size_t length)
{
    for (size_t i = 0; i < found->count; i++)
        if (found->all[i].length == length &&
            memcmp(found->all[i].name, name, length) == 0)
            return &found->all[i];
    return NULL;
}

/* ---- Lines ---- */

/* Its place in the array of all, to which a number may follow; returns what it
 * took of the line. */
static size_t put_place(const array *a, const char *line, wa_output *to)
{
    char text[64];
    unsigned long more = 0;
    int taken = 0;
    if (sscanf(line + a->length, "+%lu%n", &more, &taken) != 1)
        taken = 0;
    const int size = snprintf(text, sizeof text, "%s+%lu", ALL_LOCAL,
                              a->start + (taken ? more : 0));
    wa_put(to, text, (size_t)size);
    return a->length + (size_t)taken;
}

static size_t put_register(const char *name, size_t length, wa_output *to)
{
    const long number = strtol(name + strlen(REGISTER), NULL, 10);
    const char *is = number == REGISTER_OF_GROUPS ? "%nctaid.x" : "0";
    wa_put(to, is, strlen(is));
    return length;
}

/* Words, and all else as it is. */
static void put_line(const char *line, size_t length, const arrays *found,
                     wa_output *to)
{
    size_t i = 0;
    while (i < length) {
        size_t word = 0;
        while (i + word < length && is_of_name(line[i + word]))
            word++;
        const array *a = word ? find_array(found, line + i, word) : NULL;
        if (a) {
            i += put_place(a, line + i, to);
        } else if (word > strlen(REGISTER) &&
                   memcmp(line + i, REGISTER, strlen(REGISTER)) == 0) {
            i += put_register(line + i, word, to);
        } else {
            word = word ? word : 1;
            wa_put(to, line + i, word);
            i += word;
        }
    }
}

/* Leaves out OpenCL's kind of textures, which CUDA's driver refuses. */
static void put_target(const char *line, size_t length, wa_output *to)
{
    size_t kept = 0;
    while (kept < length && line[kept] != ',' && line[kept] != '\n')
        kept++;
    wa_put(to, line, kept);
    wa_put(to, "\n", 1);
}

static void put_declaration(const arrays *found, wa_output *to)
{
    char text[96];
    const int size =
        snprintf(text, sizeof text, ".extern .shared .align %u .b8 %s[];\n",
                 found->alignment, ALL_LOCAL);
    if (found->count)
        wa_put(to, text, (size_t)size);
}

/* Returns how many lines say how large addresses are. */
static unsigned write_text(const char *ptx, const arrays *found, wa_output *to)
{
    unsigned heads = 0;
    for (size_t length; *ptx; ptx += length) {
        uint32_t align, bytes;
        array ignored;
        length = line_length(ptx);
        if (read_array(ptx, length, &align, &ignored, &bytes))
            continue;
        if (strncmp(ptx, ".target ", 8) == 0)
            put_target(ptx, length, to);
        else
            put_line(ptx, length, found, to);
        if (strncmp(ptx, ".address_size ", 14) == 0) {
            put_declaration(found, to);
            heads++;
        }
    }
    return heads;
}

winattn_status wa_module_text_make(const char *ptx, wa_module_text *result)
{
    arrays found;
    wa_output to = {NULL, 0};
    memset(result, 0, sizeof *result);
    WA_TRY(find_arrays(ptx, &found));
    if (write_text(ptx, &found, &to) != 1)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "the driver's binary is no PTX");
    to.text = malloc(to.size + 1);
    WA_TRY_MEMORY(to.text);
    to.size = 0;
    write_text(ptx, &found, &to);
    to.text[to.size] = 0;
    *result = (wa_module_text){to.text, to.size, found.bytes};
    return WINATTN_SUCCESS;
}
