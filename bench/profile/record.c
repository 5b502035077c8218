/* SPDX-License-Identifier: Apache-2.0
 * Put before the OpenCL loader (LD_PRELOAD), writes down launches of kernels
 * so that they can be played again without OpenCL, which NVIDIA's profiler
 * does not know. Of each kernel that WINATTN_RECORD_KERNELS names, the launch
 * with the largest buffers is left in the folder WINATTN_RECORD, as replay.c
 * reads it:
 *
 *   KERNEL.ptx     its program, which on NVIDIA's driver is PTX
 *   KERNEL.args    a line of work-groups and work-items of one, and a line for
 *                  each argument: "buffer BYTES", "null", "local BYTES" or
 *                  "bytes HEXADECIMAL"
 *   KERNEL.N.bin   what buffer N holds before the launch
 *
 * For programs that use OpenCL from one thread. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ARGUMENTS 64
#define MOST_BYTES 2048
#define MOST_NAME 128

typedef struct argument {
    size_t size;
    bool is_set, is_local;
    unsigned char bytes[MOST_BYTES];
} argument;

typedef struct kernel {
    cl_kernel handle;
    argument argument[MOST_ARGUMENTS];
    struct kernel *next;
} kernel;

typedef struct buffer {
    cl_mem handle;
    size_t size;
    struct buffer *next;
} buffer;

typedef struct recorded {
    char name[MOST_NAME];
    size_t bytes; /* of its buffers */
    struct recorded *next;
} recorded;

static kernel *kernels;
static buffer *buffers;
static recorded *launches;

/* The function of the loader that one of this file stands before. */
#define NEXT(name)                                                            \
    static __typeof__(name) *next;                                            \
    if (!next)                                                                \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

static void fail(const char *what)
{
    fprintf(stderr, "record: %s\n", what);
    exit(1);
}

static void *allocate(size_t size)
{
    void *p = calloc(1, size ? size : 1);
    if (!p)
        fail("no memory");
    return p;
}

/* ---- What there is ---- */

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                      void *host, cl_int *status)
{
    NEXT(clCreateBuffer);
    buffer *b = allocate(sizeof *b);
    b->handle = next(context, flags, size, host, status);
    b->size = size;
    b->next = buffers;
    buffers = b;
    return b->handle;
}

/* The newest that had the handle, which may have been another's before. */
static const buffer *find_buffer(const argument *a)
{
    cl_mem handle = NULL;
    if (a->is_local || a->size != sizeof handle)
        return NULL;
    memcpy(&handle, a->bytes, sizeof handle);
    for (const buffer *b = buffers; b && handle; b = b->next)
        if (b->handle == handle)
            return b;
    return NULL;
}

static kernel *find_kernel(cl_kernel handle)
{
    for (kernel *k = kernels; k; k = k->next)
        if (k->handle == handle)
            return k;
    kernel *k = allocate(sizeof *k);
    k->handle = handle;
    k->next = kernels;
    kernels = k;
    return k;
}

cl_int clSetKernelArg(cl_kernel handle, cl_uint n, size_t size,
                      const void *value)
{
    NEXT(clSetKernelArg);
    if (n < MOST_ARGUMENTS && size <= MOST_BYTES) {
        argument *a = &find_kernel(handle)->argument[n];
        a->is_set = true;
        /* with the size of a buffer it is none, rather */
        a->is_local = !value && size != sizeof(cl_mem);
        a->size = size;
        if (value)
            memcpy(a->bytes, value, size);
        else
            memset(a->bytes, 0, sizeof a->bytes);
    }
    return next(handle, n, size, value);
}

cl_int clReleaseKernel(cl_kernel handle)
{
    NEXT(clReleaseKernel);
    cl_uint references = 0;
    clGetKernelInfo(handle, CL_KERNEL_REFERENCE_COUNT, sizeof references,
                    &references, NULL);
    for (kernel **k = &kernels; references == 1 && *k; k = &(*k)->next)
        if ((*k)->handle == handle) {
            kernel *gone = *k;
            *k = gone->next;
            free(gone);
            break;
        }
    return next(handle);
}

/* ---- What is written down ---- */

static FILE *create(const char *name, const char *what)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", getenv("WINATTN_RECORD"), name,
             what);
    FILE *file = fopen(path, "wb");
    if (!file)
        fail("a file cannot be written");
    return file;
}

static void finish(FILE *file)
{
    const int lost = ferror(file);
    if (fclose(file) != 0 || lost)
        fail("a file cannot be written");
}

static void write_program(const char *name, cl_kernel handle)
{
    cl_program program = NULL;
    size_t size = 0;
    clGetKernelInfo(handle, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size,
                     NULL);
    char *text = allocate(size + 1);
    clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof text, &text, NULL);
    FILE *file = create(name, "ptx");
    fputs(text, file);
    finish(file);
    free(text);
}

static void write_buffer(const char *name, unsigned n, cl_command_queue queue,
                         const buffer *b)
{
    char what[32];
    snprintf(what, sizeof what, "%u.bin", n);
    void *bytes = allocate(b->size);
    if (clEnqueueReadBuffer(queue, b->handle, CL_TRUE, 0, b->size, bytes, 0,
                            NULL, NULL) != CL_SUCCESS)
        fail("a buffer cannot be read");
    FILE *file = create(name, what);
    fwrite(bytes, 1, b->size, file);
    finish(file);
    free(bytes);
}

static void write_argument(FILE *file, const char *name, unsigned n,
                           const argument *a, cl_command_queue queue)
{
    const buffer *b = find_buffer(a);
    const cl_mem none = NULL;
    if (a->is_local) {
        fprintf(file, "local %zu\n", a->size);
    } else if (b) {
        fprintf(file, "buffer %zu\n", b->size);
        write_buffer(name, n, queue, b);
    } else if (a->size == sizeof none &&
               memcmp(a->bytes, &none, sizeof none) == 0) {
        fprintf(file, "null\n");
    } else {
        fprintf(file, "bytes ");
        for (size_t i = 0; i < a->size; i++)
            fprintf(file, "%02x", a->bytes[i]);
        fprintf(file, "\n");
    }
}

static void write_launch(const char *name, cl_kernel handle,
                         cl_command_queue queue, size_t groups, size_t items)
{
    const kernel *k = find_kernel(handle);
    clFinish(queue); /* what buffers hold is there */
    write_program(name, handle);
    FILE *file = create(name, "args");
    fprintf(file, "%zu %zu\n", groups, items);
    for (unsigned n = 0; n < MOST_ARGUMENTS && k->argument[n].is_set; n++)
        write_argument(file, name, n, &k->argument[n], queue);
    finish(file);
}

static bool is_named(const char *name)
{
    const char *names = getenv("WINATTN_RECORD_KERNELS");
    const size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') &&
            (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

/* Are the launch's buffers larger than those of all before? */
static bool is_largest(const char *name, cl_kernel handle)
{
    const kernel *k = find_kernel(handle);
    size_t bytes = 0;
    for (unsigned n = 0; n < MOST_ARGUMENTS && k->argument[n].is_set; n++) {
        const buffer *b = find_buffer(&k->argument[n]);
        bytes += b ? b->size : 0;
    }
    recorded *r = launches;
    while (r && strcmp(r->name, name) != 0)
        r = r->next;
    if (!r) {
        r = allocate(sizeof *r);
        snprintf(r->name, sizeof r->name, "%s", name);
        r->next = launches;
        launches = r;
    }
    if (bytes <= r->bytes)
        return false;
    r->bytes = bytes;
    return true;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel handle,
                              cl_uint dimensions, const size_t *offset,
                              const size_t *global, const size_t *local,
                              cl_uint waits, const cl_event *wait,
                              cl_event *event)
{
    NEXT(clEnqueueNDRangeKernel);
    char name[MOST_NAME] = "";
    clGetKernelInfo(handle, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (getenv("WINATTN_RECORD") && is_named(name) && dimensions == 1 &&
        local && is_largest(name, handle))
        write_launch(name, handle, queue, global[0] / local[0], local[0]);
    return next(queue, handle, dimensions, offset, global, local, waits, wait,
                event);
}
