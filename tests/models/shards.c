/* SPDX-License-Identifier: Apache-2.0
 * Splits a file of safetensors as transformers does. */
#include "shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define HEADER_SIZE 65536

static void shard_name(unsigned shard, unsigned shards, char name[64])
{
    snprintf(name, 64, "model-%05u-of-%05u.safetensors", shard + 1, shards);
}

static FILE *open_new(const char *folder, const char *name)
{
    char path[4500];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "wb");
}

static bool close_good(FILE *file)
{
    const bool good = !ferror(file);
    return fclose(file) == 0 && good;
}

/* Tensors `shard`, `shard` + `shards` and so on. */
static bool write_shard(const wa_safetensors *file, FILE *out, unsigned shard,
                        unsigned shards)
{
    char *header = calloc(HEADER_SIZE, 1);
    size_t at = 0;
    if (!header)
        return false;
    for (size_t i = shard; i < wa_safetensors_count(file); i += shards) {
        const wa_file_tensor *t = wa_safetensors_at(file, i);
        char shape[WA_SHAPE_TEXT];
        wa_shape_text(t->axes, t->extent, shape);
        wa_append(header, HEADER_SIZE,
                  "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
                  "\"data_offsets\":[%zu,%zu]}",
                  at ? "," : "{", t->name, t->type_name, shape, at,
                  at + (size_t)t->size);
        at += (size_t)t->size;
    }
    wa_append(header, HEADER_SIZE, "}");
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)strlen(header) >> (8 * i) & 0xff), out);
    fputs(header, out);
    free(header);
    for (size_t i = shard; i < wa_safetensors_count(file); i += shards) {
        const wa_file_tensor *t = wa_safetensors_at(file, i);
        fwrite(t->bytes, 1, (size_t)t->size, out);
    }
    return true;
}

static void write_index(const wa_safetensors *file, FILE *out, unsigned shards)
{
    uint64_t size = 0;
    for (size_t i = 0; i < wa_safetensors_count(file); i++)
        size += wa_safetensors_at(file, i)->size;
    fprintf(out,
            "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
            "  \"weight_map\": {",
            (unsigned long long)size);
    for (size_t i = 0; i < wa_safetensors_count(file); i++) {
        char name[64];
        shard_name((unsigned)i % shards, shards, name);
        fprintf(out, "%s\n    \"%s\": \"%s\"", i ? "," : "",
                wa_safetensors_at(file, i)->name, name);
    }
    fputs("\n  }\n}\n", out);
}

bool write_shards(const wa_safetensors *file, const char *folder,
                  unsigned shards)
{
    for (unsigned i = 0; i < shards; i++) {
        char name[64];
        shard_name(i, shards, name);
        FILE *out = open_new(folder, name);
        const bool written = out && write_shard(file, out, i, shards);
        if (!out || !close_good(out) || !written)
            return false;
    }
    FILE *out = open_new(folder, "model.safetensors.index.json");
    if (out)
        write_index(file, out, shards);
    return out && close_good(out);
}
