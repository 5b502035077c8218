/* SPDX-License-Identifier: Apache-2.0
 * Writes a report as CSV and as JSON. */
#include <math.h>
#include <stdio.h>

#include "report/report.h"

static bool finished(FILE *file)
{
    const bool good = !ferror(file);
    return fclose(file) == 0 && good;
}

/* ---- CSV ---- */

static void write_cell(FILE *file, const char *text, char end)
{
    fputc('"', file);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"')
            fputc('"', file);
        fputc(c < 32 ? ' ' : c, file);
    }
    fputc('"', file);
    fputc(end, file);
}

/* An empty cell stands for what is not known. */
static void write_value(FILE *file, double x, bool known)
{
    if (known && isfinite(x))
        fprintf(file, "%.9g", x);
    fputc(',', file);
}

bool report_write_csv(const report *r, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fputs("date,source,winattn,commit,platform,device,driver,case,dtype,pass,"
          "tier,failure,"
          "seconds,bytes,operations,of_copy,of_fma,error,unfused,"
          "unfused_part,unfused_error,speed_up,memory_mb,unfused_memory_mb,"
          "chain,moves,chain_error,of_chain,cold,warm,unfused_note,chain_note,"
          "refused,text,"
          "command\n",
          file);
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        const report_device *device = &r->devices[row->device];
        const char *texts[] = {
            device->date,     device->source, device->version, device->commit,
            device->platform, device->name,   device->driver,  row->name,
            row->dtype,       row->pass,      row->tier,       row->failure};
        const bool timed = row->seconds > 0, compared = row->unfused > 0;
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            write_cell(file, texts[j], ',');
        write_value(file, row->seconds, timed);
        write_value(file, row->bytes, true);
        write_value(file, row->operations, true);
        write_value(file, report_of_copy(r, row), timed);
        write_value(file, report_of_fma(r, row), timed);
        write_value(file, row->error, timed);
        write_value(file, row->unfused, compared);
        write_value(file, row->unfused_part, compared);
        write_value(file, row->unfused_error, compared);
        write_value(file, report_speed_up(r, row), timed && compared);
        write_value(file, row->memory, true);
        write_value(file, row->unfused_memory, true);
        write_value(file, row->chain, row->chain > 0);
        write_value(file, row->moves, row->moves > 0);
        write_value(file, row->chain_error, row->chain > 0);
        write_value(file, report_of_chain(r, row), timed && row->chain > 0);
        write_value(file, row->cold, row->cold > 0);
        write_value(file, row->warm, row->warm > 0);
        write_cell(file, row->unfused_note, ',');
        write_cell(file, row->chain_note, ',');
        write_cell(file, row->refused, ',');
        write_cell(file, row->text, ',');
        write_cell(file, row->command, '\n');
    }
    return finished(file);
}

/* ---- JSON ---- */

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
    write_member(file, "chain_note", row->chain_note);
    write_member(file, "command", row->command);
    write_number(file, "seconds", row->seconds, ", ");
    write_number(file, "bytes", row->bytes, ", ");
    write_number(file, "operations", row->operations, ", ");
    write_number(file, "error", row->error, ", ");
    write_number(file, "unfused", row->unfused, ", ");
    write_number(file, "unfused_part", row->unfused_part, ", ");
    write_number(file, "unfused_error", row->unfused_error, ", ");
    write_number(file, "chain", row->chain, ", ");
    write_number(file, "moves", row->moves, ", ");
    write_number(file, "chain_error", row->chain_error, ", ");
    write_number(file, "memory_mb", row->memory, ", ");
    write_number(file, "unfused_memory_mb", row->unfused_memory, ", ");
    write_number(file, "cold", row->cold, ", ");
    write_number(file, "warm", row->warm, "}");
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
        write_member(file, "source", device->source);
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
