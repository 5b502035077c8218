/* SPDX-License-Identifier: Apache-2.0
 * Times linear layers of winattn_models, and compares some rows of each with
 * fp64.
 *
 *   winattn-linear-bench [OPTION...] [SHAPE...]
 *
 *   SHAPE         ROWSxINxOUT[:norm][:bias][:gelu][:residual]; default: the
 *                 layers of Swin-T, and how long all of them take together
 *   --batch N     pictures of 224 x 224 for these; default: 64, on a CPU 1
 *   --device NAME of which platform or name contain NAME; default: the first
 *   --dtype TYPE  fp32, fp16 (the default, but on a CPU) or bf16
 *   --tf32        fp32 may be multiplied as TF32
 *   --tier TIER   cpu, local or matrix
 *   --seconds S   of each layer; default: 0.3
 *   --shape SHAPE of all layers, as in rows of the tuning table; with --tier
 *   --describe    what each plan says of itself */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/test_device.h"
#include "measure/output.h"
#include "models/layer.h"
#include "models/linear_shapes.h"

#define MOST_LAYERS 64

typedef struct settings {
    const char *device;
    winattn_dtype dtype;
    bool has_dtype, allow_tf32, describes;
    const char *shape_text; /* NULL: the plan chooses */
    winattn_tier tier;
    unsigned batch;
    double seconds;
    wa_linear_shape shape;
    bench_layer layers[MOST_LAYERS];
    int count;
} settings;

/* ---- The command line ---- */

static int fail(const char *what, const char *word)
{
    fprintf(stderr, "winattn-linear-bench: %s %s\n", what, word);
    return 2;
}

static bool read_word(const char *word, const char *const *words, int count,
                      int *number)
{
    for (*number = 0; *number < count; (*number)++)
        if (strcmp(word, words[*number]) == 0)
            return true;
    return false;
}

static bool read_shape(settings *s)
{
    wa_tuned_shape shape;
    if (s->tier == WINATTN_TIER_AUTO ||
        !wa_tuned_shape_parse(wa_linear_tuned_kernel(s->tier), s->shape_text,
                              &shape))
        return false;
    s->shape = shape.linear;
    return true;
}

/* Returns how many words it took, 0 if the option is none. */
static int read_option(settings *s, char **word)
{
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    static const char *const tiers[] = {"auto", "cpu", "local", "matrix"};
    int number = 0;
    if (strcmp(word[0], "--tf32") == 0)
        return s->allow_tf32 = true;
    if (strcmp(word[0], "--describe") == 0)
        return s->describes = true;
    if (!word[1])
        return 0;
    if (strcmp(word[0], "--device") == 0)
        s->device = word[1];
    else if (strcmp(word[0], "--batch") == 0)
        s->batch = (unsigned)strtoul(word[1], NULL, 10);
    else if (strcmp(word[0], "--seconds") == 0)
        s->seconds = strtod(word[1], NULL);
    else if (strcmp(word[0], "--dtype") == 0 &&
             read_word(word[1], types, 3, &number))
        s->dtype = (winattn_dtype)number, s->has_dtype = true;
    else if (strcmp(word[0], "--tier") == 0 &&
             read_word(word[1], tiers, 4, &number))
        s->tier = (winattn_tier)number;
    else if (strcmp(word[0], "--shape") == 0)
        s->shape_text = word[1];
    else
        return 0;
    return 2;
}

/* ---- The table ---- */

static winattn_linear_plan *make_plan(const settings *s, const bench_layer *l,
                                      const bench_device *device)
{
    winattn_linear_desc desc = layer_desc(l, s->dtype);
    winattn_linear_plan *plan = NULL;
    desc.tier = s->tier;
    desc.allow_tf32 = s->allow_tf32;
    if (s->shape_text)
        wa_linear_plan_with_shape(device->context, device->id, &desc,
                                  &s->shape, &plan);
    else
        winattn_linear_plan_create(device->context, device->id, &desc, &plan);
    return plan;
}

/* A plan's call, timed: a line of the table. The time, 0 if there is none. */
static double time_plan(const settings *s, const bench_layer *l,
                        const bench_device *device, winattn_linear_plan *plan)
{
    layer_run r;
    double time = 0;
    if (layer_open(&r, l, s->dtype, device, plan)) {
        time = measure_calls(device, layer_enqueue, &r, s->seconds);
        const double flops = 2.0 * (double)l->rows * l->in * l->out;
        const double bandwidth = layer_bytes(&r) / time;
        printf("%-16s %9llu %5u %5u  %-6s %9.1f %8.2f %7.0f %5.0f%%  %.1e\n",
               l->name, l->rows, l->in, l->out,
               wa_tier_name(plan->layout.tier), time * 1e6,
               flops / time * 1e-12, bandwidth * 1e-9,
               100 * bandwidth / device->copy_bandwidth, layer_error(&r));
        fflush(stdout);
    } else {
        printf("%s: %s\n", l->name, winattn_last_reason());
    }
    layer_close(&r);
    return time;
}

static double time_layer(const settings *s, const bench_layer *l,
                         const bench_device *device)
{
    winattn_linear_plan *plan = make_plan(s, l, device);
    if (!plan) {
        printf("%s: %s\n%s", l->name, winattn_last_reason(),
               winattn_last_build_log());
        return 0;
    }
    const double time = time_plan(s, l, device, plan);
    if (s->describes) {
        char text[8192];
        if (winattn_linear_plan_describe(plan, sizeof text, text, NULL) ==
            WINATTN_SUCCESS)
            printf("%s", text);
    }
    winattn_linear_plan_destroy(plan);
    return time;
}

static bool open_device(const settings *s, bench_device *device)
{
    static cl_device_id ids[64];
    static char names[64][256];
    const int count = device_list(ids, names, 64);
    for (int i = 0; i < count; i++)
        if (!s->device || strstr(names[i], s->device)) {
            printf("%s\n", names[i]);
            return bench_device_open(ids[i], device);
        }
    return false;
}

static int run_layers(const settings *s, bool is_swin,
                      const bench_device *device)
{
    double all = 0;
    int failed = 0;
    printf("%-16s %9s %5s %5s  %-6s %9s %8s %7s %6s  %s\n", "layer", "rows",
           "in", "out", "tier", "us", "TFLOP/s", "GB/s", "copy", "error");
    for (int i = 0; i < s->count; i++) {
        const double time = time_layer(s, &s->layers[i], device);
        failed |= !(time > 0);
        all += time * s->layers[i].count;
    }
    if (is_swin)
        printf("all linear layers of Swin-T, %u pictures: %.3f ms\n", s->batch,
               all * 1e3);
    return failed;
}

int main(int count, char **words)
{
    static settings s = {.seconds = 0.3};
    bench_device device;
    for (int i = 1; i < count;) {
        const int took = read_option(&s, words + i);
        if (took == 0 && (s.count == MOST_LAYERS ||
                          !layer_read(words[i], &s.layers[s.count++])))
            return fail("what is", words[i]);
        i += took ? took : 1;
    }
    if (s.shape_text && !read_shape(&s))
        return fail("no shape of the tier:", s.shape_text);
    if (!open_device(&s, &device))
        return fail("no OpenCL device", s.device ? s.device : "");
    if (s.batch == 0)
        s.batch = device.is_cpu ? 1 : 64;
    if (!s.has_dtype)
        s.dtype = device.is_cpu ? WINATTN_FP32 : WINATTN_FP16;
    const bool is_swin = s.count == 0;
    if (is_swin)
        s.count = layer_swin(s.batch, s.layers, MOST_LAYERS);
    measure_ceilings(&device);
    printf("copy %.0f GB/s, fp32 FMA %.2f TFLOP/s\n",
           device.copy_bandwidth * 1e-9, device.fma_rate * 1e-12);
    const int failed = run_layers(&s, is_swin, &device);
    bench_device_close(&device);
    return output_end(stdout, stderr, failed);
}
