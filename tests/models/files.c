/* SPDX-License-Identifier: Apache-2.0
 * Writes files of safetensors. */
#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/text.h"
#include "kit/scratch.h"
#include "models/swin_file.h"

#define HEADER_SIZE 65536

const char *const sources[] = {
    "torchvision_v1",  "torchvision_v2",  "timm_v1",
    "timm_v2",         "microsoft_v1",    "microsoft_v2",
    "transformers_v1", "transformers_v2", NULL};

const char *source_path(const char *source)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/sources/%s/model.safetensors",
             GOLDEN_FOLDER, source);
    return path;
}

file_bytes file_read(const char *path)
{
    file_bytes file;
    assert_int_equal(wa_file_read(path, SIZE_MAX, &file.bytes, &file.size),
                     WA_FILE_READ);
    return file;
}

void copy_source(const char *source, const char *path)
{
    const file_bytes file = file_read(source_path(source));
    write_bytes(path, file.bytes, file.size);
    free(file.bytes);
}

static file_bytes assemble(const char *header, const unsigned char *data,
                           size_t data_size)
{
    const size_t length = strlen(header);
    file_bytes file = {malloc(8 + length + data_size + 1), 0};
    assert_non_null(file.bytes);
    for (int i = 0; i < 8; i++)
        file.bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(file.bytes + 8, header, length);
    if (data_size)
        memcpy(file.bytes + 8 + length, data, data_size);
    file.size = 8 + length + data_size;
    return file;
}

file_bytes file_of_header(const char *header, size_t data_size)
{
    unsigned char *data = malloc(data_size + 1);
    assert_non_null(data);
    for (size_t i = 0; i < data_size; i++)
        data[i] = (unsigned char)i;
    const file_bytes file = assemble(header, data, data_size);
    free(data);
    return file;
}

static size_t element_size(const char *type)
{
    return strcmp(type, "I64") == 0 ? 8 : strcmp(type, "F32") == 0 ? 4 : 2;
}

static void write_edit(const file_edit *e, size_t at, size_t size, bool first,
                       char *header)
{
    char shape[WA_SHAPE_TEXT];
    wa_shape_text(e->axes, e->extent, shape);
    wa_append(header, HEADER_SIZE,
              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
              "\"data_offsets\":[%zu,%zu]}",
              first ? "" : ",", e->name, e->type, shape, at, at + size);
}

file_bytes file_edited(const wa_safetensors *file, edit_tensor *edit,
                       void *data)
{
    char *header = calloc(HEADER_SIZE, 1);
    unsigned char *values = NULL;
    size_t at = 0;
    wa_append(header, HEADER_SIZE, "{");
    for (size_t i = 0; i < wa_safetensors_count(file); i++) {
        const wa_file_tensor *t = wa_safetensors_at(file, i);
        file_edit e = {.axes = t->axes};
        snprintf(e.name, sizeof e.name, "%s", t->name);
        snprintf(e.type, sizeof e.type, "%s", t->type_name);
        memcpy(e.extent, t->extent, sizeof e.extent);
        edit(&e, data);
        if (e.dropped)
            continue;
        size_t size = element_size(e.type);
        for (uint32_t axis = 0; axis < e.axes; axis++)
            size *= (size_t)e.extent[axis];
        write_edit(&e, at, size, at == 0, header);
        values = realloc(values, at + size + 1);
        assert_non_null(values);
        memset(values + at, 0, size);
        memcpy(values + at, e.values ? e.values : t->bytes,
               e.values || size < t->size ? size : t->size);
        at += size;
    }
    wa_append(header, HEADER_SIZE, "}");
    assert_true(strlen(header) < HEADER_SIZE - 1);
    const file_bytes made = assemble(header, values, at);
    free(values);
    free(header);
    return made;
}

/* ---- Shards ---- */

typedef struct share {
    unsigned shard, shards, next;
} share;

static void keep_share(file_edit *tensor, void *data)
{
    share *s = data;
    tensor->dropped = s->next++ % s->shards != s->shard;
}

static void shard_name(unsigned shard, unsigned shards, char name[64])
{
    snprintf(name, 64, "model-%05u-of-%05u.safetensors", shard + 1, shards);
}

void write_shards(const wa_safetensors *file, const char *folder,
                  unsigned shards)
{
    char path[4500], name[64], index[HEADER_SIZE];
    uint64_t size = 0;
    for (unsigned i = 0; i < shards; i++) {
        const file_bytes shard =
            file_edited(file, keep_share, &(share){i, shards, 0});
        shard_name(i, shards, name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        write_bytes(path, shard.bytes, shard.size);
        free(shard.bytes);
    }
    for (size_t i = 0; i < wa_safetensors_count(file); i++)
        size += wa_safetensors_at(file, i)->size;
    snprintf(index, sizeof index,
             "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
             "  \"weight_map\": {",
             (unsigned long long)size);
    for (size_t i = 0; i < wa_safetensors_count(file); i++) {
        shard_name((unsigned)i % shards, shards, name);
        wa_append(index, sizeof index, "%s\n    \"%s\": \"%s\"", i ? "," : "",
                  wa_safetensors_at(file, i)->name, name);
    }
    wa_append(index, sizeof index, "\n  }\n}\n");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    write_bytes(path, index, strlen(index));
}

/* ---- Sources ---- */

wa_swin_weights *opened(const char *source)
{
    winattn_swin_weights *weights = NULL;
    assert_status(
        winattn_swin_weights_open(source_path(source), NULL, &weights), 0, "");
    assert_non_null(weights);
    return weights;
}

wa_swin_config source_config(const char *source)
{
    wa_swin_weights *weights = opened(source);
    wa_swin_config config = weights->config;
    const size_t known = offsetof(wa_swin_config, hidden);
    winattn_swin_weights_destroy(weights);
    memset((char *)&config + known, 0, sizeof config - known);
    return config;
}

wa_safetensors *tensors_of(const char *source)
{
    wa_safetensors *file;
    assert_status(wa_safetensors_open(source_path(source), &file), 0, "");
    return file;
}

winattn_status read_edited(const char *source, edit_tensor *edit, void *data,
                           const wa_swin_config *config, wa_swin_weights **w)
{
    wa_safetensors *file = tensors_of(source);
    const file_bytes made = file_edited(file, edit, data);
    const winattn_status status =
        wa_swin_weights_read(made.bytes, made.size, config, w);
    wa_safetensors_close(file);
    free(made.bytes);
    return status;
}

void assert_tensor(const wa_safetensors *file, const char *name,
                   const float *values)
{
    const wa_file_tensor *t = wa_safetensors_find(file, name);
    if (!t)
        fail_msg("%s is not in the file", name);
    float *want = malloc((size_t)t->count * sizeof *want);
    assert_status(wa_tensor_floats(t, want), 0, "");
    assert_memory_equal(values, want, (size_t)t->count * sizeof *want);
    free(want);
}

void assert_zeros(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == 0);
}
