/* SPDX-License-Identifier: Apache-2.0
 * Classifies a picture by a Swin from a file of safetensors, on the first
 * device there is. */
#include <stdio.h>
#include <stdlib.h>

#include <winattn_models.h>

static void check(cl_int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: %s %s\n", what, winattn_status_name(status),
            winattn_last_reason());
    exit(1);
}

/* A binary PPM of 8 bits, without a comment; the model's part of it. */
static unsigned char *fitted(const char *name, const winattn_swin_config *c)
{
    unsigned height = 0, width = 0;
    FILE *file = fopen(name, "rb");
    if (!file || fscanf(file, "P6 %5u %5u 255%*c", &width, &height) != 2) {
        fprintf(stderr, "%s is no binary PPM\n", name);
        exit(1);
    }
    unsigned char *rgb = (unsigned char *)calloc((size_t)height * width, 3);
    unsigned char *part =
        (unsigned char *)calloc((size_t)c->crop[0] * c->crop[1], 3);
    if (!rgb || !part || fread(rgb, 3, (size_t)height * width, file) == 0)
        exit(1);
    fclose(file);
    check(winattn_fit_picture(c, height, width, 0, rgb, part), name);
    free(rgb);
    return part;
}

int main(int count, char **names)
{
    if (count != 3) {
        fprintf(stderr, "usage: %s WEIGHTS PICTURE\n", names[0]);
        return 2;
    }
    cl_platform_id platform;
    cl_device_id dev;
    cl_int error;
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &dev, NULL),
          "device");
    cl_context ctx = clCreateContext(NULL, 1, &dev, NULL, NULL, &error);
    check(error, "context");
    cl_command_queue queue = clCreateCommandQueue(ctx, dev, 0, &error);
    check(error, "queue");

    winattn_swin_weights *weights;
    winattn_swin_config config = {.struct_size = sizeof config};
    check(winattn_swin_weights_open(names[1], NULL, &weights), names[1]);
    check(winattn_swin_weights_config(weights, &config), "config");

    winattn_model_desc desc = {.struct_size = sizeof desc};
    desc.batch = 1;
    desc.height = config.crop[0];
    desc.width = config.crop[1];
    winattn_model *model;
    check(winattn_model_create(ctx, dev, &desc, weights, &model), "model");
    winattn_swin_weights_destroy(weights); /* the model has its own */

    size_t workspace;
    check(winattn_model_workspace_size(model, &workspace), "workspace");
    unsigned char *picture = fitted(names[2], &config);
    winattn_model_call call = {.struct_size = sizeof call};
    call.pictures.buffer =
        clCreateBuffer(ctx, CL_MEM_COPY_HOST_PTR,
                       (size_t)3 * desc.height * desc.width, picture, &error);
    check(error, "picture");
    for (int i = 0; i < 3; i++) {
        call.mean[i] = config.mean[i];
        call.deviation[i] = config.deviation[i];
    }
    call.logits.buffer =
        clCreateBuffer(ctx, 0, config.classes * sizeof(float), NULL, &error);
    check(error, "logits");
    call.workspace.buffer = clCreateBuffer(ctx, 0, workspace, NULL, &error);
    check(error, "workspace");
    check(winattn_enqueue_model(model, queue, &call, 0, NULL, NULL), "call");
    winattn_model_destroy(model); /* the call completes all the same */

    float *logits = (float *)calloc(config.classes, sizeof(float));
    check(clEnqueueReadBuffer(queue, call.logits.buffer, CL_TRUE, 0,
                              config.classes * sizeof(float), logits, 0, NULL,
                              NULL),
          "logits");
    cl_uint best = 0;
    for (cl_uint i = 1; i < config.classes; i++)
        best = logits[i] > logits[best] ? i : best;
    printf("class %u\n", (unsigned)best);
    free(logits);
    free(picture);
    return 0;
}
