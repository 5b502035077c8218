/* SPDX-License-Identifier: Apache-2.0
 * Prints summaries. */

#include <string.h>

#include "report/table.h"

/* More do not fit on the screen. */
#define MOST_DEVICES 3

static size_t shown(const report *r)
{
    return r->device_count < MOST_DEVICES ? r->device_count : MOST_DEVICES;
}

/* ---- Devices ---- */

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
        table_factor(mean, text);
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
    const size_t count = shown(r);
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
