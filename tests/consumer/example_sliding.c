/* SPDX-License-Identifier: Apache-2.0
 * Decoding with a cache of keys and values that grows: a prompt, then block
 * after block of new tokens, as an autoregressive video model makes them; with
 * BLOCK = 1 token after token. A new token sees its own block and those before
 * it that the window holds, and the first tokens of all, the sink. The result
 * is compared with a plain loop. C11 and C++20. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <winattn.h>

enum {
    BATCH = 2,
    HEADS = 4,
    KV_HEADS = 2, /* two query heads share a key head */
    DIM = 32,
    PROMPT = 10,
    BLOCK = 16,
    BLOCKS = 6,
    WINDOW = 3, /* blocks that a query sees, its own counted */
    SINK = 4,
    CAPACITY = PROMPT + BLOCKS * BLOCK
};

/* What a model would make of all tokens, and what becomes of them. */
static float q[BATCH][CAPACITY][HEADS][DIM], o[BATCH][CAPACITY][HEADS][DIM];
static float k[BATCH][CAPACITY][KV_HEADS][DIM];
static float v[BATCH][CAPACITY][KV_HEADS][DIM];

/* On the device: queries of one step, their results, and the cache. */
static cl_mem new_q, new_o, cached_k, cached_v;
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

static cl_mem new_buffer(size_t size)
{
    cl_int error;
    cl_mem buffer =
        clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &error);
    check(error, "buffer");
    return buffer;
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
    new_q = new_buffer(sizeof q);
    new_o = new_buffer(sizeof o);
    cached_k = new_buffer(sizeof k);
    cached_v = new_buffer(sizeof v);
}

/* ---- With winattn ---- */

/* Tokens `first` up to `end` come in: of each sequence, q goes where the last
 * step's was, k and v go behind those of the cache. */
static void append(int first, int end)
{
    const size_t count = (size_t)(end - first);
    for (size_t b = 0; b < BATCH; b++) {
        check(clEnqueueWriteBuffer(
                  queue, new_q, CL_FALSE, b * count * sizeof q[0][0],
                  count * sizeof q[0][0], q[b][first], 0, NULL, NULL),
              "q");
        check(clEnqueueWriteBuffer(
                  queue, cached_k, CL_FALSE,
                  (b * CAPACITY + (size_t)first) * sizeof k[0][0],
                  count * sizeof k[0][0], k[b][first], 0, NULL, NULL),
              "k");
        check(clEnqueueWriteBuffer(
                  queue, cached_v, CL_FALSE,
                  (b * CAPACITY + (size_t)first) * sizeof v[0][0],
                  count * sizeof v[0][0], v[b][first], 0, NULL, NULL),
              "v");
    }
}

/* For the queries of tokens `first` up to `end`, and all keys up to there. */
static winattn_plan *make_plan(int first, int end)
{
    const cl_uint count = (cl_uint)(end - first);
    const winattn_strides step = {/* [batch, count, heads, D] */
                                  .window = (cl_ulong)count * HEADS * DIM,
                                  .head = DIM,
                                  .row = HEADS * DIM,
                                  .column = 1};
    const winattn_strides cache = {/* [batch, CAPACITY, kv_heads, D] */
                                   .window = CAPACITY * KV_HEADS * DIM,
                                   .head = DIM,
                                   .row = KV_HEADS * DIM,
                                   .column = 1};
    const winattn_desc desc = {.struct_size = sizeof desc,
                               .variant = WINATTN_SLIDING,
                               .windows = BATCH,
                               .heads = HEADS,
                               .kv_heads = KV_HEADS,
                               .queries = count,
                               .keys = (cl_uint)end,
                               .head_dim = DIM,
                               .q = step,
                               .k = cache,
                               .v = cache,
                               .o = step,
                               .block = BLOCK,
                               .first_block = PROMPT,
                               .window_blocks = WINDOW,
                               .sink = SINK,
                               .query_offset = (cl_uint)first};
    winattn_plan *plan;
    check(winattn_plan_create(context, device, &desc, &plan), "plan");
    return plan;
}

static void decode(int first, int end)
{
    const size_t count = (size_t)(end - first);
    winattn_plan *plan = make_plan(first, end);
    size_t bytes; /* of scratch memory; of a forward pass often none */
    check(winattn_plan_workspace_size(plan, &bytes), "workspace");
    cl_mem workspace = bytes ? new_buffer(bytes) : NULL;
    const winattn_forward forward = {.struct_size = sizeof forward,
                                     .q = {new_q, 0},
                                     .k = {cached_k, 0},
                                     .v = {cached_v, 0},
                                     .o = {new_o, 0},
                                     .workspace = {workspace, 0}};
    append(first, end);
    check(winattn_enqueue_forward(plan, queue, &forward, 0, NULL, NULL),
          "forward");
    winattn_plan_destroy(plan); /* the call completes all the same */
    for (size_t b = 0; b < BATCH; b++)
        check(clEnqueueReadBuffer(
                  queue, new_o, CL_TRUE, b * count * sizeof o[0][0],
                  count * sizeof o[0][0], o[b][first], 0, NULL, NULL),
              "o");
    if (workspace)
        clReleaseMemObject(workspace);
}

static void compute(void)
{
    /* Each step has a plan of its own, as it has more keys. That compiles
     * nothing anew in this variant, as long as somebody keeps the kernels. */
    winattn_programs *kernels;
    check(winattn_programs_create(context, device, &kernels), "kernels");
    decode(0, PROMPT);
    for (int n = 0; n < BLOCKS; n++)
        decode(PROMPT + n * BLOCK, PROMPT + (n + 1) * BLOCK);
    winattn_programs_destroy(kernels);
    clReleaseMemObject(new_q);
    clReleaseMemObject(new_o);
    clReleaseMemObject(cached_k);
    clReleaseMemObject(cached_v);
}

/* ---- With a plain loop ---- */

static int block_of(int token)
{
    return token < PROMPT ? 0 : 1 + (token - PROMPT) / BLOCK;
}

static int sees(int query, int key)
{
    const int ahead = block_of(query) - block_of(key);
    return ahead >= 0 && (ahead < WINDOW || key < SINK);
}

static void expect(int b, int h, int i, double want[DIM])
{
    const int shared = h / (HEADS / KV_HEADS);
    double s[CAPACITY], most = -HUGE_VAL, sum = 0;
    for (int j = 0; j < CAPACITY; j++) {
        if (!sees(i, j))
            continue;
        s[j] = 0;
        for (int c = 0; c < DIM; c++)
            s[j] += (double)q[b][i][h][c] * k[b][j][shared][c];
        s[j] /= sqrt((double)DIM);
        most = fmax(most, s[j]);
    }
    for (int c = 0; c < DIM; c++)
        want[c] = 0;
    for (int j = 0; j < CAPACITY; j++) {
        if (!sees(i, j))
            continue;
        const double p = exp(s[j] - most);
        sum += p;
        for (int c = 0; c < DIM; c++)
            want[c] += p * v[b][j][shared][c];
    }
    for (int c = 0; c < DIM; c++)
        want[c] /= sum;
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

int main(void)
{
    double error2 = 0, norm2 = 0, want[DIM];
    fill(q, sizeof q);
    fill(k, sizeof k);
    fill(v, sizeof v);
    open_device();
    compute();
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < CAPACITY; i++) {
                expect(b, h, i, want);
                for (int c = 0; c < DIM; c++) {
                    const double error = o[b][i][h][c] - want[c];
                    error2 += error * error;
                    norm2 += want[c] * want[c];
                }
            }
    const double error = sqrt(error2 / norm2);
    const int good = error <= 5e-6; /* not so NaN */
    printf("sliding: o of %d tokens in %d steps is off by %.1e: %s\n",
           CAPACITY, 1 + BLOCKS, error, good ? "right" : "wrong");
    return !good;
}
