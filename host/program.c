/* SPDX-License-Identifier: Apache-2.0
 * Assembles sources and keys, builds, and talks about binaries with the
 * driver. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "sources.h"
#include "status.h"

/* Subnormal fp32 numbers may become 0, which makes exponentials cheaper.
 * Options that let the compiler forget infinities and NaNs must not come here:
 * masks are made of them. */
#define FAST_OPTIONS "-cl-denorms-are-zero "
#define STANDARD_OPTIONS "-cl-std=CL1.2 " FAST_OPTIONS

#define NAME_SIZE 64

/* ---- Keys ---- */

/* "what: value", in a line of its own, after what *key holds already. *key
 * moves; NULL after a failure. */
static void add_line(char **key, const char *what, const char *value)
{
    const size_t before = *key ? strlen(*key) : 0;
    const size_t size = strlen(what) + strlen(value) + 4;
    char *longer = *key ? realloc(*key, before + size) : NULL;
    if (longer)
        snprintf(longer + before, size, "%s: %s\n", what, value);
    else
        free(*key);
    *key = longer;
}

static void add_device_line(char **key, cl_device_id device, const char *what,
                            cl_device_info info)
{
    size_t size = 0;
    char *value = NULL;
    if (clGetDeviceInfo(device, info, 0, NULL, &size) == CL_SUCCESS)
        value = calloc(size + 1, 1);
    if (value)
        clGetDeviceInfo(device, info, size, value, NULL);
    add_line(key, what, value ? value : "");
    free(value);
}

static void add_platform_line(char **key, cl_platform_id platform,
                              const char *what, cl_platform_info info)
{
    size_t size = 0;
    char *value = NULL;
    if (clGetPlatformInfo(platform, info, 0, NULL, &size) == CL_SUCCESS)
        value = calloc(size + 1, 1);
    if (value)
        clGetPlatformInfo(platform, info, size, value, NULL);
    add_line(key, what, value ? value : "");
    free(value);
}

static void add_hash_line(char **key, const wa_recipe *recipe)
{
    char digits[40];
    wa_hash hash = wa_hash_start();
    for (cl_uint i = 0; i < recipe->texts; i++)
        /* with the final 0, so that the borders between texts count */
        wa_hash_add(&hash, recipe->text[i], strlen(recipe->text[i]) + 1);
    hash = wa_hash_end(hash);
    snprintf(digits, sizeof digits, "%016llx%016llx",
             (unsigned long long)hash.a, (unsigned long long)hash.b);
    add_line(key, "source", digits);
}

/* The lines of a key but the options, which may hold anything and so come
 * last. NULL: out of memory. */
static char *make_key(cl_device_id device, const char *name,
                      const wa_recipe *recipe)
{
    char number[48];
    cl_platform_id platform = NULL;
    cl_uint bits = 0;
    char *key = calloc(1, 1);
    snprintf(number, sizeof number, "%d.%d.%d, format %u",
             WINATTN_VERSION_MAJOR, WINATTN_VERSION_MINOR,
             WINATTN_VERSION_PATCH, WA_ENTRY_FORMAT);
    add_line(&key, "winattn", number);
    clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform,
                    NULL);
    add_platform_line(&key, platform, "platform", CL_PLATFORM_NAME);
    add_platform_line(&key, platform, "platform version", CL_PLATFORM_VERSION);
    add_device_line(&key, device, "vendor", CL_DEVICE_VENDOR);
    add_device_line(&key, device, "device", CL_DEVICE_NAME);
    add_device_line(&key, device, "device version", CL_DEVICE_VERSION);
    add_device_line(&key, device, "driver", CL_DRIVER_VERSION);
    clGetDeviceInfo(device, CL_DEVICE_ADDRESS_BITS, sizeof bits, &bits, NULL);
    snprintf(number, sizeof number, "%u", bits);
    add_line(&key, "address bits", number);
    add_line(&key, "program", name);
    add_hash_line(&key, recipe);
    return key;
}

static winattn_status finish_recipe(cl_device_id device, const char *name,
                                    const char *standard, const char *options,
                                    wa_recipe *recipe)
{
    const size_t size = strlen(standard) + strlen(options) + 1;
    recipe->options = malloc(size);
    recipe->key = make_key(device, name, recipe);
    if (recipe->options) {
        snprintf(recipe->options, size, "%s%s", standard, options);
        add_line(&recipe->key, "options", recipe->options);
    }
    if (recipe->options && recipe->key)
        return WINATTN_SUCCESS;
    wa_recipe_free(recipe);
    return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
}

/* False if there is no such kernel. */
static bool find_texts(const char *name, wa_recipe *recipe)
{
    char file[NAME_SIZE + 8];
    snprintf(file, sizeof file, "%s.cl", name);
    const bool for_cpu = strstr(name, "_cpu") != NULL;
    const bool for_local = strstr(name, "_local") != NULL;
    const bool for_gradients = strncmp(name, "backward", 8) == 0;
    const char *unit = strstr(name, "_matrix_");
    const bool for_attention = unit && strncmp(name, "check", 5) != 0;
    char unit_file[NAME_SIZE + 8] = "";
    if (unit) {
        snprintf(unit_file, sizeof unit_file, "unit_%s.cl", unit + 8);
        snprintf(file, sizeof file, "%.*smatrix.cl", (int)(unit + 1 - name),
                 name);
    }
    const wa_recipe texts = {{wa_source("args.h"), wa_source("storage.cl"),
                              wa_source("tokens.cl"), wa_source("problem.cl"),
                              for_cpu     ? wa_source("cpu.cl")
                              : for_local ? wa_source("local.cl")
                              : unit      ? wa_source(unit_file)
                                          : "\n",
                              unit ? wa_source("fragment.cl") : "\n",
                              for_attention ? wa_source("matrix.cl") : "\n",
                              !for_gradients ? "\n"
                              : for_local    ? wa_source("backward_local.cl")
                              : unit         ? wa_source("gradient_matrix.cl")
                                             : "\n",
                              wa_source(file)},
                             WA_RECIPE_TEXTS,
                             NULL,
                             NULL};
    *recipe = texts;
    for (size_t i = 0; i < WA_RECIPE_TEXTS; i++)
        if (!texts.text[i])
            return false;
    return true;
}

winattn_status wa_recipe_of_kernel(cl_device_id device, const char *name,
                                   const char *options, wa_recipe *recipe)
{
    if (!find_texts(name, recipe))
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM, "there is no kernel %s",
                       name);
    /* ocloc 22.43 does not compile for PVC where the standard comes twice */
    return finish_recipe(device, name,
                         strstr(options, "-cl-std=") ? FAST_OPTIONS
                                                     : STANDARD_OPTIONS,
                         options, recipe);
}

winattn_status wa_recipe_of_text(cl_device_id device, const char *name,
                                 const char *text, const char *options,
                                 wa_recipe *recipe)
{
    const wa_recipe all = {{text}, 1, NULL, NULL};
    *recipe = all;
    return finish_recipe(device, name, "", options, recipe);
}

void wa_recipe_free(wa_recipe *recipe)
{
    free(recipe->options);
    free(recipe->key);
    recipe->options = recipe->key = NULL;
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
    wa_recipe recipe;
    const char *named = strstr(key, label);
    if (named) {
        named += strlen(label);
        const size_t length = line_length(named);
        if (length < sizeof name) {
            memcpy(name, named, length);
            name[length] = 0;
        }
    }
    if (!find_texts(name, &recipe))
        recipe.texts = 0; /* no program has the hash of nothing */
    char *own = make_key(device, name, &recipe);
    if (!own)
        return wa_fail(CL_OUT_OF_HOST_MEMORY, "out of host memory");
    const winattn_status status = compare_lines(key, own);
    free(own);
    return status;
}

/* ---- From source ---- */

static void keep_log(cl_program program, cl_device_id device)
{
    size_t size = 0;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL,
                              &size) != CL_SUCCESS)
        return;
    char *log = malloc(size + 1);
    if (!log)
        return;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log,
                              NULL) == CL_SUCCESS) {
        log[size] = 0;
        wa_keep_build_log(log);
    }
    free(log);
}

winattn_status wa_build_program(cl_context context, cl_device_id device,
                                const wa_recipe *recipe, cl_program *result)
{
    cl_int error;
    /* older OpenCL headers lack the const */
    cl_program program = clCreateProgramWithSource(
        context, recipe->texts, (const char **)(size_t)recipe->text, NULL,
        &error);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clCreateProgramWithSource");
    error = clBuildProgram(program, 1, &device, recipe->options, NULL, NULL);
    if (error != CL_SUCCESS) {
        keep_log(program, device);
        clReleaseProgram(program);
        return wa_fail_cl(error, "clBuildProgram");
    }
    *result = program;
    return WINATTN_SUCCESS;
}

/* ---- From and to binaries ---- */

cl_program wa_load_program(cl_context context, cl_device_id device,
                           const wa_recipe *recipe,
                           const unsigned char *binary, size_t size)
{
    cl_int error, accepted = CL_INVALID_BINARY;
    cl_program program = clCreateProgramWithBinary(context, 1, &device, &size,
                                                   &binary, &accepted, &error);
    if (error != CL_SUCCESS)
        return NULL;
    /* a runtime may compile the binary further, with the same options */
    if (accepted == CL_SUCCESS &&
        clBuildProgram(program, 1, &device, recipe->options, NULL, NULL) ==
            CL_SUCCESS)
        return program;
    clReleaseProgram(program);
    return NULL;
}

cl_program wa_load_cached_program(cl_context context, cl_device_id device,
                                  const wa_recipe *recipe)
{
    unsigned char *file;
    wa_entry entry;
    if (!wa_cache_load(recipe->key, &file, &entry))
        return NULL;
    cl_program program = wa_load_program(context, device, recipe, entry.binary,
                                         entry.binary_size);
    free(file);
    return program;
}

/* A program knows binaries for several devices, in the order of its devices.
 * PoCL counts the built ones only, and takes a whole device for its part. */
static bool find_binary(cl_program program, cl_device_id device,
                        const size_t *sizes, size_t count, size_t *index)
{
    cl_device_id *devices = malloc(count * sizeof *devices);
    bool found = false;
    *index = 0;
    if (devices &&
        clGetProgramInfo(program, CL_PROGRAM_DEVICES, count * sizeof *devices,
                         devices, NULL) == CL_SUCCESS)
        for (size_t i = 0; i < count && !found; i++)
            if (devices[i] == device) {
                found = true;
                *index = i;
            }
    free(devices);
    return (found || count == 1) && sizes[*index] > 0;
}

bool wa_program_binary(cl_program program, cl_device_id device,
                       unsigned char **binary, size_t *size)
{
    size_t bytes = 0, index;
    bool read = false;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, 0, NULL, &bytes) !=
            CL_SUCCESS ||
        bytes < sizeof(size_t))
        return false;
    const size_t count = bytes / sizeof(size_t);
    size_t *sizes = calloc(count, sizeof *sizes);
    unsigned char **all = calloc(count, sizeof *all);
    *binary = NULL;
    if (sizes && all &&
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, bytes, sizes,
                         NULL) == CL_SUCCESS &&
        find_binary(program, device, sizes, count, &index) &&
        (*binary = malloc(sizes[index])) != NULL) {
        /* NULL means that this one is not wanted */
        all[index] = *binary;
        *size = sizes[index];
        read = clGetProgramInfo(program, CL_PROGRAM_BINARIES,
                                count * sizeof *all, all, NULL) == CL_SUCCESS;
    }
    if (!read)
        free(*binary);
    free(all);
    free(sizes);
    return read;
}

winattn_status wa_obtain_program(cl_context context, cl_device_id device,
                                 const wa_recipe *recipe, cl_program *program)
{
    unsigned char *binary;
    size_t size;
    *program = wa_load_cached_program(context, device, recipe);
    if (*program)
        return WINATTN_SUCCESS;
    WA_TRY(wa_build_program(context, device, recipe, program));
    if (wa_cache_stores() &&
        wa_program_binary(*program, device, &binary, &size)) {
        wa_cache_store(recipe->key, binary, size);
        free(binary);
    }
    return WINATTN_SUCCESS;
}
