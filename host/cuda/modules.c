/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/modules.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "cuda/module_text.h"
#include "program/cache.h"
#include "program/ptx.h"

#define LOG_SIZE 16384
#define REGISTERS_OPTION "-cl-nv-maxrregcount="

struct wa_module {
    char *key; /* of its log in the cache, and the device's number */
    unsigned users;
    wa_cu_module module;
    uint32_t local_bytes;
    bool is_trusted;
    wa_module *next;
};

/* Guarded by the global lock. */
static wa_module *modules;

/* ---- Compiling ---- */

/* What the compiler is told, and what it says. */
typedef struct compilation {
    int options[8];
    void *values[8];
    unsigned count;
    char info[LOG_SIZE], error[LOG_SIZE];
} compilation;

static void add_option(compilation *c, int option, uintptr_t value)
{
    c->options[c->count] = option;
    c->values[c->count++] = (void *)value;
}

/* 0: as many as the compiler likes. */
static unsigned most_registers(const char *options)
{
    unsigned most = 0;
    while ((options = strstr(options, REGISTERS_OPTION))) {
        options += strlen(REGISTERS_OPTION);
        most = (unsigned)strtoul(options, NULL, 10);
    }
    return most;
}

static void add_options(compilation *c, const wa_module_text *text,
                        unsigned registers)
{
    add_option(c, WA_CUDA_INFO_LOG, (uintptr_t)c->info);
    add_option(c, WA_CUDA_INFO_LOG_SIZE, sizeof c->info - 1);
    add_option(c, WA_CUDA_ERROR_LOG, (uintptr_t)c->error);
    add_option(c, WA_CUDA_ERROR_LOG_SIZE, sizeof c->error - 1);
    add_option(c, WA_CUDA_VERBOSE, 1);
    if (strstr(text->text, ".target " WA_PTX_TARGET))
        add_option(c, WA_CUDA_TARGET, WA_CUDA_TARGET_90A);
    if (registers)
        add_option(c, WA_CUDA_MOST_REGISTERS, registers);
}

/* Compiles and loads it, unless the driver has what it compiled before. Then
 * its log is empty. */
static winattn_status compile(wa_module *module, const wa_module_text *text,
                              compilation *c)
{
    const wa_cu_result result = wa_cuda_driver()->load(
        &module->module, text->text, c->count, c->options, c->values);
    if (result != 0)
        wa_keep_build_log(c->error);
    return wa_cuda_check(result, "cuModuleLoadDataEx");
}

/* Judges the compiler's log, of which the cache keeps what it said first. */
static winattn_status judge(const char *key, const char *log)
{
    unsigned char *file;
    wa_cache_record record;
    if (*log) {
        WA_TRY(
            wa_cache_store(key, (const unsigned char *)log, strlen(log) + 1));
        return wa_ptx_check_log(log);
    }
    WA_TRY(wa_cache_load(key, &file, &record));
    const winattn_status status =
        file && record.binary_size && !record.binary[record.binary_size - 1]
            ? wa_ptx_check_log((const char *)record.binary)
            : WINATTN_SUCCESS;
    free(file);
    return status;
}

static winattn_status load(wa_module *module, const wa_module_text *text,
                           unsigned registers)
{
    compilation *c = calloc(1, sizeof *c);
    WA_TRY_MEMORY(c);
    add_options(c, text, registers);
    winattn_status status = compile(module, text, c);
    if (status == WINATTN_SUCCESS) {
        status = judge(module->key, c->info);
        if (status != WINATTN_SUCCESS)
            wa_cuda_driver()->unload(module->module);
    }
    free(c);
    return status;
}

/* ---- What there is ---- */

/* The caller frees it; NULL: out of memory. */
static char *make_key(wa_cu_device device, int version, int capability,
                      const wa_module_text *text, unsigned registers)
{
    wa_hash hash = wa_hash_start();
    char *key = malloc(256);
    wa_hash_add(&hash, text->text, text->size);
    hash = wa_hash_end(hash);
    if (key)
        snprintf(key, 256,
                 "winattn: %d.%d.%d, format %u\nCUDA's driver: %d\n"
                 "compute capability: %d\ndevice: %d\nregisters: %u\n"
                 "PTX: %016llx%016llx\n",
                 WINATTN_VERSION_MAJOR, WINATTN_VERSION_MINOR,
                 WINATTN_VERSION_PATCH, WA_CACHE_RECORD_FORMAT, version,
                 capability, device, registers, (unsigned long long)hash.a,
                 (unsigned long long)hash.b);
    return key;
}

static winattn_status read_device(wa_cu_device device, int *version,
                                  int *capability)
{
    const wa_cuda *cuda = wa_cuda_driver();
    int major = 0, minor = 0;
    WA_TRY(wa_cuda_check(cuda->version(version), "cuDriverGetVersion"));
    WA_TRY(wa_cuda_check(cuda->attribute(&major, WA_CUDA_MAJOR, device),
                         "cuDeviceGetAttribute"));
    WA_TRY(wa_cuda_check(cuda->attribute(&minor, WA_CUDA_MINOR, device),
                         "cuDeviceGetAttribute"));
    *capability = 10 * major + minor;
    return WINATTN_SUCCESS;
}

/* The caller holds the lock. */
static winattn_status find_or_load(char **key, const wa_module_text *text,
                                   unsigned registers, wa_module **result)
{
    wa_module *module = modules;
    while (module && strcmp(module->key, *key) != 0)
        module = module->next;
    if (!module) {
        module = calloc(1, sizeof *module);
        WA_TRY_MEMORY(module);
        module->key = *key;
        module->local_bytes = text->local_bytes;
        const winattn_status status = load(module, text, registers);
        if (status != WINATTN_SUCCESS) {
            free(module);
            return status;
        }
        *key = NULL;
        module->next = modules;
        modules = module;
    }
    module->users++;
    *result = module;
    return WINATTN_SUCCESS;
}

winattn_status wa_module_acquire(wa_cu_device device,
                                 const winattn_launch_program *program,
                                 wa_module **module)
{
    const unsigned registers = most_registers(program->options);
    int version, capability;
    wa_module_text text;
    WA_TRY(read_device(device, &version, &capability));
    WA_TRY(wa_module_text_make(program->binary, &text));
    char *key = make_key(device, version, capability, &text, registers);
    winattn_status status = key ? WINATTN_SUCCESS : wa_fail_memory();
    if (status == WINATTN_SUCCESS) {
        wa_global_lock_take();
        status = find_or_load(&key, &text, registers, module);
        wa_global_lock_release();
    }
    free(key);
    free(text.text);
    return status;
}

void wa_module_release(wa_module *module)
{
    bool last = false;
    if (!module)
        return;
    wa_global_lock_take();
    if (--module->users == 0) {
        wa_module **link = &modules;
        while (*link != module)
            link = &(*link)->next;
        *link = module->next;
        last = true;
    }
    wa_global_lock_release();
    if (!last)
        return;
    wa_cuda_driver()->unload(module->module);
    free(module->key);
    free(module);
}

bool wa_module_is_trusted(const wa_module *module)
{
    wa_global_lock_take();
    const bool is_trusted = module->is_trusted;
    wa_global_lock_release();
    return is_trusted;
}

void wa_module_trust(wa_module *module)
{
    wa_global_lock_take();
    module->is_trusted = true;
    wa_global_lock_release();
}

winattn_status wa_module_function(const wa_module *module, const char *name,
                                  wa_cu_function *function,
                                  uint32_t *local_bytes)
{
    const wa_cuda *cuda = wa_cuda_driver();
    *local_bytes = module->local_bytes;
    WA_TRY(wa_cuda_check(cuda->function(function, module->module, name),
                         "cuModuleGetFunction"));
    return wa_cuda_check(cuda->set_attribute(*function, WA_CUDA_LOCAL_BYTES,
                                             (int)module->local_bytes),
                         "cuFuncSetAttribute");
}
