/* SPDX-License-Identifier: Apache-2.0
 * Odd memory layouts between pages that nobody may touch: random strides,
 * offsets and interleaved tensors, and strides beyond 2^32 elements, where
 * memory is sparse. Buffers are the test's own memory, which a CPU uses in
 * place, and which in every second seed starts on a multiple of 4 bytes only,
 * in some of these with contiguous tensors. Results must be those of
 * contiguous tensors, which are compared with the oracle; all other bytes, and
 * those of inputs, must stay as they were.
 *
 *   test_pages TIER KIND FIRST_SEED SEEDS [FIRST_ROW ROWS]
 *
 * KIND: near, far or both. Each row of the table is run with each seed; a
 * failure prints the call that replays it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/guarded.h"
#include "kit/outputs.h"
#include "kit/random_layout.h"
#include "kit/runner.h"

#define GAP_BYTE 0xa5

/* What kernels are compiled for stays within a row; the rest is drawn. */
static const char *const table[] = {
    /* those of label quick */
    "queries=5 keys=7 dim=6 bias=fp32 mask=fp32",
    "dtype=fp16 queries=9 keys=21 dim=16 bias=same mask=same",
    "variant=cosine logit_scale=1 dtype=bf16 queries=16 keys=20 dim=24 "
    "bias=same",
    "grid=2 size=9x9 window=3x2 dim=8 bias=table_fp32 mask=shift",
    "dtype=bf16 grid=3 size=9x9x9 window=2x3x2 dim=16 padding=hidden "
    "bias=table_same mask=shift",
    "variant=sliding queries=40 keys=60 dim=16",
    /* and all others */
    "dtype=bf16 queries=16 dim=12 bias=fp32 mask=regions",
    "variant=cosine queries=10 dim=3 mask=regions",
    "dtype=fp16 queries=70 keys=150 dim=32 bias=same",
    "variant=sliding dtype=fp16 queries=20 keys=33 dim=33",
    "grid=1 size=9 window=5 dim=4 variant=cosine logit_scale=2 bias=fp32",
    "dtype=fp16 grid=2 size=9x9 window=4x4 dim=16 bias=table_same mask=shift",
};
#define ROWS ((int)(sizeof table / sizeof *table))

static int first_row, row_count;
static bool far;
static char doing[1400]; /* and to which case */

/* Outputs; and tensors that reach beyond 2^32 elements. */
static long compared, beyond;

/* ---- Cases ---- */

static int draw(random_state *r, int most) { return random_int(r, 1, most); }

static void draw_shape(random_state *r, test_case *c)
{
    c->windows = draw(r, 4);
    c->batch = draw(r, 3);
    c->kv_heads = draw(r, 2);
    c->heads = c->kv_heads * draw(r, 3);
    if (far) /* there is an axis to stretch */
        c->windows = c->batch = c->heads = c->kv_heads = 2;
    for (int a = 0; a < c->grid; a++) {
        c->size[a] = draw(r, 9);
        c->shift[a] = random_int(r, 0, c->window[a] - 1);
        c->periodic[a] = c->size[a] % c->window[a] == 0 && draw(r, 3) == 1;
    }
    if (c->grid && c->padding == WINATTN_PADDING_VALUES)
        c->pads = random_int(r, 0, 3);
    case_derive(c);
    if (case_mask_is_read(c))
        c->mask_windows = draw(r, 4);
    if (c->mask == TERM_REGIONS)
        c->region_value = -5;
    if (c->variant != WINATTN_SLIDING)
        return;
    c->queries = draw(r, 60);
    c->keys = draw(r, 90);
    c->block = draw(r, 20);
    c->first_block = random_int(r, 0, 40);
    c->window_blocks = random_int(r, 0, 4);
    c->sink = random_int(r, 0, 30);
    c->query_offset = random_int(r, 0, 99);
}

static test_case draw_case(int row, int seed, int pass)
{
    random_state r = random_seeded((unsigned long long)seed + 40000);
    test_case c = parsed(table[row]);
    draw_shape(&r, &c);
    c.seed = seed;
    c.tier = chosen.tier;
    c.pass = pass;
    c.lse = random_int(&r, 0, 1);
    c.d_lse = random_int(&r, 0, 1);
    c.given = random_int(&r, 0, 1);
    c.outputs = random_int(&r, 0, 2) ? 127 : draw(&r, 127);
    c.accumulate = random_int(&r, 0, 2) ? 0 : draw(&r, 127);
    return c;
}

/* ---- Memory ---- */

typedef struct places {
    guarded_area area[TENSORS], workspace;
    unsigned char *before[TENSORS]; /* NULL where memory is sparse */
    device_buffers device;
} places;

/* The first tensor of a buffer. */
static const char *buffer_name(const case_buffers *d, int buffer)
{
    int id = 0;
    while (!d->tensor[id].used || d->tensor[id].buffer != buffer)
        id++;
    return tensor_names[id];
}

/* Writes a tensor's values to its memory; then those that share an element
 * get what is there. */
static void write_tensor(tensor_data *t, unsigned char *at)
{
    const size_t count = data_count(t);
    for (size_t i = 0; i < count; i++)
        kind_write(t->kind, t->value ? t->value[i] : NAN,
                   at + data_place_of(t, i));
    for (size_t i = 0; t->value && i < count; i++)
        t->value[i] = kind_read(t->kind, at + data_place_of(t, i));
}

static cl_mem wrap(const guarded_area *area)
{
    cl_int error;
    const cl_mem mem =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                       area->size, area->at, &error);
    if (error != CL_SUCCESS)
        fail_msg("%s\na buffer of %zu bytes: error %d", doing, area->size,
                 error);
    return mem;
}

static void count_beyond(const tensor_data *t)
{
    const size_t last = data_place_of(t, data_count(t) - 1);
    beyond += (last - t->offset) / kind_size(t->kind) >> 32 != 0;
}

static void make_places(case_buffers *d, places *p)
{
    memset(p, 0, sizeof *p);
    for (int b = 0; b < d->buffers; b++) {
        const size_t size = d->buffer[b].size;
        const size_t skew = d->c.seed % 2 ? 4 : 0;
        if (!guarded_make(&p->area[b], buffer_name(d, b), size + skew,
                          size % 128 == 0 && skew == 0))
            fail_msg("%s\nno space for %zu bytes", doing, size);
        p->area[b].at += skew;
        p->area[b].size -= skew;
        if (!far)
            memset(p->area[b].at, GAP_BYTE, size);
    }
    for (int id = 0; id < TENSORS; id++)
        if (d->tensor[id].used) {
            write_tensor(&d->tensor[id], p->area[d->tensor[id].buffer].at);
            count_beyond(&d->tensor[id]);
        }
    for (int b = 0; b < d->buffers; b++) {
        const guarded_area *area = &p->area[b];
        p->device.mem[b] = wrap(area);
        if (far)
            continue;
        p->before[b] = malloc(area->size);
        memcpy(p->before[b], area->at, area->size);
    }
}

static void free_places(places *p)
{
    buffers_release(&p->device);
    for (int b = 0; b < TENSORS; b++) {
        guarded_free(&p->area[b]);
        free(p->before[b]);
    }
    guarded_free(&p->workspace);
}

/* ---- Calls ---- */

/* A workspace that ends where its needed size does. */
static winattn_tensor make_workspace(const winattn_plan *plan, places *p)
{
    winattn_tensor tensor = {NULL, 0};
    size_t size = 0;
    assert_int_equal(winattn_plan_workspace_size(plan, &size), CL_SUCCESS);
    if (size == 0)
        return tensor;
    tensor.offset = (128 - size % 128) % 128;
    assert_true(guarded_make(&p->workspace, "workspace",
                             size + (size_t)tensor.offset, true));
    memset(p->workspace.at, 0xff, p->workspace.size); /* NaN */
    tensor.buffer = wrap(&p->workspace);
    return tensor;
}

static void call(const case_buffers *d, places *p)
{
    const winattn_desc desc = data_desc(d);
    winattn_plan *plan = NULL;
    winattn_status status =
        winattn_plan_create(device.context, device.id, &desc, &plan);
    if (status != WINATTN_SUCCESS)
        fail_msg("%s\n%s", doing, winattn_last_reason());
    const winattn_tensor workspace = make_workspace(plan, p);
    if (d->c.pass == PASS_FORWARD) {
        winattn_forward f = buffers_forward(d, &p->device);
        f.workspace = workspace;
        status =
            winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL);
    } else {
        winattn_backward b = buffers_backward(d, &p->device);
        b.workspace = workspace;
        status =
            winattn_enqueue_backward(plan, device.queue, &b, 0, NULL, NULL);
    }
    if (status != WINATTN_SUCCESS)
        fail_msg("%s\n%s", doing, winattn_last_reason());
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    if (workspace.buffer)
        clReleaseMemObject(workspace.buffer);
    winattn_plan_destroy(plan);
}

/* ---- Verdict ---- */

/* Results as double precision holds them, and inputs as they were. */
static void take_results(const case_buffers *d, const places *p,
                         case_outputs *out)
{
    for (int id = 0; id < TENSORS; id++) {
        const tensor_data *t = &d->tensor[id];
        const unsigned char *bytes = p->area[t->buffer].at;
        for (size_t i = 0; t->used && i < data_count(t); i++) {
            const double now = kind_read(t->kind, bytes + data_place_of(t, i));
            if (t->is_output)
                out->value[id][i] = now;
            else if (now != t->value[i])
                fail_msg("%s\nan input was written: %s", doing,
                         tensor_names[id]);
        }
    }
}

/* Bytes that are no element of an output. Elements of outputs are made as
 * they were. */
static void check_gaps(const case_buffers *d, places *p)
{
    for (int id = 0; id < TENSORS; id++) {
        const tensor_data *t = &d->tensor[id];
        const size_t size = kind_size(t->kind);
        for (size_t i = 0; t->used && t->is_output && i < data_count(t); i++) {
            const size_t at = data_place_of(t, i);
            memcpy(p->area[t->buffer].at + at, p->before[t->buffer] + at,
                   size);
        }
    }
    for (int b = 0; b < d->buffers; b++)
        for (size_t i = 0; i < p->area[b].size; i++)
            if (p->area[b].at[i] != p->before[b][i])
                fail_msg("%s\nbyte %zu of %zu of the buffer of %s was "
                         "written, which is no element of an output",
                         doing, i, p->area[b].size, buffer_name(d, b));
}

/* The same values in contiguous tensors, compared with the oracle. */
static case_outputs run_contiguous(const case_buffers *d, const test_case *c)
{
    case_result result;
    device_buffers b;
    case_buffers *plain = data_make(c);
    assert_non_null(plain);
    for (int id = 0; id < TENSORS; id++)
        if (plain->tensor[id].value)
            memcpy(plain->tensor[id].value, d->tensor[id].value,
                   sizeof(double) * data_count(&d->tensor[id]));
    data_write(plain);
    memset(&result, 0, sizeof result);
    assert_true(buffers_create(&device, plain, &b));
    if (!buffers_run(&device, plain, &b, 1, &result) ||
        !buffers_check(device.queue, plain, &b, &result))
        fail_msg("%s\ncontiguous: %s", doing, result.failure);
    case_outputs out = outputs_make(plain);
    assert_true(outputs_read(device.queue, plain, &b, &out));
    buffers_release(&b);
    data_free(plain);
    return out;
}

/* Kernels load numbers in other ways where they lie otherwise, but compute the
 * same with them: the bits are equal. */
static void compare(const case_buffers *d, const case_outputs *got,
                    const case_outputs *want)
{
    for (int id = 0; id < TENSORS; id++) {
        const double *x = got->value[id], *y = want->value[id];
        for (size_t i = 0; x && i < data_count(&d->tensor[id]); i++)
            if (memcmp(&x[i], &y[i], sizeof *x) != 0)
                fail_msg("%s\nnumber %zu of %s is %g, in contiguous tensors "
                         "%g",
                         doing, i, tensor_names[id], x[i], y[i]);
        compared += x != NULL;
    }
}

static void run_seed(int row, int seed, int pass)
{
    test_case c = draw_case(row, seed, pass);
    random_state r = random_seeded((unsigned long long)seed + 50000);
    char text[1024];
    case_print(&c, text, sizeof text);
    snprintf(doing, sizeof doing, "test_pages %s %s %d 1 %d 1: %s",
             chosen.tier == WINATTN_TIER_CPU ? "cpu" : "local",
             far ? "far" : "near", seed, row, text);
    case_buffers *d = data_make(&c);
    assert_non_null(d);
    places p;
    if (far || seed % 4 != 1)
        layout_random(d, &r, far);
    case_outputs got = outputs_make(d);
    make_places(d, &p);
    call(d, &p);
    take_results(d, &p, &got);
    if (!far)
        check_gaps(d, &p);
    free_places(&p);
    case_outputs want = run_contiguous(d, &c);
    compare(d, &got, &want);
    outputs_free(&got);
    outputs_free(&want);
    data_free(d);
}

static void run_rows(void)
{
    const int first_seed = chosen.first, end = first_seed + chosen.count;
    guarded_watch(doing); /* cmocka has handlers of its own until here */
    compared = beyond = 0;
    for (int row = first_row; row < first_row + row_count && row < ROWS; row++)
        for (int seed = first_seed; seed < end; seed++)
            for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++)
                run_seed(row, seed, pass);
    printf("seeds %d to %d: %ld outputs compared, %ld tensors beyond 2^32 "
           "elements\n",
           first_seed, end - 1, compared, beyond);
    assert_true(compared > 0);
    assert_int_equal(beyond > 0, far);
}

/* Some runtimes allow no buffer of more than a part of the memory there is,
 * and some systems no space that they could not fill. */
static bool allows_far(void)
{
    const cl_ulong wanted = (cl_ulong)1 << 38;
    cl_ulong most = 0;
    guarded_area area;
    clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most,
                    &most, NULL);
    if (most < wanted || !guarded_make(&area, "", (size_t)wanted, true))
        return false;
    guarded_free(&area);
    return true;
}

static void near_rows(void **state)
{
    (void)state;
    far = false;
    run_rows();
}

static void far_rows(void **state)
{
    (void)state;
    if (!allows_far()) {
        printf("skipped: buffers may not be large enough\n");
        skip();
    }
    far = true;
    run_rows();
}

/* ---- Program ---- */

/* A CPU that uses the host's memory in place. */
static bool uses_host_memory(void)
{
    static unsigned char bytes[4096] __attribute__((aligned(4096)));
    const cl_uint pattern = 0x12345678;
    cl_device_type type = 0;
    cl_int error;
    clGetDeviceInfo(device.id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    if (!(type & CL_DEVICE_TYPE_CPU))
        return false;
    const cl_mem mem =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                       sizeof bytes, bytes, &error);
    if (error != CL_SUCCESS)
        return false;
    clEnqueueFillBuffer(device.queue, mem, &pattern, sizeof pattern, 0,
                        sizeof bytes, 0, NULL, NULL);
    clFinish(device.queue);
    const bool used = memcmp(bytes, &pattern, sizeof pattern) == 0;
    clReleaseMemObject(mem);
    return used;
}

/* 77 if the device does not use the host's memory. */
static int run_kinds(void)
{
    static const struct CMUnitTest near[] = {cmocka_unit_test(near_rows)};
    static const struct CMUnitTest far_only[] = {cmocka_unit_test(far_rows)};
    static const struct CMUnitTest both[] = {cmocka_unit_test(near_rows),
                                             cmocka_unit_test(far_rows)};
    static const test_group groups[] = {TEST_GROUP("near", near),
                                        TEST_GROUP("far", far_only),
                                        TEST_GROUP(NULL, both)};
    winattn_programs *kept = NULL;
    if (!uses_host_memory()) {
        printf("skipped: the device does not use the host's memory\n");
        return TEST_SKIPPED;
    }
    /* so that each kernel is compiled once */
    winattn_programs_create(device.context, device.id, &kept);
    const int failures = runner_run(groups, sizeof groups / sizeof *groups);
    winattn_programs_destroy(kept);
    return failures;
}

int main(int count, char **arguments)
{
    static const run_word words[] = {WORD_TIER, WORD_PART, WORD_FIRST,
                                     WORD_COUNT, WORD_END};
    chosen.tier = WINATTN_TIER_CPU;
    chosen.part = "both";
    chosen.count = 10;
    if (!runner_read(words, count, arguments))
        return 1;
    first_row = count > 5 ? atoi(arguments[5]) : 0;
    row_count = count > 6 ? atoi(arguments[6]) : ROWS;
    if (!runner_open())
        return 1;
    const int result = chosen.tier != WINATTN_TIER_LOCAL || keeps_barriers()
                           ? run_kinds()
                           : TEST_SKIPPED;
    runner_close();
    return result;
}
