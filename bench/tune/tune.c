/* SPDX-License-Identifier: Apache-2.0
 * winattn-tune measures shapes of the kernels that plans take on a device, and
 * writes those that beat the plan's own choice as rows of the tuning table. */
#define _POSIX_C_SOURCE 200112L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/options.h"
#include "kit/run.h"
#include "measure/screen.h"
#include "session/session.h"
#include "tune/attention.h"
#include "tune/search.h"
#ifdef BENCH_HAS_MODELS
#include "tune/layer.h"
#endif

#ifdef _WIN32
#define setenv(name, value, replace) _putenv_s(name, value)
#endif

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST_DEVICES 64
/* What part of a case's time the plan's own choice gets, and the comparison
 * with it. */
#define OWN_PART 0.05
#define COMPARED_PART 0.15
/* Results of a candidate may be off by what is promised for gradients, or
 * somewhat more than those of the plan's own choice. */
#define WORSE_ERROR 1.5
/* Percent; no kernel is a thousand times as fast as the plan's choice. */
#define MOST_GAIN 1e5
/* What nobody would call a rounding error. */
#define ABSURD_ERROR 0.05

typedef struct settings {
    const char *device; /* part of "platform / device"; NULL: the first GPU */
    double seconds;     /* of the whole run */
    double gain;        /* that a row must have, as a part of 1 */
    bench_pass pass;
    int tier;
    int dtype; /* of cases that name none */
    bool only_own;
    const char *output;
    const char *cases[MOST_TEXTS], *shapes[MOST_TEXTS];
    size_t case_count, shape_count; /* no shape: a search */
} settings;

static void usage(FILE *to)
{
    fputs(
        "winattn-tune [OPTION ...] CASE ... looks for better shapes of the\n"
        "kernels that a plan takes, and writes them as rows of the tuning\n"
        "table, which the environment variable WINATTN_TUNING=FILE or\n"
        "winattn_load_tuning make plans take\n"
        "\n"
        "  CASE                a name of `winattn-bench --list`, or such as\n"
        "                      'windows=4096 heads=3 queries=49 dim=32 "
        "dtype=fp16\n"
        "                      bias=same mask=regions mask_windows=64'\n"
        "                      or, of a linear layer, such as "
        "3136x96x288:bias:gelu\n"
        "                      or layers-swin-t-b64, those of Swin-T at batch "
        "64;\n"
        "                      each may end in :tf32\n"
        "  --device TEXT       the device whose \"platform / name\" holds "
        "TEXT;\n"
        "                      else the first GPU, else the first of all\n"
        "  --seconds N         of the whole run, 60 by default; more find "
        "more\n"
        "  --pass PASS         forward (the default) or backward\n"
        "  --tier TIER         local or matrix (of linear layers also cpu) "
        "instead\n"
        "                      of the plan's choice\n"
        "  --dtype TYPE        fp32 (the default), fp16 or bf16, where CASE\n"
        "                      does not say\n"
        "  --output FILE       rows are appended to FILE, else printed last\n"
        "  --gain PERCENT      that a row must be faster, 3 by default\n"
        "  --own               only times the plan's own choice, with the "
        "rows\n"
        "                      of WINATTN_TUNING\n"
        "\n"
        "SHAPEs, numbers with colons between them, are measured instead of a\n"
        "search, for all CASEs: ten numbers for tier local, seven for\n"
        "tier matrix (15 for gradients in two kernels), in the order of\n"
        "host/plan/shapes.h; of linear layers those of the tier's rows.\n",
        to);
}

/* A case, and what is to be done with it. */
typedef struct job {
    const settings *o;
    const bench_device *device;
    const wa_device *capabilities; /* of the device, as planners see them */
    const char *text;
    double seconds;
} job;

/* ---- The command line ---- */

static bool is_shape(const char *text)
{
    return strchr(text, ':') && strspn(text, "0123456789:") == strlen(text);
}

static bool read_option(const char *name, const char *value, settings *o)
{
    int index;
    if (strcmp(name, "--device") == 0) {
        o->device = value;
        return true;
    }
    if (strcmp(name, "--output") == 0) {
        o->output = value;
        return true;
    }
    if (strcmp(name, "--seconds") == 0)
        return options_number(name, value, LEAST_SECONDS, MOST_SECONDS,
                              &o->seconds);
    if (strcmp(name, "--gain") == 0) {
        const bool good =
            options_number(name, value, -100, MOST_GAIN, &o->gain);
        o->gain /= 100;
        return good;
    }
    if (strcmp(name, "--tier") == 0)
        return options_choose(option_tiers, COUNT(option_tiers), value,
                              &o->tier);
    if (strcmp(name, "--dtype") == 0)
        return options_choose(option_dtypes, COUNT(option_dtypes), value,
                              &o->dtype);
    if (strcmp(name, "--pass") == 0) {
        const bool good =
            options_choose(option_passes, BENCH_BOTH, value, &index);
        o->pass = (bench_pass)index;
        return good;
    }
    usage(stderr);
    return false;
}

static options_result read_settings(int count, char **texts, settings *o)
{
    memset(o, 0, sizeof *o);
    o->seconds = 60;
    o->gain = 0.03;
    for (int i = 1; i < count; i++) {
        const char *text = texts[i];
        if (strcmp(text, "--help") == 0) {
            usage(stdout);
            return OPTIONS_HELP;
        }
        if (strcmp(text, "--own") == 0) {
            o->only_own = true;
        } else if (text[0] == '-') {
            if (i + 1 == count) {
                fprintf(stderr, "%s wants a value\n", text);
                return OPTIONS_WRONG;
            }
            if (!read_option(text, texts[++i], o))
                return OPTIONS_WRONG;
        } else if (o->case_count + o->shape_count == MOST_TEXTS) {
            fprintf(stderr, "more than %d are too many: %s\n", MOST_TEXTS,
                    text);
            return OPTIONS_WRONG;
        } else if (is_shape(text)) {
            o->shapes[o->shape_count++] = text;
        } else {
            o->cases[o->case_count++] = text;
        }
    }
    if (o->case_count > 0)
        return OPTIONS_GOOD;
    usage(stderr);
    return OPTIONS_WRONG;
}

static bool read_case(const settings *o, const char *text, bench_case *b)
{
    char reason[CASELIST_REASON_SIZE];
    caselist list = {NULL, 0, 0};
    const bool good = caselist_add(&list, text, reason);
    if (!good || list.count != 1) {
        fprintf(stderr, "%s\n", good ? "one case at a time" : reason);
        caselist_free(&list);
        return false;
    }
    *b = list.all[0];
    if (!b->names_dtype)
        b->c.dtype = o->dtype;
    if (!b->names_tier)
        b->c.tier = o->tier;
    caselist_free(&list);
    return true;
}

/* ---- One subject ---- */

/* The winner's row, if it is worth one. */
static bool report(const job *j, const search *s, double seconds)
{
    const candidate *best = search_best(s);
    char row[WA_ROW_TEXT_SIZE];
    verdict_times times;
    if (!best) {
        printf("  no other shape works\n");
        return true;
    }
    if (!search_compare(s, best, COMPARED_PART * seconds, &times))
        return true;
    s->of->print_row(s->of, best->shape, row, sizeof row);
    const verdict_job verdict = {.device = j->device,
                                 .output = j->o->output,
                                 .gain = j->o->gain,
                                 .what = s->of->what};
    return verdict_report(stdout, &verdict, &times, row);
}

static void try_shapes(const job *j, search *s)
{
    for (size_t i = 0; i < j->o->shape_count; i++) {
        const char *shape = j->o->shapes[i];
        if (s->of->is_shape(s->of, shape))
            candidates_add(&s->found, shape, NAN);
        else
            printf("  no shape of the kernel: %s\n", shape);
    }
    search_all(s);
}

/* What a plan takes by itself: its error, and its time for a while. */
static bool time_own(const subject *s, double seconds, double *error)
{
    void *own = s->open(s);
    *error = own ? s->error(s, own) : (double)NAN;
    const bool right = *error < ABSURD_ERROR;
    const double time =
        right ? measure_calls(s->device, s->enqueue, own, seconds) : 0;
    if (!own)
        printf("  %s\n", winattn_last_reason());
    else if (!right)
        printf("  the plan's own choice is wrong (error %.1e): please report "
               "it\n",
               *error);
    else if (!(time > 0))
        printf("  a call failed: %s\n", winattn_last_reason());
    s->close(own);
    if (!(time > 0))
        return false;
    search_print_time(s, "plan's own choice", time, *error);
    printf("\n");
    return true;
}

static bool tune(const job *j, const subject *s, double seconds)
{
    const double start = now_seconds();
    double own_error;
    if (!time_own(s, OWN_PART * seconds, &own_error))
        return false;
    if (j->o->only_own)
        return true;
    search found = {.of = s,
                    .allowed_error =
                        fmax(2 * s->promised, WORSE_ERROR * own_error)};
    if (j->o->shape_count > 0) {
        try_shapes(j, &found);
    } else {
        s->collect(s, &found.found);
        printf("  %zu shapes\n", found.found.count);
        search_widely(&found,
                      (1 - COMPARED_PART) * seconds - (now_seconds() - start));
    }
    const bool good = report(j, &found, seconds);
    candidates_free(&found.found);
    return good;
}

static bool tune_case(const job *j)
{
    bench_case b;
    attention a;
    char what[SUBJECT_WHAT_SIZE];
    if (!read_case(j->o, j->text, &b))
        return false;
    const bench_pass pass = !b.names_pass ? j->o->pass
                            : b.backward  ? BENCH_BACKWARD
                                          : BENCH_FORWARD;
    snprintf(what, sizeof what, "%.400s, %s, %s", j->text, option_passes[pass],
             option_dtypes[b.c.dtype]);
    printf("%s\n", what);
    bool good = attention_open(&a, j->device, j->capabilities, &b.c, pass,
                               j->o->shape_count > 0 ? j->o->shapes[0] : NULL);
    memcpy(a.s.what, what, sizeof what);
    good = good && tune(j, &a.s, j->seconds);
    attention_close(&a);
    return good;
}

/* ---- Linear layers ---- */

#ifdef BENCH_HAS_MODELS
static bool is_layer(const char *text)
{
    bench_layer layers[MOST_LAYERS];
    return layers_read(text, layers) > 0;
}

static bool tune_layer(const job *j, const bench_layer *l, double seconds)
{
    layer_subject a;
    printf("%s, %llu x %u x %u\n", l->name, l->rows, l->in, l->out);
    bool good = layer_subject_open(&a, j->device, j->capabilities, l,
                                   (winattn_dtype)j->o->dtype,
                                   (winattn_tier)j->o->tier);
    snprintf(a.s.what, sizeof a.s.what, "%.200s, %llu rows, %s", l->name,
             l->rows, option_dtypes[j->o->dtype]);
    good = good && tune(j, &a.s, seconds);
    layer_subject_close(&a);
    return good;
}

static bool tune_layers(const job *j)
{
    bench_layer layers[MOST_LAYERS];
    winattn_programs *programs = NULL; /* layers have kernels in common */
    const int count = layers_read(j->text, layers);
    const double end = now_seconds() + j->seconds;
    bool good = winattn_programs_create(j->device->context, j->device->id,
                                        &programs) == WINATTN_SUCCESS;
    for (int i = 0; i < count; i++)
        good = tune_layer(j, &layers[i],
                          fmax(end - now_seconds(), 0) / (count - i)) &&
               good;
    winattn_programs_destroy(programs);
    return good;
}
#else
static bool is_layer(const char *text)
{
    (void)text;
    return false;
}
static bool tune_layers(const job *j)
{
    (void)j;
    return false;
}
#endif

/* ---- All cases ---- */

/* Each case has an equal part of the time that is left. */
static bool tune_cases(const settings *o, const bench_device *device,
                       const wa_device *capabilities)
{
    job j = {.o = o, .device = device, .capabilities = capabilities};
    bool good = true;
    const double end = now_seconds() + o->seconds;
    for (size_t i = 0; i < o->case_count; i++) {
        j.text = o->cases[i];
        j.seconds = fmax(end - now_seconds(), 0) / (double)(o->case_count - i);
        good = (is_layer(j.text) ? tune_layers(&j) : tune_case(&j)) && good;
    }
    return good;
}

/* The index of the device that was asked for, or -1. */
static int choose_device(const settings *o, const cl_device_id *ids,
                         char (*names)[256], int count)
{
    for (int i = 0; i < count; i++) {
        cl_device_type type = 0;
        clGetDeviceInfo(ids[i], CL_DEVICE_TYPE, sizeof type, &type, NULL);
        if (o->device ? strstr(names[i], o->device) != NULL
                      : (type & CL_DEVICE_TYPE_GPU) != 0)
            return i;
    }
    return o->device || count == 0 ? -1 : 0;
}

int main(int count, char **texts)
{
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    settings o;
    bench_device device;
    wa_session *session;
    bool good = false;
    const options_result read = read_settings(count, texts, &o);
    if (read != OPTIONS_GOOD)
        return output_end(stdout, stderr, read == OPTIONS_HELP ? 0 : 2);
    /* rows that the user has, and compiled kernels of a moment, stay apart */
    if (!o.only_own)
        setenv("WINATTN_TUNING", "", 1);
    winattn_set_cache_dir("");
    const int chosen =
        choose_device(&o, ids, names, device_list(ids, names, MOST_DEVICES));
    if (chosen < 0 || !bench_device_open(ids[chosen], &device)) {
        fprintf(stderr, "no OpenCL device %s\n", o.device ? o.device : "");
        return 2;
    }
    measure_ceilings(&device);
    printf("%s\n", names[chosen]);
    verdict_explain(stdout, &device);
    if (wa_session_acquire(device.context, device.id, &session) ==
        WINATTN_SUCCESS) {
        good = tune_cases(&o, &device, wa_session_device(session));
        wa_session_release(session);
    } else {
        fprintf(stderr, "%s\n", winattn_last_reason());
    }
    bench_device_close(&device);
    return output_end(stdout, stderr, good ? 0 : 1);
}
