/* SPDX-License-Identifier: Apache-2.0
 * What the emulated driver of CUDA refuses and finds; that right calls compute
 * right numbers is what tests/cuda shows. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "kit/asserts.h"

static wa_cuda cu;
static __typeof__(emulator_cuda_register) *register_memory;
static __typeof__(emulator_cuda_forget) *forget_memory;

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define IS(result, call) assert_int_equal(cu.call, CUDA_##result)
#define OK(call) IS(SUCCESS, call)
#define INVALID(call) IS(ERROR_INVALID_VALUE, call)

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
enum { BYTES = WORDS * sizeof(uint32_t), DYNAMIC = 1024 + 4 * ITEMS };

/* As host/cuda does it. said: its log, or what is wrong. */
static wa_cu_result load_text(const char *ptx, int target,
                              wa_cu_module *module, char said[512])
{
    const int options[] = {WA_CUDA_INFO_LOG,       WA_CUDA_INFO_LOG_SIZE,
                           WA_CUDA_ERROR_LOG,      WA_CUDA_ERROR_LOG_SIZE,
                           WA_CUDA_MOST_REGISTERS, WA_CUDA_VERBOSE,
                           WA_CUDA_TARGET};
    void *const size = (void *)512, *const some = (void *)168;
    void *values[] = {
        said, size, said, size, some, some, (void *)(uintptr_t)target};
    return cu.load(module, ptx, target ? 7 : 6, options, values);
}

static wa_cu_function load(const char *ptx, wa_cu_module *module)
{
    char said[512] = "";
    wa_cu_function turn;
    assert_int_equal(load_text(ptx, WA_CUDA_TARGET_90A, module, said),
                     CUDA_SUCCESS);
    OK(function(&turn, *module, "turn"));
    return turn;
}

static wa_cu_address words_of(size_t bytes)
{
    wa_cu_address memory;
    OK(allocate(&memory, bytes));
    return memory;
}

static wa_cu_result launch(wa_cu_function turn, unsigned groups,
                           unsigned items, wa_cu_address words, unsigned bytes)
{
    uint32_t number = 1000;
    void *arguments[] = {&words, &number};
    return cu.launch(turn, groups, 1, 1, items, 1, 1, bytes, NULL, arguments,
                     NULL);
}

static void assert_contains(const char *said, const char *part)
{
    if (!strstr(said, part))
        fail_msg("\"%s\" in place of \"%s\"", said, part);
}

/* A context of its own for each test, without what another left. */
static int begin(void **state)
{
    wa_cu_context context;
    (void)state;
    return cu.retain(&context, 0) || cu.push(context);
}

static int end(void **state)
{
    wa_cu_context context;
    (void)state;
    unsetenv("EMULATOR_CUDA_LOG");
    unsetenv("EMULATOR_CUDA_CAPTURES");
    return cu.pop(&context) || cu.release(0);
}

/* ---- The device and its context ---- */

static void starts(void **state)
{
    int device, value;
    const char *text;
    wa_cu_context context;
    (void)state;
    IS(ERROR_NOT_INITIALIZED, device(&device, 0));
    IS(ERROR_NOT_INITIALIZED, retain(&context, 0));
    OK(init(0));
    IS(ERROR_INVALID_DEVICE, device(&device, 1));
    OK(device(&device, 0));
    OK(attribute(&value, WA_CUDA_MAJOR, device));
    assert_int_equal(value, 9);
    OK(attribute(&value, WA_CUDA_MINOR, device));
    assert_int_equal(value, 0);
    OK(error_name(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    INVALID(error_name(4711, &text));
}

static void contexts_are_current(void **state)
{
    wa_cu_context context, other;
    wa_cu_address memory;
    (void)state;
    IS(ERROR_INVALID_CONTEXT, push(NULL));
    IS(ERROR_INVALID_CONTEXT, pop(&context));
    IS(ERROR_INVALID_CONTEXT, release(0));
    OK(retain(&context, 0));
    IS(ERROR_INVALID_CONTEXT, allocate(&memory, 4));
    OK(push(context));
    OK(retain(&other, 0));
    assert_ptr_equal(context, other);
    OK(allocate(&memory, 4));
    OK(release(0));
    OK(write(memory, "abc", 4));
    OK(release(0));
    IS(ERROR_CONTEXT_IS_DESTROYED, free(memory));
    OK(pop(&other));
    assert_ptr_equal(context, other);
}

/* ---- Compiling ---- */

static void compiles(void **state)
{
    enum { A = WA_CUDA_TARGET_90A };
    static const char planted[] = "warning : planted\n";
    static const struct {
        int target;
        const char *ptx, *said;
    } texts[] = {
        {A, "int main(void);", "no PTX"},
        {A, ".version 99.0\n.target sm_90\n", "later"},
        {A, HEAD("sm_100") SYNC TAIL, "target"},
        {A, HEAD("sm_80a") SYNC TAIL, "target"},
        {A, HEAD("sm_90a") "frob.u32 %r1;\n" TAIL,
         "PTX, line 25: instruction \"frob.u32\""},
        {A, HEAD("sm_90a") ".shared .b8 more[49152];\n" SYNC TAIL, "too much"},
        {A, HEAD("sm_90a") "mov.u32 %r1, %envreg3;\n" TAIL, "%envreg"},
        {A, TURN, planted},
        {0, TURN, "target"},
        {90, TURN, "target"},
        {0, HEAD("sm_90") SYNC TAIL, planted},
        {A, HEAD("sm_80") SYNC TAIL, planted},
    };
    (void)state;
    setenv("EMULATOR_CUDA_LOG", planted, 1);
    for (size_t i = 0; i < LENGTH(texts); i++) {
        char said[512] = "";
        const bool is_right = texts[i].said == planted;
        wa_cu_module module;
        assert_int_equal(
            load_text(texts[i].ptx, texts[i].target, &module, said),
            is_right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX);
        assert_contains(said, texts[i].said);
        if (!is_right)
            continue;
        /* once more, of which nothing is said */
        said[0] = 0;
        assert_int_equal(
            load_text(texts[i].ptx, texts[i].target, &module, said),
            CUDA_SUCCESS);
        assert_string_equal(said, "");
    }
}

static void compiles_as_told(void **state)
{
    int option = 99;
    void *value = NULL;
    wa_cu_module module;
    (void)state;
    INVALID(load(&module, TURN, 1, &option, &value));
    IS(ERROR_INVALID_PTX, load(&module, TURN, 0, NULL, NULL));
    OK(load(&module, HEAD("sm_90") SYNC TAIL, 0, NULL, NULL));
}

/* ---- Launches ---- */

static void refuses_launches(void **state)
{
    enum { LESS = (48 << 10) - 400, MORE = 100 << 10 };
    static const struct {
        bool is_right;
        unsigned groups, items, bytes;
        int given; /* of local memory, before; 0: nothing */
    } launches[] = {
        {false, 0, 64, DYNAMIC, 0},  {false, 1, 32, DYNAMIC, 0},
        {true, 1, 64, DYNAMIC, 0},   {true, 1, 64, LESS, 0},
        {false, 1, 64, LESS + 1, 0}, {true, 1, 64, LESS + 1, MORE},
        {true, 1, 64, MORE, 0},      {false, 1, 64, MORE + 1, 0},
    };
    wa_cu_module module;
    wa_cu_function turn = load(TURN, &module), other;
    wa_cu_address memory = words_of(BYTES);
    (void)state;
    for (size_t i = 0; i < LENGTH(launches); i++) {
        if (launches[i].given)
            OK(set_attribute(turn, WA_CUDA_LOCAL_BYTES, launches[i].given));
        assert_int_equal(launch(turn, launches[i].groups, launches[i].items,
                                memory, launches[i].bytes),
                         launches[i].is_right ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE);
    }
    IS(ERROR_INVALID_HANDLE, synchronize((wa_cu_stream)module));
    INVALID(set_attribute(turn, WA_CUDA_LOCAL_BYTES, 227 << 10));
    IS(ERROR_NOT_FOUND, function(&other, module, "tur"));
    OK(unload(module));
    IS(ERROR_INVALID_HANDLE, unload(module));
    assert_int_equal(launch(turn, GROUPS, ITEMS, memory, DYNAMIC),
                     CUDA_ERROR_INVALID_HANDLE);
}

/* What goes to standard error meanwhile. */
static void hear_launch(wa_cu_function turn, wa_cu_address memory,
                        unsigned bytes, char said[1024])
{
    int ends[2];
    const int kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    const wa_cu_result result = launch(turn, GROUPS, ITEMS, memory, bytes);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[1]);
    assert_true(read(ends[0], said, 1023) >= 0);
    close(ends[0]);
    assert_int_equal(result, CUDA_SUCCESS);
}

/* The launch succeeds; what comes after it fails, until the context goes. */
static void reports_kernels(void **state)
{
    static const struct {
        const char *ptx;
        size_t memory;
        unsigned bytes;
        wa_cu_result result;
        const char *why;
    } kernels[] = {
        {HEAD("sm_90a") "st.shared.u32 [%r6], %r1;\n" SYNC TAIL, BYTES,
         DYNAMIC, CUDA_ERROR_LAUNCH_FAILED, "nothing orders these"},
        {TURN, BYTES - 4, DYNAMIC, CUDA_ERROR_ILLEGAL_ADDRESS,
         "outside of all buffers"},
        {TURN, BYTES, DYNAMIC - 4, CUDA_ERROR_ILLEGAL_ADDRESS,
         "outside of local memory"},
    };
    for (size_t i = 0; i < LENGTH(kernels); i++) {
        char said[1024] = "";
        wa_cu_module module;
        wa_cu_address memory = words_of(kernels[i].memory);
        const wa_cu_function turn = load(kernels[i].ptx, &module);
        hear_launch(turn, memory, kernels[i].bytes, said);
        assert_contains(said, kernels[i].why);
        assert_int_equal(cu.synchronize(NULL), kernels[i].result);
        assert_int_equal(cu.allocate(&memory, 4), kernels[i].result);
        assert_int_equal(launch(turn, GROUPS, ITEMS, 0, 0), kernels[i].result);
        end(state);
        begin(state);
        OK(synchronize(NULL));
    }
}

/* ---- Memory and captures ---- */

static void reaches_registered_memory(void **state)
{
    static uint32_t words[WORDS + 1];
    wa_cu_module module;
    const wa_cu_address inner = (uintptr_t)(words + 1);
    const wa_cu_function turn = load(TURN, &module);
    (void)state;
    register_memory(words + 1, BYTES);
    register_memory(words + 1, BYTES);
    assert_int_equal(launch(turn, GROUPS, ITEMS, inner, DYNAMIC),
                     CUDA_SUCCESS);
    OK(synchronize(NULL));
    for (uint32_t i = 0; i < WORDS; i++)
        assert_int_equal(words[1 + i], 1000 + ITEMS - 1 - i % ITEMS);
    INVALID(free(inner));
    forget_memory(words + 1);
    forget_memory(words + 1);
    assert_int_equal(launch(turn, GROUPS, ITEMS, inner, DYNAMIC),
                     CUDA_SUCCESS);
    IS(ERROR_ILLEGAL_ADDRESS, synchronize(NULL));
}

static void copies(void **state)
{
    const wa_cu_address memory = words_of(16);
    const char from[17] = "0123456789abcdef";
    char to[17] = "";
    wa_cu_address none;
    (void)state;
    OK(write(memory, from, 16));
    OK(write(memory + 1, from, 2));
    OK(read(to, memory, 16));
    assert_string_equal(to, "0013456789abcdef");
    INVALID(write(memory + 1, from, 16));
    INVALID(read(to, memory - 1, 4));
    INVALID(free(memory + 1));
    INVALID(allocate(&none, 0));
    IS(ERROR_OUT_OF_MEMORY, allocate(&none, (size_t)9 << 30));
    OK(free(memory));
    INVALID(free(memory));
    INVALID(read(to, memory, 1));
}

static void captures(void **state)
{
    int is;
    wa_cu_module module;
    wa_cu_address memory = words_of(BYTES), none;
    const wa_cu_function turn = load(TURN, &module);
    (void)state;
    OK(is_capturing(NULL, &is));
    assert_int_equal(is, 0);
    setenv("EMULATOR_CUDA_CAPTURES", "1", 1);
    OK(is_capturing(NULL, &is));
    assert_int_equal(is, 1);
    assert_int_equal(launch(turn, GROUPS, ITEMS, memory, DYNAMIC),
                     CUDA_SUCCESS);
    IS(ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate(&none, 4));
    IS(ERROR_STREAM_CAPTURE_UNSUPPORTED, free(memory));
    IS(ERROR_STREAM_CAPTURE_UNSUPPORTED, write(memory, "abc", 4));
    IS(ERROR_STREAM_CAPTURE_UNSUPPORTED, synchronize(NULL));
}

static void find(void *library, const char *name, void *to)
{
    void *const at = dlsym(library, name);
    memcpy(to, &at, sizeof at);
}

int main(void)
{
#define IN_CONTEXT(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts),
        cmocka_unit_test(contexts_are_current),
        IN_CONTEXT(compiles),
        IN_CONTEXT(compiles_as_told),
        IN_CONTEXT(refuses_launches),
        IN_CONTEXT(reports_kernels),
        IN_CONTEXT(reaches_registered_memory),
        IN_CONTEXT(copies),
        IN_CONTEXT(captures),
    };
    void *library = dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 1;
#define FIND(member, name, parameters) find(library, #name, &cu.member);
    WA_CUDA_FUNCTIONS(FIND)
    find(library, "emulator_cuda_register", &register_memory);
    find(library, "emulator_cuda_forget", &forget_memory);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
