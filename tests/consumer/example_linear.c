/* SPDX-License-Identifier: Apache-2.0
 * A linear layer of winattn_models, y = GELU(x W^T + b), on the first device
 * there is, compared with a plain loop. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <winattn_models.h>

enum { ROWS = 5, IN = 24, OUT = 10 };

static void check(cl_int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: %s %s\n", what, winattn_status_name(status),
            winattn_last_reason());
    exit(1);
}

static double exact(const float *x, const float *w, float b)
{
    double sum = b;
    for (int i = 0; i < IN; i++)
        sum += (double)x[i] * w[i];
    return sum / 2 * erfc(-sum / sqrt(2.0));
}

int main(void)
{
    static float x[ROWS * IN], w[OUT * IN], b[OUT], y[ROWS * OUT];
    cl_platform_id platform;
    cl_device_id dev;
    cl_int error;
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)(i * 7 % 11) / 5 - 1;
    for (int i = 0; i < OUT * IN; i++)
        w[i] = (float)(i * 5 % 13) / 12 - 0.5f;
    for (int i = 0; i < OUT; i++)
        b[i] = (float)i / 10;
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &dev, NULL),
          "device");
    cl_context ctx = clCreateContext(NULL, 1, &dev, NULL, NULL, &error);
    check(error, "context");
    cl_command_queue queue = clCreateCommandQueue(ctx, dev, 0, &error);
    check(error, "queue");

    winattn_linear_desc desc = {.struct_size = sizeof desc};
    desc.in_features = IN;
    desc.out_features = OUT;
    desc.has_bias = CL_TRUE;
    desc.activation = WINATTN_ACTIVATION_GELU;
    winattn_linear_plan *plan;
    check(winattn_linear_plan_create(ctx, dev, &desc, &plan), "plan");

    winattn_linear call = {.struct_size = sizeof call, .rows = ROWS};
    const cl_mem_flags copy = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
    call.x.buffer = clCreateBuffer(ctx, copy, sizeof x, x, &error);
    check(error, "x");
    call.weight.buffer = clCreateBuffer(ctx, copy, sizeof w, w, &error);
    check(error, "weight");
    call.bias.buffer = clCreateBuffer(ctx, copy, sizeof b, b, &error);
    check(error, "bias");
    call.y.buffer =
        clCreateBuffer(ctx, CL_MEM_READ_WRITE, sizeof y, NULL, &error);
    check(error, "y");
    check(winattn_enqueue_linear(plan, queue, &call, 0, NULL, NULL), "call");
    winattn_linear_plan_destroy(plan); /* the call completes all the same */
    check(clEnqueueReadBuffer(queue, call.y.buffer, CL_TRUE, 0, sizeof y, y, 0,
                              NULL, NULL),
          "read");

    double worst = 0;
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            const double error_here =
                fabs(y[r * OUT + o] - exact(x + r * IN, w + o * IN, b[o]));
            if (!(error_here <= worst))
                worst = error_here;
        }
    printf("linear layer: off by %.1e at most\n", worst);
    clReleaseMemObject(call.x.buffer);
    clReleaseMemObject(call.weight.buffer);
    clReleaseMemObject(call.bias.buffer);
    clReleaseMemObject(call.y.buffer);
    clReleaseCommandQueue(queue);
    clReleaseContext(ctx);
    return worst < 1e-5 ? 0 : 1;
}
