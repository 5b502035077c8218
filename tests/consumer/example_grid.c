/* SPDX-License-Identifier: Apache-2.0
 * Shifted windows of feature maps, forward and backward, where they lie: qkv
 * [batch, height, width, 3, heads, D] as a projection leaves it, a table of
 * biases by relative position, the mask of the shift computed. The result is
 * compared with a plain loop. C11 and C++20. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <winattn.h>

enum {
    BATCH = 2,
    HEIGHT = 14,
    WIDTH = 21,
    WINDOW = 7, /* along both axes */
    SHIFT = 3,
    HEADS = 3,
    DIM = 16,
    TOKENS = WINDOW * WINDOW,
    SIDE = 2 * WINDOW - 1, /* relative positions along an axis */
    ENTRIES = SIDE * SIDE
};

/* Tensors as they lie in memory. Those that are not packed are contiguous: on
 * a grid the heads of a token stand together. */
static float qkv[BATCH][HEIGHT][WIDTH][3][HEADS][DIM], table[ENTRIES][HEADS];
static float o[BATCH][HEIGHT][WIDTH][HEADS][DIM];
static float lse[BATCH][HEIGHT][WIDTH][HEADS];
static float d_o[BATCH][HEIGHT][WIDTH][HEADS][DIM];
static float dqkv[BATCH][HEIGHT][WIDTH][3][HEADS][DIM];
static float dtable[ENTRIES][HEADS];

static cl_context context;
static cl_device_id device;
static cl_command_queue queue;

static void check(cl_int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: %s %s\n", what, winattn_status_name(status),
            winattn_last_reason());
    exit(1);
}

static void open_device(void)
{
    cl_platform_id platform;
    cl_int error;
    check(clGetPlatformIDs(1, &platform, NULL), "no OpenCL platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
          "no OpenCL device");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    check(error, "context");
    queue = clCreateCommandQueue(context, device, 0, &error);
    check(error, "queue");
}

static winattn_tensor new_tensor(size_t size, void *content)
{
    cl_int error;
    const cl_mem_flags copies = content ? CL_MEM_COPY_HOST_PTR : 0;
    const winattn_tensor tensor = {clCreateBuffer(context,
                                                  CL_MEM_READ_WRITE | copies,
                                                  size, content, &error),
                                   0};
    check(error, "buffer");
    return tensor;
}

static void read_tensor(winattn_tensor tensor, size_t size, void *to)
{
    check(clEnqueueReadBuffer(queue, tensor.buffer, CL_TRUE, 0, size, to, 0,
                              NULL, NULL),
          "result");
    clReleaseMemObject(tensor.buffer);
}

/* The same buffer, so many elements further on. */
static winattn_tensor later(winattn_tensor tensor, size_t elements)
{
    tensor.offset += elements * sizeof(float);
    return tensor;
}

/* ---- With winattn ---- */

static winattn_plan *make_plan(void)
{
    /* Strides count elements. q, k and v of a packed tensor have the same, and
     * so have their gradients; where each starts, the calls say in bytes. */
    const cl_ulong token = 3 * HEADS * DIM;
    const winattn_strides packed = {.window = HEIGHT * WIDTH * token,
                                    .head = DIM,
                                    .column = 1,
                                    .axis = {WIDTH * token, token}};
    const winattn_desc desc = {.struct_size = sizeof desc,
                               .heads = HEADS,
                               .head_dim = DIM,
                               .q = packed,
                               .k = packed,
                               .v = packed, /* o and lse: contiguous */
                               .grid = {.axes = 2,
                                        .size = {HEIGHT, WIDTH},
                                        .window = {WINDOW, WINDOW},
                                        .shift = {SHIFT, SHIFT},
                                        .batch = BATCH},
                               .bias = WINATTN_BIAS_TABLE,
                               .mask = WINATTN_MASK_SHIFT,
                               .passes = WINATTN_PASS_FORWARD |
                                         WINATTN_PASS_BACKWARD,
                               .dq = packed,
                               .dk = packed,
                               .dv = packed};
    winattn_plan *plan;
    check(winattn_plan_create(context, device, &desc, &plan), "plan");
    return plan;
}

static void compute(void)
{
    winattn_plan *plan = make_plan();
    size_t bytes; /* of scratch memory; of a forward pass often none */
    check(winattn_plan_workspace_size(plan, &bytes), "workspace");
    const winattn_tensor none = {NULL, 0};
    const winattn_tensor workspace = bytes ? new_tensor(bytes, NULL) : none;
    const winattn_tensor in = new_tensor(sizeof qkv, qkv);
    const winattn_tensor out = new_tensor(sizeof dqkv, NULL);

    const winattn_forward forward = {.struct_size = sizeof forward,
                                     .q = in,
                                     .k = later(in, HEADS * DIM),
                                     .v = later(in, 2 * HEADS * DIM),
                                     .bias = new_tensor(sizeof table, table),
                                     .o = new_tensor(sizeof o, NULL),
                                     .lse = new_tensor(sizeof lse, NULL),
                                     .workspace = workspace};
    check(winattn_enqueue_forward(plan, queue, &forward, 0, NULL, NULL),
          "forward");
    /* o and lse were kept, so they are given. The queue is in order; else the
     * forward pass's event would go on the wait list. */
    const winattn_backward backward = {.struct_size = sizeof backward,
                                       .q = forward.q,
                                       .k = forward.k,
                                       .v = forward.v,
                                       .bias = forward.bias,
                                       .o = forward.o,
                                       .lse = forward.lse,
                                       .d_o = new_tensor(sizeof d_o, d_o),
                                       .dq = out,
                                       .dk = later(out, HEADS * DIM),
                                       .dv = later(out, 2 * HEADS * DIM),
                                       .dbias =
                                           new_tensor(sizeof dtable, NULL),
                                       .workspace = workspace};
    check(winattn_enqueue_backward(plan, queue, &backward, 0, NULL, NULL),
          "backward");
    winattn_plan_destroy(plan); /* the calls complete all the same */

    read_tensor(forward.o, sizeof o, o);
    read_tensor(forward.lse, sizeof lse, lse);
    read_tensor(out, sizeof dqkv, dqkv);
    read_tensor(backward.dbias, sizeof dtable, dtable);
    clReleaseMemObject(in.buffer);
    clReleaseMemObject(forward.bias.buffer);
    clReleaseMemObject(backward.d_o.buffer);
    if (bytes)
        clReleaseMemObject(workspace.buffer);
}

/* ---- With a plain loop ---- */

static double want_o[BATCH][HEIGHT][WIDTH][HEADS][DIM];
static double want_lse[BATCH][HEIGHT][WIDTH][HEADS];
static double want_dqkv[BATCH][HEIGHT][WIDTH][3][HEADS][DIM];
static double want_dtable[ENTRIES][HEADS];

/* A token of a window: its place on the map, and in what region of it. */
typedef struct token {
    int y, x, region;
} token;

/* Behind the shift boundary of the last window is what the shift brought there
 * from the other end of the axis. */
static int region_of(int rolled, int size)
{
    return rolled < size - WINDOW ? 0 : rolled < size - SHIFT ? 1 : 2;
}

/* Token n of window (row, column) of the rolled map. */
static token token_of(int row, int column, int n)
{
    const int y = row * WINDOW + n / WINDOW, x = column * WINDOW + n % WINDOW;
    const token t = {(y + SHIFT) % HEIGHT, (x + SHIFT) % WIDTH,
                     3 * region_of(y, HEIGHT) + region_of(x, WIDTH)};
    return t;
}

/* Entry of the table for query i and key j. */
static int entry_of(int i, int j)
{
    const int y = i / WINDOW - j / WINDOW, x = i % WINDOW - j % WINDOW;
    return (y + WINDOW - 1) * SIDE + x + WINDOW - 1;
}

/* One query against the keys of its window, whose softmax goes to p. */
static void expect_query(int b, int h, const token *window, int i, double *p)
{
    const token at = window[i];
    double sum = 0, most = -HUGE_VAL;
    for (int j = 0; j < TOKENS; j++) {
        const token key = window[j];
        double dot = 0;
        for (int c = 0; c < DIM; c++)
            dot += (double)qkv[b][at.y][at.x][0][h][c] *
                   qkv[b][key.y][key.x][1][h][c];
        p[j] = dot / sqrt((double)DIM) + table[entry_of(i, j)][h] -
               (key.region != at.region ? 100 : 0);
        most = fmax(most, p[j]);
    }
    for (int j = 0; j < TOKENS; j++) {
        p[j] = exp(p[j] - most);
        sum += p[j];
    }
    want_lse[b][at.y][at.x][h] = most + log(sum);
    for (int j = 0; j < TOKENS; j++) {
        p[j] /= sum;
        for (int c = 0; c < DIM; c++)
            want_o[b][at.y][at.x][h][c] +=
                p[j] * qkv[b][window[j].y][window[j].x][2][h][c];
    }
}

/* What the query adds to the gradients. */
static void expect_gradients(int b, int h, const token *window, int i,
                             const double *p)
{
    const token at = window[i];
    double dp[TOKENS], delta = 0;
    for (int j = 0; j < TOKENS; j++) {
        dp[j] = 0;
        for (int c = 0; c < DIM; c++)
            dp[j] += (double)d_o[b][at.y][at.x][h][c] *
                     qkv[b][window[j].y][window[j].x][2][h][c];
        delta += p[j] * dp[j];
    }
    for (int j = 0; j < TOKENS; j++) {
        const token key = window[j];
        const double ds = p[j] * (dp[j] - delta);
        want_dtable[entry_of(i, j)][h] += ds;
        for (int c = 0; c < DIM; c++) {
            want_dqkv[b][at.y][at.x][0][h][c] +=
                ds / sqrt((double)DIM) * qkv[b][key.y][key.x][1][h][c];
            want_dqkv[b][key.y][key.x][1][h][c] +=
                ds / sqrt((double)DIM) * qkv[b][at.y][at.x][0][h][c];
            want_dqkv[b][key.y][key.x][2][h][c] +=
                p[j] * d_o[b][at.y][at.x][h][c];
        }
    }
}

static void expect(void)
{
    token window[TOKENS];
    double p[TOKENS];
    for (int row = 0; row < HEIGHT / WINDOW; row++)
        for (int column = 0; column < WIDTH / WINDOW; column++) {
            for (int n = 0; n < TOKENS; n++)
                window[n] = token_of(row, column, n);
            for (int b = 0; b < BATCH; b++)
                for (int h = 0; h < HEADS; h++)
                    for (int i = 0; i < TOKENS; i++) {
                        expect_query(b, h, window, i, p);
                        expect_gradients(b, h, window, i, p);
                    }
        }
}

/* ---- Both ---- */

static void fill(void *numbers, size_t size)
{
    static unsigned state = 1;
    float *to = (float *)numbers;
    for (size_t i = 0; i < size / sizeof *to; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* Relative, in the 2-norm. */
static double error_of(const void *got, size_t size, const void *wanted)
{
    const float *x = (const float *)got;
    const double *want = (const double *)wanted;
    double error2 = 0, norm2 = 0;
    for (size_t i = 0; i < size / sizeof *x; i++) {
        error2 += (x[i] - want[i]) * (x[i] - want[i]);
        norm2 += want[i] * want[i];
    }
    return sqrt(error2 / norm2);
}

int main(void)
{
    fill(qkv, sizeof qkv);
    fill(table, sizeof table);
    fill(d_o, sizeof d_o);
    open_device();
    compute();
    expect();
    const double errors[4] = {error_of(o, sizeof o, want_o),
                              error_of(lse, sizeof lse, want_lse),
                              error_of(dqkv, sizeof dqkv, want_dqkv),
                              error_of(dtable, sizeof dtable, want_dtable)};
    int good = 1;
    for (int i = 0; i < 4; i++)
        good = good && errors[i] <= 1e-5; /* not so NaN */
    printf("grid: o is off by %.1e, lse %.1e, dqkv %.1e, dtable %.1e: %s\n",
           errors[0], errors[1], errors[2], errors[3],
           good ? "right" : "wrong");
    return !good;
}
