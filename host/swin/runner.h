/* SPDX-License-Identifier: Apache-2.0
 * A model on a device, with the buffers of its calls. */
#ifndef SWIN_RUNNER_H
#define SWIN_RUNNER_H

#include <stdbool.h>

#include "swin/options.h"
#include "winattn_models.h"

typedef struct swin_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    bool is_cpu;
    char name[512]; /* "platform / device" */
} swin_device;

/* The first GPU, else the first device, whose name has `part` in it, or any
 * if that is NULL. False: why not was said on stderr. */
bool device_open(const char *part, swin_device *device);
void device_close(swin_device *device);

/* False: a call failed, which was printed as well. */
bool device_print_all(void);

/* Makes a buffer. False: on stderr stands for what how many bytes could not be
 * had, and how many there can be. */
bool device_make_buffer(const swin_device *device, cl_ulong bytes,
                        const char *what, cl_mem *made);

typedef struct runner {
    const swin_device *device;
    winattn_swin_config config; /* the model's */
    winattn_dtype dtype;
    cl_uint batch;
    winattn_model *model;
    cl_mem pictures, logits, workspace;
    cl_mem maps[WINATTN_SWIN_STAGES]; /* where they are wanted */
    cl_uint map_shape[WINATTN_SWIN_STAGES][4];
    size_t picture_bytes;                   /* of one */
    cl_ulong buffer_bytes, workspace_bytes; /* the latter of the former */
} runner;

/* The model for batches of that many pictures, with or without maps. False:
 * why not was said on stderr. */
bool runner_open(const options *o, const swin_device *device,
                 const winattn_swin_weights *weights,
                 const winattn_swin_config *config, cl_uint batch,
                 bool wants_maps, runner *r);
void runner_close(runner *r);

/* The batch's pictures, fitted. */
bool runner_send(runner *r, const unsigned char *pictures);
/* A call of these pictures, and of all that there are buffers for. */
winattn_model_call runner_call(const runner *r);
/* Enqueues it. */
bool runner_start(runner *r);
/* Reads results as fp32: [batch, classes], or a stage's map. */
bool runner_read_logits(runner *r, float *logits);
bool runner_read_map(runner *r, cl_uint stage, float *map);

/* Says what a call of the library failed with; returns false then. */
bool is_good(winattn_status status, const char *what);

/* Says so where a result of `what`, such as a picture's path, is infinite or
 * no number; returns false then. */
bool is_finite(winattn_dtype dtype, const char *what, const float *values,
               size_t count);

/* ---- What the program does with it ---- */

/* Names of classes, one to a line of a file. */
typedef struct class_names {
    unsigned char *text;
    const char **names;
    size_t count;
} class_names;

/* False: why not was said on stderr. */
bool class_names_read(const char *path, class_names *names);
void class_names_free(class_names *names);

/* Its number where it has no name. What would move a terminal's cursor is
 * shown as ?. */
void class_names_print(const class_names *names, size_t index);

/* Prints the best classes of each picture, and writes maps where they are
 * wanted. False: something failed and was said, though not for all.
 * (classify.c) */
bool classify(const options *o, const swin_device *device,
              const winattn_swin_weights *weights,
              const winattn_swin_config *config, const class_names *names);

/* Prints what batches and single pictures take, memory, what the same model
 * takes unfused, and what its parts do. (measure.c) */
bool measure(const options *o, const swin_device *device,
             const winattn_swin_weights *weights,
             const winattn_swin_config *config);

#endif
