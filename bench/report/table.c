/* SPDX-License-Identifier: Apache-2.0
 * Prints reports. */
#include "report/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEVICES_A_LINE 3

/* Three digits and a unit, in 8 columns. */
static const char *time_text(double seconds, char text[16])
{
    const double us = seconds * 1e6;
    if (!(seconds > 0))
        snprintf(text, 16, "-   ");
    else if (us < 999.5)
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
        snprintf(text, 16, "%5.*f s ", seconds < 99.95 ? 2 : 0, seconds);
    return text;
}

/* "12.3x", or "-" where unknown. */
static const char *factor_text(double factor, char text[16])
{
    if (factor > 0)
        snprintf(text, 16, "%.*fx",
                 factor < 9.995   ? 2
                 : factor < 99.95 ? 1
                                  : 0,
                 factor);
    else
        snprintf(text, 16, "-");
    return text;
}

/* Megabytes, or "-" where unknown. */
static const char *memory_text(double megabytes, char text[16])
{
    if (isfinite(megabytes))
        snprintf(text, 16, "%.*f",
                 megabytes < 9.995   ? 2
                 : megabytes < 99.95 ? 1
                                     : 0,
                 megabytes);
    else
        snprintf(text, 16, "-");
    return text;
}

void table_print_device(FILE *to, const report_device *device)
{
    fprintf(to, "\n%s / %s, driver %s\n", device->platform, device->name,
            device->driver);
    fprintf(to,
            "  ceilings: copy %.1f GB/s, multiply-add %.1f GFLOP/s (fp32)\n",
            device->copy_bandwidth * 1e-9, device->fma_rate * 1e-9);
}

void table_print_heading(FILE *to)
{
    fprintf(to,
            "  %-26s %-8s %-5s %-12s %8s %7s %7s %8s %8s  %9s %8s %10s  %8s "
            "%8s\n",
            "case", "pass", "dtype", "tier", "time", "of copy", "of fma",
            "error", "MB", "unfused", "speed-up", "unfused MB", "chain",
            "of chain");
}

void table_print_row(FILE *to, const report *r, const report_row *row)
{
    char time[16], unfused[16], factor[16], memory[16], unfused_memory[16];
    char chain[16], of_chain[16];
    fprintf(to, "  %-26s %-8s %-5s ", row->name, row->pass, row->dtype);
    if (row->failure[0])
        fprintf(to, "%s\n", row->failure);
    else
        fprintf(to,
                "%-12s %8s %6.1f%% %6.1f%% %8.1e %8s %c%9s %8s %10s  "
                "%8s %8s\n",
                row->tier, time_text(row->seconds, time),
                100 * report_of_copy(r, row), 100 * report_of_fma(r, row),
                row->error, memory_text(row->memory, memory),
                row->unfused > 0 && row->unfused_part < 1 ? '~' : ' ',
                time_text(row->unfused, unfused),
                factor_text(report_speed_up(row), factor),
                memory_text(row->unfused_memory, unfused_memory),
                time_text(row->chain, chain),
                factor_text(report_of_chain(row), of_chain));
    if (row->cold > 0 && row->warm > 0)
        fprintf(to, "    first result after %.2f s cold, %.2f s warm\n",
                row->cold, row->warm);
    fflush(to);
}

static const char *note_of(const report_row *row, bool of_chain)
{
    return of_chain ? row->chain_note : row->unfused_note;
}

/* Each note once, for the first row that has it. */
static void print_notes(FILE *to, const report *r, size_t device,
                        bool of_chain)
{
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        const char *note = note_of(row, of_chain);
        bool new = row->device == device &&note[0];
        for (size_t j = 0; j < i && new; j++)
            new = r->rows[j].device != device ||
                  strcmp(note_of(&r->rows[j], of_chain), note) != 0;
        if (new)
            fprintf(to, "  no %s time for %.*s%s: %s\n",
                    of_chain ? "chain" : "unfused",
                    (int)report_base_length(row->name), row->name,
                    r->row_count > 1 ? " and so on" : "", note);
    }
}

void table_print_notes(FILE *to, const report *r, size_t device)
{
    print_notes(to, r, device, false);
    print_notes(to, r, device, true);
}

void table_print_legend(FILE *to)
{
    fputs(
        "  backward: all gradients, o and lse given; both: forward, then "
        "backward\n"
        "  of copy, of fma: of the device's own copy bandwidth and fp32 "
        "multiply-add rate;\n"
        "    counted are q, k, v, o and two products forward, q, k, v, d_o, "
        "dq, dk, dv and\n    five products backward\n"
        "  error: against double precision, on sampled windows; of gradients "
        "as the tests\n    judge them\n"
        "  unfused: CLBlast product, softmax, CLBlast product, and backward "
        "four products,\n    dS and its sum over windows, P kept if that is "
        "one chunk; fp16 and bf16: the\n    fp32 products on copies "
        "converted outside the timing; sliding: all of S, with\n    the "
        "unseen hidden; ~: timed on a part of the windows\n"
        "  chain, of chain: cases on grids as done around a library that "
        "knows windows only:\n    a kernel that pads, rolls and cuts q, k, v "
        "(and d_o) into windows, winattn on\n    these with bias and regions "
        "expanded before, a kernel that takes o (dq, dk, dv)\n    back; the "
        "gradients of table and padding are left undone; `of chain` is time\n"
        "    over that, below 1 where the case in place is faster; unfused "
        "times are left\n    out there\n"
        "  MB: device memory besides inputs, outputs and d_o: winattn's "
        "workspace, and lse\n    where a backward pass takes it; the "
        "unfused way's S (backward P and dS), norms\n    and partial sums, "
        "all windows at once, in fp32\n"
        "  first result: from program start, caches empty (cold) and filled "
        "(warm)\n",
        to);
}

/* ---- Comparison ---- */

static void print_devices(FILE *to, const report *r)
{
    for (size_t d = 0; d < r->device_count; d++) {
        const report_device *device = &r->devices[d];
        fprintf(to, "  [%zu] %s / %s", d + 1, device->platform, device->name);
        if (device->source[0])
            fprintf(to, ", %s of %s", device->source, device->date);
        fprintf(to, "\n      copy %.1f GB/s, multiply-add %.1f GFLOP/s",
                device->copy_bandwidth * 1e-9, device->fma_rate * 1e-9);
        /* of the first case that has it */
        for (size_t i = 0; i < r->row_count; i++) {
            const report_row *row = &r->rows[i];
            if (row->device != d || !(row->cold > 0) || !(row->warm > 0))
                continue;
            fprintf(to, ", first result after %.2f s cold, %.2f s warm",
                    row->cold, row->warm);
            break;
        }
        fprintf(to, "\n");
    }
}

/* The columns of the devices from `first` up to `end`. */
static void print_columns(FILE *to, const report *r, size_t first, size_t end)
{
    fprintf(to, "\n  %-20s %-8s %-5s", "case", "pass", "dtype");
    for (size_t d = first; d < end; d++)
        fprintf(to, "  [%zu] GFLOP/s ceiling speed-up of chain", d + 1);
    fprintf(to, "\n");
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        char factor[16], of_chain[16];
        if (!report_first_of_case(r, i))
            continue;
        fprintf(to, "  %-20.*s %-8s %-5s", (int)report_base_length(row->name),
                row->name, row->pass, row->dtype);
        for (size_t d = first; d < end; d++) {
            const report_row *cell = report_find_row(r, row, d);
            if (cell && cell->seconds > 0)
                fprintf(to, "  %11.1f %6.1f%% %8s %8s",
                        cell->operations / cell->seconds * 1e-9,
                        100 * report_of_ceiling(r, cell),
                        factor_text(report_speed_up(cell), factor),
                        factor_text(report_of_chain(cell), of_chain));
            else
                fprintf(to, "  %11s %7s %8s %8s", "-", "-", "-", "-");
        }
        fprintf(to, "\n");
    }
}

void table_print_comparison(FILE *to, const report *r)
{
    fprintf(to,
            "\nComparison: useful GFLOP/s, the fraction of the device's own "
            "ceiling that binds\n(copy bandwidth or multiply-add rate, of "
            "the same run), speed-up over unfused,\nand time over that of the "
            "chain around windows\n\n");
    print_devices(to, r);
    for (size_t d = 0; d < r->device_count; d += DEVICES_A_LINE)
        print_columns(to, r, d,
                      d + DEVICES_A_LINE < r->device_count ? d + DEVICES_A_LINE
                                                           : r->device_count);
}
