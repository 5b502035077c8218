/* SPDX-License-Identifier: Apache-2.0
 * Headers of safetensors, which are not to be believed. */
#include "models/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/text.h"

#define LENGTH_BYTES 8
/* A Swin's is a twentieth of this. cJSON takes up to 30 times as much. */
#define HEADER_MOST ((uint64_t)4 << 20)
#define NAME_MOST 255
/* fp64, which JSON's numbers are read as, holds all integers below. */
#define INTEGER_MOST 9007199254740992.0 /* 2^53 */
#define METADATA "__metadata__"

struct wa_safetensors {
    wa_file_map map;         /* empty where the bytes are the caller's */
    cJSON *header;           /* names are its */
    wa_file_tensor *tensors; /* by name */
    size_t count;
};

/* ---- JSON ---- */

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

static bool is_printable(const char *name)
{
    for (; *name; name++)
        if (*name < ' ' || *name > '~')
            return false;
    return true;
}

static winattn_status read_name(const cJSON *item, wa_file_tensor *tensor)
{
    const char *name = item->string;
    if (!name || !name[0] || strlen(name) > NAME_MOST || !is_printable(name))
        return wa_fail(WINATTN_INVALID_FILE,
                       "a tensor's name is empty, has more than %d "
                       "characters, or one that is not printable ASCII",
                       NAME_MOST);
    tensor->name = name;
    if (!cJSON_IsObject(item))
        return wa_fail(WINATTN_INVALID_FILE, "%s: is no object of JSON", name);
    return WINATTN_SUCCESS;
}

static winattn_status read_type(const cJSON *item, wa_file_tensor *tensor,
                                uint32_t *element_size)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    if (!cJSON_IsString(type))
        return wa_fail(WINATTN_INVALID_FILE, "%s: has no dtype", tensor->name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type->valuestring, types[i].name) == 0) {
            tensor->type_name = types[i].name;
            tensor->type = types[i].type;
            *element_size = types[i].size;
            return WINATTN_SUCCESS;
        }
    return wa_fail(WINATTN_INVALID_FILE, "%s: has an unknown dtype",
                   tensor->name);
}

static winattn_status read_shape(const cJSON *item, wa_file_tensor *tensor)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *extent;
    if (!cJSON_IsArray(shape))
        return wa_fail(WINATTN_INVALID_FILE, "%s: has no shape", tensor->name);
    tensor->count = 1;
    cJSON_ArrayForEach(extent, shape)
    {
        uint64_t value;
        if (tensor->axes == WA_TENSOR_AXES)
            return wa_fail(WINATTN_INVALID_FILE, "%s: has more than %d axes",
                           tensor->name, WA_TENSOR_AXES);
        if (!read_integer(extent, &value))
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: axis %u of its shape is no integer from 0 to "
                           "2^53 - 1",
                           tensor->name, (unsigned)tensor->axes);
        if (value && tensor->count > (uint64_t)INTEGER_MOST / value)
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: its shape has more than 2^53 elements",
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
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s: data_offsets are no two integers in order",
                       tensor->name);
    if (end > data_size)
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s: ends at byte %llu of the data, which has %llu",
                       tensor->name, (unsigned long long)end,
                       (unsigned long long)data_size);
    if (end - begin != tensor->count * element_size)
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s: has %llu bytes, but its shape and dtype %s need "
                       "%llu",
                       tensor->name, (unsigned long long)(end - begin),
                       tensor->type_name,
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
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s: has more than dtype, shape and data_offsets",
                       tensor->name);
    return WINATTN_SUCCESS;
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
    return (x->size > y->size) - (x->size < y->size);
}

/* Does each tensor start where the one before it ends, and is nothing left?
 * Leaves the tensors in the order of their names. */
static winattn_status check_places(wa_safetensors *file, uint64_t data_size)
{
    uint64_t at = 0;
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_offsets);
    for (size_t i = 0; i < file->count; at += file->tensors[i++].size)
        if (file->tensors[i].offset != at)
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: starts at byte %llu of the data, where the "
                           "tensors before it end at %llu",
                           file->tensors[i].name,
                           (unsigned long long)file->tensors[i].offset,
                           (unsigned long long)at);
    if (at != data_size)
        return wa_fail(WINATTN_INVALID_FILE,
                       "the tensors have %llu bytes, but %llu follow the "
                       "header",
                       (unsigned long long)at, (unsigned long long)data_size);
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_names);
    for (size_t i = 1; i < file->count; i++)
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
            return wa_fail(WINATTN_INVALID_FILE, "%s: is there twice",
                           file->tensors[i].name);
    return WINATTN_SUCCESS;
}

static winattn_status read_tensors(wa_safetensors *file,
                                   const unsigned char *data,
                                   uint64_t data_size)
{
    const cJSON *item;
    size_t items = 0;
    bool metadata = false;
    cJSON_ArrayForEach(item, file->header) items++;
    file->tensors = calloc(items + 1, sizeof *file->tensors);
    if (!file->tensors)
        return wa_fail_memory();
    cJSON_ArrayForEach(item, file->header)
    {
        if (item->string && strcmp(item->string, METADATA) == 0) {
            if (metadata || !cJSON_IsObject(item))
                return wa_fail(WINATTN_INVALID_FILE,
                               METADATA ": is no object, or there twice");
            metadata = true;
            continue;
        }
        WA_TRY(
            read_tensor(item, data, data_size, &file->tensors[file->count]));
        file->count++;
    }
    return check_places(file, data_size);
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

static winattn_status read_header(wa_safetensors *file, const char *text,
                                  size_t size)
{
    const char *end = NULL;
    if (!size || text[0] != '{')
        return wa_fail(WINATTN_INVALID_FILE,
                       "the header does not start with {");
    if (memchr(text, 0, size) || has_escaped_zero(text, size))
        return wa_fail(WINATTN_INVALID_FILE, "the header has a character 0");
    /* cJSON keeps where it stopped in a variable of all threads */
    wa_global_lock_take();
    file->header = cJSON_ParseWithLengthOpts(text, size, &end, false);
    wa_global_lock_release();
    if (!file->header)
        return wa_fail(WINATTN_INVALID_FILE,
                       "the header is no JSON, or nested too deeply");
    for (; end < text + size; end++)
        if (*end != ' ')
            return wa_fail(WINATTN_INVALID_FILE,
                           "the header goes on behind its object");
    return WINATTN_SUCCESS;
}

/* ---- Files ---- */

static winattn_status read_file(wa_safetensors *file,
                                const unsigned char *bytes, size_t size)
{
    uint64_t header = 0;
    if (size < LENGTH_BYTES)
        return wa_fail(WINATTN_INVALID_FILE,
                       "has %llu bytes, and a safetensors file %d at least",
                       (unsigned long long)size, LENGTH_BYTES);
    for (int i = 0; i < LENGTH_BYTES; i++)
        header |= (uint64_t)bytes[i] << (8 * i);
    if (header > size - LENGTH_BYTES)
        return wa_fail(WINATTN_INVALID_FILE,
                       "is cut, or no safetensors file: its header should "
                       "have %llu bytes, but %llu follow",
                       (unsigned long long)header,
                       (unsigned long long)(size - LENGTH_BYTES));
    if (header > HEADER_MOST)
        return wa_fail(
            WINATTN_INVALID_FILE, "the header has %llu bytes, more than %llu",
            (unsigned long long)header, (unsigned long long)HEADER_MOST);
    bytes += LENGTH_BYTES;
    WA_TRY(read_header(file, (const char *)bytes, (size_t)header));
    return read_tensors(file, bytes + header, size - LENGTH_BYTES - header);
}

winattn_status wa_safetensors_read(const unsigned char *bytes, size_t size,
                                   wa_safetensors **file)
{
    wa_safetensors *made = calloc(1, sizeof *made);
    *file = NULL;
    if (!made)
        return wa_fail_memory();
    const winattn_status status = read_file(made, bytes, size);
    if (status != WINATTN_SUCCESS) {
        wa_safetensors_close(made);
        return status;
    }
    *file = made;
    return WINATTN_SUCCESS;
}

winattn_status wa_safetensors_open(const char *path, wa_safetensors **file)
{
    wa_file_map map;
    *file = NULL;
    const wa_file_answer answer = wa_file_map_open(path, &map);
    if (answer == WA_FILE_NO_MEMORY)
        return wa_fail_memory();
    if (answer != WA_FILE_READ)
        return wa_fail(WINATTN_INVALID_FILE, "cannot be read");
    const winattn_status status =
        wa_safetensors_read(map.bytes, map.size, file);
    if (status == WINATTN_SUCCESS)
        (*file)->map = map;
    else
        wa_file_map_close(&map);
    return status;
}

void wa_safetensors_close(wa_safetensors *file)
{
    if (!file)
        return;
    cJSON_Delete(file->header);
    free(file->tensors);
    wa_file_map_close(&file->map);
    free(file);
}

/* ---- Tensors ---- */

size_t wa_safetensors_count(const wa_safetensors *file) { return file->count; }

const wa_file_tensor *wa_safetensors_at(const wa_safetensors *file,
                                        size_t index)
{
    return &file->tensors[index];
}

const wa_file_tensor *wa_safetensors_find(const wa_safetensors *file,
                                          const char *name)
{
    const wa_file_tensor key = {.name = name};
    return bsearch(&key, file->tensors, file->count, sizeof key,
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

static uint64_t read_bytes(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

int64_t wa_tensor_integer(const wa_file_tensor *tensor, uint64_t index)
{
    const uint64_t bits = read_bytes(tensor->bytes + 8 * index, 8);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of_half(uint32_t half)
{
    const uint32_t sign = (half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) /* infinite, or NaN */
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

winattn_status wa_tensor_floats(const wa_file_tensor *tensor, float *values)
{
    const unsigned char *bytes = tensor->bytes;
    for (uint64_t i = 0; i < tensor->count; i++)
        switch (tensor->type) {
        case WA_TENSOR_FP32:
            values[i] = float_of_bits((uint32_t)read_bytes(bytes + 4 * i, 4));
            break;
        case WA_TENSOR_FP16:
            values[i] = float_of_half((uint32_t)read_bytes(bytes + 2 * i, 2));
            break;
        case WA_TENSOR_BF16:
            values[i] =
                float_of_bits((uint32_t)read_bytes(bytes + 2 * i, 2) << 16);
            break;
        default:
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: is of type %s; weights are F32, F16 or BF16",
                           tensor->name, tensor->type_name);
        }
    return WINATTN_SUCCESS;
}
