#include <stdio.h>
#include <stdlib.h>
#include <winattn.h>
static float x[4][3][49][16], y[4][3][49][16]; /* windows heads tokens dim */
static unsigned char rgb[56][56][3];

static void check(cl_int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: %s %s\n", what, winattn_status_name(status),
            winattn_last_reason());
    exit(1);
}

/* A binary PPM of 56 x 56 pixels, without a comment. */
static int read_picture(const char *name)
{
    int width, height, most;
    FILE *file = fopen(name, "rb");
    return file &&
           fscanf(file, "P6 %d %d %d%*c", &width, &height, &most) == 3 &&
           width == 56 && height == 56 && most == 255 &&
           fread(rgb, sizeof rgb, 1, file) == 1;
}

int main(int count, char **names)
{
    if (count != 2 || !read_picture(names[1])) {
        fprintf(stderr,
                "usage: %s PICTURE >FLOATS\n"
                "  (PICTURE: P6, 56 x 56, 255, no comment)\n",
                names[0]);
        return 2;
    }
    /* Patches of 4 x 4 pixels are tokens; 7 x 7 of them make a window, 2 x 2
     * windows the picture; each colour is a head. */
    for (int i = 0; i < 56 * 56 * 3; i++) {
        const int r = i / 168, c = i / 3 % 56, colour = i % 3;
        const int token = r / 4 % 7 * 7 + c / 4 % 7;
        x[r / 28 * 2 + c / 28][colour][token][r % 4 * 4 + c % 4] =
            (float)rgb[r][c][colour] / 255 - 0.5f;
    }
    cl_platform_id platform;
    cl_device_id dev;
    cl_int error;
    check(clGetPlatformIDs(1, &platform, NULL), "no OpenCL platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &dev, NULL),
          "no OpenCL device");
    cl_context ctx = clCreateContext(NULL, 1, &dev, NULL, NULL, &error);
    check(error, "context");
    cl_command_queue queue = clCreateCommandQueue(ctx, dev, 0, &error);
    check(error, "queue");
    cl_mem in = clCreateBuffer(ctx, CL_MEM_COPY_HOST_PTR, sizeof x, x, &error);
    check(error, "input");
    cl_mem out = clCreateBuffer(ctx, 0, sizeof y, NULL, &error);
    check(error, "output");

    winattn_desc desc = {.struct_size = sizeof desc, .windows = 4, .heads = 3};
    desc.queries = desc.keys = 49; /* 7 x 7 tokens see each other */
    desc.head_dim = 16;
    winattn_plan *plan;
    check(winattn_plan_create(ctx, dev, &desc, &plan), "plan");

    winattn_forward call = {.struct_size = sizeof call};
    call.q.buffer = call.k.buffer = call.v.buffer = in;
    call.o.buffer = out;
    check(winattn_enqueue_forward(plan, queue, &call, 0, NULL, NULL), "call");
    winattn_plan_destroy(plan); /* the call completes all the same */

    error =
        clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof y, y, 0, NULL, 0);
    check(error, "result");
    return fwrite(y, sizeof y, 1, stdout) != 1;
}
