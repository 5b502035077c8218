/* SPDX-License-Identifier: Apache-2.0
 * Where the cache is, and its files. */
#include "program/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"

#define FOLDER_SIZE 2048
#define SUFFIX ".winattn"
#define DEFAULT_FOLDER "/winattn"
#define ABANDONED_SECONDS 3600.0

/* What the program asked for; guarded by the cache's lock. */
typedef enum cache_choice { BY_DEFAULT, IN_FOLDER, OFF } cache_choice;
static cache_choice choice;
static char chosen_folder[FOLDER_SIZE];
static unsigned stored;

winattn_status wa_cache_set_folder(const char *folder)
{
    if (folder && strlen(folder) >= FOLDER_SIZE)
        return WA_INVALID(
            "the cache's folder has a name of %llu bytes, more than %d",
            (unsigned long long)strlen(folder), FOLDER_SIZE - 1);
    wa_cache_lock_take();
    choice = !folder ? BY_DEFAULT : folder[0] ? IN_FOLDER : OFF;
    if (choice == IN_FOLDER)
        memcpy(chosen_folder, folder, strlen(folder) + 1);
    wa_cache_lock_release();
    return WINATTN_SUCCESS;
}

/* Where the environment says; false if there is no such folder, and then *why
 * tells, unless the user wants none. */
static bool find_default(char folder[FOLDER_SIZE], const char **why)
{
    char text[FOLDER_SIZE];
    const wa_setting set =
        wa_environment("WINATTN_CACHE_DIR", folder, FOLDER_SIZE);
    if (set == WA_SET)
        return folder[0] != 0;
    if (set == WA_TOO_LONG) {
        *why = "WINATTN_CACHE_DIR is too long";
        return false;
    }
    const wa_setting user = wa_user_cache_folder(text, sizeof text);
    if (user == WA_UNSET)
        return false;
    const size_t length = user == WA_SET ? strlen(text) : FOLDER_SIZE;
    if (length + sizeof DEFAULT_FOLDER <= FOLDER_SIZE) {
        memcpy(folder, text, length);
        memcpy(folder + length, DEFAULT_FOLDER, sizeof DEFAULT_FOLDER);
        return true;
    }
    *why = "the path of the user's folder for caches is too long";
    return false;
}

/* False if the cache is off; *why is then NULL, or says what forbids it. */
static bool find_folder(char folder[FOLDER_SIZE], const char **why)
{
    char text[FOLDER_SIZE];
    *why = NULL;
    if (wa_environment("WINATTN_CACHE", text, sizeof text) == WA_SET &&
        strcmp(text, "0") == 0)
        return false;
    wa_cache_lock_take();
    const cache_choice chosen = choice;
    if (chosen == IN_FOLDER)
        memcpy(folder, chosen_folder, sizeof chosen_folder);
    wa_cache_lock_release();
    return chosen == BY_DEFAULT ? find_default(folder, why)
                                : chosen == IN_FOLDER;
}

const char *wa_cache_trouble(void)
{
    char folder[FOLDER_SIZE];
    const char *why;
    return find_folder(folder, &why) ? wa_folder_trouble(folder) : why;
}

void wa_cache_file_name(const char *key, char name[WA_CACHE_NAME_SIZE])
{
    wa_hash hash = wa_hash_start();
    wa_hash_add(&hash, key, strlen(key));
    hash = wa_hash_end(hash);
    snprintf(name, WA_CACHE_NAME_SIZE, "%016llx%016llx" SUFFIX,
             (unsigned long long)hash.a, (unsigned long long)hash.b);
}

bool wa_cache_stores(void)
{
    char folder[FOLDER_SIZE];
    const char *why;
    return find_folder(folder, &why) && wa_folder_make(folder);
}

winattn_status wa_cache_load(const char *key, unsigned char **file,
                             wa_cache_record *record)
{
    char folder[FOLDER_SIZE], name[WA_CACHE_NAME_SIZE];
    const char *why;
    size_t size = 0;
    *file = NULL;
    if (!find_folder(folder, &why))
        return WINATTN_SUCCESS;
    wa_cache_file_name(key, name);
    unsigned char *bytes;
    const wa_file_answer answer = wa_own_file_read(
        folder, name, WA_CACHE_RECORD_MOST_BINARY + WA_CACHE_RECORD_MOST_KEY,
        &bytes, &size);
    if (answer == WA_FILE_NO_MEMORY)
        return wa_fail_memory();
    if (answer != WA_FILE_READ)
        return WINATTN_SUCCESS;
    if (!wa_cache_record_read(bytes, size, record) &&
        wa_cache_record_size(record) == size &&
        record->key_size == strlen(key) &&
        memcmp(record->key, key, record->key_size) == 0)
        *file = bytes;
    else
        free(bytes);
    return WINATTN_SUCCESS;
}

winattn_status wa_cache_store(const char *key, const unsigned char *binary,
                              size_t binary_size)
{
    char folder[FOLDER_SIZE], name[WA_CACHE_NAME_SIZE];
    const wa_cache_record record = {key, strlen(key), binary, binary_size};
    const char *why;
    if (binary_size == 0 || binary_size > WA_CACHE_RECORD_MOST_BINARY ||
        record.key_size > WA_CACHE_RECORD_MOST_KEY ||
        !find_folder(folder, &why) || !wa_folder_make(folder))
        return WINATTN_SUCCESS;
    unsigned char *bytes = malloc(wa_cache_record_size(&record));
    WA_TRY_MEMORY(bytes);
    wa_cache_record_write(&record, bytes);
    wa_cache_file_name(key, name);
    wa_file_replace(folder, name, bytes, wa_cache_record_size(&record));
    free(bytes);
    wa_cache_lock_take();
    /* looking through thousands of files takes milliseconds */
    const bool prunes = stored++ % 16 == 0;
    wa_cache_lock_release();
    if (prunes)
        wa_cache_prune(folder, WA_CACHE_MOST_BYTES, WA_CACHE_MOST_FILES);
    return WINATTN_SUCCESS;
}

/* ---- Pruning ---- */

typedef struct found_file {
    char name[WA_CACHE_NAME_SIZE];
    uint64_t bytes;
    double age;
} found_file;

typedef struct file_list {
    const char *folder;
    found_file *all;
    size_t count, capacity;
} file_list;

static bool is_record_name(const char *name)
{
    size_t digits = 0;
    while (digits < 32 && name[digits] &&
           strchr("0123456789abcdef", name[digits]))
        digits++;
    return digits == 32 && strcmp(name + digits, SUFFIX) == 0;
}

static void collect(void *data, const char *name, uint64_t bytes, double age)
{
    file_list *list = data;
    if (strncmp(name, WA_TEMPORARY, strlen(WA_TEMPORARY)) == 0 &&
        age > ABANDONED_SECONDS)
        wa_file_remove(list->folder, name);
    if (!is_record_name(name))
        return;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity * 2 + 64;
        found_file *all = realloc(list->all, capacity * sizeof *all);
        if (!all)
            return;
        list->all = all;
        list->capacity = capacity;
    }
    found_file *file = &list->all[list->count++];
    snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = bytes;
    file->age = age;
}

static int youngest_first(const void *a, const void *b)
{
    const double x = ((const found_file *)a)->age;
    const double y = ((const found_file *)b)->age;
    return (x > y) - (x < y);
}

void wa_cache_prune(const char *folder, uint64_t most_bytes, size_t most_files)
{
    file_list list = {folder, NULL, 0, 0};
    uint64_t bytes = 0;
    wa_folder_visit(folder, collect, &list);
    if (list.count > 0)
        qsort(list.all, list.count, sizeof *list.all, youngest_first);
    for (size_t i = 0; i < list.count; i++) {
        bytes += list.all[i].bytes;
        if (bytes > most_bytes || i >= most_files)
            wa_file_remove(folder, list.all[i].name);
    }
    free(list.all);
}
