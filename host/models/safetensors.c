/* SPDX-License-Identifier: Apache-2.0
 * Files of safetensors: where their tensors lie, and what numbers they have.
 */
#include "models/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "models/safetensors_header.h"

#define LENGTH_BYTES 8

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
            return wa_fail(WINATTN_INVALID_FILE, "%s: is there twice",
                           header->tensors[i].name);
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
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: starts at byte %llu of the data, where the "
                           "tensors before it end at %llu",
                           header->tensors[i].name,
                           (unsigned long long)header->tensors[i].offset,
                           (unsigned long long)at);
    if (at != data_size)
        return wa_fail(WINATTN_INVALID_FILE,
                       "the tensors have %llu bytes, but %llu follow the "
                       "header",
                       (unsigned long long)at, (unsigned long long)data_size);
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
    if (header > WA_HEADER_MOST)
        return wa_fail(
            WINATTN_INVALID_FILE, "the header has %llu bytes, more than %llu",
            (unsigned long long)header, (unsigned long long)WA_HEADER_MOST);
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

bool wa_tensor_float(const wa_file_tensor *tensor, uint64_t index,
                     float *value)
{
    const unsigned char *bytes = tensor->bytes;
    switch (tensor->type) {
    case WA_TENSOR_FP32:
        *value = float_of_bits((uint32_t)read_bytes(bytes + 4 * index, 4));
        return true;
    case WA_TENSOR_FP16:
        *value = float_of_half((uint32_t)read_bytes(bytes + 2 * index, 2));
        return true;
    case WA_TENSOR_BF16:
        *value =
            float_of_bits((uint32_t)read_bytes(bytes + 2 * index, 2) << 16);
        return true;
    default:
        return false;
    }
}

winattn_status wa_tensor_floats(const wa_file_tensor *tensor, float *values)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        if (!wa_tensor_float(tensor, i, &values[i]))
            return wa_fail(WINATTN_INVALID_FILE,
                           "%s: is of type %s; weights are F32, F16 or BF16",
                           tensor->name, tensor->type_name);
    return WINATTN_SUCCESS;
}
