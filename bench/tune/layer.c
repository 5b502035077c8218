/* SPDX-License-Identifier: Apache-2.0
 * Linear layers as subjects of the tuner: their tensors, how far their results
 * are off, and their plans. */
#include "tune/layer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/run.h"
#include "models/linear_plan.h"

#define SWIN "layers-swin-t-b" /* and how many pictures */
#define MOST_BATCH 4096u

/* ---- Layers ---- */

static bool has_word(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at && at[-1] == ':' &&
           (at[strlen(word)] == ':' || at[strlen(word)] == 0);
}

/* Reads ROWSxINxOUT[:norm][:bias][:gelu][:residual][:tf32], or says that it is
 * not that. */
static bool layer_read(const char *text, bench_layer *l)
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
    l->tf32 = has_word(text, "tf32");
    l->count = 1;
    return true;
}

/* The layers of Swin-T for so many pictures: of each stage those of its
 * blocks, then of the merging, without norms, which blocks have by
 * themselves. Returns how many, at most `most`. */
static int layer_swin(unsigned batch, bool tf32, bench_layer *layers, int most)
{
    static const unsigned depths[] = {2, 2, 6, 2};
    static const struct {
        const char *name;
        unsigned in, out; /* times the stage's channels */
        const char *has;
    } own[] = {{"qkv", 1, 3, ":bias"},
               {"proj", 1, 1, ":bias:residual"},
               {"fc1", 1, 4, ":bias:gelu"},
               {"fc2", 4, 1, ":bias:residual"},
               {"merge", 4, 2, ""}};
    unsigned side = 56, channels = 96;
    int count = 0;
    for (int stage = 0; stage < 4; stage++) {
        const unsigned long long rows =
            (unsigned long long)batch * side * side;
        for (int i = 0; i < (stage < 3 ? 5 : 4) && count < most; i++) {
            char text[40];
            bench_layer *l = &layers[count++];
            snprintf(text, sizeof text, "%llux%ux%u%s",
                     i == 4 ? rows / 4 : rows, own[i].in * channels,
                     own[i].out * channels, own[i].has);
            layer_read(text, l);
            l->tf32 = tf32;
            l->count = i == 4 ? 1 : depths[stage];
            snprintf(l->name, sizeof l->name, "stage %d %s", stage + 1,
                     own[i].name);
        }
        side /= 2;
        channels *= 2;
    }
    return count;
}

static winattn_linear_desc layer_desc(const bench_layer *l,
                                      winattn_dtype dtype)
{
    const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                      .dtype = dtype,
                                      .allow_tf32 = l->tf32,
                                      .in_features = l->in,
                                      .out_features = l->out,
                                      .layer_norm = l->norm,
                                      .has_bias = l->bias,
                                      .activation =
                                          l->gelu ? WINATTN_ACTIVATION_GELU
                                                  : WINATTN_ACTIVATION_NONE,
                                      .has_residual = l->residual};
    return desc;
}

/* ---- Tensors ---- */

static bool allocate(layer_run *r, layer_tensor *t, size_t count,
                     double middle, double width)
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

static bool open_tensors(layer_run *r)
{
    const bench_layer *l = r->l;
    const size_t rows = (size_t)l->rows, norm = l->norm ? l->in : 0;
    size_t workspace = 0;
    if (winattn_linear_plan_workspace_size(r->plan, l->rows, &workspace))
        return false;
    const struct {
        size_t count;
        double middle, width;
    } all[LAYER_TENSORS] = {
        [LAYER_X] = {rows * l->in, 0.1, 1.0},
        [LAYER_WEIGHT] = {(size_t)l->out * l->in, 0.0, sqrt(3.0 / l->in)},
        [LAYER_BIAS] = {l->bias ? l->out : 0, 0.0, 0.5},
        [LAYER_NORM_WEIGHT] = {norm, 1.0, 0.3},
        [LAYER_NORM_BIAS] = {norm, 0.0, 0.3},
        [LAYER_RESIDUAL] = {l->residual ? rows * l->out : 0, 0.0, 1.0},
        [LAYER_Y] = {rows * l->out, 0.0, 1.0},
        [LAYER_WORKSPACE] = {workspace / kind_size(r->kind), 0.0, 1.0}};
    for (int i = 0; i < LAYER_TENSORS; i++) {
        if (!allocate(r, &r->tensor[i], all[i].count, all[i].middle,
                      all[i].width))
            return false;
        (&r->call.x)[i].buffer = r->tensor[i].mem;
    }
    return true;
}

/* Makes the tensors that a call of the plan needs, which may be replaced by
 * another for the same layer; to be closed even if it fails. */
static bool layer_open(layer_run *r, const bench_layer *l, winattn_dtype dtype,
                       const bench_device *device, winattn_linear_plan *plan)
{
    memset(r, 0, sizeof *r);
    r->l = l;
    r->device = device;
    r->plan = plan;
    r->random = 1;
    r->kind = dtype == WINATTN_FP32   ? KIND_FP32
              : dtype == WINATTN_FP16 ? KIND_FP16
                                      : KIND_BF16;
    r->call.struct_size = sizeof r->call;
    r->call.rows = l->rows;
    return open_tensors(r);
}

/* A call of r->plan; data: a layer_run. */
static winattn_status layer_enqueue(void *data, unsigned round)
{
    const layer_run *r = data;
    (void)round;
    return winattn_enqueue_linear(r->plan, r->device->queue, &r->call, 0, NULL,
                                  NULL);
}

/* ---- Accuracy ---- */

static double number(const layer_run *r, layer_tensor_id id, size_t i)
{
    return kind_read(r->kind, r->tensor[id].bytes + i * kind_size(r->kind));
}

static void find_row(const layer_run *r, size_t row, double *x)
{
    const bench_layer *l = r->l;
    double mean = 0, variance = 0;
    for (size_t i = 0; i < l->in; i++)
        mean += (x[i] = number(r, LAYER_X, row * l->in + i)) / l->in;
    for (size_t i = 0; i < l->in; i++)
        variance += (x[i] - mean) * (x[i] - mean) / l->in;
    for (size_t i = 0; i < l->in && l->norm; i++)
        x[i] = (x[i] - mean) / sqrt(variance + 1e-5) *
                   number(r, LAYER_NORM_WEIGHT, i) +
               number(r, LAYER_NORM_BIAS, i);
}

/* The largest relative error of a few rows of the last call; negative: they
 * could not be read. */
static double layer_error(const layer_run *r)
{
    const bench_layer *l = r->l;
    const size_t size = kind_size(r->kind);
    unsigned char *got = malloc(l->out * size);
    double *x = malloc(l->in * sizeof *x);
    double most = got && x ? 0 : -1;
    for (int n = 0; n < 5 && most >= 0; n++) {
        const size_t row = (size_t)((l->rows - 1) * (unsigned)n / 4);
        double error = 0, all = 0;
        if (clEnqueueReadBuffer(r->device->queue, r->tensor[LAYER_Y].mem,
                                CL_TRUE, row * l->out * size, l->out * size,
                                got, 0, NULL, NULL) != CL_SUCCESS) {
            most = -1;
            break;
        }
        find_row(r, row, x);
        for (size_t o = 0; o < l->out; o++) {
            double sum = l->bias ? number(r, LAYER_BIAS, o) : 0;
            for (size_t i = 0; i < l->in; i++)
                sum += x[i] * number(r, LAYER_WEIGHT, o * l->in + i);
            if (l->gelu)
                sum = sum / 2 * erfc(-sum / sqrt(2));
            if (l->residual)
                sum += number(r, LAYER_RESIDUAL, row * l->out + o);
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

/* What a call must read and write. */
static double layer_bytes(const layer_run *r)
{
    static const layer_tensor_id large[] = {LAYER_X, LAYER_WEIGHT,
                                            LAYER_RESIDUAL, LAYER_Y};
    double count = 0;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        count += (double)r->tensor[large[i]].count;
    return count * (double)kind_size(r->kind);
}

/* ---- Subjects ---- */

static const layer_subject *of(const subject *s)
{
    return (const layer_subject *)s;
}

/* ---- What is meant ---- */

int layers_read(const char *text, bench_layer layers[MOST_LAYERS])
{
    char *end;
    if (strncmp(text, SWIN, strlen(SWIN)) != 0)
        return text[0] >= '1' && text[0] <= '9' && layer_read(text, layers);
    const unsigned long batch = strtoul(text + strlen(SWIN), &end, 10);
    const bool tf32 = strcmp(end, ":tf32") == 0;
    return (*end == 0 || tf32) && batch > 0 && batch <= MOST_BATCH
               ? layer_swin((unsigned)batch, tf32, layers, MOST_LAYERS)
               : 0;
}

/* ---- Plans and calls ---- */

static void *open_call(const subject *s)
{
    layer_run *call = malloc(sizeof *call);
    if (!call)
        return NULL;
    *call = of(s)->run;
    call->plan = NULL;
    if (winattn_linear_plan_create(s->device->context, s->device->id,
                                   &of(s)->desc,
                                   &call->plan) == WINATTN_SUCCESS)
        return call;
    free(call);
    return NULL;
}

static void close_call(void *call)
{
    if (call)
        winattn_linear_plan_destroy(((layer_run *)call)->plan);
    free(call);
}

static bool takes_row(const subject *s, const void *call, char *why,
                      size_t size)
{
    const layer_subject *a = of(s);
    const winattn_linear_plan *plan = ((const layer_run *)call)->plan;
    snprintf(why, size, "%s", plan->layout.not_taken);
    return wa_linear_kernel_for(&plan->layout, &plan->problem, a->l->rows) ==
               a->id &&
           strstr(plan->layout.source[a->id], "loaded");
}

static double error_of(const subject *s, void *call)
{
    const unsigned char nothing = 0xff; /* no number in any type */
    layer_run *r = call;
    double error = -1;
    if (clEnqueueFillBuffer(s->device->queue, r->tensor[LAYER_Y].mem, &nothing,
                            1, 0,
                            r->tensor[LAYER_Y].count * kind_size(r->kind), 0,
                            NULL, NULL) == CL_SUCCESS &&
        layer_enqueue(r, 0) == WINATTN_SUCCESS &&
        clFinish(s->device->queue) == CL_SUCCESS)
        error = layer_error(r);
    return error < 0 ? (double)NAN : error;
}

/* ---- Shapes ---- */

static bool is_shape(const subject *s, const char *text)
{
    wa_linear_shape shape;
    return wa_linear_shape_parse((winattn_tier)s->kind, text, &shape);
}

static void print_row(const subject *s, const char *shape, char *text,
                      size_t size)
{
    const layer_subject *a = of(s);
    const winattn_tier tier = a->own->layout.tier;
    char words[WA_ROW_WORDS_SIZE];
    wa_linear_shape parsed;
    wa_linear_shape_parse(tier, shape, &parsed);
    wa_linear_row_print(&a->own->problem, tier, a->id, &parsed, words,
                        sizeof words);
    const wa_tuned_row row =
        wa_tuned_row_of(wa_linear_row_kernel(tier), s->capabilities, words);
    wa_tuned_row_print(&row, text, size);
}

/* Blocks are hardly larger than the matrix. */
static bool is_legal(const subject *s, const char *shape)
{
    const layer_subject *a = of(s);
    wa_linear_shape l;
    const uint64_t rows = a->l->rows > 16 ? a->l->rows : 16;
    const uint64_t columns = a->l->out > 16 ? a->l->out : 16;
    return wa_linear_shape_parse((winattn_tier)s->kind, shape, &l) &&
           l.block_rows < 2 * rows && l.block_columns < 2 * columns &&
           !wa_linear_check_shape(&a->own->problem, s->capabilities,
                                  a->own->layout.tier, &l);
}

/* The plan's own, whose neighbours come next. */
static void collect(const subject *s, candidates *c)
{
    const layer_subject *a = of(s);
    char own[SHAPE_SIZE];
    wa_linear_shape_print((winattn_tier)s->kind,
                          &a->own->layout.kernel[a->id].shape, own,
                          sizeof own);
    candidates_append(c, own, 0);
}

/* ---- Start and end ---- */

bool layer_subject_open(layer_subject *a, const bench_device *device,
                        const wa_device *capabilities, const bench_layer *l,
                        winattn_dtype dtype, winattn_tier tier)
{
    memset(a, 0, sizeof *a);
    subject *s = &a->s;
    *s = (subject){.device = device,
                   .capabilities = capabilities,
                   .operations = 2.0 * (double)l->rows * l->in * l->out,
                   .promised = l->tf32 && dtype == WINATTN_FP32
                                   ? PROMISED_TF32
                                   : promised_error((int)dtype),
                   .open = open_call,
                   .close = close_call,
                   .enqueue = layer_enqueue,
                   .takes_row = takes_row,
                   .error = error_of,
                   .is_shape = is_shape,
                   .is_legal = is_legal,
                   .print_row = print_row,
                   .collect = collect};
    a->l = l;
    a->desc = layer_desc(l, dtype);
    a->desc.tier = tier;
    if (winattn_linear_plan_create(device->context, device->id, &a->desc,
                                   &a->own) != WINATTN_SUCCESS) {
        printf("  %s\n", winattn_last_reason());
        return false;
    }
    const wa_linear_layout *layout = &a->own->layout;
    a->desc.tier = layout->tier;
    a->id = wa_linear_kernel_for(layout, &a->own->problem, l->rows);
    s->kind = (int)layout->tier;
    printf("  tier %s, %s for %s rows, shape %s\n", wa_tier_name(layout->tier),
           layout->kernel[a->id].name, a->id == WA_LINEAR_FEW ? "few" : "many",
           layout->source[a->id]);
    if (layout->not_taken[0])
        printf("  shape not taken: %s\n", layout->not_taken);
    if (!layer_open(&a->run, l, dtype, device, a->own)) {
        printf("  the device's memory does not suffice\n");
        return false;
    }
    s->bytes = layer_bytes(&a->run);
    return true;
}

void layer_subject_close(layer_subject *a)
{
    for (int i = 0; i < LAYER_TENSORS; i++) {
        free(a->run.tensor[i].bytes);
        if (a->run.tensor[i].mem)
            clReleaseMemObject(a->run.tensor[i].mem);
    }
    winattn_linear_plan_destroy(a->own);
}
