/* SPDX-License-Identifier: Apache-2.0
 * Calls a case's plan through CUDA's driver, where NVIDIA's profiler sees the
 * launches.
 *
 *   winattn-launch CASE TIMES FOLDER
 *
 *   CASE      a name of `winattn-bench --list`, or such as 'pass=backward
 *             dtype=fp16 windows=4096 heads=3 queries=49 dim=32'
 *   FOLDER    for the programs, in PTX
 *
 * OpenCL's device is the one that WINATTN_TEST_DEVICE names a part of, CUDA's
 * the first. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/options.h"
#include "cuda/calls.h"
#include "cuda/driver.h"
#include "kit/test_device.h"

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(winattn_status status, const char *what)
{
    if (status != WINATTN_SUCCESS)
        fail(what, winattn_last_reason());
}

/* ---- CUDA ---- */

static void *library;

static winattn_any_function find(const char *name)
{
    winattn_any_function function;
    void *const symbol = dlsym(library, name);
    memcpy(&function, &symbol, sizeof function);
    return function;
}

static void open_cuda(void)
{
    wa_cu_device first;
    wa_cu_context context;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || winattn_cuda_bind(find))
        fail("libcuda.so.1", "CUDA's driver is not there, or too old");
    const wa_cuda *cuda = wa_cuda_driver();
    check(wa_cuda_check(cuda->init(0), "cuInit"), "CUDA");
    check(wa_cuda_check(cuda->device(&first, 0), "cuDeviceGet"), "CUDA");
    check(wa_cuda_check(cuda->retain(&context, first), "cuDevicePrimaryCtx"),
          "CUDA");
    check(wa_cuda_check(cuda->push(context), "cuCtxPushCurrent"), "CUDA");
}

/* Of so many bytes; from: NULL, or what they are. */
static winattn_memory allocate(size_t size, const void *from)
{
    const wa_cuda *cuda = wa_cuda_driver();
    winattn_memory memory = {0, size};
    if (size)
        check(
            wa_cuda_check(cuda->allocate(&memory.address, size), "cuMemAlloc"),
            "CUDA");
    if (from)
        check(wa_cuda_check(cuda->write(memory.address, from, size),
                            "cuMemcpyHtoD"),
              "CUDA");
    return memory;
}

/* ---- The case ---- */

static bench_case read_case(const char *text)
{
    char reason[CASELIST_REASON_SIZE] = "one case at a time";
    caselist list = {NULL, 0, 0};
    if (!caselist_add(&list, text, reason) || list.count != 1)
        fail(text, reason);
    const bench_case read = list.all[0];
    caselist_free(&list);
    return read;
}

/* What a buffer holds, on CUDA's device. */
static winattn_memory copy_buffer(cl_command_queue queue, cl_mem from)
{
    size_t size = 0;
    check(clGetMemObjectInfo(from, CL_MEM_SIZE, sizeof size, &size, NULL),
          "a buffer");
    void *bytes = malloc(size);
    if (!bytes)
        fail("a buffer", "no memory");
    check(clEnqueueReadBuffer(queue, from, CL_TRUE, 0, size, bytes, 0, NULL,
                              NULL),
          "a buffer");
    const winattn_memory memory = allocate(size, bytes);
    free(bytes);
    return memory;
}

static void copy_tensors(const workload *w, winattn_memory at[WINATTN_TENSORS])
{
    winattn_memory buffers[TENSORS];
    for (int i = 0; i < w->d->buffers; i++)
        buffers[i] = copy_buffer(w->device->queue, w->set[0].mem[i]);
    for (int id = 0; id < TENSORS; id++) {
        const tensor_data *t = &w->d->tensor[id];
        if (t->used)
            at[id] = (winattn_memory){buffers[t->buffer].address + t->offset,
                                      buffers[t->buffer].bytes - t->offset};
    }
}

/* What is launched, and where its programs are then. */
static void show(const winattn_launch_list *list, const char *folder)
{
    const winattn_launch *launch;
    const winattn_launch_program *program;
    for (size_t i = 0; (program = winattn_launch_list_program(list, i)); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%zu.ptx", folder, i);
        FILE *file = fopen(path, "wb");
        if (!file ||
            fwrite(program->binary, 1, program->size, file) != program->size ||
            fclose(file) != 0)
            fail(path, "it cannot be written");
    }
    for (size_t i = 0; (launch = winattn_launch_list_launch(list, i)); i++)
        printf("%s: %llu work-groups of %u, %zu.ptx\n", launch->kernel,
               (unsigned long long)launch->groups,
               (unsigned)launch->work_group, (size_t)launch->program);
}

int main(int count, char **words)
{
    test_device chosen;
    bench_device device;
    workload w;
    bench_call call;
    winattn_launch_list *list;
    winattn_cuda_call *cuda_call;
    winattn_memory at[WINATTN_TENSORS] = {{0, 0}};
    char reason[256];
    if (count != 4)
        fail("usage", "winattn-launch CASE TIMES FOLDER");
    const bench_case read = read_case(words[1]);
    const bench_pass pass = read.backward ? BENCH_BACKWARD : BENCH_FORWARD;
    const cl_bitfield passes =
        read.backward ? WINATTN_PASS_BACKWARD : WINATTN_PASS_FORWARD;
    if (!device_open(&chosen, reason))
        fail("no OpenCL device ", reason);
    if (!bench_device_open(chosen.id, &device) ||
        !workload_create(&device, &read.c, pass, 1, false, &w))
        fail(words[1], "the device has no room for it");
    if (read.backward)
        check(call_provide_outputs(&w, 1), words[1]);
    check(call_open(&device, &read.c, passes, &call), words[1]);
    open_cuda();
    copy_tensors(&w, at);
    at[WINATTN_TENSOR_WORKSPACE] = allocate(call.workspace_size, NULL);
    check(winattn_launch_list_create(call.plan, passes, at, 0, &list),
          words[1]);
    show(list, words[3]);
    check(wa_cuda_call_of_list(0, list, &cuda_call), words[1]);
    for (int i = atoi(words[2]); i > 0; i--)
        check(winattn_cuda_call_launch(cuda_call, at, NULL), words[1]);
    check(wa_cuda_check(wa_cuda_driver()->synchronize(NULL),
                        "cuStreamSynchronize"),
          words[1]);
    winattn_cuda_call_destroy(cuda_call);
    call_close(&call);
    workload_release(&w);
    bench_device_close(&device);
    device_close(&chosen);
    return 0;
}
