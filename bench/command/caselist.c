/* SPDX-License-Identifier: Apache-2.0
 * Collects cases. */
#include "command/caselist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/workloads.h"

#define MOST_COLUMNS 32
#define LINE_SIZE 1024
#define TEXT_SIZE 512

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

/* ---- Files ---- */

typedef struct csv_line {
    char text[LINE_SIZE];
    char *cell[MOST_COLUMNS];
    size_t count;
} csv_line;

/* Cuts a line into cells, in place. */
static bool split(csv_line *line)
{
    char *from = line->text, *to = line->text;
    from[strcspn(from, "\r\n")] = 0;
    line->count = 0;
    for (;;) {
        bool quoted = false;
        if (line->count == MOST_COLUMNS)
            return false;
        line->cell[line->count++] = to;
        for (; *from && (quoted || *from != ','); from++) {
            if (*from != '"')
                *to++ = *from;
            else if (quoted && from[1] == '"')
                *to++ = *from++;
            else
                quoted = !quoted;
        }
        const bool last = *from == 0;
        from++;
        *to++ = 0; /* never beyond the comma that was read */
        if (last)
            return !quoted;
    }
}

static const char *cell_of(const csv_line *header, const csv_line *row,
                           const char *column)
{
    for (size_t i = 0; i < header->count && i < row->count; i++)
        if (strcmp(header->cell[i], column) == 0)
            return row->cell[i];
    return "";
}

static bool has_column(const csv_line *header, const char *column)
{
    return cell_of(header, header, column)[0] != 0;
}

static void add_field(char text[TEXT_SIZE], const char *name,
                      const char *value)
{
    const size_t used = strlen(text);
    snprintf(text + used, TEXT_SIZE - used, "%s%s=%s", used ? " " : "", name,
             value);
}

/* The case_parse text of a row. */
static void row_text(const csv_line *header, const csv_line *row,
                     char text[TEXT_SIZE])
{
    static const struct {
        const char *column, *field;
    } renamed[] = {
        {"batch", "windows"}, /* but of grids */
        {"nq", "queries"},
        {"nk", "keys"},
        {"head_dim", "dim"},
        {"name", NULL},
        {"q_offset", "query_offset"},
        {"scores", NULL},
        {"notes", NULL},
    };
    const char *scores = cell_of(header, row, "scores");
    const bool slides = strncmp(scores, "slid", 4) == 0;
    const bool masks = atoi(cell_of(header, row, "mask_windows")) > 1;
    text[0] = 0;
    if (scores[0])
        add_field(text, "variant", slides ? "sliding" : scores);
    if (strcmp(scores, "cosine") == 0 && !has_column(header, "logit_scale"))
        add_field(text, "logit_scale", "2.3"); /* ln 10, as models start */
    if (!slides && !has_column(header, "bias"))
        add_field(text, "bias", "same");
    if (!has_column(header, "mask") && masks)
        add_field(text, "mask",
                  strstr(cell_of(header, row, "notes"), "random masks")
                      ? "same"
                      : "regions");
    for (size_t i = 0; i < header->count && i < row->count; i++) {
        const char *field = header->cell[i];
        if (strcmp(field, "mask_windows") == 0 && !masks &&
            !has_column(header, "mask"))
            continue;
        for (size_t j = 0; j < sizeof renamed / sizeof *renamed; j++)
            if (field && strcmp(field, renamed[j].column) == 0 &&
                !(j == 0 && has_column(header, "grid")))
                field = renamed[j].field;
        if (field && row->cell[i][0])
            add_field(text, field, row->cell[i]);
    }
}

bool caselist_add_file(caselist *list, const char *path,
                       char reason[CASELIST_REASON_SIZE])
{
    char text[TEXT_SIZE], detail[CASELIST_REASON_SIZE];
    csv_line header = {.count = 0}, row = {.count = 0};
    const size_t before = list->count;
    unsigned number = 0;
    bool good = true;
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(reason, CASELIST_REASON_SIZE, "cannot open %.200s", path);
        return false;
    }
    while (good && fgets(row.text, sizeof row.text, file)) {
        number++;
        snprintf(detail, sizeof detail,
                 "a line that is too long or has "
                 "too many cells or an open quote");
        const bool whole = strchr(row.text, '\n') || feof(file);
        if (whole && strspn(row.text, " \t\r\n") == strlen(row.text))
            continue;
        if (row.text[0] == '#')
            continue;
        good = whole && split(&row);
        if (good && strcmp(row.cell[0], "name") == 0) {
            header = row;
            for (size_t i = 0; i < row.count; i++)
                header.cell[i] = header.text + (row.cell[i] - row.text);
        } else if (good && header.count == 0) {
            snprintf(detail, sizeof detail,
                     "no line before it that names the columns");
            good = false;
        } else if (good) {
            row_text(&header, &row, text);
            good = strlen(text) < sizeof text - 1 &&
                   caselist_add_text(list, row.cell[0][0] ? row.cell[0] : NULL,
                                     text, detail);
        }
    }
    if (!good)
        snprintf(reason, CASELIST_REASON_SIZE, "%.100s, line %u: %.180s", path,
                 number, detail);
    else if (list->count == before)
        snprintf(reason, CASELIST_REASON_SIZE, "no cases in %.200s", path);
    fclose(file);
    return good && list->count > before;
}
