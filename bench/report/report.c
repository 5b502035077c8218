/* SPDX-License-Identifier: Apache-2.0
 * Holds a report and derives fractions from it. */
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

void report_start(report *r) { memset(r, 0, sizeof *r); }

void report_free(report *r)
{
    free(r->devices);
    free(r->rows);
    memset(r, 0, sizeof *r);
}

/* One more element of zeros behind `count`; NULL leaves the array as it is. */
static void *append(void **array, size_t *count, size_t size)
{
    char *larger = realloc(*array, (*count + 1) * size);
    if (!larger)
        return NULL;
    *array = larger;
    return memset(larger + size * (*count)++, 0, size);
}

report_device *report_add_device(report *r)
{
    void *array = r->devices;
    report_device *added = append(&array, &r->device_count, sizeof *added);
    r->devices = array;
    return added;
}

report_row *report_add_row(report *r)
{
    void *array = r->rows;
    report_row *added = append(&array, &r->row_count, sizeof *added);
    r->rows = array;
    return added;
}

void report_date(char date[32])
{
    const time_t now = time(NULL);
    const struct tm *utc = gmtime(&now);
    date[0] = 0;
    if (utc)
        strftime(date, 32, "%Y-%m-%dT%H:%M:%SZ", utc);
}

void report_add_word(report_row *row, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_./=:,+";
    const bool quoted = !text[0] || text[strspn(text, plain)] != 0;
    char *command = row->command;
    const size_t size = sizeof row->command;
    wa_append(command, size, "%s%s", command[0] ? " " : "", quoted ? "'" : "");
    for (; *text; text++)
        wa_append(command, size, *text == '\'' ? "'\\''" : "%c", *text);
    wa_append(command, size, "%s", quoted ? "'" : "");
}

/* ---- Fractions ---- */

static double fraction(double amount, double seconds, double rate)
{
    return seconds > 0 && rate > 0 ? amount / seconds / rate : 0;
}

double report_of_copy(const report *r, const report_row *row)
{
    return fraction(row->bytes, row->seconds,
                    r->devices[row->device].copy_bandwidth);
}

double report_of_fma(const report *r, const report_row *row)
{
    return fraction(row->operations, row->seconds,
                    r->devices[row->device].fma_rate);
}

double report_of_ceiling(const report *r, const report_row *row)
{
    return fmax(report_of_copy(r, row), report_of_fma(r, row));
}

double report_speed_up(const report *r, const report_row *row)
{
    (void)r;
    return row->seconds > 0 && row->unfused > 0 ? row->unfused / row->seconds
                                                : 0;
}

/* ---- Cases ---- */

size_t report_base_length(const char *name) { return strcspn(name, ":"); }

/* Own cases of two machines may share a name, hence the text. */
/* They stand on one line of a comparison. */
static bool same_case(const report_row *a, const report_row *b)
{
    const size_t length = report_base_length(a->name);
    return length == report_base_length(b->name) &&
           strncmp(a->name, b->name, length) == 0 &&
           strcmp(a->whole, b->whole) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && strcmp(a->pass, b->pass) == 0;
}

static report_kind kind_of(const report_row *row)
{
    return strstr(row->text, "grid=")             ? REPORT_MAP
           : strstr(row->text, "variant=sliding") ? REPORT_SLIDING
                                                  : REPORT_WINDOW;
}

bool report_first_of_case(const report *r, size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (same_case(&r->rows[i], &r->rows[row]))
            return false;
    return true;
}

static bool has_times(const report *r, const report_row *like)
{
    for (size_t i = 0; i < r->row_count; i++)
        if (r->rows[i].seconds > 0 && same_case(&r->rows[i], like))
            return true;
    return false;
}

size_t report_without_result(const report *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->row_count; i++)
        count += report_first_of_case(r, i) && !has_times(r, &r->rows[i]);
    return count;
}

/* ---- Sums ---- */

double report_mean(const report *r, size_t device, report_kind kind,
                   const char *pass,
                   double (*of)(const report *r, const report_row *row))
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        if (row->device != device || kind_of(row) != kind ||
            strcmp(row->pass, pass) != 0)
            continue;
        const double value = of(r, row);
        if (!(value > 0))
            continue;
        sum += log(value);
        count++;
    }
    return count > 0 ? exp(sum / (double)count) : 0;
}

size_t report_outcomes(const report *r, report_outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < r->row_count; i++)
        count += r->rows[i].outcome == outcome;
    return count;
}

/* ---- JSON ---- */

static bool finished(FILE *file)
{
    const bool good = !ferror(file);
    return fclose(file) == 0 && good;
}

static void write_member(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": \"", name);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fputc('\\', file);
        fputc(c < 32 ? ' ' : c, file);
    }
    fputs("\", ", file);
}

/* JSON knows no NaN. */
static void write_number(FILE *file, const char *name, double x,
                         const char *end)
{
    if (isfinite(x))
        fprintf(file, "\"%s\": %.9g%s", name, x, end);
    else
        fprintf(file, "\"%s\": null%s", name, end);
}

static void write_row(FILE *file, const report_row *row)
{
    fprintf(file, "{\"device\": %zu, ", row->device);
    write_member(file, "case", row->name);
    write_member(file, "whole", row->whole);
    write_member(file, "text", row->text);
    write_member(file, "dtype", row->dtype);
    write_member(file, "pass", row->pass);
    write_member(file, "tier", row->tier);
    write_member(file, "refused", row->refused);
    write_member(file, "failure", row->failure);
    write_member(file, "unfused_note", row->unfused_note);
    write_member(file, "command", row->command);
    write_number(file, "seconds", row->seconds, ", ");
    write_number(file, "bytes", row->bytes, ", ");
    write_number(file, "operations", row->operations, ", ");
    write_number(file, "error", row->error, ", ");
    write_number(file, "unfused", row->unfused, ", ");
    write_number(file, "unfused_part", row->unfused_part, ", ");
    write_number(file, "unfused_error", row->unfused_error, ", ");
    write_number(file, "moves", row->moves, ", ");
    write_number(file, "memory_mb", row->memory, ", ");
    write_number(file, "unfused_memory_mb", row->unfused_memory, "}");
}

bool report_write_json(const report *r, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "{\"format\": %d, \"winattn\": \"%s\",\n", REPORT_FORMAT,
            report_version);
    fputs("\"devices\": [", file);
    for (size_t i = 0; i < r->device_count; i++) {
        const report_device *device = &r->devices[i];
        fputs(i ? ",\n  {" : "\n  {", file);
        write_member(file, "platform", device->platform);
        write_member(file, "name", device->name);
        write_member(file, "driver", device->driver);
        write_member(file, "date", device->date);
        write_member(file, "winattn", device->version);
        write_member(file, "commit", device->commit);
        write_member(file, "regime", device->regime);
        write_number(file, "copy_bandwidth", device->copy_bandwidth, ", ");
        write_number(file, "fma_rate", device->fma_rate, "}");
    }
    fputs("],\n\"rows\": [", file);
    for (size_t i = 0; i < r->row_count; i++) {
        fputs(i ? ",\n  " : "\n  ", file);
        write_row(file, &r->rows[i]);
    }
    fputs("]}\n", file);
    return finished(file);
}
