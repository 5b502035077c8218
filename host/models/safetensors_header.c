/* SPDX-License-Identifier: Apache-2.0
 * The headers of safetensors and the indices of their shards, in JSON, by
 * cJSON. */
#include "models/safetensors_header.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define NAME_MOST 255
/* fp64, which JSON's numbers are read as, holds all integers below. */
#define INTEGER_MOST 9007199254740992.0 /* 2^53 */
#define METADATA "__metadata__"

static const struct {
    const char *name;
    wa_tensor_type type;
    uint32_t size;
} types[] = {
    {"F32", WA_TENSOR_FP32, 4},      {"F16", WA_TENSOR_FP16, 2},
    {"BF16", WA_TENSOR_BF16, 2},     {"I64", WA_TENSOR_INT64, 8},
    {"F64", WA_TENSOR_OTHER, 8},     {"U64", WA_TENSOR_OTHER, 8},
    {"I32", WA_TENSOR_OTHER, 4},     {"U32", WA_TENSOR_OTHER, 4},
    {"I16", WA_TENSOR_OTHER, 2},     {"U16", WA_TENSOR_OTHER, 2},
    {"I8", WA_TENSOR_OTHER, 1},      {"U8", WA_TENSOR_OTHER, 1},
    {"BOOL", WA_TENSOR_OTHER, 1},    {"F8_E4M3", WA_TENSOR_OTHER, 1},
    {"F8_E5M2", WA_TENSOR_OTHER, 1}, {"C64", WA_TENSOR_OTHER, 8},
};

/* An integer from 0 to 2^53 - 1. */
static bool read_integer(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item))
        return false;
    const double number = item->valuedouble;
    if (!(number >= 0 && number < INTEGER_MOST) || floor(number) != number)
        return false;
    *value = (uint64_t)number;
    return true;
}

static bool is_name(const char *name)
{
    if (!name || !name[0] || strlen(name) > NAME_MOST)
        return false;
    for (; *name; name++)
        if (*name < ' ' || *name > '~')
            return false;
    return true;
}

static winattn_status check_name(const char *name)
{
    if (is_name(name))
        return WINATTN_SUCCESS;
    return WA_BAD_FILE("a tensor's name is empty, has more than %d "
                       "characters, or one that is not printable ASCII",
                       NAME_MOST);
}

static winattn_status read_name(const cJSON *item, wa_file_tensor *tensor)
{
    WA_TRY(check_name(item->string));
    tensor->name = item->string;
    if (!cJSON_IsObject(item))
        return WA_BAD_FILE("%s: is no object of JSON", tensor->name);
    return WINATTN_SUCCESS;
}

static winattn_status read_type(const cJSON *item, wa_file_tensor *tensor,
                                uint32_t *element_size)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    if (!cJSON_IsString(type))
        return WA_BAD_FILE("%s: has no dtype", tensor->name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type->valuestring, types[i].name) == 0) {
            tensor->type_name = types[i].name;
            tensor->type = types[i].type;
            *element_size = types[i].size;
            return WINATTN_SUCCESS;
        }
    return WA_BAD_FILE("%s: has an unknown dtype", tensor->name);
}

static winattn_status read_shape(const cJSON *item, wa_file_tensor *tensor)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *extent;
    if (!cJSON_IsArray(shape))
        return WA_BAD_FILE("%s: has no shape", tensor->name);
    tensor->count = 1;
    cJSON_ArrayForEach(extent, shape)
    {
        uint64_t value;
        if (tensor->axes == WA_TENSOR_AXES)
            return WA_BAD_FILE("%s: has more than %d axes", tensor->name,
                               WA_TENSOR_AXES);
        if (!read_integer(extent, &value))
            return WA_BAD_FILE(
                "%s: axis %u of its shape is no integer from 0 to 2^53 - 1",
                tensor->name, (unsigned)tensor->axes);
        if (value && tensor->count > (uint64_t)INTEGER_MOST / value)
            return WA_BAD_FILE("%s: its shape has more than 2^53 elements",
                               tensor->name);
        tensor->count *= value;
        tensor->extent[tensor->axes++] = value;
    }
    return WINATTN_SUCCESS;
}

static winattn_status read_place(const cJSON *item, uint32_t element_size,
                                 const unsigned char *data, uint64_t data_size,
                                 wa_file_tensor *tensor)
{
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    uint64_t begin, end;
    if (!cJSON_IsArray(at) || cJSON_GetArraySize(at) != 2 ||
        !read_integer(cJSON_GetArrayItem(at, 0), &begin) ||
        !read_integer(cJSON_GetArrayItem(at, 1), &end) || begin > end)
        return WA_BAD_FILE("%s: data_offsets are no two integers in order",
                           tensor->name);
    if (end > data_size)
        return WA_BAD_FILE("%s: ends at byte %llu of the data, which has %llu",
                           tensor->name, (unsigned long long)end,
                           (unsigned long long)data_size);
    if (end - begin != tensor->count * element_size)
        return WA_BAD_FILE(
            "%s: has %llu bytes, but its shape and dtype %s need %llu",
            tensor->name, (unsigned long long)(end - begin), tensor->type_name,
            (unsigned long long)(tensor->count * element_size));
    tensor->offset = begin;
    tensor->size = end - begin;
    tensor->bytes = data + begin;
    return WINATTN_SUCCESS;
}

static winattn_status read_tensor(const cJSON *item, const unsigned char *data,
                                  uint64_t data_size, wa_file_tensor *tensor)
{
    uint32_t element_size = 0;
    WA_TRY(read_name(item, tensor));
    WA_TRY(read_type(item, tensor, &element_size));
    WA_TRY(read_shape(item, tensor));
    WA_TRY(read_place(item, element_size, data, data_size, tensor));
    if (cJSON_GetArraySize(item) != 3) /* a second shape, for instance */
        return WA_BAD_FILE("%s: has more than dtype, shape and data_offsets",
                           tensor->name);
    return WINATTN_SUCCESS;
}

/* Copies the names, which are cJSON's so far. */
static winattn_status keep_names(wa_header *header)
{
    size_t size = 1;
    for (size_t i = 0; i < header->count; i++)
        size += strlen(header->tensors[i].name) + 1;
    header->names = malloc(size);
    WA_TRY_MEMORY(header->names);
    char *at = header->names;
    for (size_t i = 0; i < header->count; i++) {
        const size_t length = strlen(header->tensors[i].name) + 1;
        memcpy(at, header->tensors[i].name, length);
        header->tensors[i].name = at;
        at += length;
    }
    return WINATTN_SUCCESS;
}

static winattn_status read_tensors(const cJSON *object,
                                   const unsigned char *data,
                                   uint64_t data_size, wa_header *header)
{
    const cJSON *item;
    size_t items = 0;
    bool metadata = false;
    cJSON_ArrayForEach(item, object) items++;
    header->tensors = calloc(items + 1, sizeof *header->tensors);
    WA_TRY_MEMORY(header->tensors);
    cJSON_ArrayForEach(item, object)
    {
        if (item->string && strcmp(item->string, METADATA) == 0) {
            if (metadata || !cJSON_IsObject(item))
                return WA_BAD_FILE(METADATA ": is no object, or there twice");
            metadata = true;
            continue;
        }
        WA_TRY(read_tensor(item, data, data_size,
                           &header->tensors[header->count]));
        header->count++;
    }
    return keep_names(header);
}

/* "\u0000" would end a name before its end. */
static bool has_escaped_zero(const char *text, size_t size)
{
    static const char zero[] = "\\u0000";
    for (size_t i = 0; i + sizeof zero - 1 <= size; i++)
        if (memcmp(text + i, zero, sizeof zero - 1) == 0)
            return true;
    return false;
}

/* An object, and behind it nothing but characters of `padding`. what: "the
 * header", for reasons. */
static winattn_status parse(const char *what, const char *padding,
                            const char *text, size_t size, cJSON **object)
{
    const char *end = NULL;
    if (!size || text[0] != '{')
        return WA_BAD_FILE("%s does not start with {", what);
    if (memchr(text, 0, size) || has_escaped_zero(text, size))
        return WA_BAD_FILE("%s has a character 0", what);
    /* cJSON keeps where it stopped in a variable of all threads */
    wa_global_lock_take();
    *object = cJSON_ParseWithLengthOpts(text, size, &end, false);
    wa_global_lock_release();
    if (!*object)
        return WA_BAD_FILE("%s is no JSON, or nested too deeply", what);
    while (end < text + size && strchr(padding, *end))
        end++;
    if (end == text + size)
        return WINATTN_SUCCESS;
    cJSON_Delete(*object);
    return WA_BAD_FILE("%s goes on behind its object", what);
}

winattn_status wa_header_read(const char *text, size_t size,
                              const unsigned char *data, uint64_t data_size,
                              wa_header *header)
{
    cJSON *object;
    *header = (wa_header){0};
    WA_TRY(parse("the header", " ", text, size, &object));
    const winattn_status status =
        read_tensors(object, data, data_size, header);
    cJSON_Delete(object);
    if (status != WINATTN_SUCCESS)
        wa_header_free(header);
    return status;
}

void wa_header_free(wa_header *header)
{
    free(header->tensors);
    free(header->names);
    *header = (wa_header){0};
}

/* ---- Indices ---- */

/* A file of the index's own folder: separators and drives lead elsewhere. */
static bool is_file_name(const char *name)
{
    return is_name(name) && !strpbrk(name, "/\\:") && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static int compare_entries(const void *a, const void *b)
{
    const wa_index_entry *x = a, *y = b;
    const int shards = strcmp(x->shard, y->shard);
    return shards ? shards : strcmp(x->tensor, y->tensor);
}

static winattn_status read_map(const cJSON *object, wa_index *index)
{
    const cJSON *item, *map = NULL;
    size_t items = 0, maps = 0;
    cJSON_ArrayForEach(item, object)
    {
        if (strcmp(item->string, "weight_map") == 0) {
            map = item;
            maps++;
        }
    }
    cJSON_ArrayForEach(item, map) items++;
    if (maps != 1 || !cJSON_IsObject(map) || items == 0)
        return WA_BAD_FILE(
            "the index has no weight_map, two, or one without tensors");
    index->entries = calloc(items, sizeof *index->entries);
    WA_TRY_MEMORY(index->entries);
    cJSON_ArrayForEach(item, map)
    {
        WA_TRY(check_name(item->string));
        if (!cJSON_IsString(item) || !is_file_name(item->valuestring))
            return WA_BAD_FILE("%s: the index does not say the name of a file "
                               "in its own folder",
                               item->string);
        index->entries[index->count++] =
            (wa_index_entry){item->valuestring, item->string};
    }
    qsort(index->entries, items, sizeof *index->entries, compare_entries);
    for (size_t i = 1; i < items; i++)
        if (compare_entries(&index->entries[i - 1], &index->entries[i]) == 0)
            return WA_BAD_FILE("%s: is twice in the index's weight_map",
                               index->entries[i].tensor);
    return WINATTN_SUCCESS;
}

winattn_status wa_index_read(const char *text, size_t size, wa_index *index)
{
    cJSON *object;
    *index = (wa_index){0};
    WA_TRY(parse("the index", " \t\r\n", text, size, &object));
    index->json = object;
    const winattn_status status = read_map(object, index);
    if (status != WINATTN_SUCCESS)
        wa_index_free(index);
    return status;
}

void wa_index_free(wa_index *index)
{
    free(index->entries);
    cJSON_Delete(index->json);
    *index = (wa_index){0};
}
