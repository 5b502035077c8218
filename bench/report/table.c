/* SPDX-License-Identifier: Apache-2.0
 * Prints reports. */
#include "report/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_SIZE 23 /* of a case, with its 0 */

/* ---- Lines ---- */

void table_print_line(FILE *to, const char *format, ...)
{
    char text[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (strlen(text) > TABLE_WIDTH) {
        size_t end = TABLE_WIDTH - 3;
        /* not within a character of UTF-8 */
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
            end--;
        strcpy(text + end, "...");
    }
    fprintf(to, "%s\n", text);
}

/* A text that may be long, as lines that start `indent` columns in; `used`
 * columns of the first are printed. */
static void print_wrapped(FILE *to, size_t used, size_t indent,
                          const char *text)
{
    if (used + strlen(text) > TABLE_WIDTH) {
        fprintf(to, "\n%*s", (int)indent, "");
        used = indent;
    }
    while (used + strlen(text) > TABLE_WIDTH) {
        const size_t room = TABLE_WIDTH - used;
        size_t end = room;
        while (end > 0 && text[end] != ' ')
            end--;
        end = end > 0 ? end : room;
        fprintf(to, "%.*s\n%*s", (int)end, text, (int)indent, "");
        text += end + (text[end] == ' ');
        used = indent;
    }
    fprintf(to, "%s\n", text);
}

/* ---- Cells ---- */

/* Decimals that make three digits of it. */
static int decimals(double x) { return x < 9.995 ? 2 : x < 99.95 ? 1 : 0; }

/* Three digits and a unit, in 8 columns. */
static const char *time_text(double seconds, char text[16])
{
    const double us = seconds * 1e6;
    if (!(seconds > 0))
        snprintf(text, 16, "-   ");
    else if (us < 999.5)
        snprintf(text, 16, "%5.*f us", decimals(us), us);
    else if (us < 999.5e3)
        snprintf(text, 16, "%5.*f ms", decimals(us * 1e-3), us * 1e-3);
    else
        snprintf(text, 16, "%5.*f s ", seconds < 99.95 ? 2 : 0, seconds);
    return text;
}

/* "12.3x", or "-" where unknown. */
static const char *factor_text(double factor, char text[16])
{
    if (!(factor > 0))
        snprintf(text, 16, "-");
    else if (factor < 9999.5)
        snprintf(text, 16, "%.*fx", decimals(factor), factor);
    else
        snprintf(text, 16, ">9999x");
    return text;
}

/* Megabytes, or "-" where unknown. */
static const char *memory_text(double megabytes, char text[16])
{
    if (isfinite(megabytes))
        snprintf(text, 16, "%.*f", decimals(megabytes), megabytes);
    else
        snprintf(text, 16, "-");
    return text;
}

/* A long name loses its end, not the mark of what was shrunk. */
static const char *name_text(const report_row *row, size_t size, bool marks,
                             char text[NAME_SIZE])
{
    const size_t base = report_base_length(row->name);
    const char *mark = marks ? row->name + base : "";
    const size_t marked = strlen(mark) < size / 2 ? strlen(mark) : size / 2;
    const bool fits = base <= size - 1 - marked;
    const size_t kept = fits ? base : size - 3 - marked;
    memcpy(text, row->name, kept);
    memcpy(text + kept, fits ? "" : "..", fits ? 0 : 2);
    memcpy(text + kept + (fits ? 0 : 2), mark, marked);
    text[kept + (fits ? 0 : 2) + marked] = 0;
    return text;
}

/* "of copy" or "of fma": the larger fraction is the one that binds. */
static const char *ceiling_text(const report *r, const report_row *row,
                                char text[24])
{
    const bool copies = report_of_copy(r, row) >= report_of_fma(r, row);
    const double percent = 100 * report_of_ceiling(r, row);
    snprintf(text, 24, percent < 99.95 ? "%.1f%% %s" : "%.0f%% %s", percent,
             copies ? "copy" : "fma ");
    return text;
}

/* "matrix", and where the passes of `both` differ "mat/loc". */
static const char *tier_text(const report_row *row, char text[16])
{
    const char *slash = strchr(row->tier, '/');
    if (slash)
        snprintf(text, 16, "%.3s/%.3s", row->tier, slash + 1);
    else
        snprintf(text, 16, "%.7s", row->tier);
    return text;
}

/* ---- Row by row ---- */

void table_print_device(FILE *to, const report *r, size_t device)
{
    const report_device *d = &r->devices[device];
    fprintf(to, "\n");
    table_print_line(to, "[%zu] %s / %s, driver %s", device + 1, d->platform,
                     d->name, d->driver);
    table_print_line(to,
                     "  ceilings: copy %.1f GB/s, multiply-add %.1f GFLOP/s "
                     "(fp32)%s%s",
                     d->copy_bandwidth * 1e-9, d->fma_rate * 1e-9,
                     d->regime[0] ? "; times: " : "", d->regime);
}

void table_print_heading(FILE *to)
{
    table_print_line(to, "  %-22s %-8s %-5s %-7s %8s %10s %7s %6s %8s", "case",
                     "pass", "dtype", "tier", "time", "of ceiling", "error",
                     "MB", "unfused");
}

void table_print_row(FILE *to, const report *r, const report_row *row)
{
    char time[16], name[NAME_SIZE], tier[16], ceiling[24], memory[16];
    char factor[16], unfused[20], head[64];
    snprintf(head, sizeof head, "  %-22s %-8.8s %-5.5s",
             name_text(row, NAME_SIZE, true, name), row->pass, row->dtype);
    if (row->failure[0]) {
        fprintf(to, "%s ", head);
        print_wrapped(to, strlen(head) + 1, 4, row->failure);
    } else {
        /* ~: timed on a part of the windows */
        snprintf(unfused, sizeof unfused, "%s%s",
                 row->unfused > 0 && row->unfused_part < 1 ? "~" : "",
                 factor_text(report_speed_up(r, row), factor));
        table_print_line(to, "%s %-7s %8s %10s %7.1e %6s %8s", head,
                         tier_text(row, tier), time_text(row->seconds, time),
                         ceiling_text(r, row, ceiling), row->error,
                         memory_text(row->memory, memory), unfused);
    }
    if (row->refused[0])
        table_print_line(to, "    without %s", row->refused);
    fflush(to);
}

/* ---- Summaries ---- */

/* ---- Summaries ---- */

/* More do not fit on the screen. */
#define MOST_DEVICES 3

static void print_device(FILE *to, const report *r, size_t d)
{
    const report_device *device = &r->devices[d];
    char name[52];
    snprintf(name, sizeof name, "%.16s / %.32s", device->platform,
             device->name);
    table_print_line(to, "  [%zu] %-51s %7.1f %10.1f", d + 1, name,
                     device->copy_bandwidth * 1e-9, device->fma_rate * 1e-9);
}

typedef double value_of(const report *r, const report_row *row);

/* "31%" or "12.3x"; "-" where there is no row. */
static void print_mean(FILE *to, const report *r, size_t d, report_kind kind,
                       const char *pass, value_of *of)
{
    char text[16] = "-";
    const double mean = report_mean(r, d, kind, pass, of);
    if (of == report_of_ceiling && mean > 0)
        snprintf(text, sizeof text, mean < 0.0995 ? "%.1f%%" : "%.0f%%",
                 100 * mean);
    else
        factor_text(mean, text);
    fprintf(to, " %8s", text);
}

static void print_means(FILE *to, const report *r, size_t d, const char *name,
                        value_of *of)
{
    static const char *const passes[] = {"forward", "backward"};
    fprintf(to, "  %-13s [%zu]", name, d + 1);
    for (report_kind kind = 0; kind < REPORT_KINDS; kind++)
        for (size_t pass = 0; pass < 2; pass++)
            print_mean(to, r, d, kind, passes[pass], of);
    fprintf(to, "\n");
}

void summary_print_devices(FILE *to, const report *r)
{
    const size_t count =
        r->device_count < MOST_DEVICES ? r->device_count : MOST_DEVICES;
    table_print_line(to, "\n%-58s %7s %10s", "Summary", "copy", "mult.-add");
    table_print_line(to, "%-58s %7s %10s", "", "GB/s", "GFLOP/s");
    for (size_t d = 0; d < count; d++)
        print_device(to, r, d);
    if (count < r->device_count)
        table_print_line(to, "  and %zu more devices in the files",
                         r->device_count - count);
    table_print_line(to, "%-19s %17s %17s %17s", "  geometric means",
                     "---- window ----", "----- map ------",
                     "---- sliding ---");
    table_print_line(to, "%19s %8s %8s %8s %8s %8s %8s", "", "forward",
                     "backward", "forward", "backward", "forward", "backward");
    for (size_t d = 0; d < count; d++)
        print_means(to, r, d, "of ceiling", report_of_ceiling);
    for (size_t d = 0; d < count; d++)
        print_means(to, r, d, "over unfused", report_speed_up);
}

/* ---- The end ---- */

/* Appends "3 rows (why)" behind what is there. */
static void count_in(char text[256], size_t count, const char *what,
                     const char *why)
{
    const size_t used = strlen(text);
    if (count > 0)
        snprintf(text + used, 256 - used, "%s%zu %s%s%s", used ? ", " : "",
                 count, what, count == 1 ? "" : "s", why);
}

/* A row's reason without the name of its status, and with the device's number
 * for its name, which may be long. */
static void read_reason(const report *r, const report_row *row,
                        char reason[REPORT_REASON_SIZE])
{
    const char *name = r->devices[row->device].name;
    const char *text = strstr(row->failure, ": ");
    text = text ? text + 2 : row->failure;
    if (name[0] && strncmp(text, name, strlen(name)) == 0)
        snprintf(reason, REPORT_REASON_SIZE, "[%zu]%s", row->device + 1,
                 text + strlen(name));
    else
        snprintf(reason, REPORT_REASON_SIZE, "%s", text);
}

/* In one line, or two where a reason needs one for itself. */
static void print_left_out(FILE *to, const report *r)
{
    char text[256] = "";
    size_t timeless = 0, others = 0;
    char why[REPORT_REASON_SIZE] = "";
    const char *first = "";
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        const char *note = row->unfused_note;
        const bool late = strcmp(note, REPORT_NO_TIME_NOTE) == 0;
        timeless += late;
        others += !late && note[0];
        if (!late && !first[0])
            first = note;
        if (row->outcome == REPORT_UNSUPPORTED && !why[0])
            read_reason(r, row, why);
    }
    count_in(text, report_outcomes(r, REPORT_NO_TIME), "row", " (time)");
    count_in(text, report_outcomes(r, REPORT_NO_MEMORY), "row", " (memory)");
    count_in(text, timeless, "comparison", " (time)");
    count_in(text, report_outcomes(r, REPORT_UNSUPPORTED), "row",
             " (not supported)");
    count_in(text, others, "comparison", "");
    if (!why[0])
        snprintf(why, sizeof why, "%s", first);
    if (text[0] && !why[0]) {
        table_print_line(to, "Left out: %s", text);
    } else if (text[0] && strlen(text) + strlen(why) + 12 <= TABLE_WIDTH) {
        table_print_line(to, "Left out: %s; %s", text, why);
    } else if (text[0]) {
        table_print_line(to, "Left out: %s;", text);
        table_print_line(to, "          %s", why);
    }
}

static void print_files(FILE *to, const summary_files *files)
{
    if (files->json)
        table_print_line(to, "Results: %s", files->json);
    if (files->log && files->log_lines > 0)
        table_print_line(to, "What drivers printed (%zu line%s): %s",
                         files->log_lines, files->log_lines == 1 ? "" : "s",
                         files->log);
}

void summary_print_end(FILE *to, const report *r, const summary_files *files)
{
    const size_t failed = report_outcomes(r, REPORT_FAILED);
    print_left_out(to, r);
    if (failed > 0)
        table_print_line(to, "FAILED: %zu row%s, see the table", failed,
                         failed == 1 ? "" : "s");
    print_files(to, files);
    if (!files->advises)
        return;
    fputs(
        "Next: bench/README.md               what the columns mean, and how "
        "it was counted\n"
        "      bench/run --whole             full sizes: nothing is shrunk, "
        "as long as it takes\n"
        "      build/bench/winattn-tune ...  looks for faster sizes of "
        "kernels; without arguments: how\n"
        "      bench/send                    makes one archive of results of "
        "this machine, to send in\n",
        to);
}
