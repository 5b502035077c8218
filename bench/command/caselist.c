/* SPDX-License-Identifier: Apache-2.0
 * Collects cases. */
#include "command/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/workloads.h"

#define LINE_SIZE 1024

void caselist_free(caselist *list)
{
    free(list->all);
    memset(list, 0, sizeof *list);
}

/* What the bench cannot time; the rest is for the library to refuse. */
static const char *fault_of(const test_case *c)
{
    const test_case standard = case_default();
    if (c->grid && (c->batch < 1 || c->variant == WINATTN_SLIDING))
        return "a grid needs a batch, and a variant other than sliding";
    if (c->grid < 0 || (!c->grid && c->mask == TERM_SHIFT))
        return "mask=shift needs a grid";
    for (int axis = 0; axis < c->grid; axis++)
        if (c->size[axis] < 1 || c->shift[axis] < 0)
            return "each axis of a grid needs its size, window and shift";
    if (c->windows < 1 || c->heads < 1 || c->kv_heads < 1 || c->queries < 1 ||
        c->keys < 1 || c->dim < 1)
        return "windows, heads, queries, keys and dim must be positive";
    if (c->heads % c->kv_heads != 0)
        return "kv_heads is no divisor of heads";
    if (c->first_block < 0 || c->window_blocks < 0 || c->sink < 0 ||
        c->query_offset < 0 || c->table[0] < 0 || c->table[1] < 0 ||
        c->table[2] < 0)
        return "blocks, sink, query_offset and table must not be negative";
    if (case_has_table(c) && !c->grid)
        return "a table needs a grid";
    if (c->mask != TERM_NONE && c->mask != TERM_SHIFT && c->mask_windows < 1)
        return "a mask needs mask_windows=N: windows of an image, as window w "
               "has mask w % N (1: all have the same)";
    if (c->variant == WINATTN_SLIDING && c->block < 1)
        return "the sliding variant needs block";
    if ((c->layout != standard.layout &&
         !(c->grid && c->layout == LAYOUT_PACKED)) ||
        c->data != standard.data || c->lse || c->outputs != standard.outputs ||
        c->accumulate || c->d_lse || c->entries)
        return "the bench has no choice of layout (but packed with a grid), "
               "data, lse, outputs, accumulate, d_lse and entries";
    return NULL;
}

bool caselist_add_text(caselist *list, const char *name, const char *text,
                       char reason[CASELIST_REASON_SIZE])
{
    char bad[64];
    bench_case added;
    memset(&added, 0, sizeof added);
    added.c = case_default();
    added.c.lse = 0;
    if (!case_parse(text, &added.c, bad)) {
        snprintf(reason, CASELIST_REASON_SIZE, "unknown: %s", bad);
        return false;
    }
    const char *fault = fault_of(&added.c);
    if (fault) {
        snprintf(reason, CASELIST_REASON_SIZE, "%s: %.200s", fault, text);
        return false;
    }
    added.names_dtype = strstr(text, "dtype=") != NULL;
    added.names_tier = strstr(text, "tier=") != NULL;
    added.names_pass = strstr(text, "pass=") != NULL;
    added.backward = added.c.pass == PASS_BACKWARD;
    added.c.pass = PASS_FORWARD;
    bench_case *all =
        realloc(list->all, (list->count + 1) * sizeof *list->all);
    if (!all) {
        snprintf(reason, CASELIST_REASON_SIZE, "out of memory");
        return false;
    }
    if (name)
        snprintf(added.name, sizeof added.name, "%s", name);
    else
        snprintf(added.name, sizeof added.name, "own%zu", ++list->own);
    /* a colon marks what was shrunk */
    for (char *p = added.name; *p; p++)
        if (*p == ':' || (unsigned char)*p < 32)
            *p = '-';
    list->all = all;
    list->all[list->count++] = added;
    return true;
}

/* Those of a table whose name it is; false if one is wrong. */
static bool add_rows(caselist *list, const workload_row *rows, size_t count,
                     const char *name, bool *found,
                     char reason[CASELIST_REASON_SIZE])
{
    const bool all = strcmp(name, "all") == 0;
    for (size_t i = 0; i < count; i++)
        if (all || strcmp(rows[i].name, name) == 0) {
            *found = true;
            if (!caselist_add_text(list, rows[i].name, rows[i].text, reason))
                return false;
        }
    return true;
}

bool caselist_add_named(caselist *list, const char *name,
                        char reason[CASELIST_REASON_SIZE])
{
    bool found = false;
    if (!add_rows(list, workload_rows, workload_count, name, &found, reason) ||
        !add_rows(list, map_rows, map_count, name, &found, reason))
        return false;
    if (!found)
        snprintf(reason, CASELIST_REASON_SIZE, "no case %.60s; see --list",
                 name);
    return found;
}

bool caselist_add(caselist *list, const char *text,
                  char reason[CASELIST_REASON_SIZE])
{
    return strchr(text, '=') ? caselist_add_text(list, NULL, text, reason)
                             : caselist_add_named(list, text, reason);
}

bool caselist_add_file(caselist *list, const char *path,
                       char reason[CASELIST_REASON_SIZE])
{
    char line[LINE_SIZE], detail[CASELIST_REASON_SIZE] = "";
    const size_t before = list->count;
    unsigned number = 0;
    bool good = true;
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(reason, CASELIST_REASON_SIZE, "cannot open %.200s", path);
        return false;
    }
    while (good && fgets(line, sizeof line, file)) {
        const size_t length = strcspn(line, "\r\n");
        number++;
        good = line[length] || feof(file);
        line[length] = 0;
        if (!good)
            snprintf(detail, sizeof detail, "is too long");
        else if (line[0] != '#' && strspn(line, " \t") != length)
            good = caselist_add(list, line, detail);
    }
    if (!good)
        snprintf(reason, CASELIST_REASON_SIZE, "%.100s, line %u: %.180s", path,
                 number, detail);
    else if (list->count == before)
        snprintf(reason, CASELIST_REASON_SIZE, "no cases in %.200s", path);
    fclose(file);
    return good && list->count > before;
}
