/* SPDX-License-Identifier: Apache-2.0
 * Reads the command line. */
#include "swin/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIDE 16384u
#define MOST_BATCH 65536u
#define MOST_WINDOW 64u
#define SQUARE 1u
#define DEFAULT_TOP 5
#define DEFAULT_SECONDS 2.0

const char *const dtype_names[4] = {"fp32", "fp16", "bf16"};
static const char *const tier_names[] = {"auto", "cpu", "local", "matrix",
                                         NULL};
static const char *const filter_names[] = {"bicubic", "bilinear", NULL};
static const char *const rules_names[] = {"auto",      "torchvision",  "timm",
                                          "microsoft", "transformers", NULL};

static const char help[] =
    "usage: winattn-swin --weights FILE [OPTION...] PICTURE...\n"
    "       winattn-swin --random SEED --model NAME [OPTION...] PICTURE...\n"
    "Classifies pictures (PPM, PNG, JPEG) by a Swin or Swin V2 on an OpenCL\n"
    "device.\n"
    "\n"
    "  --weights FILE    safetensors of torchvision, timm, Microsoft or\n"
    "                    transformers, an index of shards, or their folder\n"
    "  --random SEED     weights at random instead: classes mean nothing\n"
    "  --model NAME      shape of the model, where the file does not say it;\n"
    "                    --list names them\n"
    "  --window N        tokens of a window's side, or HxW, of all stages;\n"
    "                    or of each: 8,8,8,4; --position-window: in the\n"
    "                    pretraining of a Swin V2; --patch N: of a patch\n"
    "  --rules NAME      torchvision, timm, microsoft or transformers: whose\n"
    "                    way to bound and shift windows and to pad maps,\n"
    "                    instead of that of the library the file is from\n"
    "  --image N         size of the pictures that the model was made for, "
    "or\n"
    "                    HxW, which rules ask for\n"
    "  --no-config       config.json beside the file is not read\n"
    "  --classes FILE    names of classes, one to a line\n"
    "  --top N           classes of each picture that are printed, 5\n"
    "  --device NAME     the device that has NAME in its name or its\n"
    "                    platform's, instead of the first GPU or device\n"
    "  --dtype TYPE      fp32, fp16 or bf16; --tf32 lets fp32 be multiplied\n"
    "                    as TF32\n"
    "  --tier TIER       kernels: cpu, local or matrix instead of the best\n"
    "  --batch N         pictures of a call\n"
    "  --stages DIR      writes the map after each stage of each picture to\n"
    "                    DIR/PICTURE-NUMBER_stageSTAGE.npy, fp32 [height,\n"
    "                    width, channels]\n"
    "  --logits FILE     writes the logits, fp32 [pictures, classes]; of "
    "what\n"
    "                    was no picture NaN\n"
    "  --resize N        so many pixels of the shorter side, or HxW: of both\n"
    "  --crop N          what is cut out of the middle, or HxW\n"
    "  --filter NAME     of the resizing: bicubic or bilinear\n"
    "  --no-orientation  leaves pictures as their pixels are stored; else "
    "they\n"
    "                    are turned and mirrored as EXIF's orientation says\n"
    "  --mean R,G,B      is subtracted, of numbers between 0 and 1\n"
    "  --deviation R,G,B is divided by then\n"
    "  --describe        prints which kernels are taken, and why\n"
    "  --bench           measures batches and single pictures instead, and\n"
    "                    what their parts take;\n"
    "                    --seconds S: of each measurement, 2;\n"
    "                    --no-unfused: not the same model unfused\n"
    "  --list            lists devices and models\n";

bool fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("winattn-swin: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    return false;
}

static bool complain(const char *name, const char *value, const char *wanted)
{
    return fail("%s is %s, not %s", name, value ? value : "missing", wanted);
}

/* ---- Values ---- */

/* An option: what it is followed by, and where that goes. */
typedef struct option option;
typedef bool option_reader(const option *o, const char *text, void *to);
struct option {
    const char *name;
    option_reader *read; /* NULL: nothing follows, and a flag is set */
    size_t at, given;    /* of struct options; given: of a flag, or 0 */
    cl_uint most; /* of numbers; of a size SQUARE, or N is its shorter side */
    const char *const *names;
};

static bool read_text(const option *o, const char *text, void *to)
{
    (void)o;
    *(const char **)to = text;
    return true;
}

static bool read_whole(const char **text, cl_ulong most, cl_ulong *value)
{
    char *end;
    errno = 0;
    if (**text < '0' || **text > '9')
        return false;
    *value = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *value <= most;
}

static bool read_seed(const option *o, const char *text, void *to)
{
    const char *at = text;
    return (read_whole(&at, (cl_ulong)-1, to) && !*at) ||
           complain(o->name, text, "a whole number");
}

static bool read_number(const option *o, const char *text, void *to)
{
    cl_ulong number;
    char wanted[64];
    const char *at = text;
    snprintf(wanted, sizeof wanted, "a number from 1 to %u",
             (unsigned)o->most);
    if (!read_whole(&at, o->most, &number) || *at || number == 0)
        return complain(o->name, text, wanted);
    *(cl_uint *)to = (cl_uint)number;
    return true;
}

static bool read_seconds(const option *o, const char *text, void *to)
{
    char *end;
    double *seconds = to;
    *seconds = strtod(text, &end);
    return (end != text && !*end && *seconds >= 0.01 && *seconds <= 3600) ||
           complain(o->name, text, "a number from 0.01 to 3600");
}

/* "N" or "HxW", behind which the text moves; width: of the former. */
static bool read_sides(const char **text, cl_uint most, bool is_square,
                       cl_uint size[2])
{
    cl_ulong height, width = 0;
    if (!read_whole(text, most, &height) || height == 0)
        return false;
    if (**text == 'x') {
        ++*text;
        if (!read_whole(text, most, &width) || width == 0)
            return false;
    } else if (is_square) {
        width = height;
    }
    size[0] = (cl_uint)height;
    size[1] = (cl_uint)width;
    return true;
}

static bool read_size(const option *o, const char *text, void *to)
{
    const char *at = text;
    return (read_sides(&at, MOST_SIDE, o->most == SQUARE, to) && !*at) ||
           complain(o->name, text, "a size, N or HxW");
}

/* Sizes, one for all stages or one for each. */
static bool read_windows(const option *o, const char *text, void *to)
{
    cl_uint(*windows)[2] = to;
    const char *at = text;
    cl_uint count = 0;
    do
        if (count == WINATTN_SWIN_STAGES ||
            !read_sides(&at, MOST_WINDOW, true, windows[count++]))
            return complain(o->name, text,
                            "sizes from 1 to 64, N or HxW, one or one for "
                            "each stage, with commas between");
    while (*at == ',' && *at++);
    for (cl_uint i = 1; count == 1 && i < WINATTN_SWIN_STAGES; i++)
        memcpy(windows[i], windows[0], sizeof windows[i]);
    return !*at || complain(o->name, text, "sizes with commas between");
}

static bool read_colours(const option *o, const char *text, void *to)
{
    cl_float *colours = to;
    const float least = strcmp(o->name, "--mean") == 0 ? -1e6F : 1e-6F;
    for (int i = 0; i < 3; i++) {
        char *end;
        colours[i] = strtof(text, &end);
        if (end == text || !isfinite(colours[i]) || colours[i] < least ||
            *end != (i < 2 ? ',' : 0))
            return complain(o->name, text, "three numbers R,G,B in range");
        text = end + 1;
    }
    return true;
}

/* Of an enum, whose values follow the names. */
static bool read_name(const option *o, const char *text, void *to)
{
    for (unsigned i = 0; o->names[i]; i++)
        if (strcmp(text, o->names[i]) == 0) {
            memcpy(to, &i, sizeof i);
            return true;
        }
    return complain(o->name, text, "what --help names");
}

/* ---- Options ---- */

#define AT(field) offsetof(options, field)
static const option all[] = {
    {"--weights", read_text, AT(weights), 0, 0, NULL},
    {"--random", read_seed, AT(seed), AT(random), 0, NULL},
    {"--model", read_text, AT(model), 0, 0, NULL},
    {"--window", read_windows, AT(window), 0, 0, NULL},
    {"--position-window", read_windows, AT(position_window), 0, 0, NULL},
    {"--patch", read_number, AT(patch), 0, MOST_WINDOW, NULL},
    {"--rules", read_name, AT(rules), 0, 0, rules_names},
    {"--image", read_size, AT(image), 0, SQUARE, NULL},
    {"--no-config", NULL, AT(no_config), 0, 0, NULL},
    {"--classes", read_text, AT(classes), 0, 0, NULL},
    {"--top", read_number, AT(top), 0, 1000, NULL},
    {"--device", read_text, AT(device), 0, 0, NULL},
    {"--dtype", read_name, AT(dtype), 0, 0, dtype_names},
    {"--tf32", NULL, AT(allow_tf32), 0, 0, NULL},
    {"--tier", read_name, AT(tier), 0, 0, tier_names},
    {"--batch", read_number, AT(batch), 0, MOST_BATCH, NULL},
    {"--stages", read_text, AT(stages), 0, 0, NULL},
    {"--logits", read_text, AT(logits), 0, 0, NULL},
    {"--resize", read_size, AT(resize), 0, 0, NULL},
    {"--crop", read_size, AT(crop), 0, SQUARE, NULL},
    {"--filter", read_name, AT(filter), AT(has_filter), 0, filter_names},
    {"--no-orientation", NULL, AT(as_stored), 0, 0, NULL},
    {"--mean", read_colours, AT(mean), AT(has_mean), 0, NULL},
    {"--deviation", read_colours, AT(deviation), AT(has_deviation), 0, NULL},
    {"--describe", NULL, AT(describes), 0, 0, NULL},
    {"--bench", NULL, AT(bench), 0, 0, NULL},
    {"--seconds", read_seconds, AT(seconds), 0, 0, NULL},
    {"--no-unfused", NULL, AT(no_unfused), 0, 0, NULL},
    {"--list", NULL, AT(lists), 0, 0, NULL},
};

static bool check(const options *o)
{
    if (o->lists)
        return true;
    if (o->random == (o->weights != NULL))
        return complain("weights", o->random ? "given twice" : "missing",
                        "either --weights FILE or --random SEED");
    if (o->random && !o->model)
        return complain("--model", NULL, "there, which --random needs");
    if (!o->bench && o->picture_count == 0)
        return complain("picture", NULL, "there; --help says more");
    return true;
}

/* *taken: how many words it is. */
static bool read_option(options *o, char **words, int *taken)
{
    size_t i = 0;
    while (i < sizeof all / sizeof *all && strcmp(all[i].name, words[0]) != 0)
        i++;
    if (i == sizeof all / sizeof *all)
        return complain("option", words[0], "one that --help names");
    const option *one = &all[i];
    *taken = one->read ? 2 : 1;
    if (one->given)
        *(bool *)((char *)o + one->given) = true;
    if (!one->read)
        *(bool *)((char *)o + one->at) = true;
    else if (!words[1])
        return complain(words[0], NULL, "followed by what it shall be");
    return !one->read || one->read(one, words[1], (char *)o + one->at);
}

options_result options_read(int count, char **texts, options *o)
{
    *o = (options){.top = DEFAULT_TOP, .seconds = DEFAULT_SECONDS};
    o->pictures = texts + 1; /* moved to the front, one by one */
    for (int i = 1, taken = 1; i < count; i += taken, taken = 1) {
        if (strcmp(texts[i], "--help") == 0) {
            fputs(help, stdout);
            return OPTIONS_HELP;
        }
        if (texts[i][0] != '-' || !texts[i][1])
            o->pictures[o->picture_count++] = texts[i];
        else if (!read_option(o, texts + i, &taken))
            return OPTIONS_WRONG;
    }
    return check(o) ? OPTIONS_GOOD : OPTIONS_WRONG;
}
