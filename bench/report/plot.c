/* SPDX-License-Identifier: Apache-2.0
 * Writes a gnuplot script and has it drawn. Bars differ in grey and pattern,
 * so that a black and white print shows which is whose. */
#include "report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/process.h"

#define MOST_PANELS 8
#define BAR_PIXELS 30
#define PANEL_PIXELS 190
#define LEGEND_PIXELS 20
#define NAMES_PIXELS 115 /* of the cases, below the last panel */

typedef struct picture {
    const report *r;
    /* one each for a dtype, and one of its rows */
    const report_row *panels[MOST_PANELS];
    size_t panel_count;
    /* rows that stand for a case and pass, whatever the dtype */
    size_t *cases;
    size_t case_count;
} picture;

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

bool plot_possible(const char *path, char reason[REPORT_REASON_SIZE])
{
    char line[128];
    double seconds;
    if (!ends_with(path, ".png") && !ends_with(path, ".svg")) {
        snprintf(reason, REPORT_REASON_SIZE,
                 "a picture is FILE.png or FILE.svg, not %.200s", path);
        return false;
    }
    if (!process_first_line("gnuplot --version 2>/dev/null", line, sizeof line,
                            &seconds)) {
        snprintf(reason, REPORT_REASON_SIZE,
                 "no picture without the program gnuplot (Debian: "
                 "gnuplot-nox)");
        return false;
    }
    return true;
}

/* ---- What is drawn ---- */

static bool same_panel(const report_row *a, const report_row *b)
{
    return strcmp(a->dtype, b->dtype) == 0;
}

static bool same_name(const report_row *a, const report_row *b)
{
    const size_t length = report_base_length(a->name);
    return length == report_base_length(b->name) &&
           strncmp(a->name, b->name, length) == 0 &&
           strcmp(a->whole, b->whole) == 0 && strcmp(a->pass, b->pass) == 0;
}

static bool collect(const report *r, picture *p)
{
    memset(p, 0, sizeof *p);
    p->r = r;
    p->cases = malloc((r->row_count + 1) * sizeof *p->cases);
    if (!p->cases)
        return false;
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        size_t at = 0;
        while (at < p->panel_count && !same_panel(p->panels[at], row))
            at++;
        if (at == p->panel_count && at < MOST_PANELS)
            p->panels[p->panel_count++] = row;
        for (at = 0; at < p->case_count; at++)
            if (same_name(&r->rows[p->cases[at]], row))
                break;
        if (at == p->case_count)
            p->cases[p->case_count++] = i;
    }
    return true;
}

/* In percent; 0 where nothing was measured. */
static double height(const picture *p, const report_row *like, size_t number,
                     size_t device)
{
    report_row wanted = p->r->rows[p->cases[number]];
    memcpy(wanted.dtype, like->dtype, sizeof wanted.dtype);
    const report_row *row = report_find_row(p->r, &wanted, device);
    return row ? 100 * report_of_ceiling(p->r, row) : 0;
}

static double highest(const picture *p)
{
    double top = 10;
    for (size_t i = 0; i < p->panel_count; i++)
        for (size_t j = 0; j < p->case_count; j++)
            for (size_t d = 0; d < p->r->device_count; d++)
                top = fmax(top, height(p, p->panels[i], j, d));
    return top;
}

/* ---- The script ---- */

static void write_text(FILE *file, const char *text, size_t length)
{
    fputc('\'', file);
    for (size_t i = 0; i < length; i++)
        fputs(text[i] == '\'' ? "''" : (const char[2]){text[i], 0}, file);
    fputc('\'', file);
}

static void write_whole(FILE *file, const char *text)
{
    write_text(file, text, strlen(text));
}

static void write_bars(FILE *file, const picture *p, size_t number)
{
    static const char *const styles[] = {
        "solid 1 border lc rgb 'black' lc rgb '#404040'",
        "solid 1 border lc rgb 'black' lc rgb '#d8d8d8'",
        "pattern 4 border lc rgb 'black' lc rgb 'black'",
        "solid 1 border lc rgb 'black' lc rgb '#909090'",
        "pattern 5 border lc rgb 'black' lc rgb 'black'",
        "pattern 2 border lc rgb 'black' lc rgb 'black'",
        "pattern 1 border lc rgb 'black' lc rgb 'black'",
        "empty border lc rgb 'black' lc rgb 'black'",
    };
    const size_t devices = p->r->device_count;
    const report_row *like = p->panels[number];
    fprintf(file, "$panel%zu << END\n", number);
    for (size_t i = 0; i < p->case_count; i++) {
        fprintf(file, "%zu", i);
        for (size_t d = 0; d < devices; d++)
            fprintf(file, " %.3g", height(p, like, i, d));
        fputs("\n", file);
    }
    fputs("END\nset label 1 ", file);
    write_whole(file, like->dtype);
    fputs(" at graph 0.015, graph 0.9 left front font ',13'\nplot ", file);
    for (size_t d = 0; d < devices; d++) {
        const report_device *device = &p->r->devices[d];
        char name[512];
        const double shift =
            ((double)d - ((double)devices - 1) / 2) / ((double)devices + 1);
        snprintf(name, sizeof name, "%s / %s%s%s%s", device->platform,
                 device->name, device->source[0] ? " (" : "", device->source,
                 device->source[0] ? ")" : "");
        fprintf(file, "%s$panel%zu using ($1%+.4f):%zu with boxes fs %s ",
                d ? ", \\\n  " : "", number, shift, d + 2,
                styles[d % (sizeof styles / sizeof *styles)]);
        if (number == 0) {
            fputs("title ", file);
            write_whole(file, name);
        } else {
            fputs("notitle", file);
        }
        /* the number on each bar */
        fprintf(file,
                ", \\\n  $panel%zu using ($1%+.4f):%zu:($%zu > 0 ? "
                "sprintf($%zu < 9.95 ? '%%.1f' : '%%.0f', $%zu) : '') "
                "with labels center offset 0,0.6 font ',9' notitle",
                number, shift, d + 2, d + 2, d + 2, d + 2);
    }
    fputs("\n", file);
}

static void write_script(FILE *file, const picture *p, const char *path)
{
    const size_t devices = p->r->device_count;
    const double bars = (double)p->case_count * ((double)devices + 1);
    const double width = fmin(fmax(100 + bars * BAR_PIXELS, 800), 8000);
    const double top = 62 + LEGEND_PIXELS * (double)devices;
    const double tall =
        top + PANEL_PIXELS * (double)p->panel_count + NAMES_PIXELS;
    const double most = ceil(highest(p) * 1.12 / 10) * 10;
    fprintf(file, "set terminal %s noenhanced size %.0f,%.0f font 'Sans,11'\n",
            ends_with(path, ".png") ? "pngcairo" : "svg", width, tall);
    fputs("set output ", file);
    write_whole(file, path);
    fprintf(file,
            "\nset multiplot layout %zu,1 margins screen %.4f,%.4f,%.4f,%.4f "
            "spacing screen %.4f\n",
            p->panel_count, 65 / width, 1 - 15 / width, NAMES_PIXELS / tall,
            1 - top / tall, 18 / tall);
    fprintf(file,
            "set label 2 'Windowed attention: fraction of each device''s own "
            "ceiling' at screen %.4f, screen %.4f left front font ',13'\n"
            "set label 3 '(copy bandwidth or fp32 multiply-add rate, the one "
            "that binds)' at screen %.4f, screen %.4f left front font ',10'"
            "\n",
            20 / width, 1 - 18 / tall, 20 / width, 1 - 38 / tall);
    fprintf(file,
            "set key at screen %.4f, screen %.4f left top vertical maxcols 1 "
            "Left reverse samplen 2 spacing 1.1\n",
            20 / width, 1 - 52 / tall);
    fprintf(file, "set boxwidth %.4f\n", 0.92 / ((double)devices + 1));
    fprintf(file, "set xrange [-0.6:%.1f]\nset yrange [0:%.0f]\n",
            (double)p->case_count - 0.4, most);
    fputs("set format y '%g%%'\nset ytics nomirror\nset grid ytics lc rgb "
          "'#c0c0c0' lw 0.5\nset border 3\nset xtics nomirror scale 0\n",
          file);
    for (size_t i = 0; i < p->panel_count; i++) {
        if (i + 1 < p->panel_count) {
            fputs("set xtics format ''\n", file);
        } else {
            fputs("set xtics rotate by 25 right (", file);
            for (size_t j = 0; j < p->case_count; j++) {
                const report_row *row = &p->r->rows[p->cases[j]];
                char label[96];
                const bool forward = strcmp(row->pass, "forward") == 0;
                snprintf(label, sizeof label, "%.*s%s%s",
                         (int)report_base_length(row->name), row->name,
                         forward ? "" : " ", forward ? "" : row->pass);
                fputs(j ? ", " : "", file);
                write_whole(file, label);
                fprintf(file, " %zu", j);
            }
            fputs(")\n", file);
        }
        write_bars(file, p, i);
        fputs("unset label 2\nunset label 3\n", file);
    }
    fputs("unset multiplot\n", file);
}

bool plot_write(const report *r, const char *path,
                char reason[REPORT_REASON_SIZE])
{
    picture p;
    char script[1024], command[2100] = "gnuplot", line[256];
    double seconds;
    bool good = false;
    if (!plot_possible(path, reason))
        return false;
    snprintf(script, sizeof script, "%.1000s.gnuplot", path);
    if (!collect(r, &p) || p.case_count == 0) {
        snprintf(reason, REPORT_REASON_SIZE, "nothing to draw");
        free(p.cases);
        return false;
    }
    FILE *file = fopen(script, "w");
    if (file) {
        write_script(file, &p, path);
        good = !ferror(file);
        good = fclose(file) == 0 && good;
    }
    free(p.cases);
    if (!good) {
        snprintf(reason, REPORT_REASON_SIZE, "cannot write %.300s", script);
        return false;
    }
    line[0] = 0;
    process_append_word(command, sizeof command, script);
    strcat(command, " 2>&1 && echo drawn");
    good = process_first_line(command, line, sizeof line, &seconds);
    if (good)
        remove(script);
    else
        snprintf(reason, REPORT_REASON_SIZE,
                 "gnuplot failed on %.200s: %.200s", script, line);
    return good;
}
