/* SPDX-License-Identifier: Apache-2.0
 * Programs: from source, to binaries and back. A binary is what it was built
 * for and with, and what is known of its kernels; so a program from a binary
 * is checked as one from source is. */
#include "internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG "a line of the stand-in's build log\n"

static atomic_ulong sound_binaries, damaged_binaries;

standin_binaries standin_binaries_given(void)
{
    const standin_binaries given = {atomic_load(&sound_binaries),
                                    atomic_load(&damaged_binaries)};
    return given;
}

void program_empty(cl_program program)
{
    kernels_free(&program->kernels);
    free(program->options);
}

/* ---- From source ---- */

static shared_text *join(cl_uint count, const char **texts,
                         const size_t *sizes)
{
    size_t size = 0;
    for (cl_uint i = 0; i < count; i++)
        size += sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
    shared_text *all = text_new(size + 1);
    char *at = all->text;
    for (cl_uint i = 0; i < count; i++) {
        const size_t length = sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
        memcpy(at, texts[i], length);
        at += length;
    }
    return all;
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count,
                                     const char **texts, const size_t *sizes,
                                     cl_int *error)
{
    MAY_FAIL_WITH(CL_OUT_OF_HOST_MEMORY, error);
    if (!object_is(context, OBJECT_CONTEXT, __func__))
        return fail_with(CL_INVALID_CONTEXT, error);
    for (cl_uint i = 0; i < count; i++)
        if (!texts[i])
            return fail_with(CL_INVALID_VALUE, error);
    cl_program made = object_new(OBJECT_PROGRAM, sizeof *made, context);
    made->source = join(count, texts, sizes);
    return succeed_with(made, error);
}

/* ---- Binaries ---- */

/* How a binary starts; options and kernels follow. */
typedef struct binary_head {
    char magic[32], device[sizeof((wa_device *)NULL)->name];
    uint64_t source_sum;
    size_t options_size, kernel_count;
} binary_head;

static const char magic[] = "binary of the stand-in";

static uint64_t sum_of(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * 0x100000001b3u;
    return sum;
}

/* The binary of a built program; the same for the same source, options and
 * device. It ends with a sum over what comes before, as a driver's do. */
static unsigned char *binary_of(cl_program program, cl_device_id device,
                                size_t *size)
{
    const kernel_list *kernels = &program->kernels;
    const size_t options_size = strlen(program->options) + 1;
    const size_t kernels_size = kernels->count * sizeof *kernels->all;
    const size_t summed = sizeof(binary_head) + options_size + kernels_size;
    unsigned char *bytes = own_calloc(summed + sizeof(uint64_t), 1);
    binary_head head;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.device, device->device.name, strlen(device->device.name));
    head.source_sum = program->source_sum;
    head.options_size = options_size;
    head.kernel_count = kernels->count;
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, program->options, options_size);
    memcpy(bytes + sizeof head + options_size, kernels->all, kernels_size);
    const uint64_t sum = sum_of(bytes, summed);
    memcpy(bytes + summed, &sum, sizeof sum);
    *size = summed + sizeof sum;
    return bytes;
}

/* The same as drivers give it. */
static unsigned char *given_binary(cl_program program, cl_device_id device,
                                   size_t *size)
{
    unsigned char *own = binary_of(program, device, size);
    if (!program->is_ptx)
        return own;
    char *ptx =
        ptx_write(own, *size, &program->kernels.all[0], program->is_rewritten);
    free(own);
    *size = strlen(ptx);
    return (unsigned char *)ptx;
}

/* Fills the program; false if this is nothing that binary_of made for the
 * device. */
static bool read_binary(cl_program program, cl_device_id device,
                        const unsigned char *bytes, size_t size)
{
    binary_head head;
    uint64_t sum;
    if (size < sizeof head + sizeof sum)
        return false;
    const size_t summed = size - sizeof sum;
    memcpy(&head, bytes, sizeof head);
    memcpy(&sum, bytes + summed, sizeof sum);
    if (sum != sum_of(bytes, summed) ||
        memcmp(head.magic, magic, sizeof magic) != 0 ||
        strcmp(head.device, device->device.name) != 0)
        return false;
    const unsigned char *kernels = bytes + sizeof head + head.options_size;
    program->options = own_copy(bytes + sizeof head, head.options_size);
    program->source_sum = head.source_sum;
    program->kernels.count = head.kernel_count;
    program->kernels.all = own_copy(kernels, summed - (kernels - bytes));
    return true;
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint count,
                                     const cl_device_id *list,
                                     const size_t *sizes,
                                     const unsigned char **binaries,
                                     cl_int *accepted, cl_int *error)
{
    MAY_FAIL_WITH(CL_OUT_OF_HOST_MEMORY, error);
    if (!object_is(context, OBJECT_CONTEXT, __func__))
        return fail_with(CL_INVALID_CONTEXT, error);
    if (count != 1 || !context_has(context, list[0]))
        return fail_with(CL_INVALID_DEVICE, error);
    if (!binaries[0] || sizes[0] == 0)
        return fail_with(CL_INVALID_VALUE, error);
    bool is_sound;
    char *text = own_copy(binaries[0], sizes[0]);
    text[sizes[0]] = 0;
    cl_program made = object_new(OBJECT_PROGRAM, sizeof *made, context);
    size_t size = sizes[0];
    if (ptx_starts(text)) {
        unsigned char *own = ptx_read(text, &size);
        made->is_ptx = made->is_rewritten = own != NULL;
        made->ptx_sum = sum_of(binaries[0], sizes[0]);
        is_sound = own && read_binary(made, list[0], own, size) &&
                   ptx_ends_well(text, &made->kernels.all[0]);
        free(own);
    } else {
        is_sound = read_binary(made, list[0], binaries[0], size);
    }
    atomic_fetch_add_explicit(is_sound ? &sound_binaries : &damaged_binaries,
                              1, memory_order_relaxed);
    free(text);
    const bool taken = is_sound && !standin_drivers.refuses_binaries;
    if (accepted)
        *accepted = taken ? CL_SUCCESS : CL_INVALID_BINARY;
    if (taken)
        return succeed_with(made, error);
    object_release(made);
    return fail_with(CL_INVALID_BINARY, error);
}

cl_int clGetProgramInfo(cl_program program, cl_program_info what, size_t size,
                        void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(program, OBJECT_PROGRAM, __func__))
        return CL_INVALID_PROGRAM;
    cl_context context = program->head.context;
    size_t sizes[MOST_CONTEXT_DEVICES] = {0};
    unsigned char *binaries[MOST_CONTEXT_DEVICES] = {NULL};
    const size_t count = context->count;
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (context->devices[i] == program->built_for &&
            !standin_drivers.gives_no_binaries)
            binaries[i] = given_binary(program, program->built_for, &sizes[i]);
    switch (what) {
    case CL_PROGRAM_DEVICES:
        error = answer(context->devices, count * sizeof *context->devices,
                       size, value, needed);
        break;
    case CL_PROGRAM_BINARY_SIZES:
        error = answer(sizes, count * sizeof *sizes, size, value, needed);
        break;
    case CL_PROGRAM_BINARIES:
        if (!value || size < count * sizeof *binaries)
            error = CL_INVALID_VALUE;
        for (size_t i = 0; i < count && error == CL_SUCCESS; i++) {
            unsigned char *to = ((unsigned char **)value)[i];
            if (to && binaries[i])
                memcpy(to, binaries[i], sizes[i]);
        }
        break;
    default:
        error = CL_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        free(binaries[i]);
    return error;
}

/* ---- Builds ---- */

/* The last sources that were read: tests of the cache build the same programs
 * thousands of times. */
#define MOST_REMEMBERED 16
static _Thread_local struct {
    uint64_t sum;
    char *options;
    kernel_list kernels;
} remembered[MOST_REMEMBERED];
static _Thread_local size_t next_remembered;

void programs_forget(void)
{
    for (size_t i = 0; i < MOST_REMEMBERED; i++) {
        free(remembered[i].options);
        kernels_free(&remembered[i].kernels);
    }
    memset(remembered, 0, sizeof remembered);
}

static kernel_list read_kernels(uint64_t sum, const char *source,
                                const char *options)
{
    size_t i = 0;
    while (i < MOST_REMEMBERED &&
           !(remembered[i].options && remembered[i].sum == sum &&
             strcmp(remembered[i].options, options) == 0))
        i++;
    if (i == MOST_REMEMBERED) {
        i = next_remembered++ % MOST_REMEMBERED;
        free(remembered[i].options);
        kernels_free(&remembered[i].kernels);
        remembered[i].sum = sum;
        remembered[i].options = own_copy(options, strlen(options) + 1);
        remembered[i].kernels = kernels_read(source, options);
    }
    kernel_list copy = remembered[i].kernels;
    copy.all = own_copy(copy.all, copy.count * sizeof *copy.all);
    return copy;
}

/* A compiler refuses what the device cannot hold. */
static bool refuses(cl_program program, cl_device_id device,
                    const char *options)
{
    for (size_t i = 0; i < program->kernels.count; i++)
        if (program->kernels.all[i].local_bytes > device->device.local_bytes)
            return true;
    return standin_drivers.refuses &&
           standin_drivers.refuses(standin_drivers.data, options);
}

/* Sums of the last PTX that this thread had compiled: NVIDIA's driver has a
 * cache of that, and gives no log with a program from there. */
#define MOST_COMPILED 256
static _Thread_local uint64_t compiled[MOST_COMPILED];
static _Thread_local size_t compiled_count;

void compiled_forget(void) { compiled_count = 0; }

static bool take_compiled(uint64_t sum)
{
    for (size_t i = 0; i < compiled_count && i < MOST_COMPILED; i++)
        if (compiled[i] == sum)
            return true;
    compiled[compiled_count++ % MOST_COMPILED] = sum;
    return false;
}

static cl_int build(cl_program program, cl_device_id device,
                    const char *options)
{
    if (!device->device.compiles && program->source)
        return CL_COMPILER_NOT_AVAILABLE;
    if (program->source) {
        const char *source = program->source->text;
        free(program->options); /* of a build that failed */
        kernels_free(&program->kernels);
        program->options = own_copy(options, strlen(options) + 1);
        program->source_sum = sum_of(source, strlen(source));
        program->kernels = read_kernels(program->source_sum, source, options);
        program->is_ptx =
            standin_drivers.gives_ptx && ptx_is_for(&program->kernels);
    }
    program->is_built = !refuses(program, device, options);
    /* options mean nothing to PTX */
    if (program->is_built && !program->source && !program->is_ptx &&
        strcmp(program->options, options) != 0)
        wrong("a binary of options \"%s\" is built with \"%s\"",
              program->options, options);
    if (program->is_built && program->is_rewritten)
        program->is_from_cache = take_compiled(program->ptx_sum);
    program->built_for = device;
    return program->is_built ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

cl_int clBuildProgram(cl_program program, cl_uint count,
                      const cl_device_id *list, const char *options,
                      void (*notify)(cl_program, void *), void *data)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(program, OBJECT_PROGRAM, __func__))
        return CL_INVALID_PROGRAM;
    if (count != 1 || !context_has(program->head.context, list[0]) || notify ||
        data)
        return CL_INVALID_VALUE;
    if (standin_drivers.yields)
        sched_yield();
    if (program->is_built) {
        wrong("%s: the program was built before", __func__);
        return CL_INVALID_OPERATION;
    }
    const cl_int result = build(program, list[0], options ? options : "");
    record_build(program, result);
    return result;
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device,
                             cl_program_build_info what, size_t size,
                             void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!object_is(program, OBJECT_PROGRAM, __func__))
        return CL_INVALID_PROGRAM;
    if (!context_has(program->head.context, device))
        return CL_INVALID_DEVICE;
    const char *of = standin_drivers.log_of;
    const bool is_told =
        standin_drivers.log && (!of || kernels_find(&program->kernels, of));
    const char *log = program->is_from_cache ? ""
                      : is_told              ? standin_drivers.log
                                             : LOG;
    if (what == CL_PROGRAM_BUILD_OPTIONS)
        return answer_text(program->options ? program->options : "", size,
                           value, needed);
    return what == CL_PROGRAM_BUILD_LOG ? answer_text(log, size, value, needed)
                                        : CL_INVALID_VALUE;
}
