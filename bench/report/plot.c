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
#define BAR_PIXELS 26
#define PANEL_PIXELS 190
#define LEGEND_PIXELS 20
#define NAMES_PIXELS 100 /* of the cases, below each panel */
#define LEFT_PIXELS 130  /* where its first name begins */
#define RIGHT_PIXELS 15
#define LABEL_PIXELS 24 /* above each panel */

/* The cases of a pass that any device has times for. */
typedef struct panel {
    const report_row *like; /* one of them */
    size_t *cases;          /* rows that stand for them */
    size_t case_count;
    double left, upper, wide; /* pixels */
} panel;

typedef struct picture {
    const report *r;
    panel panels[MOST_PANELS];
    size_t panel_count;
    size_t widest;   /* cases of a panel */
    size_t *devices; /* those that have a bar */
    size_t device_count;
} picture;

/* What the cases of --list are, in words. */
static const struct {
    const char *name, *words;
} known_cases[] = {
    {"swin-t-224-s1-b64", "Swin-T stage 1"},
    {"swin-t-224-s3-b64", "Swin-T stage 3"},
    {"swin-b-384-s1-b16", "Swin-B at 384"},
    {"swin-c24-256-b64", "Swin, 24 channels"},
    {"swin-s3-w14-b64", "Swin, 14x14"},
    {"swinv2-t-w8-b64", "Swin V2-T"},
    {"swinv2-b-w16-b32", "Swin V2-B, 16x16"},
    {"swinv2-b-w24-b8", "Swin V2-B, 24x24"},
    {"swinir-light-b32", "SwinIR light"},
    {"swinir-720p", "SwinIR at 720p"},
    {"hat-hab", "HAT"},
    {"hat-ocab", "HAT, overlapping"},
    {"video-swin-t-k400", "Video Swin-T"},
    {"fwa1-bench", "8x8 of dim 64"},
    {"fwa2-bench", "16x16, cosine"},
    {"swba-bench", "sliding, 16,384"},
    {"swba-narrow", "sliding, 4,096"},
    {"self-forcing-train", "Self Forcing"},
    {"self-forcing-decode", "Self Forcing, step"},
    {"magi-like", "MAGI's kind"},
    {"swin-t-map-b64", "Swin-T map"},
    {"swin-t-map-full", "Swin-T map, bias"},
    {"swin-t-map-open", "Swin-T map, open"},
    {"swin-t-map-plain", "Swin-T map, plain"},
    {"swin-30x45-b64", "Swin map, 30x45"},
    {"video-swin-map", "Video Swin map"},
    {"swinv2-t-map-b64", "Swin V2-T map"},
};

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

static panel *find_panel(picture *p, const report_row *row)
{
    for (size_t i = 0; i < p->panel_count; i++)
        if (strcmp(p->panels[i].like->pass, row->pass) == 0)
            return &p->panels[i];
    if (p->panel_count == MOST_PANELS)
        return NULL;
    panel *made = &p->panels[p->panel_count];
    made->cases = malloc(p->r->row_count * sizeof *made->cases);
    if (!made->cases)
        return NULL;
    made->like = row;
    p->panel_count++;
    return made;
}

/* Rows of passes in their order, so that panels of a pass stand together. */
static void collect(const report *r, picture *p)
{
    static const char *const passes[] = {"forward", "backward", "both"};
    memset(p, 0, sizeof *p);
    p->r = r;
    for (size_t pass = 0; pass < sizeof passes / sizeof *passes; pass++)
        for (size_t i = 0; i < r->row_count; i++) {
            const report_row *row = &r->rows[i];
            if (strcmp(row->pass, passes[pass]) != 0 ||
                !report_first_of_case(r, i) || !report_has_times(r, row))
                continue;
            panel *at = find_panel(p, row);
            if (!at)
                continue;
            at->cases[at->case_count++] = i;
            if (at->case_count > p->widest)
                p->widest = at->case_count;
        }
}

static void forget(picture *p)
{
    free(p->devices);
    for (size_t i = 0; i < p->panel_count; i++)
        free(p->panels[i].cases);
}

/* In percent; 0 where nothing was measured. */
static double height(const picture *p, const panel *of, size_t number,
                     size_t device)
{
    const report_row *row =
        report_find_row(p->r, &p->r->rows[of->cases[number]], device);
    return row ? 100 * report_of_ceiling(p->r, row) : 0;
}

static double highest(const picture *p)
{
    double top = 10;
    for (size_t i = 0; i < p->panel_count; i++)
        for (size_t j = 0; j < p->panels[i].case_count; j++)
            for (size_t d = 0; d < p->device_count; d++)
                top = fmax(top, height(p, &p->panels[i], j, p->devices[d]));
    return top;
}

static bool has_bar(const picture *p, size_t device)
{
    for (size_t i = 0; i < p->panel_count; i++)
        for (size_t j = 0; j < p->panels[i].case_count; j++)
            if (height(p, &p->panels[i], j, device) > 0)
                return true;
    return false;
}

/* A device that computes none of the cases stays out of the legend. */
static bool collect_devices(picture *p)
{
    p->devices = malloc(p->r->device_count * sizeof *p->devices);
    for (size_t d = 0; p->devices && d < p->r->device_count; d++)
        if (has_bar(p, d))
            p->devices[p->device_count++] = d;
    return p->device_count > 0;
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
    const size_t devices = p->device_count;
    const panel *of = &p->panels[number];
    fprintf(file, "$panel%zu << END\n", number);
    for (size_t i = 0; i < of->case_count; i++) {
        fprintf(file, "%zu", i);
        for (size_t d = 0; d < devices; d++)
            fprintf(file, " %.3g", height(p, of, i, p->devices[d]));
        fputs("\n", file);
    }
    fputs("END\nset label 1 ", file);
    write_whole(file, of->like->pass);
    fputs(" at graph 0, graph 1.09 left front font ',13'\nplot ", file);
    for (size_t d = 0; d < devices; d++) {
        const report_device *device = &p->r->devices[p->devices[d]];
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

static void case_words(const report_row *row, char *words, size_t size)
{
    const size_t length = report_base_length(row->name);
    for (size_t i = 0; i < sizeof known_cases / sizeof *known_cases; i++)
        if (strlen(known_cases[i].name) == length &&
            memcmp(known_cases[i].name, row->name, length) == 0) {
            snprintf(words, size, "%s, %s", known_cases[i].words, row->dtype);
            return;
        }
    snprintf(words, size, "%.*s, %s", (int)length, row->name, row->dtype);
}

/* Below each panel stand its own cases. */
static void write_names(FILE *file, const picture *p, const panel *of)
{
    char words[160];
    fputs("set xtics rotate by 25 right (", file);
    for (size_t j = 0; j < of->case_count; j++) {
        const report_row *row = &p->r->rows[of->cases[j]];
        fputs(j ? ", " : "", file);
        case_words(row, words, sizeof words);
        write_whole(file, words);
        fprintf(file, " %zu", j);
    }
    fputs(")\n", file);
}

/* A panel is as wide as it has cases, so that all bars are as wide. Those that
 * fit stand side by side. Returns the height of all. */
static double lay_out(picture *p, double width, double top)
{
    const double step = LABEL_PIXELS + PANEL_PIXELS + NAMES_PIXELS;
    const double room = width - LEFT_PIXELS - RIGHT_PIXELS;
    double left = LEFT_PIXELS;
    for (size_t i = 0; i < p->panel_count; i++) {
        panel *of = &p->panels[i];
        of->wide = room * (double)of->case_count / (double)p->widest;
        if (i > 0 && left + of->wide > width - RIGHT_PIXELS + 1) {
            left = LEFT_PIXELS;
            top += step;
        }
        of->left = left;
        of->upper = top + LABEL_PIXELS;
        left += of->wide + LEFT_PIXELS;
    }
    return top + step;
}

static void write_panel(FILE *file, const picture *p, size_t number,
                        double width, double tall)
{
    const panel *of = &p->panels[number];
    fprintf(file,
            "set lmargin at screen %.4f\nset rmargin at screen %.4f\n"
            "set tmargin at screen %.4f\nset bmargin at screen %.4f\n"
            "set xrange [-0.6:%.1f]\n",
            of->left / width, (of->left + of->wide) / width,
            1 - of->upper / tall, 1 - (of->upper + PANEL_PIXELS) / tall,
            (double)of->case_count - 0.4);
    write_names(file, p, of);
    write_bars(file, p, number);
    fputs("unset label 2\nunset label 3\n", file);
}

static void write_script(FILE *file, picture *p, const char *path)
{
    const size_t devices = p->device_count;
    const double bars = (double)p->widest * ((double)devices + 1);
    const double width = fmin(fmax(100 + bars * BAR_PIXELS, 800), 8000);
    const double top = 72 + LEGEND_PIXELS * (double)devices;
    const double tall = lay_out(p, width, top);
    const double most = ceil(highest(p) * 1.12 / 10) * 10;
    fprintf(file, "set terminal %s noenhanced size %.0f,%.0f font 'Sans,11'\n",
            ends_with(path, ".png") ? "pngcairo" : "svg background 'white'",
            width, tall);
    fputs("set output ", file);
    write_whole(file, path);
    fprintf(file,
            "\nset multiplot\n"
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
    fprintf(file, "set yrange [0:%.0f]\n", most);
    fputs("set format y '%g%%'\nset ytics nomirror\nset grid ytics lc rgb "
          "'#c0c0c0' lw 0.5\nset border 3\nset xtics nomirror scale 0\n",
          file);
    for (size_t i = 0; i < p->panel_count; i++)
        write_panel(file, p, i, width, tall);
    /* a line of output says that it came so far */
    fputs("unset multiplot\nset print '-'\nprint 'drawn'\n", file);
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
    collect(r, &p);
    if (!collect_devices(&p)) {
        forget(&p);
        snprintf(reason, REPORT_REASON_SIZE, "nothing to draw");
        return false;
    }
    FILE *file = fopen(script, "w");
    if (file) {
        write_script(file, &p, path);
        good = !ferror(file);
        good = fclose(file) == 0 && good;
    }
    forget(&p);
    if (!good) {
        snprintf(reason, REPORT_REASON_SIZE, "cannot write %.300s", script);
        return false;
    }
    line[0] = 0;
    process_append_word(command, sizeof command, script);
    strcat(command, " 2>&1");
    good = process_first_line(command, line, sizeof line, &seconds);
    if (good)
        remove(script);
    else
        snprintf(reason, REPORT_REASON_SIZE,
                 "gnuplot failed on %.200s: %.200s", script, line);
    return good;
}
