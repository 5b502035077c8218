/* SPDX-License-Identifier: Apache-2.0
 * A whole training loop: a network of two residual layers of window attention,
 * the first dot with a bias, the second cosine, learns for 50 steps; its loss
 * follows PyTorch's (golden/make_golden.py). q, k and v are read in place from
 * the packed product of a layer's input, and their gradients written the same
 * way. */
#include <math.h>
#include <string.h>

#include "kit/runner.h"

enum {
    WINDOWS = 4,
    TOKENS = 9,
    HEADS = 2,
    DIM = 4,
    CHANNELS = HEADS * DIM,
    ROWS = WINDOWS * TOKENS,
    BIAS = HEADS * TOKENS * TOKENS
};
#define RATE 0.03f

typedef struct layer {
    bool cosine;
    float qkv_weight[3 * CHANNELS][CHANNELS];
    float out_weight[CHANNELS][CHANNELS];
    float term[BIAS]; /* bias, or logit_scale */
    size_t terms;
    winattn_plan *plan;
    cl_mem qkv, o, term_buffer, d_o, d_qkv, d_term, workspace;
    float input[ROWS][CHANNELS], attended[ROWS][CHANNELS];
} layer;

static void load(const char *tensor, float *to, size_t count)
{
    npy_array array = loaded("training", tensor);
    assert_int_equal(array.count, count);
    for (size_t i = 0; i < count; i++)
        to[i] = (float)array.value[i];
    npy_free(&array);
}

static cl_mem new_buffer(size_t floats)
{
    cl_int error;
    const cl_mem mem = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                      floats * sizeof(float), NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    return mem;
}

static void write_buffer(cl_mem mem, const void *from, size_t floats)
{
    assert_int_equal(clEnqueueWriteBuffer(device.queue, mem, CL_TRUE, 0,
                                          floats * sizeof(float), from, 0,
                                          NULL, NULL),
                     CL_SUCCESS);
}

static void read_buffer(cl_mem mem, void *to, size_t floats)
{
    assert_int_equal(clEnqueueReadBuffer(device.queue, mem, CL_TRUE, 0,
                                         floats * sizeof(float), to, 0, NULL,
                                         NULL),
                     CL_SUCCESS);
}

static void open_layer(layer *l, bool cosine)
{
    /* [windows, tokens, 3, heads, dim] and [windows, tokens, heads, dim] */
    const winattn_strides packed = {
        TOKENS * 3 * CHANNELS, DIM, 3 * CHANNELS, 1, {0}};
    const winattn_strides plain = {TOKENS * CHANNELS, DIM, CHANNELS, 1, {0}};
    winattn_desc desc;
    size_t size = 0;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.variant = cosine ? WINATTN_COSINE : WINATTN_DOT;
    desc.bias = cosine ? WINATTN_BIAS_NONE : WINATTN_BIAS_FULL;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    desc.windows = WINDOWS;
    desc.heads = HEADS;
    desc.queries = desc.keys = TOKENS;
    desc.head_dim = DIM;
    desc.scale = 0.5f;
    desc.q = desc.k = desc.v = desc.dq = desc.dk = desc.dv = packed;
    desc.o = desc.d_o = plain;
    l->cosine = cosine;
    l->terms = cosine ? HEADS : BIAS;
    if (winattn_plan_create(device.context, device.id, &desc, &l->plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    winattn_plan_workspace_size(l->plan, &size);
    l->qkv = new_buffer(ROWS * 3 * CHANNELS);
    l->d_qkv = new_buffer(ROWS * 3 * CHANNELS);
    l->o = new_buffer(ROWS * CHANNELS);
    l->d_o = new_buffer(ROWS * CHANNELS);
    l->term_buffer = new_buffer(l->terms);
    l->d_term = new_buffer(l->terms);
    l->workspace = new_buffer(size / 4 + 4);
}

static void close_layer(layer *l)
{
    const cl_mem all[] = {l->qkv,   l->o,      l->term_buffer, l->d_o,
                          l->d_qkv, l->d_term, l->workspace};
    winattn_plan_destroy(l->plan);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        clReleaseMemObject(all[i]);
}

static winattn_tensor part(cl_mem buffer, size_t index)
{
    const winattn_tensor tensor = {buffer, index * CHANNELS * sizeof(float)};
    return tensor;
}

/* y = x + attention(x qkv_weight^T) out_weight^T */
static void run_layer(layer *l, float x[ROWS][CHANNELS],
                      float y[ROWS][CHANNELS])
{
    static float qkv[ROWS][3 * CHANNELS];
    memcpy(l->input, x, sizeof l->input);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 3 * CHANNELS; i++) {
            qkv[r][i] = 0;
            for (int c = 0; c < CHANNELS; c++)
                qkv[r][i] += x[r][c] * l->qkv_weight[i][c];
        }
    write_buffer(l->qkv, qkv, ROWS * 3 * CHANNELS);
    write_buffer(l->term_buffer, l->term, l->terms);
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q = part(l->qkv, 0);
    f.k = part(l->qkv, 1);
    f.v = part(l->qkv, 2);
    *(l->cosine ? &f.logit_scale : &f.bias) = part(l->term_buffer, 0);
    f.o = part(l->o, 0);
    if (winattn_enqueue_forward(l->plan, device.queue, &f, 0, NULL, NULL) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    read_buffer(l->o, l->attended, ROWS * CHANNELS);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < CHANNELS; c++) {
            y[r][c] = x[r][c];
            for (int i = 0; i < CHANNELS; i++)
                y[r][c] += l->attended[r][i] * l->out_weight[c][i];
        }
}

/* Turns the gradient of y into that of x, and takes a step. */
static void learn(layer *l, float d[ROWS][CHANNELS])
{
    static float d_o[ROWS][CHANNELS], d_qkv[ROWS][3 * CHANNELS], d_term[BIAS];
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < CHANNELS; i++) {
            d_o[r][i] = 0;
            for (int c = 0; c < CHANNELS; c++)
                d_o[r][i] += d[r][c] * l->out_weight[c][i];
        }
    write_buffer(l->d_o, d_o, ROWS * CHANNELS);
    winattn_backward b;
    memset(&b, 0, sizeof b);
    b.struct_size = sizeof b;
    b.q = part(l->qkv, 0);
    b.k = part(l->qkv, 1);
    b.v = part(l->qkv, 2);
    *(l->cosine ? &b.logit_scale : &b.bias) = part(l->term_buffer, 0);
    b.d_o = part(l->d_o, 0);
    b.dq = part(l->d_qkv, 0);
    b.dk = part(l->d_qkv, 1);
    b.dv = part(l->d_qkv, 2);
    *(l->cosine ? &b.d_logit_scale : &b.dbias) = part(l->d_term, 0);
    b.workspace = part(l->workspace, 0);
    if (winattn_enqueue_backward(l->plan, device.queue, &b, 0, NULL, NULL) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    read_buffer(l->d_qkv, d_qkv, ROWS * 3 * CHANNELS);
    read_buffer(l->d_term, d_term, l->terms);

    for (int c = 0; c < CHANNELS; c++)
        for (int i = 0; i < CHANNELS; i++) {
            float sum = 0;
            for (int r = 0; r < ROWS; r++)
                sum += d[r][c] * l->attended[r][i];
            l->out_weight[c][i] -= RATE * sum;
        }
    /* d is that of the residual path already */
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < CHANNELS; c++)
            for (int i = 0; i < 3 * CHANNELS; i++)
                d[r][c] += d_qkv[r][i] * l->qkv_weight[i][c];
    for (int i = 0; i < 3 * CHANNELS; i++)
        for (int c = 0; c < CHANNELS; c++) {
            float sum = 0;
            for (int r = 0; r < ROWS; r++)
                sum += d_qkv[r][i] * l->input[r][c];
            l->qkv_weight[i][c] -= RATE * sum;
        }
    for (size_t i = 0; i < l->terms; i++)
        l->term[i] -= RATE * d_term[i];
}

static void follows_pytorch(void **state)
{
    (void)state;
    static layer first, second;
    static float x[ROWS][CHANNELS], target[ROWS][CHANNELS];
    static float middle[ROWS][CHANNELS], y[ROWS][CHANNELS];
    float losses[51];
    load("x", x[0], ROWS * CHANNELS);
    load("target", target[0], ROWS * CHANNELS);
    load("loss", losses, 51);
    load("qkv1", first.qkv_weight[0], 3 * CHANNELS * CHANNELS);
    load("out1", first.out_weight[0], CHANNELS * CHANNELS);
    load("bias1", first.term, BIAS);
    load("qkv2", second.qkv_weight[0], 3 * CHANNELS * CHANNELS);
    load("out2", second.out_weight[0], CHANNELS * CHANNELS);
    load("scale2", second.term, HEADS);
    assert_true(losses[50] < 0.8f * losses[0]); /* it does learn */
    open_layer(&first, false);
    open_layer(&second, true);
    for (int step = 0; step <= 50; step++) {
        const float count = ROWS * CHANNELS;
        float loss = 0;
        run_layer(&first, x, middle);
        run_layer(&second, middle, y);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < CHANNELS; c++) {
                const float off = y[r][c] - target[r][c];
                loss += off * off / count;
                y[r][c] = 2 * off / count;
            }
        if (!(fabsf(loss - losses[step]) <= 1e-5f * losses[step]))
            fail_msg("step %d: loss %g, but PyTorch's is %g", step,
                     (double)loss, (double)losses[step]);
        learn(&second, y);
        learn(&first, y);
    }
    close_layer(&first);
    close_layer(&second);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(follows_pytorch)};

static const test_group groups[] = {TEST_GROUP(NULL, tests)};

int main(int count, char **arguments)
{
    const test_program program = {.part = "training", TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
