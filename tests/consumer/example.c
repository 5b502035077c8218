#include <stdio.h>
#include <stdlib.h>
#include <winattn.h>
#define OK(call) ((call) ? exit(puts(winattn_last_reason())) : (void)0)
static float x[4][3][49][16], y[4][3][49][16]; /* windows heads tokens dim */
static unsigned char rgb[56][56][3];

int main(int count, char **names)
{
    FILE *file = count > 1 ? fopen(names[1], "rb") : NULL; /* 56 x 56 PPM */
    if (!file || fscanf(file, "P6 56 56 255%*c") || !fread(rgb, 9408, 1, file))
        return 1;
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
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &dev, NULL));
    cl_context ctx = clCreateContext(NULL, 1, &dev, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueue(ctx, dev, 0, NULL);
    cl_mem in = clCreateBuffer(ctx, CL_MEM_COPY_HOST_PTR, sizeof x, x, NULL);
    cl_mem out = clCreateBuffer(ctx, CL_MEM_READ_WRITE, sizeof y, NULL, NULL);

    winattn_desc desc = {sizeof desc,   .windows = 4, .heads = 3,
                         .queries = 49, .keys = 49,   .head_dim = 16};
    winattn_forward f = {sizeof f, {in, 0}, {in, 0}, {in, 0}, .o = {out, 0}};
    winattn_plan *plan;
    OK(winattn_plan_create(ctx, dev, &desc, &plan));
    OK(winattn_enqueue_forward(plan, queue, &f, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof y, y, 0, NULL, 0));
    winattn_plan_destroy(plan);
    return fwrite(y, sizeof y, 1, stdout) != 1;
}
