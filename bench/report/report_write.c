/* SPDX-License-Identifier: Apache-2.0
 * Writes a report as JSON. */
#include <math.h>
#include <stdio.h>

#include "report/report.h"

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
