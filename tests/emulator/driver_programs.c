/* SPDX-License-Identifier: Apache-2.0
 * Programs: from source, and from and to PTX. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static char *copy_text(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy) {
        memcpy(copy, text, size);
        copy[size] = 0;
    }
    return copy;
}

void program_free(cl_program gone)
{
    if (gone->module)
        ptx_free(gone->module);
    free(gone->source);
    free(gone->ptx);
    free(gone->options);
    free(gone->log);
}

/* ---- From source ---- */

/* All of them, one behind the other; to be freed. */
static char *join(cl_uint count, const char **texts, const size_t *sizes)
{
    size_t size = 0;
    for (cl_uint i = 0; i < count; i++)
        size += sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
    char *all = malloc(size + 1), *at = all;
    for (cl_uint i = 0; all && i < count; i++) {
        const size_t length = sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
        memcpy(at, texts[i], length);
        at += length;
    }
    if (all)
        *at = 0;
    return all;
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count,
                                     const char **texts, const size_t *sizes,
                                     cl_int *error)
{
    if (!object_is(context, OBJECT_CONTEXT))
        return fail_with(CL_INVALID_CONTEXT, error);
    if (count == 0 || !texts)
        return fail_with(CL_INVALID_VALUE, error);
    for (cl_uint i = 0; i < count; i++)
        if (!texts[i])
            return fail_with(CL_INVALID_VALUE, error);
    cl_program made = object_new(OBJECT_PROGRAM, sizeof *made, context);
    if (!made)
        return fail_with(CL_OUT_OF_HOST_MEMORY, error);
    made->status = CL_BUILD_NONE;
    made->source = join(count, texts, sizes);
    if (made->source)
        return succeed_with(made, error);
    object_release(made);
    return fail_with(CL_OUT_OF_HOST_MEMORY, error);
}

/* ---- From PTX ---- */

/* A text of it, which zeros may follow; NULL: none, or no memory. */
static char *read_binary(const unsigned char *binary, size_t size,
                         cl_int *error)
{
    while (size > 0 && binary[size - 1] == 0)
        size--;
    *error = CL_INVALID_BINARY;
    if (memchr(binary, 0, size))
        return NULL;
    char *text = copy_text((const char *)binary, size);
    if (!text) {
        *error = CL_OUT_OF_HOST_MEMORY;
    } else if (emulated_is_ptx(text)) {
        *error = CL_SUCCESS;
    } else {
        free(text);
        text = NULL;
    }
    return text;
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint count,
                                     const cl_device_id *devices,
                                     const size_t *sizes,
                                     const unsigned char **binaries,
                                     cl_int *statuses, cl_int *error)
{
    cl_int code;
    if (!object_is(context, OBJECT_CONTEXT))
        return fail_with(CL_INVALID_CONTEXT, error);
    if (count != 1 || !devices || !sizes || !binaries)
        return fail_with(CL_INVALID_VALUE, error);
    if (devices[0] != context->device)
        return fail_with(CL_INVALID_DEVICE, error);
    if (sizes[0] == 0 || !binaries[0]) {
        if (statuses)
            statuses[0] = CL_INVALID_VALUE;
        return fail_with(CL_INVALID_VALUE, error);
    }
    char *ptx = read_binary(binaries[0], sizes[0], &code);
    if (statuses)
        statuses[0] = code;
    if (!ptx)
        return fail_with(code, error);
    cl_program made = object_new(OBJECT_PROGRAM, sizeof *made, context);
    if (!made) {
        free(ptx);
        return fail_with(CL_OUT_OF_HOST_MEMORY, error);
    }
    made->status = CL_BUILD_NONE;
    made->ptx = ptx;
    return succeed_with(made, error);
}

/* ---- Builds ---- */

static bool starts_with(const char *option, size_t length, const char *start)
{
    return length >= strlen(start) &&
           strncmp(option, start, strlen(start)) == 0;
}

/* Of those that begin as a vendor's do, others know none. */
static bool is_known(wa_vendor vendor, const char *option, size_t length)
{
    static const char *const starts[] = {"-D", "-I", "-cl-", "-Werror", "-w"};
    if (starts_with(option, length, "-cl-nv-"))
        return vendor == WA_VENDOR_NVIDIA;
    if (starts_with(option, length, "-cl-intel-"))
        return vendor == WA_VENDOR_INTEL;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (starts_with(option, length, starts[i]))
            return true;
    return false;
}

/* Options of clang's own must not come here. "-D NAME" is two words. */
static bool options_are_good(wa_vendor vendor, const char *options)
{
    bool is_name = false;
    for (;;) {
        options += strspn(options, " \t\n");
        const size_t length = strcspn(options, " \t\n");
        if (length == 0)
            return !is_name;
        if (!is_name && !is_known(vendor, options, length))
            return false;
        is_name = !is_name && length == 2 &&
                  (options[1] == 'D' || options[1] == 'I');
        options += length;
    }
}

static void add_to_log(cl_program program, const char *text)
{
    const size_t before = program->log ? strlen(program->log) : 0;
    char *longer = realloc(program->log, before + strlen(text) + 1);
    if (!longer)
        return;
    strcpy(longer + before, text);
    program->log = longer;
}

static bool fits(cl_program program)
{
    const cl_device_id device = program->head.context->device;
    const emulated_limits most = {device->is->local_bytes,
                                  device->parameter_bytes,
                                  device->is->max_work_group};
    bool does = true;
    for (size_t i = 0; i < program->module->kernel_count; i++) {
        char line[512];
        if (emulated_fits(&program->module->kernels[i], &most, line,
                          sizeof line))
            continue;
        add_to_log(program, line);
        does = false;
    }
    return does;
}

static bool build(cl_program program)
{
    char reason[512] = "";
    if (program->source)
        program->ptx = compile(program->head.context->device, program->source,
                               program->options, &program->log);
    if (!program->ptx)
        return false;
    program->module = ptx_read(program->ptx, reason, sizeof reason);
    if (program->module)
        return fits(program);
    add_to_log(program, "error   : ");
    add_to_log(program, reason);
    add_to_log(program, "\n");
    return false;
}

cl_int clBuildProgram(cl_program program, cl_uint count,
                      const cl_device_id *devices, const char *options,
                      void(CL_CALLBACK *notify)(cl_program, void *),
                      void *data)
{
    if (!object_is(program, OBJECT_PROGRAM))
        return CL_INVALID_PROGRAM;
    if ((count == 0) != (devices == NULL) || (!notify && data))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++)
        if (devices[i] != program->head.context->device)
            return CL_INVALID_DEVICE;
    options = options ? options : "";
    if (!options_are_good(program->head.context->device->is->vendor, options))
        return CL_INVALID_BUILD_OPTIONS;
    if (atomic_load(&program->kernels) != 0)
        return CL_INVALID_OPERATION;
    if (program->module)
        ptx_free(program->module);
    if (program->source)
        free(program->ptx);
    free(program->options);
    free(program->log);
    program->module = NULL;
    program->ptx = program->source ? NULL : program->ptx;
    program->log = NULL;
    program->options = copy_text(options, strlen(options));
    if (!program->options)
        return CL_OUT_OF_HOST_MEMORY;
    const bool is_built = build(program);
    program->status = is_built ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
    if (notify)
        notify(program, data);
    return is_built ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

/* ---- Answers ---- */

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device,
                             cl_program_build_info what, size_t size,
                             void *value, size_t *needed)
{
    if (!object_is(program, OBJECT_PROGRAM))
        return CL_INVALID_PROGRAM;
    if (device != program->head.context->device)
        return CL_INVALID_DEVICE;
    if (what != CL_PROGRAM_BUILD_LOG && what != CL_PROGRAM_BUILD_OPTIONS)
        return CL_INVALID_VALUE;
    const char *text =
        what == CL_PROGRAM_BUILD_LOG ? program->log : program->options;
    return answer_text(text ? text : "", size, value, needed);
}

/* The binary is the text with the zero behind it. */
static cl_int answer_binary(cl_program program, size_t binary_size,
                            size_t size, void *value, size_t *needed)
{
    unsigned char *to = NULL;
    if (needed)
        *needed = sizeof to;
    if (!value)
        return CL_SUCCESS;
    if (size < sizeof to)
        return CL_INVALID_VALUE;
    memcpy(&to, value, sizeof to);
    if (to && binary_size > 0)
        memcpy(to, program->ptx, binary_size);
    return CL_SUCCESS;
}

cl_int clGetProgramInfo(cl_program program, cl_program_info what, size_t size,
                        void *value, size_t *needed)
{
    if (!object_is(program, OBJECT_PROGRAM))
        return CL_INVALID_PROGRAM;
    const size_t binary_size = program->ptx ? strlen(program->ptx) + 1 : 0;
    switch (what) {
    case CL_PROGRAM_DEVICES:
        return ANSWER(program->head.context->device);
    case CL_PROGRAM_BINARY_SIZES:
        return ANSWER(binary_size);
    case CL_PROGRAM_BINARIES:
        return answer_binary(program, binary_size, size, value, needed);
    default:
        return CL_INVALID_VALUE;
    }
}
