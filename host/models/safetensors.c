/* SPDX-License-Identifier: Apache-2.0
 * Files of safetensors: where their tensors lie, what numbers they have, and
 * how paths lead to them: to a file, to a set of shards, which from then on
 * looks like one file, or to the folder of either. */
#include "models/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/status.h"
#include "base/text.h"
#include "models/safetensors_header.h"

#define LENGTH_BYTES 8

static uint64_t read_bytes(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static int compare_names(const void *a, const void *b)
{
    const wa_file_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int compare_offsets(const void *a, const void *b)
{
    const wa_file_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return compare_names(a, b); /* the same one is named everywhere */
}

winattn_status wa_header_sort(wa_header *header)
{
    qsort(header->tensors, header->count, sizeof *header->tensors,
          compare_names);
    for (size_t i = 1; i < header->count; i++)
        if (strcmp(header->tensors[i - 1].name, header->tensors[i].name) == 0)
            return WA_BAD_FILE("%s: is there twice", header->tensors[i].name);
    return WINATTN_SUCCESS;
}

/* Does each tensor start where the one before it ends, and is nothing left? */
static winattn_status check_places(wa_header *header, uint64_t data_size)
{
    uint64_t at = 0;
    qsort(header->tensors, header->count, sizeof *header->tensors,
          compare_offsets);
    for (size_t i = 0; i < header->count; at += header->tensors[i++].size)
        if (header->tensors[i].offset != at)
            return WA_BAD_FILE("%s: starts at byte %llu of the data, where "
                               "the tensors before it end at %llu",
                               header->tensors[i].name,
                               (unsigned long long)header->tensors[i].offset,
                               (unsigned long long)at);
    if (at != data_size)
        return WA_BAD_FILE(
            "the tensors have %llu bytes, but %llu follow the header",
            (unsigned long long)at, (unsigned long long)data_size);
    return WINATTN_SUCCESS;
}

/* ---- Files ---- */

static winattn_status read_file(wa_safetensors *file,
                                const unsigned char *bytes, size_t size)
{
    uint64_t header;
    if (size < LENGTH_BYTES)
        return WA_BAD_FILE(
            "has %llu bytes, and a safetensors file %d at least",
            (unsigned long long)size, LENGTH_BYTES);
    header = read_bytes(bytes, LENGTH_BYTES);
    if (header > size - LENGTH_BYTES)
        return WA_BAD_FILE("is cut, or no safetensors file: its header should "
                           "have %llu bytes, but %llu follow",
                           (unsigned long long)header,
                           (unsigned long long)(size - LENGTH_BYTES));
    if (header > WA_HEADER_MOST)
        return WA_BAD_FILE("the header has %llu bytes, more than %llu",
                           (unsigned long long)header,
                           (unsigned long long)WA_HEADER_MOST);
    bytes += LENGTH_BYTES;
    const uint64_t data_size = size - LENGTH_BYTES - header;
    WA_TRY(wa_header_read((const char *)bytes, (size_t)header, bytes + header,
                          data_size, &file->header));
    WA_TRY(check_places(&file->header, data_size));
    return wa_header_sort(&file->header);
}

winattn_status wa_safetensors_read(const unsigned char *bytes, size_t size,
                                   wa_safetensors **file)
{
    wa_safetensors *made = calloc(1, sizeof *made);
    *file = NULL;
    WA_TRY_MEMORY(made);
    const winattn_status status = read_file(made, bytes, size);
    if (status != WINATTN_SUCCESS) {
        wa_safetensors_close(made);
        return status;
    }
    *file = made;
    return WINATTN_SUCCESS;
}

void wa_safetensors_close(wa_safetensors *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->shard_count; i++)
        wa_safetensors_close(file->shards[i]);
    free(file->shards);
    wa_header_free(&file->header);
    wa_file_map_close(&file->map);
    free(file->path);
    free(file);
}

const char *wa_safetensors_path(const wa_safetensors *file)
{
    return file->path;
}

/* ---- Tensors ---- */

size_t wa_safetensors_count(const wa_safetensors *file)
{
    return file->header.count;
}

const wa_file_tensor *wa_safetensors_at(const wa_safetensors *file,
                                        size_t index)
{
    return &file->header.tensors[index];
}

const wa_file_tensor *wa_safetensors_find(const wa_safetensors *file,
                                          const char *name)
{
    const wa_file_tensor key = {.name = name};
    return bsearch(&key, file->header.tensors, file->header.count, sizeof key,
                   compare_names);
}

void wa_shape_text(uint32_t axes, const uint64_t *extent,
                   char text[WA_SHAPE_TEXT])
{
    text[0] = 0;
    for (uint32_t i = 0; i < axes; i++)
        wa_append(text, WA_SHAPE_TEXT, "%s%llu", i ? ", " : "[",
                  (unsigned long long)extent[i]);
    wa_append(text, WA_SHAPE_TEXT, axes ? "]" : "[]");
}

int64_t wa_tensor_integer(const wa_file_tensor *tensor, uint64_t index)
{
    const uint64_t bits = read_bytes(tensor->bytes + 8 * index, 8);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool wa_tensor_float(const wa_file_tensor *tensor, uint64_t index,
                     float *value)
{
    const unsigned char *bytes = tensor->bytes;
    uint32_t bits;
    switch (tensor->type) {
    case WA_TENSOR_FP32:
        bits = (uint32_t)read_bytes(bytes + 4 * index, 4);
        memcpy(value, &bits, sizeof bits);
        return true;
    case WA_TENSOR_FP16:
    case WA_TENSOR_BF16:
        *value = wa_half_value(tensor->type == WA_TENSOR_FP16,
                               (uint16_t)read_bytes(bytes + 2 * index, 2));
        return true;
    default:
        return false;
    }
}

winattn_status wa_tensor_floats(const wa_file_tensor *tensor, float *values)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        if (!wa_tensor_float(tensor, i, &values[i]))
            return WA_BAD_FILE(
                "%s: is of type %s; weights are F32, F16 or BF16",
                tensor->name, tensor->type_name);
    return WINATTN_SUCCESS;
}

/* ---- Files by their paths ---- */

#define SHARDS_MOST 1024

#define FILE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

/* The first `length` characters of a path, and a name; to be freed. */
static char *join(const char *path, size_t length, const char *name)
{
    char *joined = malloc(length + strlen(name) + 1);
    if (joined) {
        memcpy(joined, path, length);
        strcpy(joined + length, name);
    }
    return joined;
}

/* Of the folder with its last separator. */
static size_t folder_length(const char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] != '/' && path[length - 1] != '\\')
        length--;
    return length;
}

char *wa_file_beside(const char *path, const char *name)
{
    return join(path, folder_length(path), name);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), most = strlen(end);
    return length >= most && strcmp(text + length - most, end) == 0;
}

/* The file of a map, which becomes its own, or is closed. */
static winattn_status read_mapped(wa_file_map map, wa_safetensors **file)
{
    const winattn_status status =
        wa_safetensors_read(map.bytes, map.size, file);
    if (status == WINATTN_SUCCESS)
        (*file)->map = map;
    else
        wa_file_map_close(&map);
    return status;
}

/* ---- Shards ---- */

/* The entries of one shard, which are all that it has, in the same order. */
static winattn_status match(const wa_safetensors *shard,
                            const wa_index_entry *entries, size_t count)
{
    for (size_t i = 0; i < count || i < shard->header.count; i++) {
        const char *found =
            i < shard->header.count ? shard->header.tensors[i].name : NULL;
        const char *wanted = i < count ? entries[i].tensor : NULL;
        const int order = !found ? -1 : !wanted ? 1 : strcmp(wanted, found);
        if (order < 0)
            return WA_BAD_FILE(
                "%s: the shard lacks this tensor, which it has by the index",
                wanted);
        if (order > 0)
            return WA_BAD_FILE("%s: the shard has this tensor, which is not "
                               "there by the index",
                               found);
    }
    return WINATTN_SUCCESS;
}

/* path: of the index, in whose folder shards are. */
static winattn_status open_shard(const char *path,
                                 const wa_index_entry *entries, size_t count,
                                 wa_safetensors **shard)
{
    wa_file_map map;
    char *own = wa_file_beside(path, entries->shard);
    WA_TRY_MEMORY(own);
    const wa_file_answer answer = wa_file_map_open(own, &map);
    free(own);
    if (answer != WA_FILE_READ)
        return answer == WA_FILE_NO_MEMORY ? wa_fail_memory()
                                           : WA_BAD_FILE("cannot be read");
    WA_TRY(read_mapped(map, shard));
    return match(*shard, entries, count);
}

/* Says which shard it was. */
static winattn_status name_shard(winattn_status status, const char *shard)
{
    char reason[512];
    if (status != WINATTN_INVALID_FILE)
        return status;
    snprintf(reason, sizeof reason, "%s", winattn_last_reason());
    return wa_fail(status, "shard %s: %s", shard, reason);
}

static size_t count_shards(const wa_index *index)
{
    size_t count = 1;
    for (size_t i = 1; i < index->count; i++)
        count +=
            strcmp(index->entries[i - 1].shard, index->entries[i].shard) != 0;
    return count;
}

static winattn_status open_shards(const char *path, const wa_index *index,
                                  wa_safetensors *set)
{
    const size_t shards = count_shards(index);
    if (shards > SHARDS_MOST)
        return WA_BAD_FILE("the index has %llu shards, more than %d",
                           (unsigned long long)shards, SHARDS_MOST);
    set->shards = calloc(shards, sizeof *set->shards);
    WA_TRY_MEMORY(set->shards);
    for (size_t at = 0, count; at < index->count; at += count) {
        const wa_index_entry *first = &index->entries[at];
        for (count = 1; at + count < index->count &&
                        strcmp(first[count].shard, first->shard) == 0;)
            count++;
        WA_TRY(name_shard(
            open_shard(path, first, count, &set->shards[set->shard_count++]),
            first->shard));
    }
    return WINATTN_SUCCESS;
}

/* The tensors of all shards together. */
static winattn_status join_shards(size_t count, wa_safetensors *set)
{
    wa_header *all = &set->header;
    all->tensors = calloc(count, sizeof *all->tensors);
    WA_TRY_MEMORY(all->tensors);
    for (size_t i = 0; i < set->shard_count; i++) {
        const wa_header *own = &set->shards[i]->header;
        memcpy(all->tensors + all->count, own->tensors,
               own->count * sizeof *own->tensors);
        all->count += own->count;
    }
    return wa_header_sort(all);
}

static winattn_status read_set(const char *path, const char *text, size_t size,
                               wa_safetensors **file)
{
    wa_index index;
    if (size > WA_HEADER_MOST)
        return WA_BAD_FILE("the index has %llu bytes, more than %llu",
                           (unsigned long long)size,
                           (unsigned long long)WA_HEADER_MOST);
    WA_TRY(wa_index_read(text, size, &index));
    wa_safetensors *set = calloc(1, sizeof *set);
    winattn_status status =
        set ? open_shards(path, &index, set) : wa_fail_memory();
    WA_THEN(status, join_shards(index.count, set));
    wa_index_free(&index);
    if (status == WINATTN_SUCCESS)
        *file = set;
    else
        wa_safetensors_close(set);
    return status;
}

/* ---- Paths ---- */

/* Is it one of several shards, by its name, as transformers gives it? */
static winattn_status refuse_shard(const char *path)
{
    static const char pattern[] = "-00000-of-00000" /* digits */,
                      end[] = ".safetensors";
    const size_t length = strlen(path), tail = strlen(pattern) + strlen(end);
    if (length < tail || !ends_with(path, end))
        return WINATTN_SUCCESS;
    const char *name = path + folder_length(path), *at = path + length - tail;
    for (size_t i = 0; pattern[i]; i++)
        if (pattern[i] == '0' ? at[i] < '0' || at[i] > '9'
                              : at[i] != pattern[i])
            return WINATTN_SUCCESS;
    if (strncmp(at + 10, "00001", 5) == 0)
        return WINATTN_SUCCESS; /* it has all */
    return WA_BAD_FILE("is one of %d shards, which are opened together by "
                       "their index, %.*s%s.index.json, or by the folder",
                       atoi(at + 10), (int)(at - name), name, end);
}

static winattn_status read_path(const char *path, wa_file_map map,
                                wa_safetensors **file)
{
    winattn_status status;
    if (ends_with(path, ".json")) {
        status = read_set(path, (const char *)map.bytes, map.size, file);
        wa_file_map_close(&map);
    } else {
        status = read_mapped(map, file);
    }
    if (status != WINATTN_SUCCESS)
        return status;
    (*file)->path = join(path, strlen(path), "");
    if ((*file)->path)
        return WINATTN_SUCCESS;
    wa_safetensors_close(*file);
    *file = NULL;
    return wa_fail_memory();
}

/* *found: there is such a file, whether it is good or not. */
static winattn_status open_in(const char *path, const char *name, bool *found,
                              wa_safetensors **file)
{
    wa_file_map map;
    char *own = join(path, strlen(path), name);
    WA_TRY_MEMORY(own);
    const wa_file_answer answer = wa_file_map_open(own, &map);
    winattn_status status = WINATTN_SUCCESS;
    *found = answer == WA_FILE_READ;
    if (answer == WA_FILE_NO_MEMORY)
        status = wa_fail_memory();
    else if (*found)
        status = read_path(own, map, file);
    free(own);
    return status;
}

winattn_status wa_safetensors_open(const char *path, wa_safetensors **file)
{
    static const char *const names[] = {"", "/" FILE_NAME, "/" INDEX_NAME};
    bool found = false;
    *file = NULL;
    WA_TRY(refuse_shard(path));
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        if (i == 0 || path[0])
            WA_TRY(open_in(path, names[i], &found, file));
    return found ? WINATTN_SUCCESS
                 : WA_BAD_FILE("cannot be read: it is neither a file nor a "
                               "folder with " FILE_NAME " or " INDEX_NAME);
}
