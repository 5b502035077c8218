/* SPDX-License-Identifier: Apache-2.0
 * From files to classes, a batch at a time. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "swin/files.h"
#include "swin/picture.h"
#include "swin/runner.h"

/* ---- Names of classes ---- */

#define FILE_MOST ((size_t)8 << 20)

/* Lines become texts of their own; of the last one, an end of line is not
 * needed. */
static size_t split(unsigned char *text, size_t size, const char **names)
{
    size_t count = 0;
    unsigned char *at = text, *end = text + size;
    while (at < end) {
        unsigned char *line = at;
        while (at < end && *at != '\n')
            at++;
        unsigned char *last = at > line && at[-1] == '\r' ? at - 1 : at;
        *last = 0;
        at++;
        if (names) {
            wa_make_plain((char *)line, "");
            names[count] = (const char *)line;
        }
        count++;
    }
    return count;
}

bool class_names_read(const char *path, class_names *names)
{
    char reason[200] = "";
    size_t size = 0;
    *names = (class_names){0};
    names->text =
        read_file(path, FILE_MOST, NULL, &size, reason, sizeof reason);
    if (names->text) {
        size_t lines = 1;
        for (size_t i = 0; i < size; i++)
            lines += names->text[i] == '\n';
        names->names = calloc(lines, sizeof *names->names);
        if (!names->names)
            snprintf(reason, sizeof reason, "there is no memory for it");
    }
    if (names->names) {
        names->count = split(names->text, size, names->names);
        return true;
    }
    class_names_free(names);
    return fail("%s: %s", path, reason);
}

void class_names_free(class_names *names)
{
    free(names->names);
    free(names->text);
    *names = (class_names){0};
}

void class_names_print(const class_names *names, size_t index)
{
    if (index >= names->count) {
        printf("class %zu", index);
        return;
    }
    fputs(names->names[index], stdout);
}

/* ---- Batches ---- */

#define DEFAULT_BATCH 16
#define PATH_SIZE 4096

/* A batch, and what comes of it. */
typedef struct batch {
    size_t count;  /* of pictures that were read */
    size_t *which; /* of the command line's */
    unsigned char *pixels;
    float *logits, *map;
    float *all_logits; /* of all pictures; NULL: not wanted */
    bool good;
} batch;

static size_t map_count(const runner *r, cl_uint stage)
{
    const cl_uint *shape = r->map_shape[stage];
    return (size_t)shape[0] * shape[1] * shape[2] * shape[3];
}

static bool make_batch(const options *o, const runner *r, batch *b)
{
    const size_t all = o->picture_count * r->config.classes;
    size_t largest = 1;
    for (cl_uint i = 0; i < r->config.stages; i++)
        if (r->maps[i] && map_count(r, i) > largest)
            largest = map_count(r, i);
    *b = (batch){.good = true};
    b->which = calloc(r->batch, sizeof *b->which);
    b->pixels = calloc(r->batch, r->picture_bytes);
    b->logits =
        calloc((size_t)r->batch * r->config.classes + 1, sizeof *b->logits);
    b->map = calloc(largest, sizeof *b->map);
    b->all_logits = o->logits ? malloc((all + 1) * sizeof(float)) : NULL;
    for (size_t i = 0; b->all_logits && i < all; i++)
        b->all_logits[i] = NAN;
    if (b->which && b->pixels && b->logits && b->map &&
        (b->all_logits || !o->logits))
        return true;
    return fail("there is no memory for the pictures");
}

static void free_batch(batch *b)
{
    free(b->which);
    free(b->pixels);
    free(b->logits);
    free(b->map);
    free(b->all_logits);
}

/* ---- Pictures ---- */

static void add_picture(const options *o, const runner *r, size_t index,
                        batch *b)
{
    picture p;
    char reason[REASON_SIZE];
    const char *path = o->pictures[index];
    if (!picture_read(path, !o->as_stored, &p, reason)) {
        b->good = fail("%s: %s", path, reason);
        return;
    }
    if (is_good(winattn_fit_picture(&r->config, p.height, p.width, 0, p.pixels,
                                    b->pixels + b->count * r->picture_bytes),
                path))
        b->which[b->count++] = index;
    else
        b->good = false;
    picture_free(&p);
}

/* ---- Classes ---- */

static void print_classes(const options *o, const class_names *names,
                          float *logits, size_t classes)
{
    double sum = 0;
    float most = -INFINITY;
    for (size_t i = 0; i < classes; i++)
        most = logits[i] > most ? logits[i] : most;
    for (size_t i = 0; i < classes; i++)
        sum += exp((double)logits[i] - most);
    for (cl_uint rank = 0; rank < o->top && rank < classes; rank++) {
        size_t best = 0;
        for (size_t i = 1; i < classes; i++)
            if (logits[i] > logits[best])
                best = i;
        printf("  %6.2f %%  ", 100 * exp((double)logits[best] - most) / sum);
        class_names_print(names, best);
        printf("\n");
        logits[best] = -INFINITY;
    }
}

static bool print_batch(const options *o, const class_names *names, runner *r,
                        batch *b)
{
    if (r->logits && !runner_read_logits(r, b->logits))
        return false;
    const size_t classes = r->config.classes;
    for (size_t i = 0; i < b->count; i++) {
        float *logits = b->logits + i * classes;
        if (b->all_logits)
            memcpy(b->all_logits + b->which[i] * classes, logits,
                   classes * sizeof *logits);
        const char *path = o->pictures[b->which[i]];
        if (!is_finite(o->dtype, path, logits, classes)) {
            b->good = false;
            continue;
        }
        printf("%s\n", path);
        if (r->logits)
            print_classes(o, names, logits, classes);
    }
    return fflush(stdout) == 0;
}

static bool write_maps(const options *o, runner *r, batch *b)
{
    char path[PATH_SIZE];
    for (cl_uint stage = 0; stage < r->config.stages; stage++) {
        const cl_uint *shape = r->map_shape[stage];
        const uint64_t extent[NPY_AXES] = {shape[1], shape[2], shape[3]};
        if (!r->maps[stage])
            continue;
        if (!runner_read_map(r, stage, b->map))
            return false;
        for (size_t i = 0; i < b->count; i++) {
            const size_t count = map_count(r, stage) / r->batch;
            const float *map = b->map + i * count;
            const int length =
                snprintf(path, sizeof path, "%s/%zu_stage%u.npy", o->stages,
                         b->which[i], (unsigned)stage);
            if (length < 0 || length >= PATH_SIZE ||
                !npy_write(path, 3, extent, map))
                return fail("cannot write %s", path);
            /* else logits tell */
            if (!r->logits && !is_finite(o->dtype, path, map, count))
                b->good = false;
        }
    }
    return true;
}

static bool write_logits(const options *o, const runner *r, const batch *b)
{
    const uint64_t extent[NPY_AXES] = {o->picture_count, r->config.classes};
    if (!b->all_logits || npy_write(o->logits, 2, extent, b->all_logits))
        return true;
    return fail("cannot write %s", o->logits);
}

static bool run_batch(const options *o, const class_names *names, runner *r,
                      batch *b)
{
    return b->count == 0 ||
           (runner_send(r, b->pixels) && runner_start(r) &&
            print_batch(o, names, r, b) && write_maps(o, r, b));
}

bool classify(const options *o, const swin_device *device,
              const winattn_swin_weights *weights,
              const winattn_swin_config *config, const class_names *names)
{
    runner r;
    batch b = {0};
    cl_uint size = o->batch ? o->batch : DEFAULT_BATCH;
    if (size > o->picture_count)
        size = (cl_uint)o->picture_count;
    if (!runner_open(o, device, weights, config, size, o->stages != NULL, &r))
        return false;
    bool goes_on = make_batch(o, &r, &b);
    for (size_t at = 0; goes_on && at < o->picture_count; at += size) {
        b.count = 0;
        for (size_t i = at; i < at + size && i < o->picture_count; i++)
            add_picture(o, &r, i, &b);
        goes_on = run_batch(o, names, &r, &b);
    }
    const bool good = goes_on && write_logits(o, &r, &b) && b.good;
    free_batch(&b);
    runner_close(&r);
    return good;
}
