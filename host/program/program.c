/* SPDX-License-Identifier: Apache-2.0
 * Assembles sources and keys, builds, and talks about binaries with the
 * driver. */
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "device/query.h"
#include "program/cache.h"
#include "program/ptx.h"
#include "program/source.h"

/* Subnormal fp32 numbers may become 0, which makes exponentials cheaper.
 * Options that let the compiler forget infinities and NaNs must not come here:
 * masks are made of them. */
#define FAST_OPTIONS "-cl-denorms-are-zero "
#define STANDARD_OPTIONS "-cl-std=CL1.2 " FAST_OPTIONS

#define NAME_SIZE 64

/* ---- Keys ---- */

/* "what: value", in a line of its own, after what *key holds already; *key
 * moves. On failure it stays, for the caller to free. */
static winattn_status add_line(char **key, const char *what, const char *value)
{
    const size_t before = *key ? strlen(*key) : 0;
    const size_t size = strlen(what) + strlen(value) + 4;
    char *longer = realloc(*key, before + size);
    WA_TRY_MEMORY(longer);
    snprintf(longer + before, size, "%s: %s\n", what, value);
    *key = longer;
    return WINATTN_SUCCESS;
}

/* Asks the platform, or where that is NULL the device. */
static winattn_status add_queried_line(char **key, cl_platform_id platform,
                                       cl_device_id device, const char *what,
                                       cl_uint info)
{
    char *value;
    WA_TRY(platform ? wa_query_platform_text(platform, info, &value)
                    : wa_query_text(device, info, &value));
    const winattn_status status = add_line(key, what, value);
    free(value);
    return status;
}

static winattn_status add_hash_line(char **key,
                                    const wa_program_source *program_source)
{
    char digits[40];
    wa_hash hash = wa_hash_start();
    if (program_source->text)
        wa_hash_add(&hash, program_source->text, strlen(program_source->text));
    hash = wa_hash_end(hash);
    snprintf(digits, sizeof digits, "%016llx%016llx",
             (unsigned long long)hash.a, (unsigned long long)hash.b);
    return add_line(key, "source", digits);
}

static winattn_status add_lines(char **key, cl_device_id device,
                                const char *name,
                                const wa_program_source *program_source)
{
    static const struct {
        const char *what;
        bool of_platform;
        cl_uint info;
    } asked[] = {{"platform", true, CL_PLATFORM_NAME},
                 {"platform version", true, CL_PLATFORM_VERSION},
                 {"vendor", false, CL_DEVICE_VENDOR},
                 {"device", false, CL_DEVICE_NAME},
                 {"device version", false, CL_DEVICE_VERSION},
                 {"driver", false, CL_DRIVER_VERSION}};
    char number[48];
    cl_platform_id platform = NULL;
    cl_uint bits = 0;
    snprintf(number, sizeof number, "%d.%d.%d, format %u",
             WINATTN_VERSION_MAJOR, WINATTN_VERSION_MINOR,
             WINATTN_VERSION_PATCH, WA_CACHE_RECORD_FORMAT);
    WA_TRY(add_line(key, "winattn", number));
    WA_TRY(wa_query(device, CL_DEVICE_PLATFORM, sizeof platform, &platform));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        WA_TRY(add_queried_line(key, asked[i].of_platform ? platform : NULL,
                                device, asked[i].what, asked[i].info));
    WA_TRY(wa_query(device, CL_DEVICE_ADDRESS_BITS, sizeof bits, &bits));
    snprintf(number, sizeof number, "%u", bits);
    WA_TRY(add_line(key, "address bits", number));
    WA_TRY(add_line(key, "program", name));
    if (wa_ptx_is_marked(name))
        WA_TRY(add_line(key, "ptx", WA_PTX_TARGET));
    return add_hash_line(key, program_source);
}

/* The lines of a key but the options, which may hold anything and so come
 * last. */
static winattn_status make_key(cl_device_id device, const char *name,
                               const wa_program_source *program_source,
                               char **key)
{
    *key = NULL;
    const winattn_status status = add_lines(key, device, name, program_source);
    if (status != WINATTN_SUCCESS) {
        free(*key);
        *key = NULL;
    }
    return status;
}

static winattn_status finish_program_source(cl_device_id device,
                                            const char *name,
                                            const char *standard,
                                            const char *options,
                                            wa_program_source *program_source)
{
    const size_t size = strlen(standard) + strlen(options) + 1;
    winattn_status status =
        make_key(device, name, program_source, &program_source->key);
    if (status == WINATTN_SUCCESS && !(program_source->options = malloc(size)))
        status = wa_fail_memory();
    if (status == WINATTN_SUCCESS) {
        snprintf(program_source->options, size, "%s%s", standard, options);
        status =
            add_line(&program_source->key, "options", program_source->options);
    }
    if (status != WINATTN_SUCCESS)
        wa_program_source_free(program_source);
    return status;
}

winattn_status wa_program_source_of_kernel(cl_device_id device,
                                           const char *name,
                                           const char *options,
                                           wa_program_source *program_source)
{
    memset(program_source, 0, sizeof *program_source);
    WA_TRY(wa_source_of_kernel(name, &program_source->text));
    if (!program_source->text)
        return WA_UNSUPPORTED("there is no kernel %s", name);
    program_source->is_ptx = wa_ptx_is_marked(name);
    /* ocloc 22.43 does not compile for PVC where the standard comes twice */
    return finish_program_source(
        device, name,
        strstr(options, "-cl-std=") ? FAST_OPTIONS : STANDARD_OPTIONS, options,
        program_source);
}

winattn_status wa_program_source_of_text(cl_device_id device, const char *name,
                                         const char *text, const char *options,
                                         wa_program_source *program_source)
{
    const size_t size = strlen(text) + 1;
    memset(program_source, 0, sizeof *program_source);
    program_source->text = malloc(size);
    WA_TRY_MEMORY(program_source->text);
    memcpy(program_source->text, text, size);
    return finish_program_source(device, name, "", options, program_source);
}

void wa_program_source_free(wa_program_source *program_source)
{
    free(program_source->text);
    free(program_source->options);
    free(program_source->key);
    memset(program_source, 0, sizeof *program_source);
}

static size_t line_length(const char *text)
{
    const char *end = strchr(text, '\n');
    return end ? (size_t)(end - text) : strlen(text);
}

/* Every line of `own` must come first in `kept`. */
static winattn_status compare_lines(const char *kept, const char *own)
{
    while (*own) {
        const size_t kept_length = line_length(kept);
        const size_t own_length = line_length(own);
        if (kept_length != own_length || memcmp(kept, own, own_length) != 0)
            return wa_fail(WINATTN_INVALID_BLOB,
                           "the blob is for \"%.*s\", not for \"%.*s\"",
                           (int)(kept_length < 200 ? kept_length : 200), kept,
                           (int)(own_length < 200 ? own_length : 200), own);
        kept += kept_length + (kept[kept_length] == '\n');
        own += own_length + (own[own_length] == '\n');
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_check_key(cl_device_id device, const char *key)
{
    static const char label[] = "\nprogram: ";
    char name[NAME_SIZE] = "";
    wa_program_source program_source = {.text = NULL};
    const char *named = strstr(key, label);
    if (named) {
        named += strlen(label);
        const size_t length = line_length(named);
        if (length < sizeof name) {
            memcpy(name, named, length);
            name[length] = 0;
        }
    }
    /* without a source where there is no such kernel: no program has the hash
     * of nothing */
    WA_TRY(wa_source_of_kernel(name, &program_source.text));
    char *own = NULL;
    winattn_status status = make_key(device, name, &program_source, &own);
    WA_THEN(status, compare_lines(key, own));
    free(own);
    wa_program_source_free(&program_source);
    return status;
}

/* ---- Builds ---- */

/* What fails for good is built once more without FAST_OPTIONS, which PoCL's
 * remote driver turns into an option that its server refuses. */
static cl_int build(cl_program program, cl_device_id device,
                    const char *options)
{
    const cl_int error =
        clBuildProgram(program, 1, &device, options, NULL, NULL);
    const char *fast = strstr(options, FAST_OPTIONS);
    if (error == CL_SUCCESS || wa_may_pass(error) || !fast)
        return error;
    const size_t size = strlen(options) + 1;
    char *others = malloc(size);
    if (!others)
        return CL_OUT_OF_HOST_MEMORY;
    snprintf(others, size, "%.*s%s", (int)(fast - options), options,
             fast + strlen(FAST_OPTIONS));
    const cl_int second =
        clBuildProgram(program, 1, &device, others, NULL, NULL);
    free(others);
    return second;
}

/* ---- From source ---- */

/* The compiler's output, to be freed. */
static winattn_status read_log(cl_program program, cl_device_id device,
                               char **log)
{
    size_t size = 0;
    *log = NULL;
    WA_TRY(WA_CL(clGetProgramBuildInfo, program, device, CL_PROGRAM_BUILD_LOG,
                 0, NULL, &size));
    *log = calloc(size + 1, 1);
    WA_TRY_MEMORY(*log);
    return WA_CL(clGetProgramBuildInfo, program, device, CL_PROGRAM_BUILD_LOG,
                 size, *log, NULL);
}

static void keep_log(cl_program program, cl_device_id device)
{
    char *log;
    if (read_log(program, device, &log) == WINATTN_SUCCESS)
        wa_keep_build_log(log);
    free(log);
}

static winattn_status build_source(cl_context context, cl_device_id device,
                                   const wa_program_source *program_source,
                                   cl_program *result)
{
    cl_int error;
    /* older OpenCL headers lack the const */
    cl_program program = clCreateProgramWithSource(
        context, 1, (const char **)(size_t)&program_source->text, NULL,
        &error);
    WA_TRY(wa_cl_status(error, "clCreateProgramWithSource"));
    error = build(program, device, program_source->options);
    if (error != CL_SUCCESS) {
        keep_log(program, device);
        clReleaseProgram(program);
    } else {
        *result = program;
    }
    return wa_cl_status(error, "clBuildProgram");
}

/* ---- From and to binaries ---- */

/* A binary that builds, but without the kernel, is not what it should be. */
static cl_int find_kernel(cl_program program, const char *name)
{
    cl_int error;
    const cl_kernel kernel = clCreateKernel(program, name, &error);
    if (error == CL_SUCCESS)
        clReleaseKernel(kernel);
    return error;
}

static cl_int load_program(cl_context context, cl_device_id device,
                           const wa_program_source *program_source,
                           const char *kernel, const unsigned char *binary,
                           size_t size, cl_program *result)
{
    cl_int error, accepted = CL_INVALID_BINARY;
    cl_program program = clCreateProgramWithBinary(context, 1, &device, &size,
                                                   &binary, &accepted, &error);
    if (error != CL_SUCCESS)
        return error;
    error = accepted;
    /* a runtime may compile the binary further, with the same options */
    WA_THEN(error, build(program, device, program_source->options));
    WA_THEN(error, find_kernel(program, kernel));
    if (error == CL_SUCCESS)
        *result = program;
    else
        clReleaseProgram(program);
    return error;
}

cl_program wa_load_program(cl_context context, cl_device_id device,
                           const wa_program_source *program_source,
                           const char *kernel, const unsigned char *binary,
                           size_t size)
{
    cl_program program = NULL;
    if (wa_may_pass(load_program(context, device, program_source, kernel,
                                 binary, size, &program)))
        load_program(context, device, program_source, kernel, binary, size,
                     &program);
    return program;
}

/* What drivers say that give no binaries is no failure. */
static winattn_status check_answer(cl_int error)
{
    return wa_may_pass(error) ? wa_fail_cl(error, "clGetProgramInfo")
                              : WINATTN_SUCCESS;
}

/* A program knows binaries for several devices, in the order of its devices.
 * PoCL counts the built ones only, and takes a whole device for its part. */
static winattn_status find_binary(cl_program program, cl_device_id device,
                                  size_t count, size_t *index, bool *found)
{
    cl_device_id *devices = malloc(count * sizeof *devices);
    WA_TRY_MEMORY(devices);
    const cl_int error = clGetProgramInfo(
        program, CL_PROGRAM_DEVICES, count * sizeof *devices, devices, NULL);
    *index = 0;
    *found = count == 1;
    for (size_t i = 0; i < count && error == CL_SUCCESS; i++)
        if (devices[i] == device) {
            *found = true;
            *index = i;
        }
    free(devices);
    return check_answer(error);
}

/* Of `count` binaries the device's, of so many bytes; NULL: there is none. */
static winattn_status read_binary(cl_program program, size_t count,
                                  size_t index, size_t bytes,
                                  unsigned char **binary)
{
    /* NULL means that one is not wanted */
    unsigned char **all = calloc(count, sizeof *all);
    unsigned char *own = malloc(bytes);
    if (!all || !own) {
        free(all);
        free(own);
        return wa_fail_memory();
    }
    all[index] = own;
    const cl_int error = clGetProgramInfo(program, CL_PROGRAM_BINARIES,
                                          count * sizeof *all, all, NULL);
    free(all);
    if (error == CL_SUCCESS)
        *binary = own;
    else
        free(own);
    return check_answer(error);
}

winattn_status wa_program_binary(cl_program program, cl_device_id device,
                                 unsigned char **binary, size_t *size)
{
    size_t bytes = 0, index = 0;
    bool found = false;
    *binary = NULL;
    *size = 0;
    cl_int error =
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, 0, NULL, &bytes);
    if (error != CL_SUCCESS || bytes < sizeof(size_t))
        return check_answer(error);
    const size_t count = bytes / sizeof(size_t);
    size_t *sizes = calloc(count, sizeof *sizes);
    WA_TRY_MEMORY(sizes);
    error =
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, bytes, sizes, NULL);
    winattn_status status = check_answer(error);
    if (status == WINATTN_SUCCESS && error == CL_SUCCESS)
        status = find_binary(program, device, count, &index, &found);
    if (status == WINATTN_SUCCESS && found && sizes[index] > 0) {
        status = read_binary(program, count, index, sizes[index], binary);
        *size = *binary ? sizes[index] : 0;
    }
    free(sizes);
    return status;
}

/* ---- By way of PTX ---- */

/* NVIDIA's compiler then says what became of registers and products. */
#define VERBOSE "-cl-nv-verbose"
/* Three numbers of 64 bits, each with what ends it. */
#define BUILD_NAME_SIZE 51

static winattn_status check_log(cl_program program, cl_device_id device)
{
    char *log;
    winattn_status status = read_log(program, device, &log);
    WA_THEN(status, wa_ptx_check_log(log));
    free(log);
    return status;
}

/* Compiles PTX, and checks what the compiler says of it. */
static winattn_status build_ptx(cl_context context, cl_device_id device,
                                const unsigned char *text, size_t size,
                                cl_program *result)
{
    cl_int error, accepted = CL_SUCCESS;
    cl_program program = clCreateProgramWithBinary(context, 1, &device, &size,
                                                   &text, &accepted, &error);
    WA_TRY(wa_cl_status(error, "clCreateProgramWithBinary"));
    error = accepted == CL_SUCCESS
                ? clBuildProgram(program, 1, &device, VERBOSE, NULL, NULL)
                : accepted;
    winattn_status status = WINATTN_SUCCESS;
    if (error != CL_SUCCESS) {
        keep_log(program, device);
        status = wa_fail_cl(error, "clBuildProgram, of PTX,");
    } else {
        status = check_log(program, device);
    }
    if (status == WINATTN_SUCCESS)
        *result = program;
    else
        clReleaseProgram(program);
    return status;
}

/* The driver has a cache of its own of PTX that it compiled, by its text, and
 * a program from there has no log: what was refused once would be accepted
 * next time. So no two builds have the same text. */
static void name_build(char name[BUILD_NAME_SIZE])
{
    const wa_unique numbers = wa_unique_take();
    snprintf(name, BUILD_NAME_SIZE, "%llx-%llx-%llx",
             (unsigned long long)numbers.time,
             (unsigned long long)numbers.process,
             (unsigned long long)numbers.call);
}

/* The program that the marks of this one are for, in its place. */
static winattn_status rewrite_program(cl_context context, cl_device_id device,
                                      cl_program *program)
{
    unsigned char *binary, *text = NULL;
    char build[BUILD_NAME_SIZE];
    size_t size;
    cl_program plain = *program;
    name_build(build);
    winattn_status status = wa_program_binary(plain, device, &binary, &size);
    if (status == WINATTN_SUCCESS && !binary)
        status = WA_BAD_DEVICE("the driver gives no binary of a program");
    WA_THEN(status, wa_ptx_rewrite(binary, size, build, &text, &size));
    WA_THEN(status, build_ptx(context, device, text, size, program));
    free(text);
    free(binary);
    clReleaseProgram(plain);
    if (status != WINATTN_SUCCESS)
        *program = NULL;
    return status;
}

winattn_status wa_build_program(cl_context context, cl_device_id device,
                                const wa_program_source *program_source,
                                cl_program *result)
{
    cl_program program = NULL;
    WA_TRY(build_source(context, device, program_source, &program));
    if (program_source->is_ptx)
        WA_TRY(rewrite_program(context, device, &program));
    *result = program;
    return WINATTN_SUCCESS;
}

/* ---- From and to the cache ---- */

winattn_status wa_load_cached_program(cl_context context, cl_device_id device,
                                      const wa_program_source *program_source,
                                      const char *kernel, cl_program *program)
{
    unsigned char *file;
    wa_cache_record record;
    *program = NULL;
    WA_TRY(wa_cache_load(program_source->key, &file, &record));
    if (file)
        *program = wa_load_program(context, device, program_source, kernel,
                                   record.binary, record.binary_size);
    free(file);
    return WINATTN_SUCCESS;
}

winattn_status wa_store_program(cl_program program, cl_device_id device,
                                const char *key)
{
    unsigned char *binary;
    size_t size;
    if (!wa_cache_stores())
        return WINATTN_SUCCESS;
    WA_TRY(wa_program_binary(program, device, &binary, &size));
    const winattn_status status =
        binary ? wa_cache_store(key, binary, size) : WINATTN_SUCCESS;
    free(binary);
    return status;
}

winattn_status wa_obtain_program(cl_context context, cl_device_id device,
                                 const wa_program_source *program_source,
                                 const char *kernel, cl_program *program)
{
    WA_TRY(wa_load_cached_program(context, device, program_source, kernel,
                                  program));
    if (*program)
        return WINATTN_SUCCESS;
    WA_TRY(wa_build_program(context, device, program_source, program));
    wa_store_program(*program, device, program_source->key);
    return WINATTN_SUCCESS;
}
