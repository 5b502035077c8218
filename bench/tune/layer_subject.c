/* SPDX-License-Identifier: Apache-2.0
 * Linear layers as subjects of the tuner. */
#include "tune/layer_subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/run.h"
#include "models/linear_rows.h"

#define SWIN "layers-swin-t-b" /* and how many pictures */
#define MOST_BATCH 4096u

static const layer_subject *of(const subject *s)
{
    return (const layer_subject *)s;
}

/* ---- What is meant ---- */

/* Pictures of a text that names Swin's layers; 0: it does not. */
static unsigned batch_of(const char *text)
{
    char *end;
    if (strncmp(text, SWIN, strlen(SWIN)) != 0)
        return 0;
    const unsigned long batch = strtoul(text + strlen(SWIN), &end, 10);
    return *end == 0 && batch <= MOST_BATCH ? (unsigned)batch : 0;
}

int layers_read(const char *text, bench_layer layers[MOST_LAYERS])
{
    const unsigned batch = batch_of(text);
    if (batch)
        return layer_swin(batch, layers, MOST_LAYERS);
    return text[0] >= '1' && text[0] <= '9' && layer_read(text, layers);
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
    if (clEnqueueFillBuffer(s->device->queue, r->y.mem, &nothing, 1, 0,
                            r->y.count * kind_size(r->kind), 0, NULL,
                            NULL) == CL_SUCCESS &&
        layer_enqueue(r, 0) == WINATTN_SUCCESS &&
        clFinish(s->device->queue) == CL_SUCCESS)
        error = layer_error(r);
    return error < 0 ? (double)NAN : error;
}

/* ---- Shapes ---- */

static bool parse_shape(int tier, const char *text, tuned_shape *shape)
{
    return wa_linear_shape_parse((winattn_tier)tier, text, &shape->linear);
}

static void print_shape(int tier, const tuned_shape *shape, char *text,
                        size_t size)
{
    wa_linear_shape_print((winattn_tier)tier, &shape->linear, text, size);
}

static void print_row(const subject *s, const tuned_shape *shape, char *text,
                      size_t size)
{
    const layer_subject *a = of(s);
    const winattn_tier tier = a->own->layout.tier;
    char device[WA_ROW_DEVICE_SIZE + 16], words[WA_ROW_SISTER_SIZE];
    wa_tuned_device_print(s->capabilities, device, sizeof device);
    wa_linear_row_print(&a->own->problem, tier, a->id, &shape->linear, words,
                        sizeof words);
    snprintf(text, size, "%s %s %s", wa_linear_row_kernel(tier), device,
             words);
}

/* Blocks are hardly larger than the matrix. */
static bool is_legal(const subject *s, const tuned_shape *shape)
{
    const layer_subject *a = of(s);
    const wa_linear_shape *l = &shape->linear;
    const uint64_t rows = a->l->rows > 16 ? a->l->rows : 16;
    const uint64_t columns = a->l->out > 16 ? a->l->out : 16;
    return l->block_rows < 2 * rows && l->block_columns < 2 * columns &&
           !wa_linear_check_shape(&a->own->problem, s->capabilities,
                                  a->own->layout.tier, l);
}

/* The plan's own, whose neighbours come next. */
static void collect(const subject *s, candidates *c)
{
    const tuned_shape own = {.linear =
                                 of(s)->own->layout.kernel[of(s)->id].shape};
    candidates_append(c, &own, 0);
}

/* ---- Start and end ---- */

bool layer_subject_open(layer_subject *a, const bench_device *device,
                        const wa_device *capabilities, const bench_layer *l,
                        winattn_dtype dtype, winattn_tier tier)
{
    static const subject functions = {.open = open_call,
                                      .close = close_call,
                                      .enqueue = layer_enqueue,
                                      .takes_row = takes_row,
                                      .error = error_of,
                                      .text = {0, parse_shape, print_shape},
                                      .print_row = print_row,
                                      .is_legal = is_legal,
                                      .collect = collect};
    memset(a, 0, sizeof *a);
    subject *s = &a->s;
    *s = functions;
    s->device = device;
    s->capabilities = capabilities;
    s->operations = 2.0 * (double)l->rows * l->in * l->out;
    s->promised = promised_error((int)dtype);
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
    s->text.kind = (int)layout->tier;
    printf("  tier %s, kernel for %s rows, shape %s\n",
           wa_tier_name(layout->tier), a->id == WA_LINEAR_FEW ? "few" : "many",
           layout->source[a->id]);
    if (!layer_open(&a->run, l, dtype, device, a->own)) {
        printf("  the device's memory does not suffice\n");
        return false;
    }
    s->bytes = layer_bytes(&a->run);
    return true;
}

void layer_subject_close(layer_subject *a)
{
    layer_close(&a->run);
    winattn_linear_plan_destroy(a->own);
}
