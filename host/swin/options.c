/* SPDX-License-Identifier: Apache-2.0
 * Reads the command line. */
#include "swin/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIDE 16384u
#define MOST_BATCH 65536u
#define MOST_WINDOW 64u
#define DEFAULT_TOP 5
#define DEFAULT_SECONDS 2.0

const char *const dtype_names[3] = {"fp32", "fp16", "bf16"};
static const char *const tier_names[4] = {"auto", "cpu", "local", "matrix"};
static const char *const filter_names[2] = {"bicubic", "bilinear"};
static const char *const rules_names[5] = {"auto", "torchvision", "timm",
                                           "microsoft", "transformers"};

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
    "  --bench           measures batches and single pictures instead;\n"
    "                    --seconds S: of each measurement, 2;\n"
    "                    --no-unfused: not the same model unfused\n"
    "  --list            lists devices and models\n";

static bool complain(const char *name, const char *value, const char *wanted)
{
    fprintf(stderr, "winattn-swin: %s is %s, not %s\n", name,
            value ? value : "missing", wanted);
    return false;
}

/* ---- Values ---- */

static bool read_whole(const char *text, cl_ulong most, cl_ulong *value,
                       char **end)
{
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *value = strtoull(text, end, 10);
    return errno == 0 && *value <= most;
}

static bool read_number(const char *name, const char *text, cl_uint most,
                        cl_uint *value)
{
    char *end;
    cl_ulong number;
    char wanted[64];
    if (read_whole(text, most, &number, &end) && !*end && number > 0) {
        *value = (cl_uint)number;
        return true;
    }
    snprintf(wanted, sizeof wanted, "a number from 1 to %u", (unsigned)most);
    return complain(name, text, wanted);
}

/* "N", where both becomes N, or only the first one; or "HxW" */
static bool read_size(const char *name, const char *text, bool both,
                      cl_uint size[2])
{
    char *end;
    cl_ulong height, width;
    if (!read_whole(text, MOST_SIDE, &height, &end) || height == 0)
        return complain(name, text, "a size, N or HxW");
    width = both ? height : 0;
    if (*end == 'x' &&
        (!read_whole(end + 1, MOST_SIDE, &width, &end) || width == 0))
        return complain(name, text, "a size, N or HxW");
    if (*end)
        return complain(name, text, "a size, N or HxW");
    size[0] = (cl_uint)height;
    size[1] = (cl_uint)width;
    return true;
}

/* Sizes, N or HxW, one for all stages or one for each. */
static bool read_windows(const char *name, const char *text,
                         cl_uint windows[WINATTN_SWIN_STAGES][2])
{
    static const char wanted[] = "sizes from 1 to 64, N or HxW, one or one "
                                 "for each stage, with commas between";
    const char *at = text;
    cl_uint count = 0;
    for (bool more = true; more; count++) {
        cl_ulong height, width;
        char *end;
        if (count == WINATTN_SWIN_STAGES ||
            !read_whole(at, MOST_WINDOW, &height, &end) || height == 0)
            return complain(name, text, wanted);
        width = height;
        if (*end == 'x' &&
            (!read_whole(end + 1, MOST_WINDOW, &width, &end) || width == 0))
            return complain(name, text, wanted);
        more = *end == ',';
        if (*end && !more)
            return complain(name, text, wanted);
        windows[count][0] = (cl_uint)height;
        windows[count][1] = (cl_uint)width;
        at = end + 1;
    }
    for (cl_uint i = 1; count == 1 && i < WINATTN_SWIN_STAGES; i++)
        memcpy(windows[i], windows[0], sizeof windows[i]);
    return true;
}

static bool read_colours(const char *name, const char *text, float least,
                         cl_float colours[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;
        colours[i] = strtof(text, &end);
        if (end == text || !isfinite(colours[i]) || colours[i] < least ||
            *end != (i < 2 ? ',' : 0))
            return complain(name, text, "three numbers R,G,B in range");
        text = end + 1;
    }
    return true;
}

static bool read_name(const char *name, const char *text,
                      const char *const *names, int count, int *index)
{
    for (*index = 0; *index < count; ++*index)
        if (strcmp(text, names[*index]) == 0)
            return true;
    return complain(name, text, "what --help names");
}

/* ---- Options ---- */

static bool read_shape_option(options *o, const char *name, const char *value,
                              bool *known)
{
    *known = true;
    if (strcmp(name, "--window") == 0)
        return read_windows(name, value, o->window);
    if (strcmp(name, "--position-window") == 0)
        return read_windows(name, value, o->position_window);
    if (strcmp(name, "--image") == 0)
        return read_size(name, value, true, o->image);
    if (strcmp(name, "--patch") == 0)
        return read_number(name, value, MOST_WINDOW, &o->patch);
    if (strcmp(name, "--resize") == 0)
        return read_size(name, value, false, o->resize);
    if (strcmp(name, "--crop") == 0)
        return read_size(name, value, true, o->crop);
    if (strcmp(name, "--mean") == 0)
        return o->has_mean = read_colours(name, value, -1e6F, o->mean);
    if (strcmp(name, "--deviation") == 0)
        return o->has_deviation =
                   read_colours(name, value, 1e-6F, o->deviation);
    *known = false;
    return true;
}

static bool read_run_option(options *o, const char *name, const char *value,
                            bool *known)
{
    int index;
    char *end;
    *known = true;
    if (strcmp(name, "--random") == 0)
        return (read_whole(value, (cl_ulong)-1, &o->seed, &end) && !*end) ||
               complain(name, value, "a whole number");
    if (strcmp(name, "--top") == 0)
        return read_number(name, value, 1000, &o->top);
    if (strcmp(name, "--batch") == 0)
        return read_number(name, value, MOST_BATCH, &o->batch);
    if (strcmp(name, "--seconds") == 0) {
        o->seconds = strtod(value, &end);
        return (end != value && !*end && o->seconds >= 0.01 &&
                o->seconds <= 3600) ||
               complain(name, value, "a number from 0.01 to 3600");
    }
    if (strcmp(name, "--dtype") == 0) {
        const bool good = read_name(name, value, dtype_names, 3, &index);
        o->dtype = (winattn_dtype)index;
        return good;
    }
    if (strcmp(name, "--tier") == 0) {
        const bool good = read_name(name, value, tier_names, 4, &index);
        o->tier = (winattn_tier)index;
        return good;
    }
    if (strcmp(name, "--filter") == 0) {
        o->has_filter = read_name(name, value, filter_names, 2, &index);
        o->filter = (winattn_filter)index;
        return o->has_filter;
    }
    if (strcmp(name, "--rules") == 0) {
        const bool good = read_name(name, value, rules_names, 5, &index);
        o->rules = (winattn_swin_rules)index;
        return good;
    }
    *known = false;
    return true;
}

/* Options that are only said. */
static bool *flag_named(options *o, const char *name)
{
    if (strcmp(name, "--tf32") == 0)
        return &o->allow_tf32;
    if (strcmp(name, "--list") == 0)
        return &o->lists;
    if (strcmp(name, "--describe") == 0)
        return &o->describes;
    if (strcmp(name, "--no-unfused") == 0)
        return &o->no_unfused;
    if (strcmp(name, "--no-config") == 0)
        return &o->no_config;
    if (strcmp(name, "--no-orientation") == 0)
        return &o->as_stored;
    return strcmp(name, "--bench") == 0 ? &o->bench : NULL;
}

static const char **text_named(options *o, const char *name)
{
    if (strcmp(name, "--weights") == 0)
        return &o->weights;
    if (strcmp(name, "--model") == 0)
        return &o->model;
    if (strcmp(name, "--classes") == 0)
        return &o->classes;
    if (strcmp(name, "--device") == 0)
        return &o->device;
    if (strcmp(name, "--logits") == 0)
        return &o->logits;
    return strcmp(name, "--stages") == 0 ? &o->stages : NULL;
}

static bool read_valued(options *o, const char *name, const char *value)
{
    bool known;
    const char **text = text_named(o, name);
    if (!value)
        return complain(name, value, "followed by what it shall be");
    if (text) {
        *text = value;
        return true;
    }
    const bool good = read_shape_option(o, name, value, &known);
    if (known)
        return good;
    if (read_run_option(o, name, value, &known))
        return known || complain("option", name, "one that --help names");
    return false;
}

static bool check(const options *o, bool random)
{
    if (o->lists)
        return true;
    if (random == (o->weights != NULL))
        return complain("weights", random ? "given twice" : "missing",
                        "either --weights FILE or --random SEED");
    if (random && !o->model)
        return complain("--model", NULL, "there, which --random needs");
    if (!o->bench && o->picture_count == 0)
        return complain("picture", NULL, "there; --help says more");
    return true;
}

options_result options_read(int count, char **texts, options *o)
{
    bool random = false;
    *o = (options){.top = DEFAULT_TOP, .seconds = DEFAULT_SECONDS};
    o->pictures = texts + 1; /* moved to the front, one by one */
    for (int i = 1; i < count; i++) {
        char *text = texts[i];
        if (strcmp(text, "--help") == 0) {
            fputs(help, stdout);
            return OPTIONS_HELP;
        }
        if (text[0] != '-' || !text[1]) {
            o->pictures[o->picture_count++] = text;
            continue;
        }
        bool *flag = flag_named(o, text);
        random = random || strcmp(text, "--random") == 0;
        if (flag)
            *flag = true;
        else if (!read_valued(o, text, i + 1 < count ? texts[++i] : NULL))
            return OPTIONS_WRONG;
    }
    return check(o, random) ? OPTIONS_GOOD : OPTIONS_WRONG;
}
