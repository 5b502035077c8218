/* SPDX-License-Identifier: Apache-2.0
 * Launch lists through a CUDA driver in software (tests/emulator/cuda.h), of
 * plans for its H200: results against the oracle, and what is refused. The
 * plan and all that is OpenCL's is gone before anything is launched. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda.h"
#include "cuda/driver.h"
#include "cuda/module_text.h"
#include "kit/runner.h"
#include "kit/scratch.h"

static void *library;

static winattn_any_function find(const char *name)
{
    winattn_any_function function;
    void *const symbol = dlsym(library, name);
    memcpy(&function, &symbol, sizeof function);
    return function;
}

/* ---- A case ---- */

typedef struct memory {
    wa_cu_address buffers[TENSORS], workspace;
    winattn_memory at[WINATTN_TENSORS];
} memory;

static void require(wa_cu_result result) { assert_int_equal(result, 0); }

static void copy_to_device(const case_buffers *d, size_t workspace, memory *m)
{
    const wa_cuda *cuda = wa_cuda_driver();
    memset(m, 0, sizeof *m);
    for (int i = 0; i < d->buffers; i++) {
        require(cuda->allocate(&m->buffers[i], d->buffer[i].size));
        require(
            cuda->write(m->buffers[i], d->buffer[i].bytes, d->buffer[i].size));
    }
    for (int id = 0; id < TENSORS; id++) {
        const tensor_data *t = &d->tensor[id];
        if (t->used)
            m->at[id] =
                (winattn_memory){m->buffers[t->buffer] + t->offset,
                                 d->buffer[t->buffer].size - t->offset};
    }
    if (workspace) { /* what nobody wrote is known to the emulator */
        require(cuda->allocate(&m->workspace, workspace));
        m->at[WINATTN_TENSOR_WORKSPACE] =
            (winattn_memory){m->workspace, workspace};
    }
}

static void copy_back(cl_command_queue queue, const case_buffers *d,
                      const device_buffers *b, const memory *m)
{
    for (int i = 0; i < d->buffers; i++) {
        const size_t size = d->buffer[i].size;
        unsigned char *bytes = malloc(size);
        assert_non_null(bytes);
        require(wa_cuda_driver()->read(bytes, m->buffers[i], size));
        assert_int_equal(clEnqueueWriteBuffer(queue, b->mem[i], CL_TRUE, 0,
                                              size, bytes, 0, NULL, NULL),
                         CL_SUCCESS);
        free(bytes);
    }
}

static void free_memory(const memory *m)
{
    for (int i = 0; i < TENSORS; i++)
        if (m->buffers[i])
            wa_cuda_driver()->free(m->buffers[i]);
    if (m->workspace)
        wa_cuda_driver()->free(m->workspace);
}

/* The plan of a case, and its tensors and workspace on the device. */
static winattn_status prepare(const test_device *on, const case_buffers *d,
                              winattn_plan **plan, memory *m)
{
    const winattn_desc desc = data_desc(d);
    size_t workspace = 0;
    memset(m, 0, sizeof *m);
    const winattn_status status =
        winattn_plan_create(on->context, on->id, &desc, plan);
    if (status != WINATTN_SUCCESS)
        return status;
    winattn_plan_workspace_size(*plan, &workspace);
    copy_to_device(d, workspace, m);
    return WINATTN_SUCCESS;
}

static winattn_status create(int ordinal, const case_buffers *d,
                             const winattn_plan *plan, const memory *m,
                             winattn_cuda_call **call)
{
    const bool is_forward = d->c.pass == PASS_FORWARD;
    return winattn_cuda_call_create(
        ordinal, plan,
        is_forward ? WINATTN_PASS_FORWARD : WINATTN_PASS_BACKWARD, m->at,
        is_forward ? 0 : (cl_bitfield)(d->c.accumulate & d->c.outputs), NULL,
        call);
}

/* Two calls in a row. */
static bool call_by_cuda(const test_device *on, const case_buffers *d,
                         const device_buffers *b, const void *how,
                         case_result *result)
{
    memory m;
    winattn_cuda_call *call = NULL;
    const bool adds = d->c.pass == PASS_BACKWARD && d->c.accumulate;
    (void)how;
    winattn_plan *plan = NULL;
    winattn_status status = prepare(on, d, &plan, &m);
    if (status == WINATTN_SUCCESS)
        status = create(0, d, plan, &m, &call);
    winattn_plan_destroy(plan);
    for (int i = 0; i < (adds ? 1 : 2) && status == WINATTN_SUCCESS; i++)
        status = winattn_cuda_call_launch(call, m.at, NULL);
    if (status == WINATTN_SUCCESS) {
        require(wa_cuda_driver()->synchronize(NULL));
        copy_back(on->queue, d, b, &m);
    } else {
        snprintf(result->failure, sizeof result->failure, "%s: %s",
                 winattn_status_name(status), winattn_last_reason());
    }
    winattn_cuda_call_destroy(call);
    free_memory(&m);
    return status == WINATTN_SUCCESS;
}

/* One of each family of an H200, and what a list has besides: expanded tables,
 * an index and listed entries of one, launches in parts, tensors that start
 * anywhere, gradients that are added to. */
static const char *const cases[] = {
    "queries=49 dim=32 bias=same mask=regions mask_windows=2 dtype=fp16",
    "variant=cosine logit_scale=2 queries=64 dim=32 dtype=bf16 layout=packed",
    "queries=64 dim=32 dtype=fp32 tier=local bias=table_fp32 entries=91",
    "grid=2 size=15x13 window=7x7 shift=3x3 mask=shift dim=32 dtype=fp16 "
    "bias=table_same pads=3 layout=packed",
    "grid=2 size=16x16 window=8x8 shift=3x4 mask=shift dim=32 dtype=fp16 "
    "bias=table_fp32 layout=tokens tier=local",
    "queries=256 dim=32 bias=same dtype=fp16",
    "queries=256 dim=32 bias=same dtype=fp16 layout=misaligned",
    "variant=sliding queries=200 dim=64 block=64 dtype=fp16",
    "variant=sliding queries=90 keys=120 block=30 dim=64 dtype=fp32 sink=9 "
    "query_offset=30 window_blocks=2",
    "pass=backward queries=49 dim=32 bias=same dtype=fp16 accumulate=9",
    "pass=backward queries=49 dim=32 bias=table_same entries=60 dtype=fp16 "
    "given=1",
    "pass=backward grid=2 size=15x13 window=7x7 shift=3x3 mask=shift dim=32 "
    "dtype=fp16 bias=table_same pads=3 layout=packed",
    "pass=backward variant=cosine logit_scale=2 queries=64 dim=32 dtype=bf16 "
    "d_lse=1",
    "pass=backward queries=144 dim=32 bias=same dtype=fp16 heads=1",
    "pass=backward queries=200 dim=32 bias=same dtype=fp16 "
    "layout=misaligned windows=1 heads=1",
    "pass=backward variant=sliding queries=200 dim=64 block=64 dtype=fp16 "
    "given=1 windows=1 heads=1",
    "pass=backward queries=33 dim=16 dtype=fp32 tier=local bias=fp32",
};

static void test_cases(void **state)
{
    size_t failures = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_result result;
        const test_case c = parsed(cases[i]);
        if (!row_is_chosen(i))
            continue;
        announce("%zu: %s\n", i, cases[i]);
        if (case_run_by(&device, &c, call_by_cuda, NULL, &result))
            continue;
        printf("%zu: %s\n%s\n", i, cases[i], result.failure);
        failures++;
    }
    assert_int_equal(failures, 0);
}

/* ---- What is refused ---- */

#define SMALL "queries=49 dim=32 bias=same dtype=fp16"

/* Made and checked with tensors that are wrong. */
static void check_wrong(const winattn_plan *plan,
                        const winattn_launch_list *list, const memory *m)
{
    const winattn_memory q = m->at[T_Q], v = m->at[T_V], o = m->at[T_O];
    const struct {
        winattn_tensor_name id;
        winattn_memory at;
        winattn_status first, later;
    } wrong[] = {
        {WINATTN_TENSOR_K,
         {0, 0},
         WINATTN_INVALID_ARGUMENT,
         WINATTN_INVALID_ARGUMENT},
        {WINATTN_TENSOR_MASK, q, WINATTN_INVALID_ARGUMENT,
         WINATTN_INVALID_ARGUMENT},
        {WINATTN_TENSOR_V,
         {v.address, 100},
         WINATTN_BUFFER_TOO_SMALL,
         WINATTN_BUFFER_TOO_SMALL},
        {WINATTN_TENSOR_Q,
         {q.address + 1, q.bytes},
         WINATTN_INVALID_LAYOUT,
         WINATTN_INVALID_LAYOUT},
        /* legal, but of a list of its own */
        {WINATTN_TENSOR_O,
         {o.address + 2, o.bytes},
         WINATTN_SUCCESS,
         WINATTN_INVALID_LAYOUT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        winattn_launch_list *made;
        winattn_memory at[WINATTN_TENSORS];
        memcpy(at, m->at, sizeof at);
        at[wrong[i].id] = wrong[i].at;
        assert_int_equal(winattn_launch_list_create(plan, WINATTN_PASS_FORWARD,
                                                    at, 0, &made),
                         wrong[i].first);
        assert_true((made != NULL) == (wrong[i].first == WINATTN_SUCCESS));
        winattn_launch_list_destroy(made);
        assert_int_equal(winattn_launch_list_check(list, at), wrong[i].later);
    }
}

static void check_arguments(const winattn_plan *plan, const memory *m)
{
    static const struct {
        bool has_plan, has_memory;
        cl_bitfield pass, accumulate;
    } wrong[] = {
        {false, true, WINATTN_PASS_FORWARD, 0},
        {true, false, WINATTN_PASS_FORWARD, 0},
        {true, true, 0, 0},
        {true, true, WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD, 0},
        {true, true, WINATTN_PASS_BACKWARD, 0}, /* it was not planned */
        {true, true, WINATTN_PASS_FORWARD, WINATTN_DQ},
    };
    winattn_launch_list *list;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(winattn_launch_list_create(
                             wrong[i].has_plan ? plan : NULL, wrong[i].pass,
                             wrong[i].has_memory ? m->at : NULL,
                             wrong[i].accumulate, &list),
                         WINATTN_INVALID_ARGUMENT);
        assert_null(list);
    }
    assert_int_equal(
        winattn_launch_list_create(plan, WINATTN_PASS_FORWARD, m->at, 0, NULL),
        WINATTN_INVALID_ARGUMENT);
}

static void test_list(void **state)
{
    const test_case c = parsed(SMALL);
    case_buffers *d = data_make(&c);
    winattn_plan *plan;
    winattn_launch_list *list;
    memory m;
    (void)state;
    assert_int_equal(prepare(&device, d, &plan, &m), WINATTN_SUCCESS);
    check_arguments(plan, &m);
    assert_int_equal(
        winattn_launch_list_create(plan, WINATTN_PASS_FORWARD, m.at, 0, &list),
        WINATTN_SUCCESS);
    check_wrong(plan, list, &m);
    assert_int_equal(winattn_launch_list_check(list, m.at), WINATTN_SUCCESS);
    assert_int_equal(winattn_launch_list_check(NULL, m.at),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_launch_list_check(list, NULL),
                     WINATTN_INVALID_ARGUMENT);
    assert_non_null(winattn_launch_list_launch(list, 0));
    assert_null(winattn_launch_list_launch(list, 99));
    assert_null(winattn_launch_list_program(list, 99));
    assert_null(winattn_launch_list_table(list, 0));
    winattn_launch_list_destroy(list);
    winattn_launch_list_destroy(NULL);
    winattn_plan_destroy(plan);
    free_memory(&m);
    data_free(d);
}

/* variable: of the emulator's, set meanwhile. */
static winattn_cuda_call *make_call(int ordinal, const char *variable,
                                    const char *value, winattn_status expected)
{
    const test_case c = parsed(SMALL);
    case_buffers *d = data_make(&c);
    winattn_plan *plan;
    winattn_cuda_call *call;
    memory m;
    assert_int_equal(prepare(&device, d, &plan, &m), WINATTN_SUCCESS);
    setenv(variable, value, 1);
    assert_int_equal(create(ordinal, d, plan, &m, &call), expected);
    unsetenv(variable);
    winattn_plan_destroy(plan);
    assert_true((call != NULL) == (expected == WINATTN_SUCCESS));
    free_memory(&m);
    data_free(d);
    return call;
}

static void test_captures(void **state)
{
    (void)state;
    make_call(0, "EMULATOR_CUDA_CAPTURES", "1", WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "captured"));
}

/* A program of which the compiler says that its products wait for each other
 * is not taken, now or later: the driver says it once, and the cache keeps
 * it. */
static void test_complaints(void **state)
{
    static const char *const said[] = {
        "ptxas info : (C7510) wgmma.mma_async are serialized", ""};
    (void)state;
    assert_true(scratch_make());
    winattn_set_cache_dir(folder_named("cache"));
    for (int i = 0; i < 2; i++) {
        make_call(0, "EMULATOR_CUDA_LOG", said[i], WINATTN_UNSUPPORTED_DEVICE);
        assert_non_null(strstr(winattn_last_reason(), "C7510"));
    }
    winattn_set_cache_dir("");
    scratch_remove();
}

static void test_unknown_device(void **state)
{
    unsigned char uuid[16], again[16];
    (void)state;
    make_call(7, "EMULATOR_CUDA_LOG", "", WINATTN_DRIVER_FAILED);
    assert_int_equal(winattn_cuda_uuid(7, uuid), WINATTN_DRIVER_FAILED);
    assert_int_equal(winattn_cuda_uuid(0, uuid), WINATTN_SUCCESS);
    assert_int_equal(
        clGetDeviceInfo(device.id, 0x106A, sizeof again, again, NULL),
        CL_SUCCESS);
    assert_memory_equal(uuid, again, sizeof again);
}

/* ---- Texts ---- */

#define HEAD ".version 7.4\n.target sm_90"

static void test_texts(void **state)
{
    static const char before[] = HEAD
        ", texmode_independent\n.address_size 64\n"
        ".visible .entry f()\n{\n\t.shared .align 4 .b8 f_a[10];\n"
        "\t.shared .align 128 .b8 f_$_a[256];\n\t.shared .align 4 .u32 x;\n"
        "\tmov.u64 %rd1, f_a;\n\tmov.u64 %rd2, f_$_a+16;\n"
        "\tld.shared.u32 %r1, [f_a+4];\n\tst.shared.u32 [f_ab], %envreg6;\n"
        "\tmov.u32 %r2, %envreg3;\n}\n";
    static const char after[] =
        HEAD "\n.address_size 64\n"
             ".extern .shared .align 128 .b8 winattn_local_memory[];\n"
             ".visible .entry f()\n{\n\t.shared .align 4 .u32 x;\n"
             "\tmov.u64 %rd1, winattn_local_memory+0;\n"
             "\tmov.u64 %rd2, winattn_local_memory+144;\n"
             "\tld.shared.u32 %r1, [winattn_local_memory+4];\n"
             "\tst.shared.u32 [f_ab], %nctaid.x;\n\tmov.u32 %r2, 0;\n}\n";
    wa_module_text text;
    (void)state;
    assert_int_equal(wa_module_text_make(before, &text), WINATTN_SUCCESS);
    assert_string_equal(text.text, after);
    assert_int_equal(text.local_bytes, 128 + 256);
    free(text.text);
    assert_int_equal(wa_module_text_make("\177ELF", &text),
                     WINATTN_UNSUPPORTED_DEVICE);
}

static const struct CMUnitTest all[] = {
    cmocka_unit_test(test_texts),      cmocka_unit_test(test_unknown_device),
    cmocka_unit_test(test_complaints), /* while its program is new */
    cmocka_unit_test(test_list),       cmocka_unit_test(test_captures),
    cmocka_unit_test(test_cases),
};
static const test_group groups[] = {TEST_GROUP(NULL, all)};

int main(int count, char **arguments)
{
    static const test_program program = {.words = {WORD_FIRST, WORD_COUNT},
                                         TEST_GROUPS(groups)};
    library = dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library || winattn_cuda_bind(find)) {
        printf("%s: no driver\n", EMULATED_CUDA);
        return 1;
    }
    const wa_cuda *cuda = wa_cuda_driver(); /* as a program that uses it */
    wa_cu_device first;
    wa_cu_context context;
    if (cuda->init(0) != 0 || cuda->device(&first, 0) != 0 ||
        cuda->retain(&context, first) != 0 || cuda->push(context) != 0)
        return 1;
    return runner_main(&program, count, arguments);
}
