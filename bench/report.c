/* SPDX-License-Identifier: Apache-2.0
 * Forms of a report. */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "winattn.h"

void report_start(report *r)
{
    const time_t now = time(NULL);
    const struct tm *utc = gmtime(&now);
    memset(r, 0, sizeof *r);
    if (utc)
        strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", utc);
}

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

/* ---- Terminal ---- */

/* Three digits and a unit, in 8 columns. */
static const char *time_text(double seconds, char text[16])
{
    const double us = seconds * 1e6;
    if (us < 999.5)
        snprintf(text, 16, "%5.*f us",
                 us < 9.995   ? 2
                 : us < 99.95 ? 1
                              : 0,
                 us);
    else if (us < 999.5e3)
        snprintf(text, 16, "%5.*f ms",
                 us < 9995    ? 2
                 : us < 99950 ? 1
                              : 0,
                 us * 1e-3);
    else
        snprintf(text, 16, "%5.2f s ", seconds);
    return text;
}

void report_print_device(const report_device *device)
{
    printf("\n%s / %s, driver %s\n", device->platform, device->name,
           device->driver);
    printf("  ceilings: copy %.1f GB/s, multiply-add %.1f GFLOP/s (fp32)\n",
           device->copy_bandwidth * 1e-9, device->fma_rate * 1e-9);
}

void report_print_heading(void)
{
    printf("  %-26s %-5s %-6s %8s %8s %8s %9s\n", "case", "dtype", "tier",
           "time", "of copy", "of fma", "error");
}

void report_print_row(const report *r, const report_row *row)
{
    char time[16];
    if (row->failure[0])
        printf("  %-26s %-5s %s\n", row->name, row->dtype, row->failure);
    else
        printf("  %-26s %-5s %-6s %8s %7.1f%% %7.1f%% %9.1e\n", row->name,
               row->dtype, row->tier, time_text(row->seconds, time),
               100 * report_of_copy(r, row), 100 * report_of_fma(r, row),
               row->error);
    fflush(stdout);
}

/* Shrunk workloads stand under the name of the whole one. */
static size_t base_length(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon ? (size_t)(colon - name) : strlen(name);
}

static bool same_case(const report_row *a, const report_row *b)
{
    const size_t length = base_length(a->name);
    return length == base_length(b->name) &&
           strncmp(a->name, b->name, length) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && strcmp(a->pass, b->pass) == 0;
}

static const report_row *find_row(const report *r, const report_row *like,
                                  size_t device)
{
    for (size_t i = 0; i < r->row_count; i++)
        if (r->rows[i].device == device && same_case(&r->rows[i], like))
            return &r->rows[i];
    return NULL;
}

void report_print_comparison(const report *r)
{
    printf("\nComparison: useful GFLOP/s, and the fraction of the device's "
           "own ceiling that binds\n(copy bandwidth or multiply-add rate, of "
           "this run)\n\n");
    for (size_t d = 0; d < r->device_count; d++)
        printf("  [%zu] %s / %s\n", d + 1, r->devices[d].platform,
               r->devices[d].name);
    printf("\n  %-20s %-5s", "case", "dtype");
    for (size_t d = 0; d < r->device_count; d++)
        printf("  [%zu] GFLOP/s  ceiling", d + 1);
    printf("\n");
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        bool first = true;
        for (size_t j = 0; j < i && first; j++)
            first = !same_case(&r->rows[j], row);
        if (!first)
            continue;
        printf("  %-20.*s %-5s", (int)base_length(row->name), row->name,
               row->dtype);
        for (size_t d = 0; d < r->device_count; d++) {
            const report_row *cell = find_row(r, row, d);
            if (cell && !cell->failure[0])
                printf("  %11.1f %7.1f%%",
                       cell->operations / cell->seconds * 1e-9,
                       100 * report_of_ceiling(r, cell));
            else
                printf("  %11s %8s", "-", "-");
        }
        printf("\n");
    }
}

/* ---- Files ---- */

static void write_quoted(FILE *file, const char *text, bool json)
{
    fputc('"', file);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"')
            fputs(json ? "\\\"" : "\"\"", file);
        else if (c == '\\' && json)
            fputs("\\\\", file);
        else if (c < 32)
            fputc(' ', file);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static bool finished(FILE *file)
{
    const bool good = !ferror(file);
    return fclose(file) == 0 && good;
}

bool report_write_csv(const report *r, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "date,platform,device,driver,case,dtype,pass,tier,seconds,"
                  "bytes,operations,of_copy,of_fma,error,failure,text\n");
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        const report_device *device = &r->devices[row->device];
        const char *texts[] = {r->date,        device->platform, device->name,
                               device->driver, row->name,        row->dtype,
                               row->pass,      row->tier};
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
            write_quoted(file, texts[j], false);
            fputc(',', file);
        }
        fprintf(file, "%.9g,%.9g,%.9g,%.6g,%.6g,%.6g,", row->seconds,
                row->bytes, row->operations, report_of_copy(r, row),
                report_of_fma(r, row), row->error);
        write_quoted(file, row->failure, false);
        fputc(',', file);
        write_quoted(file, row->text, false);
        fputc('\n', file);
    }
    return finished(file);
}

static void write_member(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": ", name);
    write_quoted(file, text, true);
    fputs(", ", file);
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

bool report_write_json(const report *r, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "{\"winattn\": \"%d.%d.%d\", ", WINATTN_VERSION_MAJOR,
            WINATTN_VERSION_MINOR, WINATTN_VERSION_PATCH);
    write_member(file, "date", r->date);
    fputs("\n\"devices\": [", file);
    for (size_t i = 0; i < r->device_count; i++) {
        const report_device *device = &r->devices[i];
        fputs(i ? ",\n  {" : "\n  {", file);
        write_member(file, "platform", device->platform);
        write_member(file, "name", device->name);
        write_member(file, "driver", device->driver);
        write_number(file, "copy_bandwidth", device->copy_bandwidth, ", ");
        write_number(file, "fma_rate", device->fma_rate, "}");
    }
    fputs("],\n\"rows\": [", file);
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        fputs(i ? ",\n  {" : "\n  {", file);
        fprintf(file, "\"device\": %zu, ", row->device);
        write_member(file, "case", row->name);
        write_member(file, "text", row->text);
        write_member(file, "dtype", row->dtype);
        write_member(file, "pass", row->pass);
        write_member(file, "tier", row->tier);
        write_member(file, "failure", row->failure);
        write_number(file, "seconds", row->seconds, ", ");
        write_number(file, "bytes", row->bytes, ", ");
        write_number(file, "operations", row->operations, ", ");
        write_number(file, "error", row->error, "}");
    }
    fputs("]}\n", file);
    return finished(file);
}
