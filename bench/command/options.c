/* SPDX-License-Identifier: Apache-2.0
 * Reads the command line. */
#include "command/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Those that a default run measures. Most of its time goes into compiling
 * kernels, on a CPU two seconds for each row: gradients are measured of one
 * case of each variant and of one on a grid, bf16 of the first case. */
static const struct {
    const char *name;
    bool shows_gradients, shows_bf16;
} common_cases[] = {
    {"swin-t-224-s1-b64", true, true},   {"swin-t-map-b64", true, false},
    {"swba-narrow", true, false},        {"swinv2-t-w8-b64", true, false},
    {"swinv2-t-map-b64", false, false},  {"swin-30x45-b64", false, false},
    {"swin-b-384-s1-b16", false, false}, {"swinv2-b-w16-b32", false, false},
    {"swinir-720p", false, false},       {"hat-ocab", false, false},
    {"fwa1-bench", false, false},        {"video-swin-map", false, false},
};
const char *const option_dtypes[3] = {"fp32", "fp16", "bf16"};
const char *const option_tiers[4] = {"auto", "cpu", "local", "matrix"};
const char *const option_passes[BENCH_PASSES] = {"forward", "backward",
                                                 "both"};

static const char help[] =
    "winattn-bench [OPTION ...] compares the OpenCL devices of a machine\n"
    "\n"
    "  --list               shows devices and cases\n"
    "  --device TEXT        devices whose \"platform / name\" holds TEXT\n"
    "  --case NAME          a case of the list, or `all`\n"
    "  --case 'FIELD=VALUE ...'  a case of your own, for instance\n"
    "                       'windows=64 heads=3 queries=49 dim=32'\n"
    "                       or with a grid:\n"
    "                       'grid=2 size=56x56 window=7x7 shift=3x3 "
    "batch=64\n"
    "                       heads=3 dim=32 layout=packed mask=shift "
    "bias=table_same'\n"
    "  --cases FILE         the cases on the lines of a file\n"
    "  --dtype TYPE         fp32, fp16 or bf16; without --case and "
    "--cases\n"
    "                       bf16 is measured of one case unless asked "
    "for\n"
    "  --pass PASS,...      forward, backward (all gradients, o and lse "
    "given)\n"
    "                       or both, one after the other; by default "
    "forward,\n"
    "                       and without --case and --cases backward, too, "
    "of a few\n"
    "                       cases\n"
    "  --tier TIER          cpu, local or matrix (fp16 and bf16; fp32 "
    "forward\n"
    "                       with --tf32) instead of the plan's choice\n"
    "  --tf32               lets matrix units multiply fp32 as TF32, like "
    "tf32=1\n"
    "                       in a case\n"
    "  --seconds N          of the whole run, 160 by default; large\n"
    "                       cases are shrunk to fit, and named so\n"
    "  --whole              shrinks nothing\n"
    "  --no-unfused         no comparison with CLBlast\n"
    "  --regime WHICH       how rows are timed: batches (by default, one\n"
    "                       after the other) or burst (of 20 calls, or\n"
    "                       as many as take 10 ms, after a pause)\n"
    "  --replay             prints the command that repeats each row\n"
    "  --log FILE           takes what drivers and compilers print, "
    "which\n"
    "                       else stands between the rows\n"
    "  --json FILE          takes the results, for bench/merge\n"
    "\n"
    "--device, --case, --cases, --dtype, --pass may stand several "
    "times.\n"
    "Exits with 1 if a call failed or gave a wrong result, or if a case "
    "that is\n"
    "named has no result on any device; with 2 if an option makes no "
    "sense. What is\n"
    "not supported or does not fit into memory or time is no failure.\n";

bool options_choose(const char *const *names, size_t count, const char *name,
                    int *index)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) {
            *index = (int)i;
            return true;
        }
    fprintf(stderr, "unknown: %s\n", name);
    return false;
}

static bool keep(const char **texts, size_t *count, const char *text)
{
    if (*count == MOST_TEXTS) {
        fprintf(stderr, "more than %d are too many: %s\n", MOST_TEXTS, text);
        return false;
    }
    texts[(*count)++] = text;
    return true;
}

static bool add_cases(options *o, const char *value, bool is_file)
{
    char reason[CASELIST_REASON_SIZE];
    const bool good = is_file ? caselist_add_file(&o->cases, value, reason)
                              : caselist_add(&o->cases, value, reason);
    if (!good)
        fprintf(stderr, "%s\n", reason);
    return good;
}

/* Names between commas. */
static bool choose_passes(const char *list, options *o)
{
    for (;;) {
        char name[16];
        int index;
        const size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        if (!options_choose(option_passes, COUNT(option_passes), name, &index))
            return false;
        o->pass[index] = o->any_pass = true;
        if (!list[length])
            return true;
        list += length + 1;
    }
}

bool options_number(const char *name, const char *value, double least,
                    double most, double *number)
{
    char *end;
    *number = strtod(value, &end);
    /* strtod also knows hexadecimal numbers, infinity and NaN, and passes
     * over blanks */
    if (end != value && *end == 0 &&
        !value[strspn(value, "+-.0123456789eE")] && *number >= least &&
        *number <= most)
        return true;
    fprintf(stderr, "%s wants a number from %g to %g, not \"%s\"\n", name,
            least, most, value);
    return false;
}

/* Options without a value. */
static bool read_flag(const char *name, options *o)
{
    const struct {
        const char *name;
        bool *flag;
        bool value;
    } flags[] = {
        {"--list", &o->lists, true},          {"--whole", &o->shrinks, false},
        {"--no-unfused", &o->unfused, false}, {"--tf32", &o->tf32, true},
        {"--replay", &o->replay, true},
    };
    for (size_t i = 0; i < COUNT(flags); i++)
        if (strcmp(flags[i].name, name) == 0) {
            *flags[i].flag = flags[i].value;
            return true;
        }
    return false;
}

static bool read_value(const char *name, const char *value, options *o)
{
    int index;
    if (strcmp(name, "--device") == 0)
        return keep(o->device, &o->device_count, value);
    if (strcmp(name, "--case") == 0)
        return add_cases(o, value, false);
    if (strcmp(name, "--cases") == 0)
        return add_cases(o, value, true);
    if (strcmp(name, "--pass") == 0)
        return choose_passes(value, o);
    if (strcmp(name, "--tier") == 0)
        return options_choose(option_tiers, COUNT(option_tiers), value,
                              &o->tier);
    if (strcmp(name, "--seconds") == 0)
        return options_number(name, value, LEAST_SECONDS, MOST_SECONDS,
                              &o->seconds);
    if (strcmp(name, "--dtype") == 0) {
        if (!options_choose(option_dtypes, COUNT(option_dtypes), value,
                            &index))
            return false;
        o->dtype[index] = o->any_dtype = true;
        return true;
    }
    if (strcmp(name, "--regime") == 0) {
        if (!options_choose(bench_regimes, COUNT(bench_regimes), value,
                            &index))
            return false;
        o->regime = (bench_regime)index;
        return true;
    }
    const char **file = strcmp(name, "--json") == 0  ? &o->json
                        : strcmp(name, "--log") == 0 ? &o->log
                                                     : NULL;
    if (file)
        *file = value;
    else
        fputs(help, stderr);
    return file != NULL;
}

options_result options_read(int count, char **texts, options *o)
{
    memset(o, 0, sizeof *o);
    o->seconds = 160;
    o->shrinks = true;
    o->unfused = true;
    for (int i = 1; i < count; i++) {
        const char *name = texts[i];
        if (strcmp(name, "--help") == 0) {
            fputs(help, stdout);
            return OPTIONS_HELP;
        }
        if (read_flag(name, o))
            continue;
        if (i + 1 == count) {
            fputs(help, stderr);
            return OPTIONS_WRONG;
        }
        if (!read_value(name, texts[++i], o))
            return OPTIONS_WRONG;
    }
    o->names_cases = o->cases.count > 0;
    for (size_t i = 0; !o->names_cases && i < COUNT(common_cases); i++) {
        if (!add_cases(o, common_cases[i].name, false))
            return OPTIONS_WRONG;
        bench_case *added = &o->cases.all[i];
        added->shows_gradients = common_cases[i].shows_gradients;
        added->leaves_out_bf16 = !common_cases[i].shows_bf16;
    }
    return OPTIONS_GOOD;
}

void options_free(options *o) { caselist_free(&o->cases); }

bool options_take_device(const options *o, const char *name)
{
    for (size_t i = 0; i < o->device_count; i++)
        if (strstr(name, o->device[i]))
            return true;
    return o->device_count == 0;
}

static bool takes_pass(const options *o, const bench_case *b, bench_pass pass,
                       int dtype)
{
    if (o->any_pass)
        return o->pass[pass];
    if (b->names_pass)
        return pass == (b->backward ? BENCH_BACKWARD : BENCH_FORWARD);
    return pass == BENCH_FORWARD ||
           (pass == BENCH_BACKWARD && b->shows_gradients &&
            (o->any_dtype || dtype != WINATTN_BF16));
}

bool options_take_row(const options *o, const bench_case *b, bench_pass pass,
                      int dtype)
{
    const bool takes_dtype =
        o->any_dtype     ? o->dtype[dtype]
        : b->names_dtype ? b->c.dtype == dtype
                         : !b->leaves_out_bf16 || dtype != WINATTN_BF16;
    return takes_dtype && takes_pass(o, b, pass, dtype);
}

int options_tier(const options *o, const bench_case *b)
{
    return o->tier == WINATTN_TIER_AUTO && b->names_tier ? b->c.tier : o->tier;
}

bool options_tf32(const options *o, const bench_case *b, int dtype)
{
    return dtype == WINATTN_FP32 && (o->tf32 || b->c.tf32 != 0);
}
