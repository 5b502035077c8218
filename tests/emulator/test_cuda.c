/* SPDX-License-Identifier: Apache-2.0
 * The emulated driver of CUDA, as a program finds it: by dlopen. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda.h"

#define FUNCTIONS(X)                                                          \
    X(cuInit)                                                                 \
    X(cuDriverGetVersion)                                                     \
    X(cuGetErrorName)                                                         \
    X(cuGetErrorString)                                                       \
    X(cuDeviceGetCount)                                                       \
    X(cuDeviceGet)                                                            \
    X(cuDeviceGetUuid_v2)                                                     \
    X(cuDeviceGetAttribute)                                                   \
    X(cuDevicePrimaryCtxRetain)                                               \
    X(cuDevicePrimaryCtxRelease_v2)                                           \
    X(cuCtxPushCurrent_v2)                                                    \
    X(cuCtxPopCurrent_v2)                                                     \
    X(cuCtxGetCurrent)                                                        \
    X(cuCtxGetDevice)                                                         \
    X(cuCtxSynchronize)                                                       \
    X(cuStreamCreate)                                                         \
    X(cuStreamDestroy_v2)                                                     \
    X(cuStreamSynchronize)                                                    \
    X(cuStreamIsCapturing)                                                    \
    X(cuMemAlloc_v2)                                                          \
    X(cuMemFree_v2)                                                           \
    X(cuMemcpyHtoD_v2)                                                        \
    X(cuMemcpyDtoH_v2)                                                        \
    X(cuMemcpyHtoDAsync_v2)                                                   \
    X(cuMemsetD8Async)                                                        \
    X(cuLinkCreate_v2)                                                        \
    X(cuLinkAddData_v2)                                                       \
    X(cuLinkComplete)                                                         \
    X(cuLinkDestroy)                                                          \
    X(cuModuleLoadData)                                                       \
    X(cuModuleUnload)                                                         \
    X(cuModuleGetFunction)                                                    \
    X(cuFuncSetAttribute)                                                     \
    X(cuFuncGetAttribute)                                                     \
    X(cuLaunchKernel)                                                         \
    X(emulator_cuda_register)                                                 \
    X(emulator_cuda_forget)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
} cu;

static CUcontext context;

#define IS(result, call) assert_int_equal(cu.call, result)
#define OK(call) IS(CUDA_SUCCESS, call)
#define INVALID(call) IS(CUDA_ERROR_INVALID_VALUE, call)

/* ---- Programs ---- */

/* Each of 64 work-items writes its number to local memory, `dynamic` of it
 * 1024 bytes behind what the kernel declares itself; takes its opposite's, and
 * adds a number. */
#define HEAD(target)                                                          \
    "// made by hand\n.version 8.5\n.target " target "\n.address_size 64\n"   \
    ".extern .shared .align 1024 .b8 dynamic[];\n"                            \
    ".visible .entry turn(.param .u64 .ptr .global .align 4 turn_0,\n"        \
    ".param .u32 turn_1)\n.reqntid 64, 1, 1\n{\n"                             \
    ".reg .b32 %r<20>;\n.reg .b64 %rd<9>;\n.shared .align 4 .b8 own[400];\n"  \
    "ld.param.u64 %rd0, [turn_0];\nld.param.u32 %r0, [turn_1];\n"             \
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n"   \
    "mad.lo.s32 %r4, %r2, %r3, %r1;\nmul.wide.u32 %rd1, %r4, 4;\n"            \
    "add.s64 %rd2, %rd0, %rd1;\nshl.b32 %r5, %r1, 2;\n"                       \
    "mov.u32 %r6, dynamic+1024;\nadd.s32 %r7, %r6, %r5;\n"                    \
    "st.shared.u32 [%r7], %r1;\n"
#define SYNC "bar.sync 0;\n"
#define TAIL                                                                  \
    "xor.b32 %r8, %r5, 252;\nadd.s32 %r9, %r6, %r8;\n"                        \
    "ld.shared.u32 %r10, [%r9];\nadd.s32 %r11, %r10, %r0;\n"                  \
    "st.global.u32 [%rd2], %r11;\nret;\n}\n"
#define TURN HEAD("sm_90a") SYNC TAIL

enum { ITEMS = 64, GROUPS = 3, WORDS = ITEMS * GROUPS };
enum { BYTES = WORDS * sizeof(uint32_t), LOCAL = 100 << 10 };

static CUfunction load(CUmodule *module, const void *image)
{
    CUfunction turn;
    OK(cuModuleLoadData(module, image));
    OK(cuModuleGetFunction(&turn, *module, "turn"));
    return turn;
}

static CUresult launch(CUfunction turn, CUdeviceptr words, unsigned bytes)
{
    uint32_t number = 1000;
    void *parameters[] = {&words, &number};
    return cu.cuLaunchKernel(turn, GROUPS, 1, 1, ITEMS, 1, 1, bytes, NULL,
                             parameters, NULL);
}

#define LAUNCH(result, turn, words, bytes)                                    \
    assert_int_equal(launch(turn, words, bytes), result)

static void assert_turned(const uint32_t *words)
{
    for (uint32_t i = 0; i < WORDS; i++)
        assert_int_equal(words[i], 1000 + ITEMS - 1 - i % ITEMS);
}

/* A context of its own for each test, without what another left. */
static int begin(void **state)
{
    (void)state;
    return cu.cuDevicePrimaryCtxRetain(&context, 0) ||
           cu.cuCtxPushCurrent_v2(context);
}

static int end(void **state)
{
    (void)state;
    unsetenv("EMULATOR_CUDA_LOG");
    unsetenv("EMULATOR_CUDA_CAPTURES");
    return cu.cuCtxPopCurrent_v2(NULL) || cu.cuDevicePrimaryCtxRelease_v2(0);
}

/* ---- The device and its context ---- */

static void starts(void **state)
{
    int count, device, value;
    const char *text;
    CUuuid uuid;
    (void)state;
    IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    INVALID(cuInit(1));
    IS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
    OK(cuInit(0));
    OK(cuDriverGetVersion(&value));
    assert_true(value >= 12000);
    OK(cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
    OK(cuDeviceGet(&device, 0));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&value, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2(&uuid, 1));
    OK(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    assert_int_equal(value, 9);
    OK(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    assert_int_equal(value, 0);
    OK(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        device));
    assert_int_equal(value, 227 << 10);
    INVALID(cuDeviceGetAttribute(&value, 9999, device));
    OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    OK(cuGetErrorString(CUDA_ERROR_INVALID_PTX, &text));
    assert_non_null(strstr(text, "PTX"));
    INVALID(cuGetErrorName(4711, &text));
    assert_null(text);
}

static void contexts_are_current(void **state)
{
    CUcontext one, other;
    CUdeviceptr memory;
    CUdevice device;
    (void)state;
    OK(cuCtxGetCurrent(&one));
    assert_null(one);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&one));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&memory, 4));
    OK(cuDevicePrimaryCtxRetain(&one, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&memory, 4));
    OK(cuCtxPushCurrent_v2(one));
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    assert_ptr_equal(one, other);
    OK(cuCtxGetCurrent(&other));
    assert_ptr_equal(one, other);
    OK(cuCtxGetDevice(&device));
    assert_int_equal(device, 0);
    OK(cuMemAlloc_v2(&memory, 4));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemsetD8Async(memory, 1, 4, NULL));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2(memory));
    OK(cuCtxPopCurrent_v2(&other));
    assert_ptr_equal(one, other);
}

/* ---- Linking ---- */

typedef struct linked {
    CUresult result;
    CUlinkState link;
    char info[256], error[256];
    size_t info_bytes, error_bytes; /* as the linker counts them */
} linked;

static void link_text(linked *to, const char *ptx)
{
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,
                              CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER,
                              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_MAX_REGISTERS,
                              CU_JIT_LOG_VERBOSE,
                              CU_JIT_TARGET};
    void *values[] = {to->info,
                      (void *)sizeof to->info,
                      to->error,
                      (void *)sizeof to->error,
                      (void *)168,
                      (void *)1,
                      (void *)CU_TARGET_COMPUTE_90A};
    OK(cuLinkCreate_v2(7, options, values, &to->link));
    to->result =
        cu.cuLinkAddData_v2(to->link, CU_JIT_INPUT_PTX, (void *)ptx,
                            strlen(ptx) + 1, "a program", 0, NULL, NULL);
    to->info_bytes = (uintptr_t)values[1];
    to->error_bytes = (uintptr_t)values[3];
}

static void runs_what_is_linked(void **state)
{
    static uint32_t words[WORDS];
    CUmodule module;
    CUdeviceptr memory;
    linked one;
    void *image;
    size_t size;
    int value;
    (void)state;
    setenv("EMULATOR_CUDA_LOG", "warning : planted\n", 1);
    link_text(&one, TURN);
    assert_int_equal(one.result, CUDA_SUCCESS);
    assert_non_null(strstr(one.info, "warning : planted\n"));
    assert_non_null(strstr(one.info, "'turn': 400 bytes"));
    assert_int_equal(one.info_bytes, strlen(one.info));
    assert_int_equal(one.error_bytes, 0);
    OK(cuLinkComplete(one.link, &image, &size));
    void *kept = malloc(size); /* the image goes with the link */
    assert_non_null(kept);
    memcpy(kept, image, size);
    OK(cuLinkDestroy(one.link));
    IS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(one.link));
    const CUfunction turn = load(&module, kept);
    free(kept);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, turn));
    assert_int_equal(value, 168);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, turn));
    assert_int_equal(value, 400);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, turn));
    assert_int_equal(value, 0);
    OK(cuMemAlloc_v2(&memory, BYTES));
    LAUNCH(CUDA_ERROR_INVALID_VALUE, turn, memory, LOCAL);
    OK(cuFuncSetAttribute(
        turn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, LOCAL));
    LAUNCH(CUDA_ERROR_INVALID_VALUE, turn, memory, LOCAL + 1);
    LAUNCH(CUDA_SUCCESS, turn, memory, LOCAL);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(words, memory, BYTES));
    assert_turned(words);
    OK(cuMemFree_v2(memory));
    OK(cuModuleUnload(module));
    IS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    IS(CUDA_ERROR_INVALID_HANDLE,
       cuFuncSetAttribute(turn,
                          CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0));
}

static void refuses_other_texts(void **state)
{
    static const struct {
        const char *ptx;
        CUresult result;
        const char *why;
    } texts[] = {
        {"int main(void);", CUDA_ERROR_INVALID_PTX, "no PTX"},
        {".version 99.0\n.target sm_90\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
         "later"},
        {HEAD("sm_100") SYNC TAIL, CUDA_ERROR_INVALID_PTX, "target"},
        {HEAD("sm_80a") SYNC TAIL, CUDA_ERROR_INVALID_PTX, "target"},
        {HEAD("sm_90a") "frob.u32 %r1;\n" TAIL, CUDA_ERROR_INVALID_PTX,
         "PTX, line 25: instruction \"frob.u32\""},
        {HEAD("sm_90a") ".shared .b8 more[49152];\n" SYNC TAIL,
         CUDA_ERROR_INVALID_PTX, "too much"},
        {HEAD("sm_90a") "mov.u32 %r1, %envreg3;\n" TAIL,
         CUDA_ERROR_INVALID_PTX, "%envreg"},
        {HEAD("sm_90") SYNC TAIL, CUDA_SUCCESS, ""},
        {HEAD("sm_80") SYNC TAIL, CUDA_SUCCESS, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        linked one;
        CUmodule module;
        void *image;
        link_text(&one, texts[i].ptx);
        assert_int_equal(one.result, texts[i].result);
        if (!strstr(one.error, texts[i].why))
            fail_msg("\"%s\" in place of \"%s\"", one.error, texts[i].why);
        assert_int_equal(one.error_bytes, strlen(one.error));
        IS(one.result ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS,
           cuLinkComplete(one.link, &image, NULL));
        OK(cuLinkDestroy(one.link));
        IS(i == 0 ? CUDA_ERROR_INVALID_IMAGE : texts[i].result,
           cuModuleLoadData(&module, texts[i].ptx));
    }
}

static void links_as_told(void **state)
{
    CUjit_option option = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    void *value = (void *)64, *image;
    CUlinkState link;
    linked one;
    char changed[8192];
    size_t size;
    (void)state;
    INVALID(cuLinkCreate_v2(1, &option, &value, &link)); /* of no buffer */
    option = (CUjit_option)99;
    INVALID(cuLinkCreate_v2(1, &option, &value, &link));
    option = CU_JIT_TARGET;
    INVALID(cuLinkCreate_v2(1, &option, &value, &link)); /* 64 */
    value = (void *)CU_TARGET_COMPUTE_90;
    OK(cuLinkCreate_v2(1, &option, &value, &link));
    IS(CUDA_ERROR_INVALID_PTX,
       cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, TURN, sizeof TURN, NULL, 0,
                        NULL, NULL));
    link_text(&one, TURN);
    IS(CUDA_ERROR_NOT_SUPPORTED,
       cuLinkAddData_v2(one.link, CU_JIT_INPUT_PTX, TURN, sizeof TURN, NULL, 0,
                        NULL, NULL));
    OK(cuLinkCreate_v2(0, NULL, NULL, &link));
    INVALID(cuLinkAddData_v2(link, (CUjitInputType)0, TURN, sizeof TURN, NULL,
                             0, NULL, NULL));
    INVALID(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, TURN, sizeof TURN - 1,
                             NULL, 0, NULL, NULL));
    /* another driver's, and one that was cut */
    OK(cuLinkComplete(one.link, &image, &size));
    assert_true(size < sizeof changed);
    memcpy(changed, image, size);
    CUmodule module;
    changed[size - 1] = '}';
    IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, changed));
    changed[size - 1] = 0;
    changed[8]++; /* the version is behind the first word */
    IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, changed));
}

/* ---- Launches ---- */

static void refuses_launches(void **state)
{
    CUmodule module;
    CUdeviceptr memory;
    CUstream stream;
    CUfunction other;
    uint32_t number = 1;
    void *parameters[] = {&memory, &number}, *one_less[] = {&memory, NULL};
    (void)state;
    const CUfunction turn = load(&module, TURN);
    OK(cuMemAlloc_v2(&memory, BYTES));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&other, module, "tur"));
    INVALID(cuLaunchKernel(turn, 0, 1, 1, 64, 1, 1, 0, 0, parameters, NULL));
    INVALID(cuLaunchKernel(turn, 1, 1, 1, 32, 1, 1, 0, 0, parameters, NULL));
    INVALID(cuLaunchKernel(turn, 1, 1, 0, 64, 1, 1, 0, 0, parameters, NULL));
    INVALID(cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, 0, 0, one_less, NULL));
    INVALID(cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, 0, 0, NULL, NULL));
    IS(CUDA_ERROR_NOT_SUPPORTED,
       cuLaunchKernel(turn, 1, 2, 1, 64, 1, 1, 0, 0, parameters, NULL));
    LAUNCH(CUDA_ERROR_INVALID_VALUE, turn, memory, (48 << 10) - 399);
    LAUNCH(CUDA_SUCCESS, turn, memory, (48 << 10) - 400);
    INVALID(cuFuncSetAttribute(
        turn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
    INVALID(cuFuncSetAttribute(
        turn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
    IS(CUDA_ERROR_INVALID_HANDLE,
       cuFuncSetAttribute((CUfunction)module,
                          CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, 2048, stream, parameters,
                      NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, 2048,
                                                 stream, parameters, NULL));
}

/* What goes to standard error meanwhile. */
static const char *said_at_launch(CUfunction turn, CUdeviceptr memory,
                                  unsigned bytes)
{
    static char said[1024];
    FILE *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    const CUresult result = launch(turn, memory, bytes);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    assert_int_equal(result, CUDA_SUCCESS);
    return said;
}

/* The launch succeeds; what comes after it fails, until the context goes. */
static void assert_fails(const char *ptx, CUdeviceptr memory, unsigned bytes,
                         CUresult result, const char *why)
{
    CUmodule module;
    CUdeviceptr more;
    const CUfunction turn = load(&module, ptx);
    const char *said = said_at_launch(turn, memory, bytes);
    if (!strstr(said, why))
        fail_msg("\"%s\" in place of \"%s\"", said, why);
    IS(result, cuStreamSynchronize(NULL));
    IS(result, cuMemAlloc_v2(&more, 4));
    LAUNCH(result, turn, memory, bytes);
    end(NULL);
    begin(NULL);
    OK(cuCtxSynchronize());
}

static CUdeviceptr words_of(size_t bytes)
{
    CUdeviceptr memory;
    OK(cuMemAlloc_v2(&memory, bytes));
    return memory;
}

static void reports_kernels(void **state)
{
    (void)state;
    assert_fails(HEAD("sm_90a") "st.shared.u32 [%r6], %r1;\n" SYNC TAIL,
                 words_of(BYTES), 2048, CUDA_ERROR_LAUNCH_FAILED,
                 "nothing orders these");
    assert_fails(TURN, words_of(BYTES - 4), 2048, CUDA_ERROR_ILLEGAL_ADDRESS,
                 "outside of all buffers");
    assert_fails(TURN, words_of(BYTES), 1276, CUDA_ERROR_ILLEGAL_ADDRESS,
                 "outside of local memory");
}

static void reaches_registered_memory(void **state)
{
    static uint32_t words[WORDS + 1];
    CUmodule module;
    const CUdeviceptr inner = (uintptr_t)(words + 1);
    const CUfunction turn = load(&module, TURN);
    (void)state;
    OK(emulator_cuda_register(words + 1, BYTES));
    INVALID(emulator_cuda_register(words + 1, BYTES));
    LAUNCH(CUDA_SUCCESS, turn, inner, 1280);
    OK(cuCtxSynchronize());
    assert_turned(words + 1);
    INVALID(cuMemFree_v2(inner));
    OK(emulator_cuda_forget(words + 1));
    INVALID(emulator_cuda_forget(words + 1));
    LAUNCH(CUDA_SUCCESS, turn, inner, 1280);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/* ---- Memory and captures ---- */

static void copies(void **state)
{
    const CUdeviceptr memory = words_of(16);
    const char from[17] = "0123456789abcdef";
    char to[17] = "";
    CUdeviceptr none;
    (void)state;
    OK(cuMemcpyHtoD_v2(memory, from, 16));
    OK(cuMemcpyHtoDAsync_v2(memory + 1, from, 2, NULL));
    OK(cuMemsetD8Async(memory + 14, 'x', 2, CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2(to, memory, 16));
    assert_string_equal(to, "0013456789abcdxx");
    INVALID(cuMemcpyHtoD_v2(memory + 1, from, 16));
    INVALID(cuMemcpyDtoH_v2(to, memory - 1, 4));
    INVALID(cuMemcpyDtoH_v2(NULL, memory, 4));
    INVALID(cuMemsetD8Async(memory, 0, 17, NULL));
    INVALID(cuMemFree_v2(memory + 1));
    INVALID(cuMemAlloc_v2(&none, 0));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&none, (size_t)9 << 30));
    OK(cuMemFree_v2(memory));
    INVALID(cuMemFree_v2(memory));
}

static void captures(void **state)
{
    CUstreamCaptureStatus status;
    CUmodule module;
    CUdeviceptr memory = words_of(BYTES), none;
    const CUfunction turn = load(&module, TURN);
    (void)state;
    OK(cuStreamIsCapturing(NULL, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    setenv("EMULATOR_CUDA_CAPTURES", "1", 1);
    OK(cuStreamIsCapturing(NULL, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    LAUNCH(CUDA_SUCCESS, turn, memory, 2048);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&none, 4));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(NULL));
}

static bool find_functions(void)
{
    void *library = dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
    bool found = library != NULL;
#define FIND(name)                                                            \
    if (library) {                                                            \
        void *const at = dlsym(library, #name);                               \
        memcpy(&cu.name, &at, sizeof at);                                     \
        found = found && at;                                                  \
    }
    FUNCTIONS(FIND)
    return found;
}

int main(void)
{
#define IN_CONTEXT(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts),
        cmocka_unit_test(contexts_are_current),
        IN_CONTEXT(runs_what_is_linked),
        IN_CONTEXT(refuses_other_texts),
        IN_CONTEXT(links_as_told),
        IN_CONTEXT(refuses_launches),
        IN_CONTEXT(reports_kernels),
        IN_CONTEXT(reaches_registered_memory),
        IN_CONTEXT(copies),
        IN_CONTEXT(captures),
    };
    if (!find_functions()) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
