/* SPDX-License-Identifier: Apache-2.0
 * Times linear layers of winattn_models, and holds some rows of each against
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
 *   --shape LIST  numbers of wa_linear_shape, with colons, for all layers
 *   --describe    what each plan says of itself */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/storage.h"
#include "kit/test_device.h"
#include "measure/measure.h"
#include "models/linear.h"

typedef struct layer {
    char name[40];
    unsigned long long rows;
    unsigned in, out;
    bool norm, bias, gelu, residual;
    unsigned count; /* of such layers in a model */
} layer;

typedef struct settings {
    const char *device;
    winattn_dtype dtype;
    bool has_dtype, allow_tf32, describes, has_shape;
    winattn_tier tier;
    unsigned batch;
    double seconds;
    wa_linear_shape shape;
    layer layers[64];
    int count;
} settings;

/* ---- The command line ---- */

static int fail(const char *what, const char *word)
{
    fprintf(stderr, "winattn-linear-bench: %s %s\n", what, word);
    return 2;
}

static bool has_word(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at && at[-1] == ':' &&
           (at[strlen(word)] == ':' || at[strlen(word)] == 0);
}

static bool read_layer(const char *text, layer *l)
{
    memset(l, 0, sizeof *l);
    if (strlen(text) >= sizeof l->name ||
        sscanf(text, "%llux%ux%u", &l->rows, &l->in, &l->out) != 3)
        return false;
    strcpy(l->name, text);
    l->norm = has_word(text, "norm");
    l->bias = has_word(text, "bias");
    l->gelu = has_word(text, "gelu");
    l->residual = has_word(text, "residual");
    l->count = 1;
    return true;
}

static bool read_shape(const char *text, wa_linear_shape *s)
{
    uint32_t *const numbers[] = {
        &s->block_rows,   &s->block_columns, &s->stage_dims,   &s->item_rows,
        &s->item_columns, &s->lanes,         &s->tile_rows,    &s->tile_vecs,
        &s->stages,       &s->row_waves,     &s->column_waves, &s->dim_waves};
    char *end = (char *)(size_t)text;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i] = (uint32_t)strtoul(end, &end, 10);
        if (*end == ':')
            end++;
    }
    return *end == 0;
}

static bool read_word(const char *word, const char *const *words, int count,
                      int *number)
{
    for (*number = 0; *number < count; (*number)++)
        if (strcmp(word, words[*number]) == 0)
            return true;
    return false;
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
    else if (strcmp(word[0], "--shape") == 0 && read_shape(word[1], &s->shape))
        s->has_shape = true;
    else
        return 0;
    return 2;
}

/* The layers of Swin-T: of each stage those of its blocks, then of the
 * merging. */
static void add_swin(settings *s)
{
    static const unsigned depths[] = {2, 2, 6, 2};
    unsigned side = 56, channels = 96;
    for (int stage = 0; stage < 4; stage++) {
        const unsigned long long rows =
            (unsigned long long)s->batch * side * side;
        const layer own[] = {{"qkv", rows, channels, 3 * channels, true, true,
                              false, false, depths[stage]},
                             {"proj", rows, channels, channels, false, true,
                              false, true, depths[stage]},
                             {"fc1", rows, channels, 4 * channels, true, true,
                              true, false, depths[stage]},
                             {"fc2", rows, 4 * channels, channels, false, true,
                              false, true, depths[stage]},
                             {"merge", rows / 4, 4 * channels, 2 * channels,
                              true, false, false, false, 1}};
        for (int i = 0; i < (stage < 3 ? 5 : 4); i++) {
            layer *l = &s->layers[s->count++];
            *l = own[i];
            snprintf(l->name, sizeof l->name, "stage %d %.20s", stage + 1,
                     own[i].name);
        }
        side /= 2;
        channels *= 2;
    }
}

/* ---- Tensors ---- */

typedef struct tensor {
    unsigned char *bytes; /* of inputs */
    cl_mem mem;
    size_t count;
} tensor;

typedef struct run {
    const layer *l;
    storage_kind kind;
    const bench_device *device;
    winattn_linear_plan *plan;
    tensor x, weight, bias, norm_weight, norm_bias, residual, y, workspace;
    winattn_linear call;
    unsigned random;
} run;

static bool allocate(run *r, tensor *t, size_t count, double middle,
                     double width)
{
    const size_t size = kind_size(r->kind);
    cl_int error = CL_SUCCESS;
    t->count = count;
    if (count == 0)
        return true;
    t->bytes = malloc(count * size);
    if (!t->bytes)
        return false;
    /* numbers repeat, but for rows of no usual length */
    const size_t own = count < 65537 ? count : 65537;
    for (size_t i = 0; i < own; i++) {
        r->random = r->random * 1664525u + 1013904223u;
        kind_write(
            r->kind,
            kind_round(r->kind,
                       middle + width * ((r->random >> 8) / 8388608.0 - 1.0)),
            t->bytes + i * size);
    }
    for (size_t done = own; done < count; done += own)
        memcpy(t->bytes + done * size, t->bytes,
               (count - done < own ? count - done : own) * size);
    t->mem = clCreateBuffer(r->device->context,
                            CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                            count * size, t->bytes, &error);
    return error == CL_SUCCESS;
}

static void release(tensor *t)
{
    free(t->bytes);
    if (t->mem)
        clReleaseMemObject(t->mem);
}

static void close_run(run *r)
{
    winattn_linear_plan_destroy(r->plan);
    release(&r->x);
    release(&r->weight);
    release(&r->bias);
    release(&r->norm_weight);
    release(&r->norm_bias);
    release(&r->residual);
    release(&r->y);
    release(&r->workspace);
}

static bool open_tensors(run *r)
{
    const layer *l = r->l;
    size_t workspace = 0;
    if (winattn_linear_plan_workspace_size(r->plan, l->rows, &workspace))
        return false;
    return allocate(r, &r->x, (size_t)l->rows * l->in, 0.1, 1.0) &&
           allocate(r, &r->weight, (size_t)l->out * l->in, 0.0,
                    sqrt(3.0 / l->in)) &&
           allocate(r, &r->bias, l->bias ? l->out : 0, 0.0, 0.5) &&
           allocate(r, &r->norm_weight, l->norm ? l->in : 0, 1.0, 0.3) &&
           allocate(r, &r->norm_bias, l->norm ? l->in : 0, 0.0, 0.3) &&
           allocate(r, &r->residual,
                    l->residual ? (size_t)l->rows * l->out : 0, 0.0, 1.0) &&
           allocate(r, &r->y, (size_t)l->rows * l->out, 0.0, 1.0) &&
           allocate(r, &r->workspace, workspace / kind_size(r->kind), 0.0,
                    1.0);
}

static bool open_run(run *r, const settings *s, const layer *l,
                     const bench_device *device)
{
    const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                      .dtype = s->dtype,
                                      .tier = s->tier,
                                      .allow_tf32 = s->allow_tf32,
                                      .in_features = l->in,
                                      .out_features = l->out,
                                      .layer_norm = l->norm,
                                      .has_bias = l->bias,
                                      .activation =
                                          l->gelu ? WINATTN_ACTIVATION_GELU
                                                  : WINATTN_ACTIVATION_NONE,
                                      .has_residual = l->residual};
    const winattn_status status =
        s->has_shape ? wa_linear_plan_with_shape(device->context, device->id,
                                                 &desc, &s->shape, &r->plan)
                     : winattn_linear_plan_create(device->context, device->id,
                                                  &desc, &r->plan);
    r->l = l;
    r->device = device;
    r->kind = s->dtype == WINATTN_FP32   ? KIND_FP32
              : s->dtype == WINATTN_FP16 ? KIND_FP16
                                         : KIND_BF16;
    if (status != WINATTN_SUCCESS || !open_tensors(r)) {
        printf("%s: %s\n%s", l->name, winattn_last_reason(),
               winattn_last_build_log());
        return false;
    }
    r->call.struct_size = sizeof r->call;
    r->call.rows = l->rows;
    r->call.x.buffer = r->x.mem;
    r->call.weight.buffer = r->weight.mem;
    r->call.bias.buffer = r->bias.mem;
    r->call.norm_weight.buffer = r->norm_weight.mem;
    r->call.norm_bias.buffer = r->norm_bias.mem;
    r->call.residual.buffer = r->residual.mem;
    r->call.y.buffer = r->y.mem;
    r->call.workspace.buffer = r->workspace.mem;
    return true;
}

static winattn_status enqueue(void *data, unsigned round)
{
    const run *r = data;
    (void)round;
    return winattn_enqueue_linear(r->plan, r->device->queue, &r->call, 0, NULL,
                                  NULL);
}

/* ---- Accuracy ---- */

static double number(const run *r, const tensor *t, size_t i)
{
    return kind_read(r->kind, t->bytes + i * kind_size(r->kind));
}

static void find_row(const run *r, size_t row, double *x)
{
    const layer *l = r->l;
    double mean = 0, variance = 0;
    for (size_t i = 0; i < l->in; i++)
        mean += (x[i] = number(r, &r->x, row * l->in + i)) / l->in;
    for (size_t i = 0; i < l->in; i++)
        variance += (x[i] - mean) * (x[i] - mean) / l->in;
    for (size_t i = 0; i < l->in && l->norm; i++)
        x[i] = (x[i] - mean) / sqrt(variance + 1e-5) *
                   number(r, &r->norm_weight, i) +
               number(r, &r->norm_bias, i);
}

/* The largest relative error of a few rows; negative: they could not be read.
 */
static double error_of(const run *r)
{
    const layer *l = r->l;
    const size_t size = kind_size(r->kind);
    unsigned char *got = malloc(l->out * size);
    double *x = malloc(l->in * sizeof *x);
    double most = got && x ? 0 : -1;
    for (int n = 0; n < 5 && most >= 0; n++) {
        const size_t row = (size_t)((l->rows - 1) * (unsigned)n / 4);
        double error = 0, all = 0;
        if (clEnqueueReadBuffer(r->device->queue, r->y.mem, CL_TRUE,
                                row * l->out * size, l->out * size, got, 0,
                                NULL, NULL) != CL_SUCCESS) {
            most = -1;
            break;
        }
        find_row(r, row, x);
        for (size_t o = 0; o < l->out; o++) {
            double sum = l->bias ? number(r, &r->bias, o) : 0;
            for (size_t i = 0; i < l->in; i++)
                sum += x[i] * number(r, &r->weight, o * l->in + i);
            if (l->gelu)
                sum = sum / 2 * erfc(-sum / sqrt(2));
            if (l->residual)
                sum += number(r, &r->residual, row * l->out + o);
            const double d = kind_read(r->kind, got + o * size) - sum;
            error += d * d;
            all += sum * sum;
        }
        const double relative = sqrt(error / all);
        if (!(relative <= most))
            most = relative;
    }
    free(got);
    free(x);
    return most;
}

/* ---- The table ---- */

static double bytes_of(const run *r)
{
    const tensor *all[] = {&r->x, &r->weight, &r->residual, &r->y};
    double count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        count += (double)all[i]->count;
    return count * (double)kind_size(r->kind);
}

static const char *tier_of(const run *r)
{
    return wa_tier_name(r->plan->layout.tier);
}

/* The time of a call, 0 if there is none. */
static double time_layer(const settings *s, const layer *l,
                         const bench_device *device)
{
    run r;
    double time = 0;
    memset(&r, 0, sizeof r);
    r.random = 1;
    if (open_run(&r, s, l, device)) {
        time = measure_calls(device, enqueue, &r, s->seconds);
        const double flops = 2.0 * (double)l->rows * l->in * l->out;
        const double bandwidth = bytes_of(&r) / time;
        printf("%-16s %9llu %5u %5u  %-6s %9.1f %8.2f %7.0f %5.0f%%  %.1e\n",
               l->name, l->rows, l->in, l->out, tier_of(&r), time * 1e6,
               flops / time * 1e-12, bandwidth * 1e-9,
               100 * bandwidth / device->copy_bandwidth, error_of(&r));
        fflush(stdout);
    }
    if (r.plan && s->describes) {
        char text[8192];
        if (winattn_linear_plan_describe(r.plan, sizeof text, text, NULL) ==
            WINATTN_SUCCESS)
            printf("%s", text);
    }
    close_run(&r);
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
        if (took == 0 &&
            (s.count == 64 || !read_layer(words[i], &s.layers[s.count++])))
            return fail("what is", words[i]);
        i += took ? took : 1;
    }
    if (!open_device(&s, &device))
        return fail("no OpenCL device", s.device ? s.device : "");
    if (s.batch == 0)
        s.batch = device.is_cpu ? 1 : 64;
    if (!s.has_dtype)
        s.dtype = device.is_cpu ? WINATTN_FP32 : WINATTN_FP16;
    const bool is_swin = s.count == 0;
    if (is_swin)
        add_swin(&s);
    measure_ceilings(&device);
    printf("copy %.0f GB/s, fp32 FMA %.2f TFLOP/s\n",
           device.copy_bandwidth * 1e-9, device.fma_rate * 1e-12);
    const int failed = run_layers(&s, is_swin, &device);
    bench_device_close(&device);
    return failed;
}
