/* SPDX-License-Identifier: Apache-2.0
 * Plays a launch that record.c wrote down, by CUDA's driver.
 *
 *   replay FOLDER KERNEL PTX LOCAL TIMES
 *
 *   PTX     the program, as replayable.py makes it
 *   LOCAL   its bytes of local memory
 *   TIMES   of launches
 *
 * Prints registers of a work-item, bytes of its stack and the fastest time. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ARGUMENTS 64

static void check(CUresult result, const char *what)
{
    const char *why = "unknown";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorString(result, &why);
    fprintf(stderr, "replay: %s: %s\n", what, why);
    exit(1);
}
#define CHECK(call) check(call, #call)

static void fail(const char *what)
{
    fprintf(stderr, "replay: %s\n", what);
    exit(1);
}

static void *allocate(size_t size)
{
    void *p = calloc(1, size + 1);
    if (!p)
        fail("no memory");
    return p;
}

/* All of a file, and a 0. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail(path);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = allocate(*size);
    if (fread(bytes, 1, *size, file) != *size)
        fail(path);
    fclose(file);
    return bytes;
}

static void *make_buffer(const char *folder, const char *kernel, int n)
{
    char path[4096];
    size_t size;
    CUdeviceptr *buffer = allocate(sizeof *buffer);
    snprintf(path, sizeof path, "%s/%s.%d.bin", folder, kernel, n);
    char *bytes = read_file(path, &size);
    CHECK(cuMemAlloc(buffer, size));
    CHECK(cuMemcpyHtoD(*buffer, bytes, size));
    free(bytes);
    return buffer;
}

static void *make_bytes(const char *digits)
{
    const size_t size = strlen(digits) / 2;
    unsigned char *bytes = allocate(size);
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
            fail("an argument is no number");
        bytes[i] = (unsigned char)byte;
    }
    return bytes;
}

/* Arguments of the launch, whose size goes to `size`. */
static void read_arguments(void **argument, unsigned *size, const char *folder,
                           const char *kernel)
{
    char path[4096], kind[16];
    static char rest[8192];
    snprintf(path, sizeof path, "%s/%s.args", folder, kernel);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%u %u", &size[0], &size[1]) != 2)
        fail(path);
    int n = 0;
    while (n < MOST_ARGUMENTS && fscanf(file, "%15s", kind) == 1) {
        const int is_null = strcmp(kind, "null") == 0;
        if (!is_null && fscanf(file, "%8191s", rest) != 1)
            fail(path);
        if (strcmp(kind, "local") == 0)
            fail("arguments in local memory are not known");
        argument[n] = is_null ? allocate(sizeof(CUdeviceptr))
                      : strcmp(kind, "buffer") == 0
                          ? make_buffer(folder, kernel, n)
                          : make_bytes(rest);
        n++;
    }
    fclose(file);
}

static CUfunction load(const char *ptx, const char *kernel, int local)
{
    static char log[65536];
    CUjit_option option[] = {CU_JIT_ERROR_LOG_BUFFER,
                             CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *value[] = {log, (void *)sizeof log};
    size_t size;
    CUmodule module;
    CUfunction function;
    const char *text = read_file(ptx, &size);
    if (cuModuleLoadDataEx(&module, text, 2, option, value) != CUDA_SUCCESS)
        fail(log);
    CHECK(cuModuleGetFunction(&function, module, kernel));
    if (local > 0)
        CHECK(cuFuncSetAttribute(
            function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, local));
    return function;
}

int main(int count, char **word)
{
    CUdevice device;
    CUcontext context;
    CUevent start, end;
    void *argument[MOST_ARGUMENTS];
    unsigned size[2];
    int registers, stack;
    if (count != 6)
        fail("replay FOLDER KERNEL PTX LOCAL TIMES");
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    const int local = atoi(word[4]), times = atoi(word[5]);
    CUfunction kernel = load(word[3], word[2], local);
    CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel));
    CHECK(cuFuncGetAttribute(&stack, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                             kernel));
    read_arguments(argument, size, word[1], word[2]);
    CHECK(cuEventCreate(&start, 0));
    CHECK(cuEventCreate(&end, 0));
    float best = 0;
    for (int i = 0; i < times; i++) {
        float milliseconds;
        CHECK(cuEventRecord(start, NULL));
        CHECK(cuLaunchKernel(kernel, size[0], 1, 1, size[1], 1, 1,
                             (unsigned)local, NULL, argument, NULL));
        CHECK(cuEventRecord(end, NULL));
        CHECK(cuCtxSynchronize());
        CHECK(cuEventElapsedTime(&milliseconds, start, end));
        if (i == 0 || milliseconds < best)
            best = milliseconds;
    }
    printf("%s: %d registers, %d bytes of stack, %.1f us\n", word[2],
           registers, stack, 1e3 * (double)best);
    if (fflush(stdout) != 0)
        fail("the output cannot be written");
    return 0;
}
