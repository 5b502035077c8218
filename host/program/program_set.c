/* SPDX-License-Identifier: Apache-2.0
 * Keeps programs, takes binaries in and gives them out. */
#include "program/program_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "program/cache.h"
#include "program/program.h"

#define NAME_SIZE 64 /* of a program */

typedef enum program_origin {
    FROM_SOURCE,
    FROM_CACHE,
    FROM_IMPORT
} program_origin;

typedef struct shared_program {
    char *order; /* name and options: found faster than the key is made */
    char *key;   /* the program source's */
    cl_program program;
    program_origin origin;
    bool kept; /* its binary was taken, or is known already */
    struct shared_program *next;
} shared_program;

/* Imported and not needed yet. */
typedef struct imported_program {
    char *key;
    unsigned char *binary;
    size_t size;
    struct imported_program *next;
} imported_program;

struct wa_program_set {
    cl_context context;
    cl_device_id device;
    wa_lock *lock; /* for all below; held while a program is obtained */
    shared_program *shared;
    imported_program *imported;
    unsigned exporters;
};

static unsigned programs_built; /* guarded by the global lock */

unsigned wa_programs_built(void)
{
    wa_global_lock_take();
    const unsigned count = programs_built;
    wa_global_lock_release();
    return count;
}

wa_program_set *wa_program_set_create(cl_context context, cl_device_id device)
{
    wa_program_set *set = calloc(1, sizeof *set);
    if (!set)
        return NULL;
    set->context = context;
    set->device = device;
    set->lock = wa_lock_create();
    if (set->lock)
        return set;
    free(set);
    return NULL;
}

static void imported_free(imported_program *list)
{
    while (list) {
        imported_program *next = list->next;
        free(list->key);
        free(list->binary);
        free(list);
        list = next;
    }
}

void wa_program_set_destroy(wa_program_set *set)
{
    if (!set)
        return;
    while (set->shared) {
        shared_program *entry = set->shared;
        set->shared = entry->next;
        clReleaseProgram(entry->program);
        free(entry->order);
        free(entry->key);
        free(entry);
    }
    imported_free(set->imported);
    wa_lock_destroy(set->lock);
    free(set);
}

/* ---- Programs; call with the lock held ---- */

static shared_program *find_program(wa_program_set *set, const char *key)
{
    shared_program *entry = set->shared;
    while (entry && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

static const imported_program *find_imported(const wa_program_set *set,
                                             const char *key)
{
    const imported_program *entry = set->imported;
    while (entry && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

/* Of a kernel that came from the set. */
static winattn_status find_kernel_program(wa_program_set *set,
                                          cl_kernel kernel,
                                          shared_program **result)
{
    cl_program program = NULL;
    shared_program *entry = set->shared;
    WA_TRY(WA_CL(clGetKernelInfo, kernel, CL_KERNEL_PROGRAM, sizeof program,
                 &program, NULL));
    while (entry && entry->program != program)
        entry = entry->next;
    *result = entry;
    return WINATTN_SUCCESS;
}

/* From what was imported or cached; entry->program stays NULL if neither has
 * it. */
static winattn_status load_program(wa_program_set *set,
                                   const wa_program_source *program_source,
                                   const char *name, shared_program *entry)
{
    const imported_program *imported = find_imported(set, program_source->key);
    entry->kept = true;
    entry->origin = FROM_IMPORT;
    if (imported)
        entry->program =
            wa_load_program(set->context, set->device, program_source, name,
                            imported->binary, imported->size);
    if (entry->program)
        return WINATTN_SUCCESS;
    entry->origin = FROM_CACHE;
    return wa_load_cached_program(set->context, set->device, program_source,
                                  name, &entry->program);
}

static winattn_status build_program(wa_program_set *set,
                                    const wa_program_source *program_source,
                                    shared_program *entry)
{
    WA_TRY(wa_build_program(set->context, set->device, program_source,
                            &entry->program));
    entry->kept = false;
    entry->origin = FROM_SOURCE;
    wa_global_lock_take();
    programs_built++;
    wa_global_lock_release();
    return WINATTN_SUCCESS;
}

/* A new entry of the set, with the order as its own. */
static winattn_status add_program(wa_program_set *set, const char *name,
                                  const char *kernel, const char *options,
                                  char *order, shared_program **result)
{
    wa_program_source program_source;
    WA_TRY(wa_program_source_of_kernel(set->device, name, options,
                                       &program_source));
    shared_program *entry = calloc(1, sizeof *entry);
    winattn_status status =
        entry ? load_program(set, &program_source, kernel, entry)
              : wa_fail_memory();
    if (status == WINATTN_SUCCESS && !entry->program)
        status = build_program(set, &program_source, entry);
    if (status == WINATTN_SUCCESS) {
        entry->order = order;
        entry->key = program_source.key;
        program_source.key = NULL;
        entry->next = set->shared;
        set->shared = entry;
        *result = entry;
    } else {
        free(entry);
    }
    wa_program_source_free(&program_source);
    return status;
}

static winattn_status obtain_program(wa_program_set *set, const char *name,
                                     const char *kernel, const char *options,
                                     cl_program *program)
{
    const size_t size = strlen(name) + strlen(options) + 2;
    char *order = malloc(size);
    WA_TRY_MEMORY(order);
    snprintf(order, size, "%s %s", name, options);
    winattn_status status = WINATTN_SUCCESS;
    shared_program *entry = set->shared;
    while (entry && strcmp(entry->order, order) != 0)
        entry = entry->next;
    const bool is_new = !entry;
    if (is_new)
        status = add_program(set, name, kernel, options, order, &entry);
    if (!is_new || status != WINATTN_SUCCESS)
        free(order);
    if (status == WINATTN_SUCCESS)
        *program = entry->program;
    return status;
}

/* ---- Kernels ---- */

winattn_status wa_program_set_kernel(wa_program_set *set, const char *name,
                                     const char *defines,
                                     const char *build_options,
                                     cl_kernel *kernel)
{
    cl_program program = NULL;
    char program_name[NAME_SIZE];
    const size_t size = strlen(defines) + strlen(build_options) + 2;
    const size_t length = strcspn(name, ":");
    const char *function = name[length] ? name + length + 1 : name;
    char *options = malloc(size);
    WA_TRY_MEMORY(options);
    snprintf(options, size, "%s %s", defines, build_options);
    snprintf(program_name, sizeof program_name, "%.*s", (int)length, name);
    wa_lock_take(set->lock);
    winattn_status status =
        obtain_program(set, program_name, function, options, &program);
    free(options);
    if (status == WINATTN_SUCCESS) {
        cl_int error;
        *kernel = clCreateKernel(program, function, &error);
        status = wa_cl_status(error, "clCreateKernel");
    }
    wa_lock_release(set->lock);
    return status;
}

winattn_status wa_program_set_origin(wa_program_set *set, cl_kernel kernel,
                                     const char **origin)
{
    static const char *const names[] = {[FROM_SOURCE] = "compiled from source",
                                        [FROM_CACHE] = WA_FROM_CACHE,
                                        [FROM_IMPORT] = "imported"};
    shared_program *entry = NULL;
    wa_lock_take(set->lock);
    const winattn_status status = find_kernel_program(set, kernel, &entry);
    if (status == WINATTN_SUCCESS)
        *origin = names[entry ? entry->origin : FROM_SOURCE];
    wa_lock_release(set->lock);
    return status;
}

winattn_status wa_program_set_keeps(wa_program_set *set, cl_kernel kernel,
                                    bool *keeps)
{
    shared_program *entry = NULL;
    wa_lock_take(set->lock);
    const winattn_status status = find_kernel_program(set, kernel, &entry);
    *keeps = status == WINATTN_SUCCESS && entry && !entry->kept &&
             (set->exporters > 0 || wa_cache_stores());
    wa_lock_release(set->lock);
    return status;
}

void wa_program_set_keep(wa_program_set *set, cl_kernel kernel)
{
    shared_program *entry = NULL;
    wa_lock_take(set->lock);
    if (find_kernel_program(set, kernel, &entry) == WINATTN_SUCCESS && entry &&
        !entry->kept)
        entry->kept = wa_store_program(entry->program, set->device,
                                       entry->key) == WINATTN_SUCCESS;
    wa_lock_release(set->lock);
}

/* ---- Blobs ---- */

void wa_program_set_add_exporter(wa_program_set *set)
{
    wa_lock_take(set->lock);
    set->exporters++;
    wa_lock_release(set->lock);
}

void wa_program_set_remove_exporter(wa_program_set *set)
{
    wa_lock_take(set->lock);
    set->exporters--;
    wa_lock_release(set->lock);
}

static imported_program *imported_new(const wa_cache_record *record)
{
    imported_program *program = calloc(1, sizeof *program);
    if (!program)
        return NULL;
    program->key = malloc(record->key_size + 1);
    program->binary = malloc(record->binary_size);
    if (!program->key || !program->binary) {
        imported_free(program);
        return NULL;
    }
    memcpy(program->key, record->key, record->key_size);
    program->key[record->key_size] = 0;
    memcpy(program->binary, record->binary, record->binary_size);
    program->size = record->binary_size;
    return program;
}

typedef struct import_list {
    cl_device_id device;
    imported_program *list;
    winattn_status status;
} import_list;

static const char *import_entry(void *data, const wa_cache_record *record)
{
    import_list *to = data;
    imported_program *program = imported_new(record);
    if (!program) {
        to->status = wa_fail_memory();
        return winattn_last_reason();
    }
    program->next = to->list;
    to->list = program;
    to->status = strlen(program->key) == record->key_size
                     ? wa_check_key(to->device, program->key)
                     : wa_fail(WINATTN_INVALID_BLOB,
                               "the blob has a key that is no text");
    return to->status == WINATTN_SUCCESS ? NULL : winattn_last_reason();
}

winattn_status wa_program_set_import(wa_program_set *set, size_t size,
                                     const void *blob)
{
    import_list got = {set->device, NULL, WINATTN_SUCCESS};
    const char *wrong = wa_blob_read(blob, size, import_entry, &got);
    if (wrong) {
        imported_free(got.list);
        return got.status != WINATTN_SUCCESS
                   ? got.status
                   : wa_fail(WINATTN_INVALID_BLOB, "the blob is bad: %s",
                             wrong);
    }
    wa_lock_take(set->lock);
    while (got.list) {
        imported_program *program = got.list;
        got.list = program->next;
        if (find_imported(set, program->key)) {
            program->next = NULL;
            imported_free(program);
        } else {
            program->next = set->imported;
            set->imported = program;
        }
    }
    wa_lock_release(set->lock);
    return WINATTN_SUCCESS;
}

/* What an export consists of. */
typedef struct export_list {
    wa_cache_record *entries;
    size_t count;
    size_t size; /* of the blob */
} export_list;

static void export_free(export_list *all)
{
    for (size_t i = 0; i < all->count; i++)
        free((void *)(size_t)all->entries[i].binary);
    free(all->entries);
}

static void export_add(export_list *all, const char *key,
                       unsigned char *binary, size_t size)
{
    const wa_cache_record record = {key, strlen(key), binary, size};
    if (size == 0 || size > WA_CACHE_RECORD_MOST_BINARY ||
        record.key_size > WA_CACHE_RECORD_MOST_KEY) {
        free(binary);
        return;
    }
    all->entries[all->count++] = record;
    all->size += wa_cache_record_size(&record);
}

/* Programs whose driver gives no binary are left out. */
static winattn_status collect_binaries(wa_program_set *set, export_list *all)
{
    size_t most = 1;
    for (shared_program *p = set->shared; p; p = p->next)
        most++;
    for (imported_program *p = set->imported; p; p = p->next)
        most++;
    all->entries = calloc(most, sizeof *all->entries);
    WA_TRY_MEMORY(all->entries);
    for (shared_program *p = set->shared; p; p = p->next) {
        unsigned char *binary;
        size_t size;
        WA_TRY(wa_program_binary(p->program, set->device, &binary, &size));
        export_add(all, p->key, binary, size);
    }
    for (imported_program *p = set->imported; p; p = p->next) {
        if (find_program(set, p->key))
            continue;
        unsigned char *binary = malloc(p->size);
        WA_TRY_MEMORY(binary);
        memcpy(binary, p->binary, p->size);
        export_add(all, p->key, binary, p->size);
    }
    return WINATTN_SUCCESS;
}

static void write_blob(const export_list *all, unsigned char *to)
{
    wa_blob_write_header(to, (uint32_t)all->count, all->size);
    to += WA_BLOB_HEADER;
    for (size_t i = 0; i < all->count; i++) {
        wa_cache_record_write(&all->entries[i], to);
        to += wa_cache_record_size(&all->entries[i]);
    }
}

winattn_status wa_program_set_export(wa_program_set *set, size_t size,
                                     void *blob, size_t *needed)
{
    export_list all = {NULL, 0, WA_BLOB_HEADER};
    wa_lock_take(set->lock);
    winattn_status status = collect_binaries(set, &all);
    wa_lock_release(set->lock);
    if (status == WINATTN_SUCCESS && needed)
        *needed = all.size;
    if (status == WINATTN_SUCCESS && blob && size < all.size)
        status =
            WA_INVALID("the blob needs %llu bytes, not %llu",
                       (unsigned long long)all.size, (unsigned long long)size);
    else if (status == WINATTN_SUCCESS && blob)
        write_blob(&all, blob);
    export_free(&all);
    return status;
}
